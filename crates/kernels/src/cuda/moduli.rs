//! Residues that stand for 64-bit words: pairwise coprime moduli of at most 8 bits, the largest there are.

use super::launch::{MOST_RESIDUES, Residues};

pub(super) const MODULI: [u32; MOST_RESIDUES] =
    [256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179];

/// Products that a sum may have, by how many residues stand for it. Words are taken for signed, so that a product is at most 2^126; the
/// sum is below 2^-9 less than half of the product of the moduli. Longer sums would not fit 32 bits either.
pub(super) const LONGEST: [(usize, usize); 3] = [(17, 56), (18, 11_000), (19, 100_000)];

/// How many residues a sum of `terms` products takes, if so many are enough.
pub(super) fn residues(terms: usize) -> Option<usize> {
    LONGEST.iter().find(|(_, longest)| terms <= *longest).map(|&(count, _)| count)
}

/// What the recombination of `count` residues multiplies by.
pub(super) struct Recombination {
    /// Of each residue, the inverse of M / m modulo m, where M is the product of the moduli.
    pub inverse: [u32; MOST_RESIDUES],
    /// M / m modulo 2^64.
    pub cofactor: [u64; MOST_RESIDUES],
    /// 2^56 / m, rounded down.
    pub fraction: [u64; MOST_RESIDUES],
    /// M modulo 2^64.
    pub product: u64,
}

impl Recombination {
    pub fn new(count: usize) -> Self {
        let moduli = &MODULI[..count];
        let mut of = Recombination {
            inverse: [0; MOST_RESIDUES],
            cofactor: [0; MOST_RESIDUES],
            fraction: [0; MOST_RESIDUES],
            product: moduli.iter().fold(1, |product: u64, &m| product.wrapping_mul(m.into())),
        };
        for (i, &m) in moduli.iter().enumerate() {
            let others = moduli.iter().filter(|&&other| other != m);
            of.cofactor[i] = others.clone().fold(1, |product: u64, &other| product.wrapping_mul(other.into()));
            let rest = others.fold(1, |product, &other| product * other % m);
            of.inverse[i] = (1..m).find(|inverse| rest * inverse % m == 1).expect("moduli are coprime");
            of.fraction[i] = (1 << 56) / u64::from(m);
        }
        of
    }
}

/// What the residues of words are made with.
pub(super) fn residues_of_words() -> Residues {
    let mut of = Residues::default();
    for (i, &m) in MODULI.iter().enumerate() {
        let power = (1u64 << 32) % u64::from(m);
        of.modulus[i] = m;
        of.reciprocal[i] = ((1u64 << 32) / u64::from(m)) as u32;
        of.high[i] = power as u32;
        of.sign[i] = ((u64::from(m) - power * power % u64::from(m)) % u64::from(m)) as u32;
    }
    of
}
