//! What gates send, by formula: bits an element, correlated OTs, rounds. The figures of CrypTFlow2 over silent OT (`shared`
//! notes: 369, 415, 759 bits at 32, 37 and 64 bits with digits of two bits, OTs of 0.452 bits included) are bounds: tables
//! here need no entry 0, products share an operand, the lowest digit has no equality and the highest is as short as it is.

use super::*;

/// Bits of a ReLU at l bits in digits of m: of the digits' lookups, of the tree, of the selection; then the OTs.
fn relu(l: usize, m: usize) -> (usize, usize, usize) {
    let (k, log) = (l - 1, |q: usize| q.next_power_of_two().trailing_zeros() as usize);
    let q = k.div_ceil(m);
    let top = k - (q - 1) * m;
    let leaf = |bits: usize, width: usize| match bits {
        1 => (1 + 1, 1),
        _ => (bits + ((1 << bits) - 1) * width, bits),
    };
    let leaves = (0..q).map(|digit| leaf(if digit + 1 == q { top } else { m }, if digit == 0 { 1 } else { 2 }));
    let (bits, ots) = leaves.fold((0, 0), |sum, leaf| (sum.0 + leaf.0, sum.1 + leaf.1));
    // Of q - 1 nodes, those on the path of the lowest digit have one product, the others two.
    let (nodes, path) = (q - 1, log(q));
    let tree = 4 * path + 6 * (nodes - path);
    let start = if m == 1 { 1 } else { 2 };
    (bits + tree + 2 * (1 + l), ots + 2 * nodes + 2, start + path + 1)
}

#[test]
fn relu_is_its_formula() {
    for l in [4usize, 8, 16, 32, 37, 41, 60, 64] {
        for radix in 1..=WIDEST {
            let program = gates::relu::<u64>(l as u32, read(l as u32), Shape { radix, ripples: false });
            let found = (program.bits().iter().sum(), program.transfers.iter().sum(), program.rounds);
            assert_eq!(found, relu(l, radix), "l = {l}, digits of {radix}");
        }
    }
}

#[test]
fn both_directions_carry_about_the_same() {
    let program = gates::relu::<u64>(37, read(37), Shape { radix: 2, ripples: false });
    let ([there, back], [first, second]) = (program.bits(), program.transfers);
    assert!(there.abs_diff(back) <= 8 && first.abs_diff(second) <= 2, "{there} {back}, {first} {second}");
}

/// Bits with OTs of 0.452 bits.
fn all_in(program: &Program<u64>) -> f64 {
    let (bits, transfers): (usize, usize) = (program.bits().iter().sum(), program.transfers.iter().sum());
    bits as f64 + 0.452 * transfers as f64
}

#[test]
fn figures() {
    let tree = |radix| Shape { radix, ripples: false };
    for (l, m, due, published) in [
        (32, 2, 295.5, 369.0),
        (37, 2, 341.5, 415.0),
        (64, 2, 610.4, 759.0),
        (32, 3, 307.0, 369.0),
        (37, 3, 358.1, 409.0),
        (64, 3, 637.5, 730.0),
    ] {
        let found = all_in(&gates::relu(l, read(l), tree(m)));
        assert!((found - due).abs() < 0.1 && found < published, "relu l={l} m={m}: {found}");
    }
    let truncation = Truncation { bits: 12, rounding: Rounding::Exact, bound: 35 };
    let shift = all_in(&gates::truncate(37, truncation, tree(2)));
    let fused = all_in(&gates::truncate_relu(37, truncation, read(25), tree(2)));
    let apart = all_in(&gates::relu(37, read(37), tree(2))) + shift;
    // 152 published for the first where the sign is known, and 1725 over OT extension without silent OT.
    assert!((shift - 129.8).abs() < 0.1 && (fused - 392.4).abs() < 0.1 && (apart - 471.4).abs() < 0.1);
    // Over OT extension, CrypTFlow2 sends 7076 and 8936 bits.
    for (n, due) in [(4_293_918_721, 551.7), (2_198_100_901_889, 709.0)] {
        let found = all_in(&odd::relu(n, tree(2)));
        assert!((found - due).abs() < 0.1, "relu over Z_{n}: {found}");
    }
    for (d, due) in [(49, 199.1), (64, 109.4), (4, 81.8)] {
        let found = all_in(&division::floor(Ring::Pow2(37), d, 24, tree(2)));
        assert!((found - due).abs() < 0.1, "division by {d}: {found}");
    }
}
