//! Values to test with: all of a small ring, or boundary values and a seeded spread between them.

use covey_kernels::Prg;
use covey_ring::{Ring, Word};

/// The widest ring whose values are gone through exhaustively.
pub const SMALL: u32 = 6;

/// Chooses the random values; set `COVEY_TEST_SEED` to try others. Failures print it.
pub fn seed() -> u64 {
    std::env::var("COVEY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121)
}

/// Whether COVEY_IN_FULL is set, as `make conformance` does: every adder meets all elements, over every transport.
pub fn in_full() -> bool {
    std::env::var_os("COVEY_IN_FULL").is_some()
}

/// `values` as ring elements.
pub fn wrapped<W: Word>(ring: Ring, values: &[i64]) -> Vec<W> {
    values.iter().map(|&value| ring.wrap(value.into())).collect()
}

/// An integer as a signed element of the ring.
pub fn modulo(ring: Ring, value: i128) -> i64 {
    ring.signed(ring.wrap::<u64>(value))
}

/// Where values come from.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// Of the values.
    pub ring: Ring,
    /// Elements of a large tensor, where the ring is not gone through.
    pub count: usize,
    /// Elements of a tile, for lengths around its border.
    pub tile: usize,
}

impl Samples {
    /// One more than the widest bound all of whose integers are in the ring: the width of a ring of a power of two.
    pub fn bits(&self) -> u32 {
        let high = self.ring.signed_range().1 as u64;
        u64::BITS - (high + 1).leading_zeros()
    }

    /// Integers `|v| < 2^bound`: all of them in a small ring, else boundary values and a spread.
    pub fn values(&self, bound: u32) -> Vec<i64> {
        let top = top(bound);
        if self.ring.bits() <= SMALL {
            return (-top..=top).collect();
        }
        let mut values = boundaries(bound);
        values.extend(spread(bound, self.count.saturating_sub(values.len()), "values"));
        values
    }

    /// Elements of the ring, its lowest and highest included: all of a small ring.
    pub fn elements(&self) -> Vec<i64> {
        let (low, high) = self.ring.signed_range();
        if self.ring.bits() <= SMALL {
            return (low..=high).collect();
        }
        let mut values = vec![low, high, low + 1, high - 1];
        values.extend(self.values(self.bits() - 1).into_iter().filter(|value| (low..=high).contains(value)));
        values
    }

    /// Pairs of `values`: all of them in a small ring, else boundary values against each other and a spread.
    pub fn pairs(&self, values: &[i64]) -> (Vec<i64>, Vec<i64>) {
        if self.ring.bits() <= SMALL {
            let all = values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y)));
            return all.unzip();
        }
        // Steps that share no factor with the length meet every pair of positions once in so many rounds.
        let count = values.len();
        let rounds = [0, 1, 7, count / 2, count - 1];
        rounds.iter().flat_map(|&shift| (0..count).map(move |i| (values[i], values[(i * 5 + shift) % count]))).unzip()
    }

    /// Pairs whose products stay below 2^bound, large by small and middling by middling.
    pub fn factors(&self, bound: u32) -> (Vec<i64>, Vec<i64>) {
        let limit = 1i128 << bound;
        if self.ring.bits() <= SMALL {
            let (x, y) = self.pairs(&self.values(self.bits() - 1));
            return x.into_iter().zip(y).filter(|&(x, y)| (i128::from(x) * i128::from(y)).abs() < limit).unzip();
        }
        let share = Samples { count: self.count / 4, ..*self };
        let splits = [1, bound / 4, bound / 2, bound - 1];
        let pairs = splits.iter().flat_map(|&bits| {
            let (x, y) = (share.values(bits), share.values(bound - bits));
            let longer = x.len().max(y.len());
            let ends =
                [(top(bits), top(bound - bits)), (top(bits), -top(bound - bits)), (-top(bits), -top(bound - bits))];
            let cycled = x.into_iter().cycle().zip(y.into_iter().rev().cycle()).take(longer);
            ends.into_iter().chain(cycled).collect::<Vec<_>>()
        });
        pairs.unzip()
    }

    /// Lengths at which tiles and bit planes begin and end.
    pub fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![1, 63, 64, 65, self.tile - 1, self.tile, self.tile + 1, 3 * self.tile + 5];
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }
}

/// The largest magnitude below 2^bound.
pub fn top(bound: u32) -> i64 {
    ((1u128 << bound.min(63)) - 1) as i64
}

/// `values` over and over, `len` of them, from a place that depends on `len`.
pub fn cycled(values: &[i64], len: usize) -> Vec<i64> {
    values.iter().copied().cycle().skip(len % values.len()).take(len).collect()
}

/// 0, ±1, and every power of two below 2^bound with its neighbours, both signs.
fn boundaries(bound: u32) -> Vec<i64> {
    let top = top(bound);
    let around = |bit: u32| [(1i64 << bit) - 1, 1 << bit, (1i64 << bit) + 1];
    let mut values: Vec<i64> = (0..bound.min(62)).flat_map(around).chain([0, 1, top, top - 1]).collect();
    values.retain(|value| (0..=top).contains(value));
    values.extend(values.clone().iter().map(|value| -value));
    values.sort_unstable();
    values.dedup();
    values
}

/// Integers `|v| < 2^bound` of all magnitudes, as the seed has it. `label` tells streams apart.
pub fn spread(bound: u32, count: usize, label: &str) -> Vec<i64> {
    let mut words = vec![0u64; 2 * count];
    stream(label).fill_words(u64::from(bound), &mut words);
    let one = |pair: &[u64]| {
        let magnitude = (pair[0] & top(bound) as u64) as i64 >> (pair[1] >> 1 & 15).min(u64::from(bound) / 2);
        if pair[1] & 1 == 0 { magnitude } else { -magnitude }
    };
    words.chunks_exact(2).map(one).collect()
}

/// Integers `|v| < 2^bound`, each as likely as another.
pub fn uniform(bound: u32, count: usize, label: &str) -> Vec<i64> {
    let mut words = vec![0u64; count];
    stream(label).fill_words(u64::from(bound), &mut words);
    let span = 2 * u128::from(top(bound) as u64) + 1;
    words.into_iter().map(|word| (((u128::from(word) * span) >> 64) as i64).wrapping_sub(top(bound))).collect()
}

fn stream(label: &str) -> Prg {
    let key = blake3::derive_key("covey conformance 2026 samples", &[&seed().to_le_bytes(), label.as_bytes()].concat());
    Prg::new(key.first_chunk().expect("16 of 32 bytes"))
}
