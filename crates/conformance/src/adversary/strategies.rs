//! Named ways of cheating (`ways.rs` lists them), and what becomes of each.

use std::collections::HashMap;
use std::sync::Arc;

use covey_transport::PeerId;

use super::circuit::{CHECKS, OPENINGS};
use super::judge::{Due, Tally, judge, tells};
use super::messages::settings;
use super::ways::strategies;
use super::wire::{Act, Rule, Spot};
use super::world::{CLIENT_INPUT, Cheat, Choice, PARTIES, World, peer_on, role_on, run};
use super::{each, ways};

/// A way of cheating.
#[derive(Clone, Debug)]
pub struct Strategy {
    /// What is done.
    pub name: &'static str,
    /// Where, or by whom.
    pub place: String,
    /// By whom and how.
    pub cheat: Cheat,
}

/// What is told in a check, after the digests of what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Whether those compared well.
    Opinion,
    /// The digests of what was computed, to P3.
    Computed,
    /// Whether all compared well.
    Verdict,
    /// What others told.
    Copies,
}

/// Who sends whom digests of what was given.
pub const GIVEN: [[PeerId; 2]; 6] = [[3, 1], [3, 2], [1, 2], [0, 1], [0, 2], [0, 3]];

/// What became of a strategy's runs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The strategy.
    pub strategy: &'static str,
    /// Where it was tried.
    pub places: Vec<String>,
    /// Where something happened that must not.
    pub bad: Vec<String>,
    /// Where it never changed anything, so that nothing was tried.
    pub idle: Vec<String>,
    /// Its runs.
    pub tally: Tally,
}

/// An honest session's messages, by which strategies on a lane find theirs.
pub struct Script {
    /// Bytes of a word.
    pub word: usize,
    /// The lane.
    pub lane: usize,
    /// All lanes of the session.
    pub lanes: usize,
    messages: Arc<Messages>,
}

struct Messages {
    nodes: Vec<&'static str>,
    /// In order.
    sent: Vec<Spot>,
    own: HashMap<Spot, Vec<u8>>,
    /// The same messages of another session.
    other: HashMap<Spot, Vec<u8>>,
}

impl Script {
    /// Of `world`, with what is due in it for both sets of secrets.
    pub fn new(world: World) -> Result<(Script, [Due; 2]), String> {
        let (due, mut runs) = Due::of(world)?;
        let (second, _) = Due::of(World { secrets: 1, ..world })?;
        let (_, other) = Due::of(World { session: world.session + 1, ..world })?;
        let nodes = std::mem::take(&mut runs[0].nodes);
        let log: Vec<_> = runs.into_iter().flat_map(|run| run.log).collect();
        let sent = log.iter().map(|(spot, _)| *spot).collect();
        let other = other.into_iter().flat_map(|run| run.log).collect();
        let messages = Arc::new(Messages { nodes, sent, own: log.into_iter().collect(), other });
        Ok((Script { word: world.word(), lane: 0, lanes: world.lanes, messages }, [due, second]))
    }

    /// For strategies on another lane.
    pub fn on(&self, lane: usize) -> Script {
        let Script { word, lanes, ref messages, .. } = *self;
        Script { word, lane, lanes, messages: messages.clone() }
    }

    /// The role of listed party `party`.
    pub fn role(&self, party: PeerId) -> PeerId {
        role_on(self.lane, party)
    }

    /// What an honest session sends there.
    pub fn message(&self, spot: &Spot) -> Option<&Vec<u8>> {
        self.messages.own.get(spot)
    }

    fn node(&self, gate: &str) -> u32 {
        match gate {
            "check of weights" => CHECKS.start,
            "check" => CHECKS.start + 1,
            "open" => OPENINGS,
            "open bits" => OPENINGS + 1,
            "reveal" => OPENINGS + 2,
            "input of the client" => CLIENT_INPUT,
            _ => self.messages.nodes.iter().position(|name| *name == gate).map_or(u32::MAX, |node| node as u32),
        }
    }

    fn sent(&self, gate: &str, offline: bool, [from, to]: [PeerId; 2], number: u32, act: Act) -> Rule {
        let spot = Spot { lane: self.lane, node: self.node(gate), offline, from, to, number };
        Rule { spot, received: false, act }
    }

    /// The first message of a gate on a link.
    pub fn online(&self, gate: &str, link: [PeerId; 2], act: Act) -> Rule {
        self.sent(gate, false, link, 0, act)
    }

    /// The second.
    pub fn second(&self, gate: &str, link: [PeerId; 2], act: Act) -> Rule {
        self.sent(gate, false, link, 1, act)
    }

    /// What a gate is dealt.
    pub fn offline(&self, gate: &str, link: [PeerId; 2], act: Act) -> Rule {
        self.sent(gate, true, link, 0, act)
    }

    /// What a cheater makes of a message that it is sent, so that its own values fit what it sent itself.
    pub fn taken(&self, gate: &str, link: [PeerId; 2], act: Act) -> Rule {
        Rule { received: true, ..self.online(gate, link, act) }
    }

    /// What one party tells another in a check.
    pub fn said(&self, check: &str, link: [PeerId; 2], what: Said, act: Act) -> Rule {
        let node = self.node(check);
        let is_said = |spot: &&Spot| (spot.lane, spot.node, [spot.from, spot.to]) == (self.lane, node, link);
        let messages = self.messages.sent.iter().filter(is_said).count() as u32;
        let number = match what {
            Said::Opinion => u32::from(GIVEN.contains(&link)),
            Said::Computed => 1,
            Said::Verdict => messages.saturating_sub(2),
            Said::Copies => messages.saturating_sub(1),
        };
        self.sent(check, false, link, number, act)
    }

    /// All that `from` sends in gates, or in checks and openings, as it was in another session.
    pub fn all(&self, from: PeerId, gates: bool, offline: bool) -> Vec<Rule> {
        self.replaced(from, gates, offline, |spot| self.messages.other.get(spot))
    }

    /// The same as it was on another lane.
    pub fn all_of_lane(&self, from: PeerId, gates: bool, offline: bool, lane: usize) -> Vec<Rule> {
        self.replaced(from, gates, offline, |spot| self.messages.own.get(&Spot { lane, ..*spot }))
    }

    fn replaced<'a>(
        &self,
        from: PeerId,
        gates: bool,
        offline: bool,
        by: impl Fn(&Spot) -> Option<&'a Vec<u8>>,
    ) -> Vec<Rule> {
        let wanted = |spot: &&Spot| {
            (spot.lane, spot.from, spot.offline) == (self.lane, from, offline) && (spot.node < CHECKS.start) == gates
        };
        let replaced = |spot: &Spot| Some(Rule { spot: *spot, received: false, act: Act::Replace(by(spot)?.clone()) });
        self.messages.sent.iter().filter(wanted).filter_map(replaced).collect()
    }
}

/// The other parties.
pub fn others(me: PeerId) -> impl Iterator<Item = PeerId> {
    (0..PARTIES).filter(move |&peer| peer != me)
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.place)
    }
}

impl Strategy {
    /// The same by who has the role on a lane. An owner's helper is a listed party, and so is who takes another stored run.
    pub fn on(mut self, lane: usize) -> Strategy {
        let Cheat { cheaters, misfits, choice, .. } = &mut self.cheat;
        if misfits.is_empty() && choice.is_none() {
            cheaters.iter_mut().for_each(|peer| *peer = peer_on(lane, *peer));
        }
        if lane > 0 {
            self.place = format!("lane {lane}: {}", self.place);
        }
        self
    }

    /// Whether somebody waits in vain for a message.
    pub fn waits(&self) -> bool {
        self.cheat.rules.iter().any(|rule| matches!(rule.act, Act::Stop | Act::Withhold | Act::Swap))
    }
}

/// How far apart in their settings neighbours begin: a prime, so that they begin in all of them, and on all lanes.
const APART: usize = 7919;

/// A setting, a strategy to try in it, and the outputs expected there for either set of secrets.
type Attempt = (World, Strategy, [Due; 2]);

/// Every strategy, in runs that preprocess and in runs that do not, with two sets of secrets and several adders, in a ring of so
/// many bits. If `short`, each stops at the first of these settings in which it changes anything; strategies begin with different ones.
pub fn campaign(ring: u32, short: bool) -> Result<Vec<Row>, String> {
    let mut jobs: Vec<Attempt> = Vec::new();
    for world in settings(ring, 1, false) {
        let (script, due) = Script::new(world)?;
        let with = |secrets, choice| Due::with(World { secrets, ..world }, choice).map(|(due, _)| due);
        let chosen = Some(Choice::ForAll);
        let of_chosen = [with(0, chosen)?, with(1, chosen)?];
        jobs.extend(strategies(&script).into_iter().map(|strategy| {
            let due = if strategy.cheat.choice == chosen { &of_chosen } else { &due };
            (world, strategy, due.clone())
        }));
    }
    Ok(tried(match short {
        false => jobs.into_iter().map(|attempt| vec![attempt]).collect(),
        true => grouped(jobs, |one, other| one.place == other.place),
    }))
}

/// Every strategy on every lane of a session of so many, and those that take several lanes, in one setting in which they change anything.
/// If `short`, each in one place on one lane.
pub fn campaign_on_lanes(lanes: usize, ring: u32, short: bool) -> Result<Vec<Row>, String> {
    let mut jobs: Vec<Attempt> = Vec::new();
    for world in settings(ring, lanes, short) {
        let (script, due) = Script::new(world)?;
        for lane in 0..lanes {
            let script = script.on(lane);
            // The campaign of one lane has those of the first.
            let alone = if lane > 0 { strategies(&script) } else { Vec::new() };
            let all = alone.into_iter().chain(ways::of_lanes(&script));
            jobs.extend(all.map(|strategy| (world, strategy, due.clone())));
        }
    }
    Ok(tried(grouped(jobs, |one, other| short || one.place == other.place)))
}

/// The first attempt of each group that changes anything.
fn tried(mut groups: Vec<Vec<Attempt>>) -> Vec<Row> {
    for (turn, group) in groups.iter_mut().enumerate() {
        let settings = group.len();
        group.rotate_left(turn * APART % settings);
    }
    let tallies = each(&groups, |group| {
        let tallies = group.iter().enumerate().map(|(index, attempt)| (index, outcome(attempt)));
        // The first, if none changed anything.
        let mut changed = tallies.skip_while(|(_, tally)| tally.runs == 0);
        changed.next().unwrap_or((0, Tally::default()))
    });
    let mut rows: Vec<Row> = Vec::new();
    for (group, (index, tally)) in groups.iter().zip(&tallies) {
        let (world, strategy, _) = &group[*index];
        let Strategy { name, place, .. } = strategy;
        let at = rows.iter().position(|row| row.strategy == *name).unwrap_or_else(|| {
            rows.push(Row {
                strategy: name,
                places: Vec::new(),
                bad: Vec::new(),
                idle: Vec::new(),
                tally: Tally::default(),
            });
            rows.len() - 1
        });
        let row = &mut rows[at];
        if !row.places.contains(place) {
            row.places.push(place.clone());
            row.idle.push(place.clone());
        }
        if tally.runs > 0 {
            row.idle.retain(|idle| idle != place);
        }
        if tally.is_bad() {
            row.bad.push(format!("{place}, {:?}, ahead: {}: {tally:?}", world.adder, world.ahead));
        }
        row.tally.add(tally);
    }
    rows
}

/// What becomes of a strategy in its setting.
fn outcome((world, strategy, due): &Attempt) -> Tally {
    let first = run(*world, &strategy.cheat);
    let other = run(World { secrets: 1, ..*world }, &strategy.cheat);
    let mut tally = judge(&first, &strategy.cheat, &due[0]);
    tally.add(&judge(&other, &strategy.cheat, &due[1]));
    tally.told += usize::from(tells(&first, &other, &strategy.cheat));
    tally
}

/// The attempts at each strategy, a group for those of one name that are the `same`. What is the same and yet in one setting is told apart
/// by its order.
fn grouped(attempts: Vec<Attempt>, same: impl Fn(&Strategy, &Strategy) -> bool) -> Vec<Vec<Attempt>> {
    let mut groups: Vec<Vec<Attempt>> = Vec::new();
    for attempt in attempts {
        let (world, strategy, _) = &attempt;
        let fits = |group: &&mut Vec<Attempt>| {
            let (_, first, _) = &group[0];
            let tried = |(other, of, _): &Attempt| {
                (other.adder, other.ahead, &of.place) == (world.adder, world.ahead, &strategy.place)
            };
            first.name == strategy.name && same(first, strategy) && !group.iter().any(tried)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(attempt),
            None => groups.push(vec![attempt]),
        }
    }
    groups
}
