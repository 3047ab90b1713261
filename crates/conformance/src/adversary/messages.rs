//! Every message, one at a time: changed, replayed, swapped, withheld, cut, or taken from another session.

use std::collections::{BTreeMap, HashMap, HashSet};

use covey_kernels::Prg;
use covey_protocols::circuits::Adder;

use super::circuit;
use super::each;
use super::judge::{Due, Tally, judge, tells};
use super::wire::{Act, Rule, Spot};
use super::world::{Cheat, PARTIES, World, run};

/// What is done to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    TopBit,
    Flip,
    Add,
    OtherSession,
    Replay,
    Truncate,
    Swap,
    Withhold,
}

const KINDS: [Kind; 8] = [
    Kind::TopBit,
    Kind::Add,
    Kind::OtherSession,
    Kind::Flip,
    Kind::Replay,
    Kind::Truncate,
    Kind::Swap,
    Kind::Withhold,
];

/// One gate's messages: what became of the runs in which one was changed.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Row {
    /// The gate.
    pub gate: String,
    /// Types of messages.
    pub types: usize,
    /// Those that were changed.
    pub changed: usize,
    /// Types whose change was harmless whenever it was tried.
    pub always_harmless: Vec<String>,
    /// Runs.
    pub tally: Tally,
}

struct Target {
    world: World,
    kind: Kind,
    spot: Spot,
    act: Act,
    name: (usize, &'static str),
}

/// A message's type: the gate, and step and link within it. The adder and the run do not count.
type Type = (usize, &'static str, bool, usize, usize, u32);

struct Honest {
    due: [Due; 2],
    log: Vec<(Spot, Vec<u8>)>,
    other: HashMap<Spot, Vec<u8>>,
    nodes: std::sync::Arc<Vec<&'static str>>,
}

impl Honest {
    fn new(world: World) -> Result<Honest, String> {
        let (due, run) = Due::of(world)?;
        let (other_due, _) = Due::of(World { secrets: 1, ..world })?;
        let (_, other) = Due::of(World { session: world.session + 1, ..world })?;
        let nodes = std::sync::Arc::new(run.nodes);
        Ok(Honest { due: [due, other_due], log: run.log, other: other.log.into_iter().collect(), nodes })
    }
}

/// At least `runs` runs, and at least one of every type of message.
pub fn campaign(runs: usize, seed: u64) -> Result<Vec<Row>, String> {
    let worlds = Adder::ALL.into_iter().flat_map(|adder| {
        [false, true].map(|ahead| World { adder, ahead, session: 1, secrets: 0, left_out: None })
    });
    let worlds: Vec<World> = worlds.collect();
    let honest = worlds.iter().map(|&world| Honest::new(world)).collect::<Result<Vec<_>, _>>()?;
    let mut random = Random::new(seed);

    let name = |honest: &Honest, spot: &Spot| -> Type {
        let name = circuit::name(&honest.nodes, spot.node);
        (spot.node as usize, name, spot.offline, spot.from, spot.to, spot.number)
    };
    // By type, each message of it in some world.
    let mut types: BTreeMap<Type, Vec<(usize, Spot, usize)>> = BTreeMap::new();
    for (world, honest) in honest.iter().enumerate() {
        for (spot, bytes) in honest.log.iter().filter(|(spot, _)| spot.from < PARTIES) {
            types.entry(name(honest, spot)).or_default().push((world, *spot, bytes.len()));
        }
    }
    let mut targets = Vec::new();
    let mut round = 0;
    while targets.len() < runs.max(types.len()) {
        for (index, places) in types.values().enumerate() {
            let (world, spot, len) = places[random.below(places.len())];
            let kind = KINDS[(index + round) % KINDS.len()];
            let act = match kind {
                Kind::TopBit => Act::Flip(if len < 4 { 0 } else { 31 }),
                Kind::Flip => Act::Flip(random.below(8 * len)),
                Kind::Add => Act::Add(4 * random.below(len.div_ceil(4)), 1),
                Kind::OtherSession => Act::Replace(honest[world].other[&spot].clone()),
                Kind::Replay => Act::Replay,
                Kind::Truncate => Act::Truncate,
                Kind::Swap => Act::Swap,
                Kind::Withhold => Act::Withhold,
            };
            let (node, gate, ..) = name(&honest[world], &spot);
            targets.push((world, Target { world: worlds[world], kind, spot, act, name: (node, gate) }));
        }
        round += 1;
    }
    targets.truncate(runs.max(types.len()));

    let results = each(&targets, |(world, target)| {
        let cheat = Cheat {
            cheaters: vec![target.spot.from],
            rules: vec![Rule { spot: target.spot, received: false, act: target.act.clone() }],
            misfits: Vec::new(),
        };
        let first = run(target.world, &cheat);
        let mut tally = judge(&first, &cheat, &honest[*world].due[0]);
        let waits = matches!(target.kind, Kind::Swap | Kind::Withhold | Kind::Truncate | Kind::OtherSession);
        if tally.runs > 0 && !waits {
            let other = run(World { secrets: 1, ..target.world }, &cheat);
            tally.told = usize::from(tells(&first, &other, &cheat));
            tally.add(&judge(&other, &cheat, &honest[*world].due[1]));
        }
        tally
    });

    let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
    let (mut changed, mut harmful) = (HashSet::new(), HashSet::new());
    for ((world, target), tally) in targets.iter().zip(&results) {
        let kind = name(&honest[*world], &target.spot);
        if tally.runs > 0 {
            changed.insert(kind);
        }
        if tally.harmless < tally.runs {
            harmful.insert(kind);
        }
        let row = rows.entry(target.name.0).or_default();
        row.gate = target.name.1.into();
        row.tally.add(tally);
        if tally.is_bad() {
            eprintln!("{:?} of {:?} in {:?}, {:?}: {tally:?}", target.kind, kind, target.world.adder, target.act);
        }
    }
    for kind in types.keys() {
        let row = rows.entry(kind.0).or_default();
        row.types += 1;
        row.changed += usize::from(changed.contains(kind));
        if changed.contains(kind) && !harmful.contains(kind) {
            let (_, _, offline, from, to, number) = kind;
            let step = if *offline { "offline" } else { "online" };
            row.always_harmless.push(format!("{step} {number} from {from} to {to}"));
        }
    }
    Ok(rows.into_values().collect())
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
