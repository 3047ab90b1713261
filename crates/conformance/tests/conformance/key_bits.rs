//! Approximate comparisons over rings of a few bits: every value under every bound, read by every number of key bits, in every protocol. A
//! value nearer to 0 than 2^(bound + 2 - bits) may be taken for either sign, and no other is.

use covey_conformance::beaver::BeaverHarness;
use covey_conformance::bench::Bench;
use covey_conformance::harness::Harness;
use covey_conformance::quad::QuadHarness;
use covey_conformance::trio::TrioHarness;
use covey_conformance::two_party::TwoPartyHarness;
use covey_conformance::{Session, Transport};
use covey_protocols::api::Result;
use covey_protocols::circuits::Adder;
use covey_protocols::parts::*;
use covey_protocols::{Comparison, Options, Phase, Rounding, Truncation};
use covey_ring::Ring;

/// A value's masks: each of those of six bits is among them, most likely.
const TIMES: usize = 192;

/// Values and what became of them.
struct Case {
    name: &'static str,
    bound: u32,
    /// What is compared with 0.
    compared: Vec<i64>,
    /// What a comparison that says positive gives, and one that says negative.
    either: Vec<(i64, i64)>,
    found: Vec<i64>,
}

impl Case {
    /// Opens `x`.
    fn opened<P: covey_conformance::Complete>(
        bench: &mut Bench<P>,
        (name, bound): (&'static str, u32),
        x: &P::Arith,
        compared: &[i64],
        either: Vec<(i64, i64)>,
    ) -> Result<Case> {
        let checked = bench.protocol.check()?;
        let opened = bench.protocol.open(x, &checked)?;
        let found = opened.data().iter().map(|&word| bench.ring().signed(word)).collect();
        Ok(Case { name, bound, compared: compared.to_vec(), either, found })
    }
}

/// The integers |v| < 2^bound, times over.
fn values(bound: u32) -> Vec<i64> {
    let all = 1 - (1i64 << bound)..1 << bound;
    all.flat_map(|v| [v; TIMES]).collect()
}

fn run<P: covey_conformance::Complete>(bench: &mut Bench<P>) -> Result<Vec<Case>> {
    let l = bench.ring().bits();
    let mut cases = Vec::new();
    for bound in 1..l {
        let comparison = Comparison::new(bound, false);
        let xs = values(bound);
        let x = bench.vector(0, &xs)?;
        let sign = bench.protocol.msb(&x, comparison)?;
        let sign = bench.protocol.bit2a(&sign, &[xs.len()])?;
        cases.push(Case::opened(bench, ("sign", bound), &sign, &xs, vec![(0, 1); xs.len()])?);
        let relu = bench.protocol.relu(&x, comparison)?;
        cases.push(Case::opened(bench, ("relu", bound), &relu, &xs, xs.iter().map(|&x| (x, 0)).collect())?);
        // x - y takes every value.
        let ys: Vec<i64> = xs.iter().map(|x| -(x >> 1)).collect();
        let zs: Vec<i64> = xs.iter().zip(&ys).map(|(x, y)| x + y).collect();
        let [y, z] = [&ys, &zs].map(|values| bench.vector(1, values));
        let (max, _) = bench.protocol.max(z?, &y?, comparison)?;
        cases.push(Case::opened(bench, ("max", bound), &max, &xs, zs.into_iter().zip(ys).collect())?);
        for bits in 1..(l - 1).saturating_sub(bound).min(3) {
            let xs: Vec<i64> = values(bound + bits).into_iter().filter(|x| x >> bits > -(1 << bound)).collect();
            let x = bench.vector(0, &xs)?;
            let truncation = Truncation { bits, rounding: Rounding::Exact, bound: bound + bits };
            let relu = bench.protocol.truncate_relu(&x, truncation, comparison)?;
            let shifted: Vec<i64> = xs.iter().map(|x| x >> bits).collect();
            cases.push(Case::opened(
                bench,
                ("shift and relu", bound),
                &relu,
                &shifted,
                shifted.iter().map(|&x| (x, 0)).collect(),
            )?);
        }
    }
    Ok(cases)
}

fn check<H: Harness>(l: u32) {
    let mut near = 0;
    for key_bits in 2..=l {
        for adder in Adder::ALL {
            let options = Options { adder, key_bits: Some(key_bits), ..Options::default() };
            let session = Session::<H>::new(Transport::Memory, Ring::Pow2(l), options);
            let (mut parties, ()) = session
                .run(
                    |protocol, network| {
                        protocol.begin(Phase::Joint, 1)?;
                        let mut bench = Bench::new(protocol, Some(network.me()), H::COMPUTING);
                        Ok(run(&mut bench)?)
                    },
                    |_, _| Ok(()),
                )
                .unwrap_or_else(|failure| panic!("{failure}"));
            for case in parties.swap_remove(0) {
                near += misread(&case, &format!("{} in Z_2^{l}, {key_bits} key bits, {adder:?}", case.name), key_bits);
            }
        }
    }
    assert!(near > 0, "every comparison was exact");
}

/// How many values are taken for the other sign, all of them near 0.
fn misread(case: &Case, what: &str, key_bits: u32) -> usize {
    assert_eq!(case.found.len(), case.compared.len());
    let unread = if key_bits <= case.bound { 1 << (case.bound + 2 - key_bits) } else { 0 };
    let mut wrong = 0;
    for ((&x, &(positive, negative)), &found) in case.compared.iter().zip(&case.either).zip(&case.found) {
        let (due, other) = if x < 0 { (negative, positive) } else { (positive, negative) };
        if found != due {
            wrong += 1;
            assert!(x.abs() < unread && found == other, "{what}, bound {}: {x} gave {found}", case.bound);
        }
    }
    wrong
}

macro_rules! enumerated {
    ($($name:ident: $harness:ty;)*) => { $(mod $name {
        use super::*;

        #[test]
        fn no_value_far_from_zero_errs() {
            (4..=6).for_each(check::<$harness>);
        }
    })* };
}

enumerated! {
    trio: TrioHarness<u32>;
    quad: QuadHarness<u32>;
    beaver_2: BeaverHarness<u32, 2>;
    beaver_3: BeaverHarness<u64, 3>;
    two_party: TwoPartyHarness<u32>;
}
