//! What a party receives, over many runs of the same secrets: every bit balanced and every two of them, and every one of them
//! with this party's result, uncorrelated. A message without its mask, or two under one mask, would show.

use super::super::lookup::{Tables, lookup};
use super::lookups::tables;
use super::*;

/// Runs of each secret.
pub(super) const RUNS: usize = 1 << 14;
/// Standard deviations allowed: over the 10^6 pairs looked at, more than six is never seen by chance.
const DEVIATIONS: f64 = 6.5;

/// The bits of a view, each as a plane over the runs.
fn columns(view: &View) -> Vec<Vec<u64>> {
    let width = |column: &[u64]| u64::BITS - column.iter().fold(0, |all, v| all | v).leading_zeros();
    let bits = |column: &[u64]| -> Vec<Vec<u64>> {
        (0..width(column).max(1)).map(|b| plane(column.iter().map(|v| v >> b & 1))).collect()
    };
    view.iter().flat_map(|column| bits(column)).collect()
}

/// The largest deviation of a bit, or of the exclusive or of two, from balance, in standard deviations.
fn deviation(columns: &[Vec<u64>]) -> f64 {
    let sigma = (RUNS as f64).sqrt() / 2.0;
    let off = |ones: u32| (f64::from(ones) - RUNS as f64 / 2.0).abs() / sigma;
    let single = columns.iter().map(|a| off(a.iter().map(|w| w.count_ones()).sum()));
    let pairs = columns.iter().enumerate().flat_map(|(i, a)| {
        columns[..i].iter().map(move |b| off(a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()))
    });
    single.chain(pairs).fold(0.0, f64::max)
}

/// Whether no bit of a view and no two of them lean.
pub(super) fn balanced(view: &View) -> bool {
    deviation(&columns(view)) < DEVIATIONS
}

/// Both parties' views of `program` on the words x0 + x1 (and planes) of these summands.
fn check(name: &str, program: &Arc<GateProgram<u64>>, words: &[[u64; 2]], planes: &[[u64; 2]]) {
    let inputs = [0, 1].map(|p| {
        let words = words.iter().map(|x| vec![x[p]; RUNS]).collect();
        (words, planes.iter().map(|b| plane((0..RUNS).map(|_| b[p]))).collect())
    });
    let (_, views) = run(program, inputs, RUNS, 11);
    for (viewer, view) in views.iter().enumerate() {
        let found = deviation(&columns(view));
        assert!(found < DEVIATIONS, "{name}: P{viewer} sees {found:.1} deviations on {words:?} {planes:?}");
    }
}

fn secrets(ring: Ring) -> Vec<[u64; 2]> {
    let top = match ring {
        Ring::Pow2(l) => (1 << l) - 1,
        Ring::Odd(n) => n - 1,
    };
    vec![[0, 0], [top, 0], [0, top], [top, top], [top / 2, 3], [5, top / 2 + 1]]
}

#[test]
fn views_are_balanced() {
    let (ring, shape) = (Ring::Pow2(6), |radix| Shape { radix, ripples: false });
    for x in secrets(ring) {
        for radix in 1..=WIDEST {
            check("sign", &gates::msb(read(6), shape(radix)), &[x], &[]);
        }
        check("relu", &gates::relu(6, read(6), shape(2)), &[x], &[]);
        for (rounding, bound) in [(Rounding::Exact, 4), (Rounding::Exact, 5), (Rounding::Ulp, 4)] {
            let truncation = Truncation { bits: 2, rounding, bound };
            check("shift", &gates::truncate(6, truncation, shape(2)), &[x], &[]);
            check("shift and relu", &gates::truncate_relu(6, truncation, read(4), shape(3)), &[x], &[]);
        }
        check("clip", &gates::clip(6, read(6), (-3, 9), shape(2), 0), &[x], &[]);
        check("division", &division::floor(ring, 3, 3, shape(2), 0), &[x], &[]);
        check("bits", &gates::a2b(6, &CarryCircuit::carries(5, Adder::LogDepth)), &[x], &[]);
        for (k, top) in [(1, 0), (3, 0), (3, 1), (4, 0), (4, 2), (5, 1)] {
            check("lookup", &lookup(6, &Tables::of(&tables(ring, k, 2)), top), &[x], &[]);
        }
        check("product", &gates::mul(ring), &[x, [x[1], x[0]]], &[]);
        for b in [[0, 0], [1, 0], [0, 1], [1, 1]] {
            check("selection", &gates::select(ring), &[x], &[b]);
            check("conversion", &gates::bit2a(ring), &[], &[b]);
            check("and", &gates::and(1), &[], &[b, [b[1], b[0]]]);
        }
    }
}

/// Modulo n, words are no planes of balanced bits: their counts are looked at instead.
#[test]
fn views_over_odd_rings_are_uniform() {
    let ring = Ring::Odd(31);
    for x in secrets(ring) {
        check("sign", &odd::msb(31, Shape { radix: 2, ripples: false }, 1), &[x], &[]);
        for program in [gates::mul(ring), gates::select(ring)] {
            let words = if program.inputs.0.len() == 2 { vec![x, [x[1], x[0]]] } else { vec![x] };
            let planes = vec![[1, 0]; program.inputs.1.len()];
            let inputs = [0, 1].map(|p| {
                let words = words.iter().map(|x| vec![x[p]; RUNS]).collect();
                (words, planes.iter().map(|b: &[u64; 2]| plane((0..RUNS).map(|_| b[p]))).collect())
            });
            let (_, views) = run(&program, inputs, RUNS, 12);
            for column in views.iter().flatten().filter(|column| column.iter().any(|&v| v > 1)) {
                let mut counts = [0f64; 31];
                column.iter().for_each(|&v| counts[v as usize] += 1.0);
                let due = RUNS as f64 / 31.0;
                let chi: f64 = counts.iter().map(|count| (count - due).powi(2) / due).sum();
                assert!(chi < 90.0, "{chi} with 30 degrees of freedom");
            }
        }
    }
}

/// The test sees a leak: without randomness, a correction is the choice itself.
#[test]
fn an_unmasked_bit_is_seen() {
    let biased = vec![vec![7; RUNS], (0..RUNS as u64).collect()];
    assert!(deviation(&columns(&biased)) > 50.0);
    // Two columns under one mask.
    let mut state = 1u64;
    let mask: Vec<u64> = (0..RUNS)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63
        })
        .collect();
    assert!(deviation(&columns(&vec![mask.clone()])) < DEVIATIONS);
    assert!(deviation(&columns(&vec![mask.clone(), mask])) > 50.0);
}
