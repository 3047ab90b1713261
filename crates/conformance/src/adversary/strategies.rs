//! Ways of cheating that fit together: each names who cheats and does what it can so that what it changed is not missed elsewhere.

use std::collections::HashMap;

use covey_protocols::circuits::Adder;
use covey_transport::PeerId;

use super::circuit::{CHECKS, OPENINGS};
use super::each;
use super::judge::{Due, Tally, judge, tells};
use super::wire::{Act, Rule, Spot};
use super::world::{CLIENT_INPUT, Cheat, Misfit, PARTIES, World, run};

/// A way of cheating.
#[derive(Clone, Debug)]
pub struct Strategy {
    /// What is done.
    pub name: String,
    /// By whom and how.
    pub cheat: Cheat,
}

/// What became of a strategy's runs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    /// The strategy.
    pub strategy: String,
    /// Its runs.
    pub tally: Tally,
}

/// What is added to a word. Where a value enters with either sign, `TOP` is the same.
const ERROR: u32 = 0x1_0001;
const TOP: u32 = 1 << 31;

/// An honest run's messages, by which strategies find theirs.
pub struct Script {
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
        Ok((Script { nodes: run.nodes, sent, other: other.log.into_iter().collect() }, [due, second]))
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

    fn online(&self, gate: &str, link: [PeerId; 2], act: Act) -> Rule {
        self.sent(gate, false, link, 0, act)
    }

    fn offline(&self, gate: &str, link: [PeerId; 2], act: Act) -> Rule {
        self.sent(gate, true, link, 0, act)
    }

    /// What a cheater makes of a message that it is sent, so that its own values fit what it sent itself.
    fn taken(&self, gate: &str, link: [PeerId; 2], act: Act) -> Rule {
        Rule { received: true, ..self.online(gate, link, act) }
    }

    /// What `from` sends to `to` in a check: before it come digests, if it owes any.
    fn said(&self, check: &str, link: [PeerId; 2], echo: bool, act: Act) -> Rule {
        let node = self.node(check);
        let messages = self.sent.iter().filter(|spot| spot.node == node && [spot.from, spot.to] == link).count();
        let number = messages as u32 - if echo { 1 } else { 2 };
        self.sent(check, false, link, number, act)
    }

    fn all(&self, from: PeerId, gates: bool, offline: bool) -> Vec<Rule> {
        let wanted =
            |spot: &&Spot| spot.from == from && spot.offline == offline && (spot.node < CHECKS.start) == gates;
        let replaced = |spot: &Spot| {
            let other = self.other.get(spot)?.clone();
            Some(Rule { spot: *spot, received: false, act: Act::Replace(other) })
        };
        self.sent.iter().filter(wanted).filter_map(replaced).collect()
    }
}

fn others(me: PeerId) -> impl Iterator<Item = PeerId> {
    (0..PARTIES).filter(move |&peer| peer != me)
}

/// All of them.
pub fn strategies(script: &Script) -> Vec<Strategy> {
    let mut list = Vec::new();
    products(script, &mut list);
    material(script, &mut list);
    inputs(script, &mut list);
    at_rest(&mut list);
    comparison(script, &mut list);
    openings(script, &mut list);
    other_sessions(script, &mut list);
    list
}

fn push(list: &mut Vec<Strategy>, name: impl Into<String>, cheater: PeerId, rules: Vec<Rule>) {
    let cheat = Cheat { cheaters: vec![cheater], rules, misfits: Vec::new() };
    list.push(Strategy { name: name.into(), cheat });
}

/// P1 and P2 in products and what follows them.
fn products(script: &Script, list: &mut Vec<Strategy>) {
    let add = || Act::Add(0, ERROR);
    for gate in ["product", "matrix product", "stored weight", "select", "product, exact shift", "stored weight, shift"] {
        for (me, other) in [(1, 2), (2, 1)] {
            let sent = || script.online(gate, [me, other], add());
            let taken = || script.taken(gate, [other, me], add());
            push(list, format!("{gate}: P{me} adds to its message"), me, vec![sent()]);
            push(list, format!("{gate}: P{me} adds, and takes the wrong value itself"), me, vec![sent(), taken()]);
            push(list, format!("{gate}: P{me} takes a wrong value itself"), me, vec![taken()]);
        }
        let lie = || script.online(gate, [2, 3], add());
        push(list, format!("{gate}: P2 discloses a wrong product"), 2, vec![lie()]);
        let taken = || script.taken(gate, [1, 2], add());
        push(list, format!("{gate}: P2 discloses wrong and vouches for it"), 2, vec![lie(), taken()]);
        let rules = vec![lie(), taken(), script.online(gate, [2, 1], add())];
        push(list, format!("{gate}: P2 discloses wrong, vouches, and P1 has it so"), 2, rules);
    }
    for gate in ["sign", "and", "bits", "sign of few bits", "maximum", "ReLU"] {
        for (me, other) in [(1, 2), (2, 1)] {
            let flip = || Act::Flip(0);
            let rules = vec![script.online(gate, [me, other], flip()), script.taken(gate, [other, me], flip())];
            push(list, format!("{gate}: P{me} flips a bit, and its own"), me, rules);
        }
        push(list, format!("{gate}: P2 discloses a wrong bit"), 2, vec![script.online(gate, [2, 3], Act::Flip(0))]);
    }
}

/// P0 deals wrong material, and where it can, what it sends P3 fits.
fn material(script: &Script, list: &mut Vec<Strategy>) {
    const LAST: usize = 12;
    let back = |delta: u32| Act::AddBack(LAST, delta);
    let minus = ERROR.wrapping_neg();
    let product = |to_p3| vec![script.offline("product", [0, 2], back(ERROR)), script.offline("product", [0, 3], to_p3)];
    push(list, "P0 deals a wrong product of masks", 0, product(back(0)));
    push(list, "P0 deals a wrong product of masks, and P3 has it so", 0, product(back(minus)));
    push(list, "P0 gives P3 a wrong sum", 0, vec![script.offline("product", [0, 3], back(ERROR))]);
    for gate in ["exact shift", "ulp shift", "product, exact shift", "product, ulp shift"] {
        let shifted = || script.offline(gate, [0, 2], back(ERROR));
        push(list, format!("{gate}: P0 deals a wrong shifted mask"), 0, vec![shifted()]);
        let rules = vec![shifted(), script.offline(gate, [0, 3], back(ERROR))];
        push(list, format!("{gate}: P0 deals a wrong shifted mask, and P3 has it so"), 0, rules);
        push(list, format!("{gate}: P0 deals a wrong sign of the mask"), 0, vec![
            script.offline(gate, [0, 1], Act::Add(0, 8)),
        ]);
    }
    for gate in ["probabilistic shift", "product, probabilistic shift"] {
        let rules = vec![script.offline(gate, [0, 2], back(ERROR))];
        push(list, format!("{gate}: P0 deals a wrong shifted mask"), 0, rules);
    }
    push(list, "exact shift: P0 deals a wrong borrow", 0, vec![script.offline("exact shift", [0, 1], back(1))]);
    for gate in ["sign", "bits", "ReLU", "shift, ReLU", "stored weight, ReLU"] {
        push(list, format!("{gate}: P0 deals a wrong bit of a table"), 0, vec![
            script.offline(gate, [0, 2], Act::Flip(0)),
        ]);
        push(list, format!("{gate}: P0 gives P3 a wrong bit"), 0, vec![script.offline(gate, [0, 3], Act::Flip(0))]);
    }
    for gate in ["select", "bit to word"] {
        push(list, format!("{gate}: P0 deals a wrong bit"), 0, vec![script.offline(gate, [0, 2], Act::Add(0, 1))]);
        // What becomes of it is the lowest bit of what P1 and P2 have of the word.
        push(list, format!("{gate}: P0 asks for the lowest bit of a word"), 0, vec![
            script.offline(gate, [0, 2], Act::Add(0, TOP)),
        ]);
    }
    let rules = vec![script.offline("select", [0, 1], back(TOP)), script.offline("select", [0, 3], back(TOP))];
    push(list, "select: P0 deals a wrong masked bit, and P3 has it so", 0, rules);
}

/// Inputs that do not fit together, seeds that are none.
fn inputs(script: &Script, list: &mut Vec<Strategy>) {
    for owner in 0..PARTIES {
        let gate = ["input of P0", "input of P1", "input of P2", "input of P3"][owner];
        for to in [1, 2, 3].into_iter().filter(|&to| to != owner) {
            for (delta, what) in [(ERROR, "another value"), (TOP, "another top bit")] {
                let rules = vec![script.online(gate, [owner, to], Act::Add(0, delta))];
                push(list, format!("{gate}: P{to} is given {what}"), owner, rules);
            }
        }
    }
    for to in [1, 2, 3] {
        let rules = vec![script.online("input of the client", [PARTIES, to], Act::Add(0, ERROR))];
        push(list, format!("the client gives P{to} another value"), PARTIES, rules);
    }
    let seeds = [(1, ["l1", "w"]), (2, ["l2", "w"]), (3, ["l1", "l2"])];
    for (me, masks) in seeds {
        for (index, mask) in masks.into_iter().enumerate() {
            let rules = vec![script.online("input of the client", [me, PARTIES], Act::Flip(256 * index))];
            push(list, format!("P{me} gives the client another seed of {mask}"), me, rules);
        }
    }
}

/// Parameters at rest that do not fit together: one party's words, or one of its seeds.
fn at_rest(list: &mut Vec<Strategy>) {
    let seeds: [&[&str]; 4] = [&["l1", "l2", "w"], &["l1", "w"], &["l2", "w"], &["l1", "l2"]];
    for (parameter, what) in ["weight", "parameter"].into_iter().enumerate() {
        for party in 0..PARTIES {
            let mut misfit = |seed: Option<usize>, name: &str| {
                let misfits = vec![Misfit { party, parameter: Some(parameter), seed }];
                let cheat = Cheat { cheaters: vec![PARTIES], rules: Vec::new(), misfits };
                list.push(Strategy { name: format!("{what}: its owner gave P{party} other {name}"), cheat });
            };
            seeds[party].iter().enumerate().for_each(|(index, seed)| misfit(Some(index), seed));
            if party != 0 {
                misfit(None, "words");
            }
        }
    }
}

/// What is said in a check.
fn comparison(script: &Script, list: &mut Vec<Strategy>) {
    let (well, differs, strange) = ([0; 5], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0]);
    for me in 0..PARTIES {
        let say = |to: PeerId, what: [u8; 5]| script.said("check", [me, to], false, Act::Replace(what.to_vec()));
        push(list, format!("P{me} says that something differs"), me, others(me).map(|to| say(to, differs)).collect());
        push(list, format!("P{me} says what no party would"), me, others(me).map(|to| say(to, strange)).collect());
        for only in others(me) {
            push(list, format!("P{me} says to P{only} alone that something differs"), me, vec![say(only, differs)]);
        }
        let echo = |to: PeerId| script.said("check", [me, to], true, Act::Replace([differs, differs].concat()));
        push(list, format!("P{me} says that all others told it of differences"), me, others(me).map(echo).collect());
        let first = others(me).next().unwrap_or(0);
        let rules = vec![say(first, differs), echo(first)];
        push(list, format!("P{me} tells P{first} of differences, its own and others'"), me, rules);
        let stop = |echo: bool| others(me).map(|to| script.said("check", [me, to], echo, Act::Withhold)).collect();
        push(list, format!("P{me} gives no verdict"), me, stop(false));
        push(list, format!("P{me} passes no verdict on"), me, stop(true));
    }
    for link in [[3, 1], [3, 2], [1, 3], [2, 3], [1, 2], [0, 1], [0, 3]] {
        let ([me, to], digest) = (link, |act: Act| script.online("check", link, act));
        push(list, format!("P{me} gives P{to} a wrong digest"), me, vec![digest(Act::Flip(0))]);
        push(list, format!("P{me} gives P{to} its digests after it has seen others'"), me, vec![digest(Act::Wait)]);
        push(list, format!("P{me} gives P{to} the digests of another session"), me, vec![
            digest(Act::Replace(script.other.get(&digest(Act::Wait).spot).cloned().unwrap_or_default())),
        ]);
        push(list, format!("P{me} stops right before its digests to P{to}"), me, vec![digest(Act::Stop)]);
    }
    let last = |me: PeerId| others(me).last().unwrap_or(0);
    for me in 0..PARTIES {
        let rules = vec![script.said("check", [me, last(me)], true, Act::Stop)];
        push(list, format!("P{me} stops right after the check"), me, rules);
    }
    // A wrong message, and that all is well.
    for (me, other) in [(1, 2), (2, 1)] {
        let mut rules = vec![script.online("product", [me, other], Act::Add(0, ERROR))];
        rules.extend(script.said_by_all(me, Act::Replace(vec![0; 10])));
        rules.extend(others(me).map(|to| script.said("check", [me, to], false, Act::Replace(well.to_vec()))));
        push(list, format!("P{me} adds to its message, and says that all is well, as it says others do"), me, rules);
    }
}

impl Script {
    fn said_by_all(&self, me: PeerId, act: Act) -> Vec<Rule> {
        others(me).map(|to| self.said("check", [me, to], true, act.clone())).collect()
    }
}

/// Lies when values are opened.
fn openings(script: &Script, list: &mut Vec<Strategy>) {
    for me in 0..PARTIES {
        let receivers = if matches!(me, 1 | 2) { [0, 3] } else { [1, 2] };
        for to in receivers {
            let rules = vec![script.online("open", [me, to], Act::Add(0, ERROR))];
            push(list, format!("P{me} opens a wrong value to P{to}"), me, rules);
            let rules = vec![script.online("open bits", [me, to], Act::Flip(0))];
            push(list, format!("P{me} opens a wrong bit to P{to}"), me, rules);
        }
        let both = receivers.map(|to| script.online("open", [me, to], Act::Add(0, ERROR))).to_vec();
        push(list, format!("P{me} opens the same wrong value to both"), me, both);
        let withheld = receivers.map(|to| script.online("open", [me, to], Act::Withhold)).to_vec();
        push(list, format!("P{me} takes the output and opens nothing"), me, withheld);
        let rules = vec![script.online("reveal", [me, PARTIES], Act::Add(0, ERROR))];
        push(list, format!("P{me} reveals a wrong value to the client"), me, rules);
    }
}

/// Messages of another session.
fn other_sessions(script: &Script, list: &mut Vec<Strategy>) {
    push(list, "P0 deals what it dealt in another session", 0, script.all(0, true, true));
    for me in 1..=2 {
        push(list, format!("P{me} sends what it sent in another session"), me, script.all(me, true, false));
    }
    for me in 0..PARTIES {
        push(list, format!("P{me} ends as it ended another session"), me, script.all(me, false, false));
    }
}

/// The world that strategies are written for.
pub const WORLD: World =
    World { adder: Adder::FewestBytes, ahead: false, session: 1, secrets: 0, left_out: None };

/// Every strategy, in runs that preprocess and in runs that do not, with two sets of secrets and several adders.
pub fn campaign() -> Result<Vec<Row>, String> {
    let worlds: Vec<World> = [Adder::FewestBytes, Adder::FewestRounds, Adder::LogDepth]
        .into_iter()
        .flat_map(|adder| [false, true].map(|ahead| World { adder, ahead, ..WORLD }))
        .collect();
    let mut jobs = Vec::new();
    for world in worlds {
        let (script, due) = Script::new(world)?;
        jobs.extend(strategies(&script).into_iter().enumerate().map(|(n, strategy)| (n, world, strategy, due.clone())));
    }
    let tallies = each(&jobs, |(_, world, strategy, due)| {
        let first = run(*world, &strategy.cheat);
        let other = run(World { secrets: 1, ..*world }, &strategy.cheat);
        let mut tally = judge(&first, &strategy.cheat, &due[0]);
        tally.add(&judge(&other, &strategy.cheat, &due[1]));
        tally.told += usize::from(tells(&first, &other, &strategy.cheat));
        tally
    });
    let mut rows: Vec<Row> = Vec::new();
    for ((number, _, strategy, _), tally) in jobs.iter().zip(&tallies) {
        if rows.len() <= *number {
            rows.push(Row { strategy: strategy.name.clone(), tally: Tally::default() });
        }
        rows[*number].tally.add(tally);
    }
    Ok(rows)
}

impl Strategy {
    /// Whether somebody waits in vain for a message.
    pub fn waits(&self) -> bool {
        self.cheat.rules.iter().any(|rule| matches!(rule.act, Act::Stop | Act::Withhold | Act::Swap))
    }
}
