//! A party's whole view, over all randomness it lacks: on a ring of four bits, the multiset of everything it receives is the same
//! whatever the other's summands are. Its own summands, and all it knows of the OTs, stand fixed.
//!
//! The OTs' pads are independent uniform strings here, as in the proof (the hash is a random oracle): of a table or a product the
//! receiver knows r and one pad, the sender all pads and not r.

use covey_ot::bits::{BitReceiver, BitSender};
use covey_ot::table::{TableReceiver, TableSender};
use covey_ot::words::{WordReceiver, WordSender};

use super::super::gate::Pads;
use super::super::lookup::{Tables, lookup};
use super::super::program::{Op, table_shape};
use super::super::rings::{Extension, Resize};
use super::lookups::{tables, without_random_bits};
use super::*;

const RING: Ring = Ring::Pow2(4);

/// One element's randomness of one instruction: r, and the pads in the order of the entries, or A and B.
struct Drawn {
    random: u64,
    pads: Vec<u64>,
}

/// Hands out bits: of a number that is gone through, or of a fixed one.
struct Bits {
    state: u64,
    enumerated: u64,
    taken: u32,
}

impl Bits {
    fn unknown(&mut self, width: u32) -> u64 {
        let bits = self.enumerated >> self.taken & ((1 << width) - 1);
        self.taken += width;
        bits
    }

    fn known(&mut self, width: u32) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> 40 & ((1 << width) - 1)
    }

    /// What there is of an instruction: `choices` bits of r, pads of `width` bits. The viewer lacks r, or all pads but that of r.
    fn draw(&mut self, choices: u32, width: u32, viewer_sends: bool) -> Drawn {
        let entries = 1 << choices;
        if viewer_sends {
            return Drawn { random: self.unknown(choices), pads: (0..entries).map(|_| self.known(width)).collect() };
        }
        let random = self.known(choices);
        let pad = |entry| if entry == random { self.known(width) } else { self.unknown(width) };
        Drawn { random, pads: (0..entries).map(pad).collect() }
    }
}

/// `count` planes of numbers.
fn planes(values: impl Iterator<Item = u64> + Clone, count: usize) -> Vec<u64> {
    (0..count).flat_map(|bit| plane(values.clone().map(move |value| value >> bit & 1))).collect()
}

/// The pads of an instruction for all elements, at party `me`.
fn pads(op: &Op<u64>, me: usize, drawn: &[Drawn]) -> Pads<u64> {
    let len = drawn.len();
    let random = |bits: usize| planes(drawn.iter().map(|one| one.random), bits);
    let pad = |entry: usize| drawn.iter().map(move |one| one.pads[entry]);
    let own = drawn.iter().map(|one| one.pads[one.random as usize]);
    match op {
        Op::Local(_) | Op::Open { .. } => Pads::None,
        Op::Random { sender, .. } => {
            if *sender == me {
                Pads::None
            } else {
                Pads::Random(random(1))
            }
        }
        Op::Lookup { sender, index, out, .. } => {
            let shape = table_shape(index, out, len);
            match *sender == me {
                true => {
                    let all = (0..shape.entries()).flat_map(|entry| planes(pad(entry), shape.width)).collect();
                    Pads::TableSender(TableSender::given(shape, all))
                }
                false => {
                    Pads::TableReceiver(TableReceiver::given(shape, random(index.len()), planes(own, shape.width)))
                }
            }
        }
        Op::Bits { sender, values, .. } => {
            let width = values.len();
            match *sender == me {
                true => Pads::BitSender(BitSender::given(len, width, planes(pad(0), width), &planes(pad(1), width))),
                false => Pads::BitReceiver(BitReceiver::given(random(1), planes(own, width))),
            }
        }
        Op::Words { sender, ring, .. } => match *sender == me {
            true => Pads::WordSender(WordSender::given(1, *ring, pad(0).collect(), pad(1).collect())),
            false => Pads::WordReceiver(WordReceiver::given(1, *ring, random(1), own.collect())),
        },
    }
}

/// The party of an instruction's tables or products, the bits of its choice and of a pad.
fn sizes(op: &Op<u64>) -> Option<(usize, u32, u32)> {
    match op {
        Op::Local(_) | Op::Open { .. } => None,
        Op::Random { sender, .. } => Some((*sender, 1, 0)),
        Op::Lookup { sender, index, out, .. } => Some((*sender, index.len() as u32, out.len() as u32)),
        Op::Bits { sender, values, .. } => Some((*sender, 1, values.len() as u32)),
        Op::Words { sender, ring, .. } => Some((*sender, 1, ring.bits())),
    }
}

/// Bits of randomness that `viewer` lacks.
fn lacking(program: &GateProgram<u64>, viewer: usize) -> u32 {
    let sizes = program.ops.iter().filter_map(|(_, op)| sizes(op));
    let lacks = |(sender, choices, width): (usize, u32, u32)| match sender == viewer {
        true => choices,
        false => ((1 << choices) - 1) * width,
    };
    sizes.map(lacks).sum()
}

/// What to look at.
struct Case {
    name: &'static str,
    program: Arc<GateProgram<u64>>,
    /// The value of the results, words then planes, of the values of the inputs.
    due: fn(&[u64]) -> Option<Vec<u64>>,
    /// Whether two instructions shall share their randomness: a defect.
    reuses: bool,
}

impl Case {
    /// A party's inputs of this number: every word is one digit of it, every plane one bit.
    fn inputs(&self, mut number: u64, len: usize) -> Values {
        let (words, planes) = &self.program.inputs;
        let words = words.iter().map(|_| {
            let word = number % 16;
            number /= 16;
            vec![word; len]
        });
        let words = words.collect();
        let planes = planes.iter().map(|_| {
            let bit = number % 2;
            number /= 2;
            plane((0..len).map(|_| bit))
        });
        (words, planes.collect())
    }

    /// How many such numbers there are.
    fn numbers(&self) -> u64 {
        let (words, planes) = &self.program.inputs;
        1 << (4 * words.len() + planes.len())
    }

    /// The views of `viewer`, sorted, on these summands; checks the results on the way.
    fn views(&self, viewer: usize, own: u64, other: u64, seed: u64) -> Vec<u128> {
        let lacking = lacking(&self.program, viewer);
        let len = 1usize << lacking;
        let mut drawn: Vec<Vec<Drawn>> = self.program.ops.iter().map(|_| Vec::with_capacity(len)).collect();
        for element in 0..len as u64 {
            let mut bits = Bits { state: seed, enumerated: element, taken: 0 };
            for ((_, op), drawn) in self.program.ops.iter().zip(&mut drawn) {
                let Some((sender, choices, width)) = sizes(op) else { continue };
                if self.reuses {
                    bits.taken = 0;
                }
                drawn.push(bits.draw(choices, width, sender == viewer));
            }
        }
        let mut inputs = [self.inputs(own, len), self.inputs(other, len)];
        if viewer == 1 {
            inputs.reverse();
        }
        let mut machines = inputs.clone().into_iter().enumerate().map(|(me, inputs)| {
            let pads = self.program.ops.iter().zip(&drawn).map(|((_, op), drawn)| pads(op, me, drawn)).collect();
            Gate::with(self.program.clone(), me, len, inputs, pads)
        });
        let machines = [machines.next().unwrap(), machines.next().unwrap()];
        let (outputs, views) = exchange(&self.program, machines, len);
        let values = inputs[0].0.iter().zip(&inputs[1].0).map(|(a, b)| RING.reduce(a[0].wrapping_add(b[0])));
        let bits = inputs[0].1.iter().zip(&inputs[1].1).map(|(a, b)| (a[0] ^ b[0]) & 1);
        if let Some(due) = (self.due)(&values.chain(bits).collect::<Vec<u64>>()) {
            for element in 0..len {
                let words = outputs[0].0.iter().zip(&outputs[1].0);
                let words = words.map(|(a, b)| RING.reduce(a[element].wrapping_add(b[element])));
                let planes = outputs[0].1.iter().zip(&outputs[1].1).map(|(a, b)| bit(a, element) ^ bit(b, element));
                assert!(words.chain(planes).eq(due.iter().copied()), "{}: {due:?} is due", self.name);
            }
        }
        let received = |element: usize| {
            views[viewer].iter().fold(0u128, |view, block| {
                assert!(view >> 120 == 0 && block[element] < 16);
                view << 4 | u128::from(block[element])
            })
        };
        assert!(views[viewer].len() <= 31, "{}: {} blocks", self.name, views[viewer].len());
        let mut views: Vec<u128> = (0..len).map(received).collect();
        views.sort_unstable();
        views
    }

    /// The first summand of the other's that shows in a view, of `most` that are tried for each of the viewer's.
    fn leak(&self, most: u64) -> Option<String> {
        let numbers = self.numbers();
        let sample = |count: u64| (0..count.min(numbers)).map(move |i| i * numbers / count.min(numbers));
        for viewer in 0..2 {
            let lacks = lacking(&self.program, viewer);
            assert!((1..=18).contains(&lacks), "{}: P{viewer} lacks {lacks} bits", self.name);
            let (owns, others) = if lacks > 12 { (2, 6) } else { (most, most) };
            for (own, seed) in sample(owns).zip([5, 77].into_iter().cycle()) {
                let mut due = None;
                for other in sample(others) {
                    let found = self.views(viewer, own, other, seed);
                    if *due.get_or_insert_with(|| found.clone()) != found {
                        return Some(format!("{}: P{viewer} with {own} tells {other} from 0", self.name));
                    }
                }
            }
        }
        None
    }
}

fn check(name: &'static str, program: Arc<GateProgram<u64>>, due: fn(&[u64]) -> Option<Vec<u64>>) {
    let case = Case { name, program, due, reuses: false };
    assert_eq!(case.leak(16), None);
}

fn signed(x: u64) -> i64 {
    RING.signed(x)
}

fn one(x: i64) -> Option<Vec<u64>> {
    Some(vec![RING.wrap(x.into())])
}

fn tree(radix: usize) -> Shape {
    Shape { radix, ripples: false }
}

#[test]
fn signs() {
    for radix in [1, 2, 3] {
        check("sign", gates::msb(read(4), tree(radix)), |x| Some(vec![u64::from(signed(x[0]) < 0)]));
    }
}

#[test]
fn rectifiers() {
    for radix in [1, 2] {
        check("relu", gates::relu(4, read(4), tree(radix)), |x| one(signed(x[0]).max(0)));
    }
}

#[test]
fn shifts() {
    for (bits, rounding, bound) in [(1, Rounding::Exact, 2), (2, Rounding::Exact, 2), (2, Rounding::Exact, 3)] {
        let truncation = Truncation { bits, rounding, bound };
        let due: fn(&[u64]) -> Option<Vec<u64>> = match (bits, bound) {
            (1, _) => |x| one((signed(x[0]).abs() < 4).then(|| signed(x[0]) >> 1)?),
            (_, 2) => |x| one((signed(x[0]).abs() < 4).then(|| signed(x[0]) >> 2)?),
            _ => |x| one((signed(x[0]).abs() < 8).then(|| signed(x[0]) >> 2)?),
        };
        check("shift", gates::truncate(4, truncation, tree(2)), due);
    }
    let truncation = Truncation { bits: 2, rounding: Rounding::Ulp, bound: 2 };
    check("shift to the last place", gates::truncate(4, truncation, tree(2)), |_| None);
    let truncation = Truncation { bits: 1, rounding: Rounding::Exact, bound: 2 };
    check("shift and relu", gates::truncate_relu(4, truncation, read(3), tree(1)), |x| {
        one((signed(x[0]).abs() < 4).then(|| (signed(x[0]) >> 1).max(0))?)
    });
}

#[test]
fn selections_and_conversions() {
    check("selection", gates::select(RING), |x| Some(vec![x[0] * x[1]]));
    check("conversion", gates::bit2a(RING), |b| Some(vec![b[0]]));
    check("and", gates::and(1), |b| Some(vec![b[0] & b[1]]));
}

#[test]
fn products() {
    check("product", gates::mul(RING), |x| Some(vec![x[0] * x[1] % 16]));
}

#[test]
fn decompositions() {
    let circuit = CarryCircuit::carries(3, Adder::LogDepth);
    check("bits", gates::a2b(4, &circuit), |x| Some((0..4).map(|i| x[0] >> i & 1).collect()));
}

#[test]
fn steps_between_rings() {
    let extend = |extension| Resize::Extend { bits: 3, extension }.program(4, tree(2));
    check("extension", extend(Extension::Unsigned), |x| Some(vec![x[0] % 8]));
    check("signed extension", extend(Extension::Signed), |x| one(Ring::Pow2(3).signed(x[0] % 8)));
    check("truncation that reduces", Resize::TruncateReduce { shift: 2 }.program(4, tree(2)), |_| None);
}

/// Of the index as of any other number: what is opened tells nothing of either.
#[test]
fn lookups() {
    fn due<const K: u32, const COUNT: usize>(x: &[u64]) -> Option<Vec<u64>> {
        (x[0] >> K == 0).then(|| tables(RING, K, COUNT).iter().map(|table| table[x[0] as usize]).collect())
    }
    let program = |k, count, top| lookup(4, &Tables::of(&tables(RING, k, count)), top);
    check("a table of 2", program(1, 1, 0), due::<1, 1>);
    check("two tables of 2", program(1, 2, 0), due::<1, 2>);
    check("a table of 4", program(2, 1, 0), due::<2, 1>);
    check("two tables of 4", program(2, 2, 0), due::<2, 2>);
    check("a table of 4, a bit left out", program(2, 1, 1), due::<2, 1>);
    check("a table of 8", program(3, 1, 0), due::<3, 1>);
    check("a table of 8, a bit left out", program(3, 1, 1), due::<3, 1>);
}

/// Where one party's random bits are known, what is opened tells it the index.
#[test]
fn an_index_under_a_known_mask_is_seen() {
    for (k, top) in [(1, 0), (2, 0), (2, 1)] {
        for sender in [0, 1] {
            let program = lookup(4, &Tables::of(&tables(RING, k, 1)), top);
            let program = without_random_bits(program, sender);
            let found = Case { name: "a known mask", program, due: |_| None, reuses: false }.leak(16);
            assert!(found.is_some_and(|found| found.contains(&format!("P{sender} "))), "P{sender}, 2^{k}, {top}");
        }
    }
}

/// Two instructions under the same randomness are seen.
#[test]
fn reuse_is_seen() {
    let looked_up = lookup(4, &Tables::of(&tables(RING, 2, 1)), 0);
    for program in [gates::msb(read(4), tree(2)), gates::select(RING), gates::mul(RING), looked_up] {
        let case = Case { name: "reuse", program, due: |_| None, reuses: true };
        assert!(case.leak(16).is_some());
    }
}
