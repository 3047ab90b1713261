//! Every message: changed, replayed, swapped, withheld, cut, or taken from another session or lane. One in a session at a time; in one of
//! several lanes, one on each that its sender has a part in.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use covey_kernels::Prg;
use covey_protocols::circuits::Adder;

use super::circuit;
use super::each;
use super::judge::{Due, Tally, judge_lane, lane_tells};
use super::wire::{Act, Rule, Spot};
use super::world::{Cheat, PARTIES, World, peer_on, run};

/// What is done to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TopBit,
    Add,
    OtherSession,
    OtherLane,
    Flip,
    Replay,
    Truncate,
    Swap,
    Withhold,
    Invert,
}

/// In turn. All bits are inverted where nothing else has had an effect.
const KINDS: [Kind; 8] =
    [Kind::TopBit, Kind::Add, Kind::OtherSession, Kind::Flip, Kind::Replay, Kind::Truncate, Kind::Swap, Kind::Withhold];

/// The same in a session of several lanes: nothing that ends all of them at once.
const KINDS_ON_LANES: [Kind; 6] = [Kind::TopBit, Kind::OtherLane, Kind::Flip, Kind::Replay, Kind::Add, Kind::Withhold];

/// One gate's messages: what became of the runs in which one was changed.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Row {
    /// The gate.
    pub gate: String,
    /// Types of messages.
    pub types: usize,
    /// Those that were changed.
    pub changed: usize,
    /// Types whose change was harmless whenever it was tried, all bits inverted among it.
    pub harmless: Vec<String>,
    /// What was done where something happened that must not.
    pub bad: Vec<String>,
    /// Runs.
    pub tally: Tally,
}

/// A message's type: the gate, and the step and link within it, and the lane. The adder and the run do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Type {
    lane: usize,
    node: u32,
    gate: &'static str,
    offline: bool,
    from: usize,
    to: usize,
    number: u32,
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Type { lane, offline, from, to, number, .. } = self;
        let on_lane = if *lane == 0 { String::new() } else { format!(" on lane {lane}") };
        write!(f, "{} message {number} of P{from} to {to}{on_lane}", if *offline { "offline" } else { "online" })
    }
}

/// What honest runs send.
struct Honest {
    world: World,
    due: [Due; 2],
    log: Vec<(Spot, Vec<u8>)>,
    /// In another session.
    other: HashMap<Spot, Vec<u8>>,
    nodes: Vec<&'static str>,
}

impl Honest {
    fn new(world: World) -> Result<Honest, String> {
        let (due, mut runs) = Due::of(world)?;
        let (second, _) = Due::of(World { secrets: 1, ..world })?;
        let (_, other) = Due::of(World { session: world.session + 1, ..world })?;
        let nodes = std::mem::take(&mut runs[0].nodes);
        let log = runs.into_iter().flat_map(|run| run.log).collect();
        Ok(Honest { world, due: [due, second], log, other: other.into_iter().flat_map(|run| run.log).collect(), nodes })
    }

    fn kind(&self, spot: &Spot) -> Type {
        let Spot { lane, node, offline, from, to, number } = *spot;
        Type { lane, node, gate: circuit::name(&self.nodes, node), offline, from, to, number }
    }
}

/// A message of an honest run.
#[derive(Clone, Copy)]
struct Message {
    world: usize,
    spot: Spot,
    len: usize,
}

struct Campaign {
    honest: Vec<Honest>,
    types: BTreeMap<Type, Vec<Message>>,
    random: Random,
    rows: BTreeMap<Type, Row>,
}

/// A message, and what is done to it.
type Target = (Type, Kind, Message, Act);

/// At least `runs` runs, and at least one of every type of message, in a ring of so many bits.
pub fn campaign(runs: usize, seed: u64, ring: u32) -> Result<Vec<Row>, String> {
    let mut campaign = Campaign::new(&settings(ring, 1, false), seed)?;
    let kinds: Vec<Type> = campaign.types.keys().copied().collect();
    let turns = kinds.iter().enumerate().cycle().take(runs.max(kinds.len())).enumerate();
    let targets: Vec<(Type, Kind)> =
        turns.map(|(turn, (index, kind))| (*kind, KINDS[(index + turn / kinds.len()) % KINDS.len()])).collect();
    campaign.run_all(&targets);
    Ok(campaign.by_gate())
}

/// Every type of message of every lane of a session of so many; if `short`, some of each lane.
pub fn campaign_on_lanes(lanes: usize, seed: u64, ring: u32, short: bool) -> Result<Vec<Row>, String> {
    let mut campaign = Campaign::new(&settings(ring, lanes, short), seed)?;
    /// Types of which a short campaign takes one.
    const EACH: usize = 97;
    let kinds: Vec<Type> = campaign.types.keys().copied().collect();
    let due = |index: &usize| !short || index.is_multiple_of(EACH);
    let targets: Vec<(Type, Kind)> = (0..kinds.len())
        .filter(due)
        .enumerate()
        .map(|(turn, index)| (kinds[index], KINDS_ON_LANES[turn % KINDS_ON_LANES.len()]))
        .collect();
    campaign.run_all(&targets);
    Ok(campaign.by_gate())
}

/// Sessions of so many lanes, with each adder, that preprocess and that do not; two of these if `short`.
pub fn settings(ring: u32, lanes: usize, short: bool) -> Vec<World> {
    let all = Adder::ALL.into_iter().flat_map(|adder| [false, true].map(|ahead| (adder, ahead)));
    let all = all.map(|(adder, ahead)| World { adder, ahead, lanes, ..World::new(ring) });
    // The first without preprocessing, and the last with it.
    let few = |(index, _): &(usize, World)| !short || *index == 0 || *index + 1 == 2 * Adder::ALL.len();
    all.enumerate().filter(few).map(|(_, world)| world).collect()
}

impl Campaign {
    fn new(settings: &[World], seed: u64) -> Result<Campaign, String> {
        let honest = settings.iter().map(|&world| Honest::new(world)).collect::<Result<Vec<_>, _>>()?;
        let mut types: BTreeMap<Type, Vec<Message>> = BTreeMap::new();
        for (world, honest) in honest.iter().enumerate() {
            for (spot, bytes) in honest.log.iter().filter(|(spot, _)| spot.from < PARTIES) {
                types.entry(honest.kind(spot)).or_default().push(Message { world, spot: *spot, len: bytes.len() });
            }
        }
        Ok(Campaign { honest, types, random: Random::new(seed), rows: BTreeMap::new() })
    }

    /// All targets, and again those that nothing came of.
    fn run_all(&mut self, targets: &[(Type, Kind)]) {
        self.run(targets);
        let without_effect = |(_, row): &(&Type, &Row)| row.tally.harmless == row.tally.runs;
        let again: Vec<(Type, Kind)> =
            self.rows.iter().filter(without_effect).map(|(kind, _)| (*kind, Kind::Invert)).collect();
        self.run(&again);
    }

    fn run(&mut self, targets: &[(Type, Kind)]) {
        let targets = targets.iter().map(|&(of, kind)| {
            let places = &self.types[&of];
            let message = places[self.random.below(places.len())];
            (of, kind, message, self.act(kind, message))
        });
        let sessions = sessions(targets.collect());
        let honest = &self.honest;
        let tallies = each(&sessions, |targets| {
            let Honest { world, due, .. } = &honest[targets[0].2.world];
            let rule = |(_, _, message, act): &Target| Rule { spot: message.spot, received: false, act: act.clone() };
            let sender = sender(&targets[0]);
            let cheat = Cheat { cheaters: vec![sender], rules: targets.iter().map(rule).collect(), ..Cheat::default() };
            let first = run(*world, &cheat);
            let ends_early = |kind: Kind| {
                matches!(kind, Kind::Swap | Kind::Withhold | Kind::Truncate | Kind::OtherSession | Kind::OtherLane)
            };
            let changed = |(of, kind, ..): &Target| first[of.lane].changed && !ends_early(*kind);
            let other = targets.iter().any(changed).then(|| run(World { secrets: 1, ..*world }, &cheat));
            // A lane on which nothing was to be changed belongs to the first.
            let lanes = |index: usize| {
                let own = move |lane: usize| targets[index].0.lane == lane;
                let nobodys = move |lane: usize| index == 0 && targets.iter().all(|(of, ..)| of.lane != lane);
                (0..world.lanes).filter(move |lane| own(*lane) || nobodys(*lane))
            };
            let tally = |index: usize| {
                let mut tally = Tally::default();
                for lane in lanes(index) {
                    tally.add(&judge_lane(&first, lane, &cheat, &due[0]));
                    if let Some(other) = &other {
                        tally.told += usize::from(lane_tells((&first[lane], &other[lane]), lane, &cheat));
                        tally.add(&judge_lane(other, lane, &cheat, &due[1]));
                    }
                }
                tally
            };
            (0..targets.len()).map(tally).collect::<Vec<_>>()
        });
        for (targets, tallies) in sessions.iter().zip(&tallies) {
            for ((of, kind, message, act), tally) in targets.iter().zip(tallies) {
                let row = self.rows.entry(*of).or_default();
                row.tally.add(tally);
                if tally.is_bad() {
                    let World { adder, ahead, .. } = self.honest[message.world].world;
                    row.bad.push(format!("{of}, {kind:?} ({act:?}), {adder:?}, ahead: {ahead}: {tally:?}"));
                }
            }
        }
    }

    fn act(&mut self, kind: Kind, Message { world, spot, len }: Message) -> Act {
        let word = self.honest[world].world.word();
        match kind {
            Kind::TopBit => Act::Flip(if len < word { 0 } else { 8 * word - 1 }),
            Kind::Flip => Act::Flip(self.random.below(8 * len)),
            Kind::Add => Act::Add(word * self.random.below(len.div_ceil(word)), 1),
            Kind::OtherSession => Act::Replace(self.honest[world].other.get(&spot).cloned().unwrap_or_default()),
            Kind::OtherLane => {
                let Honest { world, log, .. } = &self.honest[world];
                let other = Spot { lane: (spot.lane + 1) % world.lanes, ..spot };
                let sent = log.iter().find(|(sent, _)| *sent == other);
                Act::Replace(sent.map(|(_, bytes)| bytes.clone()).unwrap_or_default())
            }
            Kind::Replay => Act::Replay,
            Kind::Truncate => Act::Truncate,
            Kind::Swap => Act::Swap,
            Kind::Withhold => Act::Withhold,
            Kind::Invert => Act::Invert,
        }
    }

    fn by_gate(self) -> Vec<Row> {
        let mut gates: BTreeMap<u32, Row> = BTreeMap::new();
        let tried: BTreeSet<Type> = self.rows.iter().filter(|(_, row)| row.tally.runs > 0).map(|(of, _)| *of).collect();
        for (of, row) in self.rows {
            let gate = gates.entry(of.node).or_insert_with(|| Row { gate: of.gate.into(), ..Row::default() });
            gate.types += 1;
            gate.changed += usize::from(tried.contains(&of));
            gate.tally.add(&row.tally);
            gate.bad.extend(row.bad);
            if row.tally.harmless == row.tally.runs {
                gate.harmless.push(of.to_string());
            }
        }
        gates.into_values().collect()
    }
}

/// The party that sends a target.
fn sender((of, ..): &Target) -> usize {
    peer_on(of.lane, of.from)
}

/// Targets that one session can have: of one sender, each on another lane.
fn sessions(targets: Vec<Target>) -> Vec<Vec<Target>> {
    let mut sessions: Vec<Vec<Target>> = Vec::new();
    // By setting and sender, those with room for more.
    let mut open: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for target in targets {
        let lane = target.0.lane;
        let open = open.entry((target.2.world, sender(&target))).or_default();
        match open.iter().find(|&&index| sessions[index].iter().all(|(of, ..)| of.lane != lane)) {
            Some(&index) => sessions[index].push(target),
            None => {
                open.push(sessions.len());
                sessions.push(vec![target]);
            }
        }
    }
    sessions
}

/// Numbers from a seed.
struct Random {
    prg: Prg,
    drawn: u64,
}

impl Random {
    fn new(seed: u64) -> Self {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Random { prg: Prg::new(&key), drawn: 0 }
    }

    fn below(&mut self, end: usize) -> usize {
        let mut word = [0u64];
        self.prg.fill_words(self.drawn, &mut word);
        self.drawn += 1;
        (word[0] % end.max(1) as u64) as usize
    }
}
