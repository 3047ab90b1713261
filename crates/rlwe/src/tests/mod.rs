//! Tests of the whole scheme.

use std::sync::OnceLock;

use covey_kernels::Prg;
use covey_ring::Ring;

use crate::*;

mod arithmetic;
mod hiding;
mod measured;
mod merged;
mod products;
mod refusals;

/// Values that differ from test to test, the same in each run.
struct Draws {
    prg: Prg,
    stream: u64,
}

impl Draws {
    fn new(test: u8) -> Self {
        Draws { prg: Prg::new(&[test; 16]), stream: 0 }
    }

    fn words(&mut self, count: usize) -> Vec<u64> {
        let mut words = vec![0; count];
        self.prg.fill_u64(self.stream, &mut words);
        self.stream += 1;
        words
    }

    fn messages(&mut self, ring: Ring, count: usize) -> Vec<u64> {
        self.words(count).into_iter().map(|word| ring.reduce(word)).collect()
    }

    /// From −2^bits to 2^bits.
    fn weights(&mut self, bits: u32, count: usize) -> Vec<i64> {
        let span = (2 << bits) + 1;
        self.words(count).into_iter().map(|word| (word % span) as i64 - (1 << bits)).collect()
    }

    /// 2^bits with either sign.
    fn extreme_weights(&mut self, bits: u32, count: usize) -> Vec<i64> {
        self.words(count).into_iter().map(|word| if word & 1 == 0 { 1 << bits } else { -(1 << bits) }).collect()
    }
}

/// Sets of a degree at which products by schoolbook are quick.
fn small_sets() -> impl Iterator<Item = &'static ParameterSet> {
    const SETS: [(u32, usize, usize); 4] = [(50, 2, 2), (35, 3, 3), (50, 3, 3), (50, 4, 3)];
    static MADE: [OnceLock<ParameterSet>; SETS.len()] = [const { OnceLock::new() }; SETS.len()];
    let sets = MADE.iter().zip(SETS);
    sets.map(|(made, (bits, count, digits))| made.get_or_init(|| ParameterSet::new(256, bits, count, digits)))
}

/// The rings that the protocols use, and the ends.
fn rings() -> impl Iterator<Item = Ring> {
    let odd = [3, 31, 4_293_918_721, 2_198_100_901_889, (1 << 63) - 1].map(Ring::Odd);
    [4, 16, 32, 37, 41, 60, 64].map(Ring::Pow2).into_iter().chain(odd)
}

/// Both parties' keys.
fn keys(set: &'static ParameterSet) -> (SecretKey, PublicKey) {
    let secret = SecretKey::new(set).unwrap();
    let public = PublicKey::read(set, &secret.public_key().unwrap()).unwrap();
    (secret, public)
}

/// Σ x·W modulo X^N + 1 and t, as in school.
fn product(ring: Ring, messages: &[Vec<u64>], weights: &[Vec<i64>]) -> Vec<u64> {
    let degree = messages[0].len();
    let mut sums = vec![0_i128; degree];
    for (messages, weights) in messages.iter().zip(weights) {
        for (j, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0) {
            for (i, &message) in messages.iter().enumerate() {
                let term = i128::from(message) * i128::from(weight);
                if i + j < degree { sums[i + j] += term } else { sums[i + j - degree] -= term }
            }
        }
    }
    sums.into_iter().map(|sum| ring.wrap(sum)).collect()
}
