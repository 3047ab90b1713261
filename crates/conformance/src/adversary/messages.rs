//! Every message, one at a time: changed, replayed, swapped, withheld, cut, or taken from another session.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use covey_kernels::Prg;
use covey_protocols::circuits::Adder;

use super::circuit;
use super::each;
use super::judge::{Due, Tally, judge, tells};
use super::wire::{Act, Rule, Spot};
use super::world::{Cheat, PARTIES, World, run};

/// What is done to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TopBit,
    Add,
    OtherSession,
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

/// A message's type: the gate, and the step and link within it. The adder and the run do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Type {
    node: u32,
    gate: &'static str,
    offline: bool,
    from: usize,
    to: usize,
    number: u32,
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Type { offline, from, to, number, .. } = self;
        write!(f, "{} message {number} of P{from} to {to}", if *offline { "offline" } else { "online" })
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
        let (due, run) = Due::of(world)?;
        let (second, _) = Due::of(World { secrets: 1, ..world })?;
        let (_, other) = Due::of(World { session: world.session + 1, ..world })?;
        Ok(Honest { world, due: [due, second], log: run.log, other: other.log.into_iter().collect(), nodes: run.nodes })
    }

    fn kind(&self, spot: &Spot) -> Type {
        let Spot { node, offline, from, to, number } = *spot;
        Type { node, gate: circuit::name(&self.nodes, node), offline, from, to, number }
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

/// At least `runs` runs, and at least one of every type of message, in a ring of so many bits.
pub fn campaign(runs: usize, seed: u64, ring: u32) -> Result<Vec<Row>, String> {
    let mut honest = Vec::new();
    for adder in Adder::ALL {
        for ahead in [false, true] {
            honest.push(Honest::new(World { adder, ahead, ..World::new(ring) })?);
        }
    }
    let mut types: BTreeMap<Type, Vec<Message>> = BTreeMap::new();
    for (world, honest) in honest.iter().enumerate() {
        for (spot, bytes) in honest.log.iter().filter(|(spot, _)| spot.from < PARTIES) {
            types.entry(honest.kind(spot)).or_default().push(Message { world, spot: *spot, len: bytes.len() });
        }
    }
    let mut campaign = Campaign { honest, types, random: Random::new(seed), rows: BTreeMap::new() };
    let count = runs.max(campaign.types.len());
    let kinds: Vec<Type> = campaign.types.keys().copied().collect();
    let turns = kinds.iter().enumerate().cycle().take(count).enumerate();
    let targets: Vec<(Type, Kind)> =
        turns.map(|(turn, (index, kind))| (*kind, KINDS[(index + turn / kinds.len()) % KINDS.len()])).collect();
    campaign.run(&targets);
    let without_effect = |(_, row): &(&Type, &Row)| row.tally.harmless == row.tally.runs;
    let again: Vec<(Type, Kind)> =
        campaign.rows.iter().filter(without_effect).map(|(kind, _)| (*kind, Kind::Invert)).collect();
    campaign.run(&again);
    Ok(campaign.by_gate())
}

impl Campaign {
    fn run(&mut self, targets: &[(Type, Kind)]) {
        let jobs: Vec<_> = targets
            .iter()
            .map(|&(of, kind)| {
                let places = &self.types[&of];
                let message = places[self.random.below(places.len())];
                (of, kind, message, self.act(kind, message))
            })
            .collect();
        let honest = &self.honest;
        let tallies = each(&jobs, |(_, kind, message, act)| {
            let Honest { world, due, .. } = &honest[message.world];
            let rules = vec![Rule { spot: message.spot, received: false, act: act.clone() }];
            let cheat = Cheat { cheaters: vec![message.spot.from], rules, ..Cheat::default() };
            let first = run(*world, &cheat);
            let mut tally = judge(&first, &cheat, &due[0]);
            let ends_early = matches!(kind, Kind::Swap | Kind::Withhold | Kind::Truncate | Kind::OtherSession);
            if tally.runs > 0 && !ends_early {
                let other = run(World { secrets: 1, ..*world }, &cheat);
                tally.told = usize::from(tells(&first, &other, &cheat));
                tally.add(&judge(&other, &cheat, &due[1]));
            }
            tally
        });
        for ((of, kind, message, act), tally) in jobs.iter().zip(&tallies) {
            let row = self.rows.entry(*of).or_default();
            row.tally.add(tally);
            if tally.is_bad() {
                let World { adder, ahead, .. } = self.honest[message.world].world;
                row.bad.push(format!("{of}, {kind:?} ({act:?}), {adder:?}, ahead: {ahead}: {tally:?}"));
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
