//! The largest of several values: alone, and with a ReLU and a shift.

use std::cell::Cell;

use covey_kernels::Buffer;
use covey_ring::Ring;
use covey_transport::Phase as StepKind;

use super::super::largest::{Largest, LargestPlan, Row};
use super::super::site::purpose;
use super::{Case, Shared, reconstruct};
use crate::api::{Comparison, Costs, Maximum, NetworkProfile, Options, Rounding, Truncation};
use crate::circuits::digits::{Circuit, Root, Tree};
use crate::cost::Gate;
use crate::randomness::script::Script;
use crate::trio::Trio;

/// Values of L bits, shifted by F.
struct LargestCase<'a, const L: u32, const F: u32> {
    values: usize,
    /// Compares two values.
    pair: Tree,
    /// Compares one with 0, where a ReLU follows.
    sign: Option<(Root, Tree)>,
    secrets: &'a [Vec<i64>],
}

fn width<const L: u32, const F: u32>(purpose: u32) -> u32 {
    match purpose {
        p if F > 0 && (purpose::LARGEST..purpose::LARGEST + 32).contains(&p) && (p - purpose::LARGEST) % 5 > 2 => F,
        _ => L,
    }
}

impl<const L: u32, const F: u32> LargestCase<'_, L, F> {
    fn on<T>(
        &self,
        width: fn(u32) -> u32,
        blank: Option<(u32, usize)>,
        check: impl FnOnce(&Case<Largest<u32>>) -> T,
    ) -> T {
        let ring = Ring::Pow2(L);
        let circuit = |tree: &Tree| Circuit { tree: tree.clone(), offline: 0, online: 0 };
        let sign = self.sign.as_ref().map(|(root, tree)| (*root, circuit(tree)));
        let plan = LargestPlan::new(self.values, F, ring, &circuit(&self.pair), sign.as_ref());
        let rectifies = plan.rectifies;
        check(&Case {
            name: &format!("largest of {}, l = {L}, f = {F}, rectified: {rectifies}", self.values),
            ring,
            secrets: self
                .secrets
                .iter()
                .map(|s| s.iter().map(|&v| u64::from(ring.reduce(v as u32))).collect())
                .collect(),
            width,
            blank,
            build: &|site, s| {
                let row = |(index, &x): (usize, &u64)| {
                    let x = Shared::new(&site, index as u32, x);
                    Row { sum: Buffer::copy_of(&x.sum()), mask: Buffer::copy_of(&x.second) }
                };
                let rows = s.iter().enumerate().map(row).collect();
                Largest::new(site, plan.clone(), rows)
            },
            output: &reconstruct(ring),
            expected: &|s, z| {
                let signed = |v: u64| ring.signed(v as u32);
                let largest = s.iter().map(|&v| signed(v)).max().unwrap();
                let result = if rectifies { largest.max(0) >> F } else { largest - signed(*s.last().unwrap()) };
                z == u64::from(ring.reduce(result as u32))
            },
        })
    }

    fn leak(&self) -> Option<String> {
        self.on(width::<L, F>, None, |case| case.leak())
    }

    /// Outputs alone, under `count` masks drawn at random.
    fn outputs(&self, count: u64) {
        self.on(width::<L, F>, None, |case| {
            for secrets in &case.secrets {
                for seed in 0..count {
                    let scripts = [0, 1, 2].map(|pair| Script::new(false, 0, case.width, 3 * seed + pair, None));
                    let (_, results) = case.run(secrets, [&scripts[0], &scripts[1], &scripts[2]], 1, 1);
                    for value in (case.output)(&results[1], &results[2], 0) {
                        assert!((case.expected)(secrets, value), "{}: secrets {secrets:?} gave {value}", case.name);
                    }
                }
            }
        });
    }
}

fn digits(bits: &[usize]) -> Tree {
    match bits {
        [bits] => Tree::Digit(*bits),
        bits => Tree::Node(bits.iter().map(|&bits| Tree::Digit(bits)).collect()),
    }
}

/// All tuples of `values` values from `low` to below `high`.
fn tuples(values: usize, low: i64, high: i64) -> Vec<Vec<i64>> {
    (0..values).fold(vec![Vec::new()], |tuples, _| {
        let longer = |tuple: Vec<i64>| (low..high).map(move |v| [&tuple[..], &[v]].concat());
        tuples.into_iter().flat_map(longer).collect()
    })
}

#[test]
fn views_of_the_largest() {
    let (pair, sign) = (digits(&[1]), Some((Root::SharedSign, digits(&[1]))));
    // Differences are within the ring.
    let two = LargestCase::<2, 0> { values: 2, pair: pair.clone(), sign, secrets: &tuples(2, -1, 1) };
    assert_eq!(two.leak(), None);
    let few = &[vec![0, 0, 0], vec![0, 1, 0], vec![1, 0, 1]];
    let three = LargestCase::<2, 0> { values: 3, pair: pair.clone(), sign: None, secrets: few };
    assert_eq!(three.leak(), None);
    for root in [Root::SignOverBorrow, Root::SharedSignAndBorrow(0)] {
        let sign = Some((root, digits(&[1, 1])));
        let shifted = LargestCase::<3, 1> {
            values: 1,
            pair: pair.clone(),
            sign,
            secrets: &[vec![-4], vec![-1], vec![1], vec![3]],
        };
        assert_eq!(shifted.leak(), None);
    }
}

thread_local! {
    /// The draw that a mutant leaves out.
    static PADLESS: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn missing_masks_of_the_largest_are_caught() {
    let shifted = LargestCase::<3, 1> {
        values: 1,
        pair: digits(&[1]),
        sign: Some((Root::SignOverBorrow, digits(&[1, 1]))),
        secrets: &[vec![-4], vec![3]],
    };
    // The result's mask, and the one of the bit that selects.
    let unmasked = |p| if p == purpose::MASK { 0 } else { width::<3, 1>(p) };
    assert!(shifted.on(unmasked, None, |case| case.leak()).is_some());
    let blank = Some((purpose::CIRCUIT + 2, 0));
    assert!(shifted.on(width::<3, 1>, blank, |case| case.leak()).is_some());
    // The pad of each word that is dealt: ι, ι·A, A, ι·msb, msb and υ, and without a shift ι and ι·R of each value.
    for deal in 0..6 {
        PADLESS.set(purpose::LARGEST + deal);
        let leak = shifted.on(|p| if p == PADLESS.get() { 0 } else { width::<3, 1>(p) }, None, |case| case.leak());
        assert!(leak.is_some(), "deal {deal}");
    }
    let sign = Some((Root::SharedSign, digits(&[1])));
    let two = LargestCase::<2, 0> { values: 2, pair: digits(&[1]), sign, secrets: &tuples(2, -1, 1) };
    for deal in 0..4 {
        PADLESS.set(purpose::LARGEST + deal);
        let leak = two.on(|p| if p == PADLESS.get() { 0 } else { width::<2, 0>(p) }, None, |case| case.leak());
        assert!(leak.is_some(), "deal {deal}");
    }
}

/// Bits an element offline and online, and rounds, far apart. The design note's table has four values with a shift and a ReLU.
#[test]
fn counted_bits() {
    let counted = |ring: Ring, values, shift: Option<u32>| {
        let network = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
        let options = Options { network, ..Options::default() };
        let bits = ring.bits();
        let truncate = shift.map(|f| Truncation { bits: f, rounding: Rounding::Exact, bound: bits - 2 });
        let relu = truncate.map(|_| Comparison::new(bits - 1, false));
        let maximum = Maximum { values, differences: Comparison::new(bits - 1, false), truncate, relu };
        let count = 1 << 16;
        let cost = match bits {
            32 => Trio::<u32>::plan(&Gate::Largest { count, maximum }, ring, &options),
            _ => Trio::<u64>::plan(&Gate::Largest { count, maximum }, ring, &options),
        };
        let bits = |kind| cost.bytes(kind) * 8 / count as u64;
        (bits(StepKind::Offline), bits(StepKind::Online), cost.rounds)
    };
    let [single, double] = [32, 64].map(Ring::Pow2);
    assert_eq!(
        [counted(single, 4, Some(10)), counted(single, 4, None), counted(single, 2, Some(10))],
        [(1608, 526, 5), (1851, 202, 4), (1096, 140, 4)]
    );
    assert_eq!([counted(double, 4, Some(16)), counted(double, 4, None)], [(3798, 982, 5), (2025, 650, 5)]);
}

#[test]
fn results_of_the_largest() {
    let pair = || digits(&[2, 1, 1]);
    let sign = |root, bits: &[usize]| Some((root, digits(bits)));
    LargestCase::<5, 0> { values: 3, pair: pair(), sign: None, secrets: &tuples(3, -3, 3) }.outputs(40);
    let signs = sign(Root::SharedSign, &[2, 1, 1]);
    LargestCase::<5, 0> { values: 4, pair: pair(), sign: signs, secrets: &tuples(4, -2, 3) }.outputs(10);
    for (values, low, high, count) in [(4, -3, 2, 10), (2, -8, 8, 40)] {
        let secrets = &tuples(values, low, high);
        for sign in [
            sign(Root::SignOverBorrow, &[1, 1, 2]),
            sign(Root::SharedSignAndBorrow(0), &[1, 1, 2]),
            sign(Root::SharedSignAndBorrow(0), &[2, 1, 1]),
        ] {
            LargestCase::<5, 2> { values, pair: pair(), sign, secrets }.outputs(count);
        }
    }
    let ends = tuples(4, -1, 1).into_iter().map(|tuple| tuple.into_iter().map(|v| 7 * v + 1).collect());
    let (signs, secrets) = (sign(Root::SignOverBorrow, &[2, 1, 1]), &ends.collect::<Vec<Vec<i64>>>());
    LargestCase::<5, 1> { values: 4, pair: pair(), sign: signs, secrets }.outputs(100);
}
