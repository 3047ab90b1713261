//! Every gate's program over small rings: right for every value and every way it can be shared, and what a party receives
//! balanced, bit by bit and pair by pair, whatever the other's summand is.
//!
//! The OTs are a dealer's, so that this is about the programs; the masks behind each message are what `covey-ot` tests.

mod distributions;
mod formulas;
mod io;
mod lookups;
mod products;
mod rings;
mod views;

use std::sync::Arc;

use covey_ot::ideal::Dealer;
use covey_ring::Ring;

use super::comparison::{Shape, WIDEST};
use super::gate::Gate;
use super::gates::Read;
use super::program::GateProgram;
use super::share::Arithmetic;
use super::{division, gates, odd};
use crate::api::{Rounding, Truncation};
use crate::circuits::{Adder, CarryCircuit};
use crate::machine::{Inbox, Machine, Outbox, Step};

type Values = super::program::Values<u64>;
/// What a party received, block by block, one number an element.
type View = Vec<Vec<u64>>;

/// Both parties over one tile, in lockstep, with OTs from dealers seeded by `seed`.
fn run(program: &Arc<GateProgram<u64>>, inputs: [Values; 2], len: usize, seed: u64) -> ([Values; 2], [View; 2]) {
    let dealt = [0, 1].map(|sender| Dealer::new(2 * seed + sender as u64).deal(program.correlated_ots[sender] * len));
    let mut machines = inputs.into_iter().enumerate().map(|(me, inputs)| {
        let ots = (dealt[me].0.view(), dealt[1 - me].1.view());
        Gate::new(program.clone(), me, len, inputs, ots)
    });
    let machines = [machines.next().unwrap(), machines.next().unwrap()];
    exchange(program, machines, len)
}

/// Both parties' gates over one tile, in lockstep.
fn exchange(program: &GateProgram<u64>, mut machines: [Gate<u64>; 2], len: usize) -> ([Values; 2], [View; 2]) {
    let mut views = [View::new(), View::new()];
    let layout = program.layout(len);
    assert_eq!(
        (layout.rounds(), layout.ot_count().by_sender),
        (program.rounds, program.correlated_ots.map(|t| (t * len) as u64))
    );
    for step in std::iter::once(Step::Offline).chain((0..program.rounds).map(Step::Online)) {
        let mut outboxes = [Outbox::new(2), Outbox::new(2)];
        machines.iter_mut().zip(&mut outboxes).for_each(|(machine, out)| machine.local(step, out));
        for (me, machine) in machines.iter_mut().enumerate() {
            let mut inbox = Inbox::new(2);
            let due = layout.due(step, me).next();
            let bytes = outboxes[1 - me].take(me);
            assert_eq!(bytes.len(), due.map_or(0, |message| message.len), "a message of {step:?}");
            if due.is_some() {
                inbox.put(1 - me, bytes);
                machine.absorb(step, &mut inbox);
                views[me].append(&mut inbox.read);
            }
        }
    }
    (machines.map(Machine::finish), views)
}

/// The shapes comparisons are tested with.
fn shapes() -> Vec<Shape> {
    let trees = (1..=WIDEST).map(|radix| Shape { radix, ripples: false });
    trees.chain([1, 2].map(|radix| Shape { radix, ripples: true })).collect()
}

/// All pairs of summands in `ring`.
fn all_pairs(ring: Ring) -> (Vec<u64>, Vec<u64>) {
    let modulus = match ring {
        Ring::Pow2(l) => 1 << l,
        Ring::Odd(n) => n,
    };
    (0..modulus).flat_map(|x0| (0..modulus).map(move |x1| (x0, x1))).unzip()
}

/// Junk above the ring's bits: it must not matter.
fn dirty(ring: Ring, words: Vec<u64>) -> Vec<u64> {
    match ring {
        Ring::Pow2(l) => words.into_iter().enumerate().map(|(i, x)| x | (i as u64 ^ 0x5a).unbounded_shl(l)).collect(),
        Ring::Odd(_) => words,
    }
}

fn plane(bits: impl Iterator<Item = u64>) -> Vec<u64> {
    let bits: Vec<u64> = bits.collect();
    bits.chunks(64).map(|bits| bits.iter().enumerate().fold(0, |word, (i, bit)| word | bit << i)).collect()
}

fn bit(plane: &[u64], element: usize) -> u64 {
    plane[element / 64] >> (element % 64) & 1
}

/// Runs a program on every sharing of every value of `ring` and checks each result against `due`, given as signed integers;
/// values for which `due` says nothing are outside its bounds.
fn check_words(name: &str, ring: Ring, program: &Arc<GateProgram<u64>>, due: impl Fn(i64) -> Option<i64>) {
    let arithmetic = Arithmetic::new(ring);
    let (x0, x1) = all_pairs(ring);
    let inputs = [x0.clone(), x1.clone()].map(|x| (vec![dirty(ring, x)], vec![]));
    let (outputs, _) = run(program, inputs, x0.len(), 1);
    let mut checked = 0;
    for i in 0..x0.len() {
        let x = ring.signed(arithmetic.add(x0[i], x1[i]));
        let Some(due) = due(x) else { continue };
        let found = ring.reduce(arithmetic.add(outputs[0].0[0][i], outputs[1].0[0][i]));
        assert_eq!(found, ring.wrap::<u64>(due.into()), "{name} of {x} = {} + {} in {ring}", x0[i], x1[i]);
        checked += 1;
    }
    assert!(checked > 0, "{name} in {ring}: no values");
}

fn check_bits(name: &str, ring: Ring, program: &Arc<GateProgram<u64>>, due: impl Fn(i64) -> Option<u64>) {
    let arithmetic = Arithmetic::new(ring);
    let (x0, x1) = all_pairs(ring);
    let inputs = [x0.clone(), x1.clone()].map(|x| (vec![dirty(ring, x)], vec![]));
    let (outputs, _) = run(program, inputs, x0.len(), 2);
    for i in 0..x0.len() {
        let x = ring.signed(arithmetic.add(x0[i], x1[i]));
        let Some(due) = due(x) else { continue };
        let planes = outputs[0].1.iter().zip(&outputs[1].1);
        let found = planes.enumerate().fold(0, |found, (p, (a, b))| found | (bit(a, i) ^ bit(b, i)) << p);
        assert_eq!(found, due, "{name} of {x} = {} + {} in {ring}", x0[i], x1[i]);
    }
}

/// What a comparison in a ring of l bits reads.
fn read(l: u32) -> Read {
    Read { bits: l - 1, skipped: 0 }
}

#[test]
fn signs_and_rectifiers() {
    for l in 4..=6 {
        let ring = Ring::Pow2(l);
        for shape in shapes() {
            let name = format!("{shape:?}");
            check_bits(&name, ring, &gates::msb(read(l), shape), |x| Some(u64::from(x < 0)));
            check_words(&name, ring, &gates::relu(l, read(l), shape), |x| Some(x.max(0)));
            for bound in 1..l {
                let proved = read(bound + 1);
                let inside = |x: i64| x.abs() < 1 << bound;
                check_bits(&name, ring, &gates::msb(proved, shape), |x| inside(x).then_some(u64::from(x < 0)));
                check_words(&name, ring, &gates::relu(l, proved, shape), |x| inside(x).then_some(x.max(0)));
            }
        }
    }
    for n in [5, 7, 9, 15, 17, 29, 31, 33, 63] {
        for shape in shapes() {
            for holder in [0, 1] {
                check_bits("sign", Ring::Odd(n), &odd::msb(n, shape, holder), |x| Some(u64::from(x < 0)));
                check_words("relu", Ring::Odd(n), &odd::relu(n, shape, holder), |x| Some(x.max(0)));
            }
        }
    }
}

#[test]
fn shifts() {
    for l in 4..=6 {
        let ring = Ring::Pow2(l);
        for shape in shapes() {
            for bits in 1..=l - 2 {
                for bound in [l - 2, l - 1] {
                    let truncation = Truncation { bits, rounding: Rounding::Exact, bound };
                    let inside = |x: i64| x.abs() < 1 << bound;
                    let program = gates::truncate(l, truncation, shape);
                    check_words("shift", ring, &program, |x| inside(x).then_some(x >> bits));
                    let relu = gates::truncate_relu(l, truncation, read(l - bits), shape);
                    check_words("shift, relu", ring, &relu, |x| inside(x).then_some((x >> bits).max(0)));
                    for shifted in 1..l - bits {
                        let proved = read(shifted + 1);
                        let relu = gates::truncate_relu(l, truncation, proved, shape);
                        let inside =
                            |x: i64| inside(x) && (x >> bits).abs() < 1 << shifted && x.abs() < 1 << (shifted + bits);
                        check_words("proved", ring, &relu, |x| inside(x).then_some((x >> bits).max(0)));
                    }
                }
            }
        }
    }
}

/// Comparisons that leave bits out err near 0 only, and yield the value or 0 there.
#[test]
fn approximate_rectifiers() {
    let (l, ring) = (6, Ring::Pow2(6));
    let (x0, x1) = all_pairs(ring);
    for (f, skipped) in [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)] {
        for rounding in [Rounding::Exact, Rounding::Ulp] {
            let (read, bound) = (Read { bits: 4 - f - skipped, skipped }, 4);
            let shape = Shape { radix: 2, ripples: false };
            let truncation = Truncation { bits: f, rounding, bound };
            let program = match f {
                0 => gates::relu(l, read, shape),
                _ => gates::truncate_relu(l, truncation, read, shape),
            };
            let (outputs, _) = run(&program, [x0.clone(), x1.clone()].map(|x| (vec![x], vec![])), x0.len(), 8);
            let mut wrong = 0;
            for i in 0..x0.len() {
                let x = ring.signed(x0[i].wrapping_add(x1[i]));
                // What is left out may carry the largest values past the bits read.
                if x.abs() >= (1 << bound) - (1 << (f + skipped)) {
                    continue;
                }
                let found = ring.signed(outputs[0].0[0][i].wrapping_add(outputs[1].0[0][i]));
                let slack = i64::from(rounding == Rounding::Ulp && f > 0);
                let is = |due: i64| (0..=slack).contains(&(found - due));
                let right = is((x >> f).max(0)) || (found == 0 && x >> f <= 0);
                if !right {
                    wrong += 1;
                    assert!((x >> f).abs() <= 1 << skipped && (found == 0 || is(x >> f)), "{x} >> {f} gave {found}");
                }
            }
            // With one bit left out, only values that give 0 either way are mistaken.
            assert!(wrong > 0 || skipped == 1, "no error: that is the exact form");
        }
    }
}

#[test]
fn clips() {
    for l in 4..=6 {
        let ring = Ring::Pow2(l);
        let half = 1i64 << (l - 1);
        for (low, high) in [(0, 6), (0, half - 1), (-3, 4), (-2, -2), (1 - half, 0), (0, 1), (-half / 2, half / 2)] {
            // What is compared must be in the ring.
            let inside = |x: i64| [low, high].iter().all(|end| (-half..half).contains(&(x - end)));
            for (number, shape) in shapes().into_iter().enumerate() {
                let program = gates::clip(l, read(l), (low, high), shape, number % 2);
                let due = |x: i64| inside(x).then(|| x.clamp(low, high));
                check_words(&format!("clip to {low}..{high}"), ring, &program, due);
            }
            for bound in 1..l - 1 {
                let within = |x: i64| inside(x) && [low, high].iter().all(|end| (x - end).abs() < 1 << bound);
                if !(-half..half).any(within) {
                    continue;
                }
                let program = gates::clip(l, read(bound + 1), (low, high), Shape { radix: 2, ripples: false }, 1);
                check_words("proved", ring, &program, |x| within(x).then(|| x.clamp(low, high)));
            }
        }
    }
}

/// A shift without its rounding bit is off by one at most, and upwards.
#[test]
fn shifts_to_the_last_place() {
    for l in 4..=6 {
        let ring = Ring::Pow2(l);
        let (x0, x1) = all_pairs(ring);
        for bits in 1..=l - 2 {
            let truncation = Truncation { bits, rounding: Rounding::Ulp, bound: l - 2 };
            let program = gates::truncate(l, truncation, Shape { radix: 2, ripples: false });
            // P1 sends the bits of the wrap, P0 its choice.
            assert_eq!((program.rounds, program.bits()), (1, [1, bits as usize]));
            let (outputs, _) = run(&program, [x0.clone(), x1.clone()].map(|x| (vec![x], vec![])), x0.len(), 3);
            let mut off = 0;
            for i in 0..x0.len() {
                let x = ring.signed(x0[i] + x1[i]);
                if x.abs() < 1 << (l - 2) {
                    let error = ring.signed(outputs[0].0[0][i].wrapping_add(outputs[1].0[0][i])) - (x >> bits);
                    assert!((0..=1).contains(&error), "{x} >> {bits} in {ring} off by {error}");
                    off += error;
                }
            }
            assert!(off > 0, "never off: that is the exact form");
        }
    }
}

#[test]
fn divisions() {
    for ring in [4, 5, 6].map(Ring::Pow2).into_iter().chain([17, 29, 31, 61, 63].map(Ring::Odd)) {
        let mut admitted = 0;
        for divisor in 1..=20 {
            for bound in 1..ring.bits() {
                if !division::admits::<u64>(ring, divisor, bound) {
                    continue;
                }
                admitted += 1;
                for (radix, holder) in [(1, 0), (2, 1), (3, 0)] {
                    let program = division::floor(ring, divisor, bound, Shape { radix, ripples: false }, holder);
                    let due = |x: i64| (x.abs() < 1 << bound).then(|| x.div_euclid(divisor as i64));
                    check_words(&format!("division by {divisor}"), ring, &program, due);
                }
            }
        }
        assert!(admitted >= 10, "{ring}: {admitted}");
    }
}

#[test]
fn decompositions() {
    for l in 4..=6 {
        for adder in [Adder::LogDepth, Adder::Ripple] {
            let program = gates::a2b(l, &CarryCircuit::carries(l as usize - 1, adder));
            check_bits("bits", Ring::Pow2(l), &program, |x| Some(x as u64 & ((1 << l) - 1)));
        }
    }
}

#[test]
fn products_selections_and_conversions() {
    for ring in [Ring::Pow2(4), Ring::Pow2(5), Ring::Odd(5), Ring::Odd(11)] {
        let arithmetic = Arithmetic::new(ring);
        let (x0, x1) = all_pairs(ring);
        let modulus = (x0.len() as f64).sqrt() as usize;
        // Every sharing of every b, 0 or 1, and of every y, against every sharing of every x.
        let repeat = |values: &[u64], times: usize| values.iter().flat_map(|&v| vec![v; times]).collect::<Vec<_>>();
        let cycle = |values: &[u64], times: usize| values.repeat(times);
        let pairs = modulus * modulus;
        let (xs, ys) = ([&x0, &x1].map(|x| repeat(x, pairs)), [&x0, &x1].map(|y| cycle(y, pairs)));
        let len = pairs * pairs;
        let inputs = [0, 1].map(|p| (vec![dirty(ring, xs[p].clone()), dirty(ring, ys[p].clone())], vec![]));
        let (outputs, _) = run(&gates::mul(ring), inputs, len, 4);
        for i in 0..len {
            let value = |x: &[Vec<u64>; 2]| arithmetic.add(x[0][i], x[1][i]);
            let due = ring.reduce(arithmetic.mul(ring.reduce(value(&xs)), ring.reduce(value(&ys))));
            let found = ring.reduce(arithmetic.add(outputs[0].0[0][i], outputs[1].0[0][i]));
            assert_eq!(found, due, "product in {ring}");
        }
        let bits: Vec<[u64; 2]> = (0..4).map(|b| [b & 1, b >> 1]).collect();
        let planes = [0, 1].map(|p| plane((0..4 * pairs).map(|i| bits[i % 4][p])));
        let xs = [&x0, &x1].map(|x| repeat(x, 4));
        let inputs = [0, 1].map(|p| (vec![dirty(ring, xs[p].clone())], vec![planes[p].clone()]));
        let (selected, _) = run(&gates::select(ring), inputs, 4 * pairs, 5);
        let (converted, _) = run(&gates::bit2a(ring), [0, 1].map(|p| (vec![], vec![planes[p].clone()])), 4 * pairs, 6);
        for i in 0..4 * pairs {
            let b = bits[i % 4][0] ^ bits[i % 4][1];
            let sum = |x: [&[u64]; 2]| ring.reduce(arithmetic.add(x[0][i], x[1][i]));
            assert_eq!(sum([&converted[0].0[0], &converted[1].0[0]]), b, "bit in {ring}");
            let due = b * sum([&xs[0], &xs[1]]);
            assert_eq!(sum([&selected[0].0[0], &selected[1].0[0]]), due, "selection in {ring}");
        }
    }
    let quarters = |from: u64| plane((0..16).map(move |i| i >> from & 1));
    let inputs = [0, 1].map(|p| (vec![], vec![quarters(p), quarters(p), quarters(p + 2), quarters(2 + p)]));
    let (outputs, _) = run(&gates::and(2), inputs, 16, 7);
    for i in 0..16u64 {
        let due = ((i ^ i >> 1) & (i >> 2 ^ i >> 3)) & 1;
        for p in 0..2 {
            assert_eq!(bit(&outputs[0].1[p], i as usize) ^ bit(&outputs[1].1[p], i as usize), due);
        }
    }
}
