//! Ways of cheating that fit together: each names who cheats, and does what it can so that what it changed is not missed elsewhere.

use covey_transport::PeerId;

use super::circuit::LEN;
use super::strategies::{GIVEN, Said, Script, Strategy, others};
use super::wire::{Act, Rule};
use super::world::{Cheat, Choice, Given, Misfit, PARTIES, peer_on, role_on};

/// What is added to a word.
const ERROR: u64 = 0x1_0001;

/// What is added to a word where its value may enter with either sign: the top bit.
fn top(script: &Script) -> u64 {
    1 << (8 * script.word - 1)
}

/// The seeds that each party is given with parameters.
const SEEDS: [&[&str]; 4] = [&["l1", "l2", "w"], &["l1", "w"], &["l2", "w"], &["l1", "l2"]];

/// All of them.
pub fn strategies(script: &Script) -> Vec<Strategy> {
    let mut list = Vec::new();
    products(script, &mut list);
    lookups(script, &mut list);
    material(script, &mut list);
    inputs(script, &mut list);
    at_rest(&mut list);
    with_the_owner(script, &mut list);
    public_words(script, &mut list);
    verdicts(script, &mut list);
    digests(script, &mut list);
    openings(script, &mut list);
    other_sessions(script, &mut list);
    // Only runs of the listed assignment are stored.
    if script.lane == 0 {
        stored_runs(&mut list);
    }
    list.into_iter().map(|strategy| strategy.on(script.lane)).collect()
}

/// Those that take several lanes, of which one is the script's.
pub fn of_lanes(script: &Script) -> Vec<Strategy> {
    let mut list = Vec::new();
    for other in (0..script.lanes).filter(|other| *other != script.lane) {
        of_another_lane(script, other, &mut list);
        swapped(script, &script.on(other), &mut list);
        after_another_lane(script, other, &mut list);
    }
    one_lane_alone(script, &mut list);
    list.into_iter().map(|strategy| strategy.on(script.lane)).collect()
}

fn push(list: &mut Vec<Strategy>, name: &'static str, place: impl Into<String>, cheater: PeerId, rules: Vec<Rule>) {
    let cheat = Cheat { cheaters: vec![cheater], rules, ..Cheat::default() };
    list.push(Strategy { name, place: place.into(), cheat });
}

/// P1 and P2 in products and what follows them.
fn products(script: &Script, list: &mut Vec<Strategy>) {
    // What a wide product without a shift opens goes to P3 as well.
    for gate in ["wide matrix product", "wide", "convolution"] {
        for (me, other) in [(1, 2), (2, 1)] {
            for (name, error) in [
                ("adds to its message, P3 has it so", ERROR),
                ("adds to the top bit of its message, P3 has it so", top(script)),
            ] {
                let rules = [other, 3].map(|to| script.online(gate, [me, to], Act::Add(0, error)));
                push(list, name, format!("P{me}, {gate}"), me, rules.to_vec());
            }
        }
    }
    let add = || Act::Add(0, ERROR);
    let gates = [
        "product",
        "matrix product",
        "stored",
        "select",
        "lookup",
        "product, exact shift",
        "stored, shift",
        "wide",
        "wide, shift",
        "wide, shift, sum, ReLU",
        "convolution",
        "convolution, shift",
        "wide matrix product",
    ];
    for gate in gates {
        for (me, other) in [(1, 2), (2, 1)] {
            let place = || format!("P{me}, {gate}");
            let sent = || script.online(gate, [me, other], add());
            let taken = || script.taken(gate, [other, me], add());
            push(list, "adds to its message", place(), me, vec![sent()]);
            let top = vec![script.online(gate, [me, other], Act::Add(0, top(script)))];
            push(list, "adds to the top bit of its message", place(), me, top);
            push(list, "adds, and takes the wrong value itself", place(), me, vec![sent(), taken()]);
            push(list, "takes a wrong value itself", place(), me, vec![taken()]);
        }
        let lie = || script.online(gate, [2, 3], add());
        let taken = || script.taken(gate, [1, 2], add());
        push(list, "sends a wrong masked message", format!("P2, {gate}"), 2, vec![lie()]);
        push(list, "sends a wrong masked message, and its digest", format!("P2, {gate}"), 2, vec![lie(), taken()]);
        let rules = vec![lie(), taken(), script.online(gate, [2, 1], add())];
        push(list, "sends a wrong masked message and its digest, P1 has it so", format!("P2, {gate}"), 2, rules);
    }
    for gate in ["sign", "and", "bits", "sign of few bits", "maximum", "ReLU"] {
        for (me, other) in [(1, 2), (2, 1)] {
            let flip = || Act::Flip(0);
            let rules = vec![script.online(gate, [me, other], flip()), script.taken(gate, [other, me], flip())];
            push(list, "flips a bit, and its own", format!("P{me}, {gate}"), me, rules);
        }
        let rules = vec![script.online(gate, [2, 3], Act::Flip(0))];
        push(list, "sends a wrong masked bit", format!("P2, {gate}"), 2, rules);
    }
}

/// What is opened of tables: a wrong value, and a result that fits it where the shares of its sign are guessed.
fn lookups(script: &Script, list: &mut Vec<Strategy>) {
    let top = || Act::Add(0, top(script));
    let first = |link| script.online("lookup", link, top());
    let second = |link| script.second("lookup", link, top());
    for (me, other) in [(1, 2), (2, 1)] {
        let place = || format!("P{me}");
        push(
            list,
            "opens a wrong entry, and the result fits it",
            place(),
            me,
            vec![first([me, other]), second([me, other])],
        );
        push(list, "adds to the top bit of an entry", place(), me, vec![second([me, other])]);
    }
    push(list, "sends another place masked", "P2", 2, vec![script.online("lookup", [2, 3], Act::Flip(0))]);
    let rules = vec![second([2, 3]), second([2, 1])];
    push(list, "sends a wrong entry masked, P1 has it so", "P2", 2, rules);
    let deal = |to: PeerId, act: Act| script.offline("lookup", [0, to], act);
    push(list, "deals another set of places", "P0", 0, vec![deal(2, Act::Flip(0))]);
    push(list, "deals a wrong sign of an entry", "P0", 0, vec![deal(1, top())]);
    let back = || Act::AddBack(LEN * script.word, ERROR);
    push(list, "deals a wrong mask of an entry, P3 has it so", "P0", 0, vec![deal(1, back()), deal(3, back())]);
    push(list, "gives P3 a wrong sum over places", "P0", 0, vec![deal(3, Act::Flip(0))]);
}

/// P0 deals wrong material, and where it can, what it sends P3 fits.
fn material(script: &Script, list: &mut Vec<Strategy>) {
    // The words that a gate's message ends with.
    let back = |delta: u64| Act::AddBack(LEN * script.word, delta);
    let minus = ERROR.wrapping_neg();
    let deal = |gate: &str, to: PeerId, act: Act| script.offline(gate, [0, to], act);
    push(list, "deals a wrong product of masks", "P0", 0, vec![deal("product", 2, back(ERROR))]);
    let rules = vec![deal("product", 2, back(ERROR)), deal("product", 3, back(minus))];
    push(list, "deals a wrong product, P3 has it so", "P0", 0, rules);
    for gate in ["product", "stored", "select", "exact shift", "product, exact shift", "ReLU"] {
        push(list, "gives P3 a wrong sum", format!("P0, {gate}"), 0, vec![deal(gate, 3, back(ERROR))]);
    }
    for gate in ["exact shift", "ulp shift", "product, exact shift", "product, ulp shift"] {
        let place = || format!("P0, {gate}");
        let shifted = || deal(gate, 2, back(ERROR));
        push(list, "deals a wrong shifted mask", place(), 0, vec![shifted()]);
        let rules = vec![shifted(), deal(gate, 3, back(ERROR))];
        push(list, "deals a wrong shifted mask, P3 has it so", place(), 0, rules);
        push(list, "deals a wrong sign of a mask", place(), 0, vec![deal(gate, 1, Act::Add(0, 8))]);
    }
    push(list, "deals a wrong borrow", "P0, exact shift", 0, vec![deal("exact shift", 1, back(1))]);
    for gate in ["sign", "bits", "ReLU", "shift, ReLU", "stored, ReLU"] {
        push(list, "deals a wrong bit of a table", format!("P0, {gate}"), 0, vec![deal(gate, 2, Act::Flip(0))]);
        push(list, "gives P3 a wrong bit", format!("P0, {gate}"), 0, vec![deal(gate, 3, Act::Flip(0))]);
    }
    for gate in ["select", "bit to word"] {
        let place = || format!("P0, {gate}");
        push(list, "deals a wrong bit", place(), 0, vec![deal(gate, 2, Act::Add(0, 1))]);
        // What becomes of it is the lowest bit of what P1 and P2 have of the word.
        push(list, "asks for the lowest bit of a word", place(), 0, vec![deal(gate, 2, Act::Add(0, top(script)))]);
    }
    let rules = vec![deal("select", 1, back(top(script))), deal("select", 3, back(top(script)))];
    push(list, "deals a wrong masked bit, P3 has it so", "P0, select", 0, rules);
}

/// Inputs that do not fit together, seeds that are none.
fn inputs(script: &Script, list: &mut Vec<Strategy>) {
    for (owner, gate) in ["input of P0", "input of P1", "input of P2", "input of P3"].into_iter().enumerate() {
        for to in [1, 2, 3].into_iter().filter(|&to| to != owner) {
            let given = |delta| vec![script.online(gate, [owner, to], Act::Add(0, delta))];
            let place = || format!("P{owner} to P{to}");
            push(list, "gives one party another input", place(), owner, given(ERROR));
            push(list, "gives one another top bit of its input", place(), owner, given(top(script)));
            let rules = [given(ERROR), denied(script, "check", owner)].concat();
            push(list, "gives one another input, and denies it", place(), owner, rules);
        }
    }
    for to in [1, 2, 3] {
        let rules = vec![script.online("input of the client", [PARTIES, to], Act::Add(0, ERROR))];
        push(list, "gives one party another input", format!("client to P{to}"), PARTIES, rules);
    }
    for (me, masks) in [(1, ["l1", "w"]), (2, ["l2", "w"]), (3, ["l1", "l2"])] {
        for (index, mask) in masks.into_iter().enumerate() {
            let rules = vec![script.online("input of the client", [me, PARTIES], Act::Flip(256 * index))];
            push(list, "gives the client another seed", format!("P{me}, {mask}"), me, rules);
        }
    }
}

/// Parameters at rest that do not fit together: one party's words, or one of its seeds.
fn at_rest(list: &mut Vec<Strategy>) {
    for (parameter, what) in ["weight", "bias", "vector", "wide weight", "kernel"].into_iter().enumerate() {
        for (party, seeds) in SEEDS.into_iter().enumerate() {
            let mut misfit = |name, what: Given, place: String| {
                let misfits = vec![Misfit { party, parameter: Some(parameter), what }];
                let cheat = Cheat { cheaters: vec![PARTIES], misfits, ..Cheat::default() };
                list.push(Strategy { name, place, cheat });
            };
            for (index, seed) in seeds.iter().enumerate() {
                misfit("owner gives a party another seed", Given::Seed(index), format!("{what}, P{party}, {seed}"));
            }
            if party != 0 {
                misfit("owner gives a party other words", Given::Words, format!("{what}, P{party}"));
            }
        }
    }
}

const WELL: [u8; 5] = [0; 5];
const DIFFERS: [u8; 5] = [1, 0, 0, 0, 0];
/// That no line differs, but in layer 1.
const STRANGE: [u8; 5] = [0, 1, 0, 0, 0];

fn words(verdicts: &[[u8; 5]]) -> Act {
    Act::Replace(verdicts.concat())
}

/// What is said of a comparison.
fn verdicts(script: &Script, list: &mut Vec<Strategy>) {
    for me in 0..PARTIES {
        let place = || format!("P{me}");
        let say = |to: PeerId, what: [u8; 5]| script.said("check", [me, to], Said::Verdict, words(&[what]));
        let opinion = |to: PeerId, what: [u8; 5]| script.said("check", [me, to], Said::Opinion, words(&[what]));
        let echo = |to: PeerId| script.said("check", [me, to], Said::Copies, words(&[DIFFERS; 2]));
        let to_all = |what: [u8; 5]| others(me).map(|to| say(to, what)).collect::<Vec<_>>();
        push(list, "says that something differs", place(), me, to_all(DIFFERS));
        push(list, "says what no party would", place(), me, to_all(STRANGE));
        for only in others(me) {
            let place = || format!("P{me} to P{only}");
            push(list, "says to one alone that something differs", place(), me, vec![say(only, DIFFERS)]);
            let rules = others(me).map(|to| say(to, if to == only { WELL } else { DIFFERS })).collect();
            push(list, "says well to one, differs to the others", place(), me, rules);
            push(list, "says early to one that something differs", place(), me, vec![opinion(only, DIFFERS)]);
            push(list, "says early to one what no party would", place(), me, vec![opinion(only, STRANGE)]);
        }
        push(list, "passes on differences nobody told it", place(), me, others(me).map(echo).collect());
        let first = others(me).next().unwrap_or(0);
        push(list, "tells one of its own and others'", place(), me, vec![say(first, DIFFERS), echo(first)]);
        let stages = [
            ("gives no opinion", Said::Opinion),
            ("gives no verdict", Said::Verdict),
            ("passes no verdict on", Said::Copies),
        ];
        for (name, what) in stages {
            let rules = others(me).map(|to| script.said("check", [me, to], what, Act::Withhold)).collect();
            push(list, name, place(), me, rules);
        }
        let last = others(me).last().unwrap_or(0);
        let rules = vec![script.said("check", [me, last], Said::Copies, Act::Stop)];
        push(list, "stops right after the check", place(), me, rules);
    }
    for (me, other) in [(1, 2), (2, 1)] {
        let mut rules = vec![script.online("product", [me, other], Act::Add(0, ERROR))];
        rules.extend(denied(script, "check", me));
        let copies = others(me).map(|to| script.said("check", [me, to], Said::Copies, words(&[WELL; 2])));
        rules.extend(copies);
        push(list, "adds, and says all told it that all is well", format!("P{me}"), me, rules);
    }
}

/// `me` says in a check that all is well, whatever it finds.
fn denied(script: &Script, check: &str, me: PeerId) -> Vec<Rule> {
    let stages = [Said::Opinion, Said::Verdict];
    others(me).flat_map(|to| stages.map(|what| script.said(check, [me, to], what, words(&[WELL])))).collect()
}

/// Listed party `helper` says so of parameters, and on the script's lane.
fn denied_by_helper(script: &Script, helper: PeerId) -> Vec<Rule> {
    let of_weights = denied(&script.on(0), "check of weights", helper);
    [of_weights, denied(script, "check", script.role(helper))].concat()
}

/// What is compared.
fn digests(script: &Script, list: &mut Vec<Strategy>) {
    // Of P0's seeds nothing is left to compare once weights are checked.
    let check = |from: PeerId| if from == 0 { "check of weights" } else { "check" };
    let given = GIVEN.map(|link| (link, script.online(check(link[0]), link, Act::Wait).spot));
    let computed = [[1, 3], [2, 3]].map(|link| (link, script.said("check", link, Said::Computed, Act::Wait).spot));
    for ([me, to], spot) in given.into_iter().chain(computed) {
        let digest = |act: Act| vec![Rule { spot, received: false, act }];
        let place = || format!("P{me} to P{to}");
        push(list, "gives a wrong digest", place(), me, digest(Act::Flip(0)));
        // The first that P0 then hears is what P1 finds, which comes after P0's digest.
        if [me, to] != [0, 1] {
            push(list, "gives digests once it has seen others'", place(), me, digest(Act::Wait));
        }
        push(list, "stops right before its digests", place(), me, digest(Act::Stop));
    }
}

/// The owner of the parameters and a party that says that all fits: all parameters, or only the one that nothing is computed from.
fn with_the_owner(script: &Script, list: &mut Vec<Strategy>) {
    for (helper, own_seeds) in SEEDS.into_iter().enumerate() {
        let rules = denied_by_helper(script, helper);
        let mut add = |name, misfits, place| {
            let cheat = Cheat { cheaters: vec![helper, PARTIES], rules: rules.clone(), misfits, ..Cheat::default() };
            list.push(Strategy { name, place, cheat });
        };
        for (party, parameter) in others(helper).flat_map(|party| [(party, None), (party, Some(2))]) {
            let what = if parameter.is_none() { "all" } else { "vector" };
            let misfit = |party, what| Misfit { party, parameter, what };
            if party != 0 {
                let place = format!("P{helper}; P{party}, {what}");
                add("with the owner, who gives other words", vec![misfit(party, Given::Words)], place);
            }
            for (index, seed) in SEEDS[party].iter().enumerate() {
                let place = || format!("P{helper}; P{party}, {what}, {seed}");
                let given = misfit(party, Given::Seed(index));
                add("with the owner, who gives another seed", vec![given], place());
                if let Some(own) = own_seeds.iter().position(|other| other == seed) {
                    let both = vec![given, misfit(helper, Given::Seed(own))];
                    add("with the owner, who gives both another seed", both, place());
                }
            }
        }
    }
}

/// The owner gives one party other public words, alone or with a party that says that all fits. Of a word that differs in its top bit, what
/// is computed with it differs only where the other factor is odd.
fn public_words(script: &Script, list: &mut Vec<Strategy>) {
    let names = ["weight", "bias", "wide bias", "factor", "addend"];
    let places = (0..PARTIES).flat_map(|role| names.iter().enumerate().map(move |(number, what)| (role, number, what)));
    for (role, number, what) in places {
        let party = peer_on(script.lane, role);
        for (by, delta) in [("5", 5), ("the top bit", top(script))] {
            let misfits = vec![Misfit { party, parameter: Some(number), what: Given::Public(delta) }];
            let mut add = |name, cheaters: Vec<PeerId>, rules| {
                let who =
                    if let [helper, _] = cheaters[..] { format!("P{}; ", script.role(helper)) } else { String::new() };
                let cheat = Cheat { cheaters, rules, misfits: misfits.clone(), ..Cheat::default() };
                list.push(Strategy { name, place: format!("{who}P{role}, {what}, {by}"), cheat });
            };
            add("owner gives a party other public words", vec![PARTIES], Vec::new());
            for helper in others(role).map(|role| peer_on(script.lane, role)) {
                let rules = denied_by_helper(script, helper);
                add("with the owner, who gives other public words", vec![helper, PARTIES], rules);
            }
        }
    }
}

/// Lies when values are opened.
fn openings(script: &Script, list: &mut Vec<Strategy>) {
    for me in 0..PARTIES {
        let receivers = if matches!(me, 1 | 2) { [0, 3] } else { [1, 2] };
        let wrong = |to: PeerId| script.online("open", [me, to], Act::Add(0, ERROR));
        for to in receivers {
            let place = || format!("P{me} to P{to}");
            push(list, "opens a wrong value to one", place(), me, vec![wrong(to)]);
            let rules = vec![script.online("open bits", [me, to], Act::Flip(0))];
            push(list, "opens a wrong bit to one", place(), me, rules);
        }
        let place = || format!("P{me}");
        push(list, "opens the same wrong value to both", place(), me, receivers.map(wrong).to_vec());
        let withheld = receivers.map(|to| script.online("open", [me, to], Act::Withhold)).to_vec();
        push(list, "takes the output and opens nothing", place(), me, withheld);
        let rules = vec![script.online("reveal", [me, PARTIES], Act::Add(0, ERROR))];
        push(list, "reveals a wrong value to the client", place(), me, rules);
    }
}

/// Messages of another session.
fn other_sessions(script: &Script, list: &mut Vec<Strategy>) {
    push(list, "deals what it dealt in another session", "P0", 0, script.all(0, true, true));
    for me in 1..=2 {
        push(list, "sends what it sent in another session", format!("P{me}"), me, script.all(me, true, false));
    }
    for me in 0..PARTIES {
        push(list, "ends as it ended another session", format!("P{me}"), me, script.all(me, false, false));
    }
}

/// Of stored runs, another than the others take, or the one that suits the cheater.
fn stored_runs(list: &mut Vec<Strategy>) {
    for me in 0..PARTIES {
        for (name, choice) in [
            ("takes another stored run than the others", Choice::Alone),
            ("has all take the stored run it likes", Choice::ForAll),
        ] {
            let cheat = Cheat { cheaters: vec![me], choice: Some(choice), ..Cheat::default() };
            list.push(Strategy { name, place: format!("P{me}"), cheat });
        }
    }
}

/// Messages of another lane's roles, and parameters as another lane has them.
fn of_another_lane(script: &Script, other: usize, list: &mut Vec<Strategy>) {
    let place = |role: PeerId| format!("P{role}, of lane {other}");
    push(list, "deals what it dealt on another lane", place(0), 0, script.all_of_lane(0, true, true, other));
    for me in 1..=2 {
        let rules = script.all_of_lane(me, true, false, other);
        push(list, "sends what its role sends on another lane", place(me), me, rules);
    }
    for me in 0..PARTIES {
        push(list, "ends as another lane ends", place(me), me, script.all_of_lane(me, false, false, other));
    }
    // Lanes of one assignment have the same parameters, prepared for the first.
    if script.lane < PARTIES && script.lane != other % PARTIES {
        for party in 0..PARTIES {
            let misfits = vec![Misfit { party, parameter: None, what: Given::OfLane(script.lane, other) }];
            let cheat = Cheat { cheaters: vec![party], misfits, ..Cheat::default() };
            list.push(Strategy {
                name: "takes its parameters as on another lane",
                place: place(script.role(party)),
                cheat,
            });
        }
    }
}

/// What goes to one party on one lane for what goes to it on another, or what came from it there.
fn swapped(script: &Script, other: &Script, list: &mut Vec<Strategy>) {
    let links = (0..PARTIES).flat_map(|party| others(party).map(move |peer| [party, peer]));
    for (link, gate) in
        links.flat_map(|link| ["product", "select", "lookup", "open", "open bits"].map(|gate| (link, gate)))
    {
        let rule = |on: &Script, [from, to]: [PeerId; 2], act: Act| on.online(gate, [on.role(from), on.role(to)], act);
        let message = |on: &Script, link: [PeerId; 2]| script.message(&rule(on, link, Act::Wait).spot).cloned();
        let Some(own) = message(script, link) else { continue };
        let fitting = |message: Option<Vec<u8>>| message.filter(|message| message.len() == own.len());
        let [me, to] = link.map(|party| script.role(party));
        let place = || format!("P{me} to P{to}, lane {}, {gate}", other.lane);
        if let Some(theirs) = fitting(message(other, link)).filter(|_| script.lane < other.lane) {
            let rules = vec![rule(script, link, Act::Replace(theirs)), rule(other, link, Act::Replace(own.clone()))];
            push(list, "swaps messages of two lanes", place(), me, rules);
        }
        if let Some(heard) = fitting(message(other, [link[1], link[0]])) {
            let rules = vec![rule(script, link, Act::Replace(heard))];
            push(list, "sends back what it was sent on another lane", place(), me, rules);
        }
    }
}

/// What is done on the script's lane once the other's outputs are open.
fn after_another_lane(script: &Script, other: usize, list: &mut Vec<Strategy>) {
    for me in 0..PARTIES {
        let place = || format!("P{me}, after lane {other}");
        let said = |to: PeerId, what: Said, act: Act| script.said("check", [me, to], what, act);
        let waits = || others(me).take(1).map(|to| said(to, Said::Opinion, Act::Until(other)));
        let verdicts = |act: Act| others(me).map(move |to| said(to, Said::Verdict, act.clone()));
        let stops = waits().chain(verdicts(Act::Stop)).collect();
        push(list, "stops once another lane's output is open", place(), me, stops);
        let differs = waits().chain(verdicts(words(&[DIFFERS]))).collect();
        push(list, "finds a difference once another lane's output is open", place(), me, differs);
    }
}

/// Lanes on which it does not do the same.
fn one_lane_alone(script: &Script, list: &mut Vec<Strategy>) {
    for me in 0..PARTIES {
        let first = others(me).next().unwrap_or(0);
        let stop = vec![script.said("check", [me, first], Said::Opinion, Act::Stop)];
        push(list, "stops on one lane alone", format!("P{me}"), me, stop);
    }
    let party = peer_on(script.lane, 1);
    for other in (0..script.lanes).filter(|other| *other != script.lane) {
        let role = role_on(other, party);
        if matches!(role, 1 | 2) {
            let off = script.on(other).online("product", [role, 3 - role], Act::Add(0, ERROR.wrapping_neg()));
            let rules = vec![script.online("product", [1, 2], Act::Add(0, ERROR)), off];
            push(list, "adds on one lane and takes it off on another", format!("P1, lane {other}"), 1, rules);
        }
    }
}
