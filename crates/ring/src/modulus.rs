//! Remainders by a public modulus in constant time: no division and no branch sees the number that is divided.

use std::hint::black_box;

/// A modulus n with its reciprocal, 3 <= n < 2^63.
#[derive(Clone, Copy)]
pub struct Modulus {
    n: u64,
    /// n shifted left by this has its highest bit set.
    shift: u32,
    /// floor((2^128 - 1) / (n · 2^shift)) - 2^64.
    reciprocal: u64,
}

impl Modulus {
    /// The modulus `n`.
    pub fn new(n: u64) -> Self {
        let shift = n.leading_zeros();
        let reciprocal = (u128::MAX / u128::from(n << shift)) as u64;
        Modulus { n, shift, reciprocal }
    }

    /// `x` modulo n, by Möller and Granlund's division by invariant integers (IEEE Trans. Computers 60(2), 2011, algorithm 4),
    /// once for each half.
    #[inline]
    pub fn reduce(&self, x: u128) -> u64 {
        let high = self.step(0, (x >> 64) as u64);
        self.step(high, x as u64)
    }

    /// `high` · 2^64 + `low` modulo n, for `high` below n.
    #[inline]
    fn step(&self, high: u64, low: u64) -> u64 {
        let divisor = self.n << self.shift;
        let x = (u128::from(high) << 64 | u128::from(low)) << self.shift;
        let (high, low) = ((x >> 64) as u64, x as u64);
        // Wraps at 2^128 like the algorithm's words.
        let quotient = (u128::from(self.reciprocal) * u128::from(high)).wrapping_add(x);
        let (above, below) = (((quotient >> 64) as u64).wrapping_add(1), quotient as u64);
        let rest = low.wrapping_sub(above.wrapping_mul(divisor));
        let rest = rest.wrapping_add(divisor & mask(below, rest));
        let rest = rest.wrapping_sub(divisor & !mask(rest, divisor));
        rest >> self.shift
    }
}

/// The remainder of `x` by `n`, 3 <= n < 2^63. The only division is of public numbers.
#[inline(always)]
pub(crate) fn reduce(x: u64, n: u64) -> u64 {
    // The quotient by this reciprocal is the right one or one less.
    let quotient = (u128::from(x) * u128::from(u64::MAX / n)) >> 64;
    from_signed((x.wrapping_sub((quotient as u64).wrapping_mul(n))).wrapping_sub(n), n)
}

/// `x` modulo n for x, in two's complement, from -n to n - 1. Made of a shift, of which compilers make no branch.
#[inline(always)]
pub fn from_signed(x: u64, n: u64) -> u64 {
    x.wrapping_add(n & ((x as i64) >> 63) as u64)
}

/// All ones if `a` is below `b`, else 0. Hidden from the compiler, which would branch on it.
#[inline(always)]
pub(crate) fn mask(a: u64, b: u64) -> u64 {
    black_box(0u64.wrapping_sub(u64::from(a < b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small ones, CrypTFlow2's, and those around powers of two.
    fn moduli() -> impl Iterator<Item = u64> {
        let around = (2..63).flat_map(|bits| [(1u64 << bits) - 1, (1 << bits) + 1]);
        (3..200).chain([4_293_918_721, 137_352_314_881, 2_198_100_901_889]).chain(around).chain([(1 << 63) - 1])
    }

    #[test]
    fn remainders_are_those_of_a_division() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        };
        for n in moduli() {
            let modulus = Modulus::new(n);
            let words = [0, 1, n - 1, n, n + 1, 2 * n - 1, 2 * n, u64::MAX, u64::MAX - 1, u64::MAX / n * n, 1 << 63];
            let words: Vec<u64> = words.into_iter().chain(std::iter::repeat_with(&mut random).take(40)).collect();
            for &low in &words {
                assert_eq!(reduce(low, n), low % n, "{low} by {n}");
                for &high in &words {
                    let x = u128::from(high) << 64 | u128::from(low);
                    assert_eq!(u128::from(modulus.reduce(x)), x % u128::from(n), "{x} by {n}");
                }
            }
        }
    }
}
