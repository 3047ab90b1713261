//! Named ways of cheating (`ways.rs` lists them), and what becomes of each.

use std::collections::HashMap;

use covey_protocols::circuits::Adder;
use covey_transport::PeerId;

use super::circuit::{CHECKS, OPENINGS};
use super::each;
use super::judge::{Due, Tally, judge, tells};
use super::ways::strategies;
use super::wire::{Act, Rule, Spot};
use super::world::{CLIENT_INPUT, Cheat, Choice, PARTIES, World, run};

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

/// An honest run's messages, by which strategies find theirs.
pub struct Script {
    /// Bytes of a word.
    pub word: usize,
    nodes: Vec<&'static str>,
    sent: Vec<Spot>,
    /// The same messages of another session.
    other: HashMap<Spot, Vec<u8>>,
}

impl Script {
    /// Of `world`, with what is due in it for both sets of secrets.
    pub fn new(world: World) -> Result<(Script, [Due; 2]), String> {
        let (due, run) = Due::of(world)?;
        let (second, _) = Due::of(World { secrets: 1, ..world })?;
        let (_, other) = Due::of(World { session: world.session + 1, ..world })?;
        let sent = run.log.iter().map(|(spot, _)| *spot).collect();
        Ok((
            Script { word: world.word(), nodes: run.nodes, sent, other: other.log.into_iter().collect() },
            [due, second],
        ))
    }

    fn node(&self, gate: &str) -> u32 {
        match gate {
            "check of weights" => CHECKS.start,
            "check" => CHECKS.start + 1,
            "open" => OPENINGS,
            "open bits" => OPENINGS + 1,
            "reveal" => OPENINGS + 2,
            "input of the client" => CLIENT_INPUT,
            _ => self.nodes.iter().position(|name| *name == gate).map_or(u32::MAX, |node| node as u32),
        }
    }

    fn sent(&self, gate: &str, offline: bool, [from, to]: [PeerId; 2], number: u32, act: Act) -> Rule {
        let spot = Spot { node: self.node(gate), offline, from, to, number };
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
        let messages = self.sent.iter().filter(|spot| spot.node == node && [spot.from, spot.to] == link).count() as u32;
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
        let wanted = |spot: &&Spot| spot.from == from && spot.offline == offline && (spot.node < CHECKS.start) == gates;
        let replaced = |spot: &Spot| {
            let other = self.other.get(spot)?.clone();
            Some(Rule { spot: *spot, received: false, act: Act::Replace(other) })
        };
        self.sent.iter().filter(wanted).filter_map(replaced).collect()
    }
}

/// The other parties.
pub fn others(me: PeerId) -> impl Iterator<Item = PeerId> {
    (0..PARTIES).filter(move |&peer| peer != me)
}

impl Strategy {
    /// Whether somebody waits in vain for a message.
    pub fn waits(&self) -> bool {
        self.cheat.rules.iter().any(|rule| matches!(rule.act, Act::Stop | Act::Withhold | Act::Swap))
    }
}

/// A setting, a strategy to try in it, and the outputs expected there for either set of secrets.
type Attempt = (World, Strategy, [Due; 2]);

/// Every strategy, in runs that preprocess and in runs that do not, with two sets of secrets and several adders, in a ring of so
/// many bits. If `short`, each stops at the first of these settings in which it changes anything; strategies begin with different ones.
pub fn campaign(ring: u32, short: bool) -> Result<Vec<Row>, String> {
    let mut jobs: Vec<Attempt> = Vec::new();
    for adder in [Adder::FewestBytes, Adder::FewestRounds, Adder::LogDepth] {
        for ahead in [false, true] {
            let world = World { adder, ahead, ..World::new(ring) };
            let (script, due) = Script::new(world)?;
            let with = |secrets, choice| Due::with(World { secrets, ..world }, choice).map(|(due, _)| due);
            let chosen = Some(Choice::ForAll);
            let of_chosen = [with(0, chosen)?, with(1, chosen)?];
            jobs.extend(strategies(&script).into_iter().map(|strategy| {
                let due = if strategy.cheat.choice == chosen { &of_chosen } else { &due };
                (world, strategy, due.clone())
            }));
        }
    }
    let mut groups: Vec<Vec<Attempt>> = match short {
        false => jobs.into_iter().map(|attempt| vec![attempt]).collect(),
        true => by_place(jobs),
    };
    for (turn, group) in groups.iter_mut().enumerate() {
        let settings = group.len();
        group.rotate_left(turn % settings);
    }
    let tallies = each(&groups, |group| {
        let tallies = group.iter().enumerate().map(|(index, attempt)| (index, outcome(attempt)));
        // The first, if none changed anything.
        let mut changed = tallies.skip_while(|(_, tally)| short && tally.runs == 0);
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
    Ok(rows)
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

/// The attempts at each strategy in each place, a group for each. Strategies that share name and place are told apart by their order.
fn by_place(attempts: Vec<Attempt>) -> Vec<Vec<Attempt>> {
    let mut groups: Vec<Vec<Attempt>> = Vec::new();
    for attempt in attempts {
        let (world, Strategy { name, place, .. }, _) = &attempt;
        let fits = |group: &&mut Vec<Attempt>| {
            let (_, first, _) = &group[0];
            let tried = |(other, ..): &Attempt| (other.adder, other.ahead) == (world.adder, world.ahead);
            (first.name, &first.place) == (*name, place) && !group.iter().any(tried)
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.push(attempt),
            None => groups.push(vec![attempt]),
        }
    }
    groups
}
