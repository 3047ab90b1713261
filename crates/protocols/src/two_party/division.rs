//! ⌊x / d⌋ for public d, exactly, over Z_2^l and Z_n (CrypTFlow2, section 5, with the sign of x made known by an offset).
//!
//! With B added, 0 <= x + B < M / 2 for the ring's modulus M = n1·d + n0, so x0 + x1 = x + B + w·M where w = 1 unless both
//! summands are below M / 2: one product of two bits. With x_p = q_p·d + r_p and B = qb·d + rb,
//!
//! ⌊x / d⌋ = q0 + q1 - w·n1 - qb + ⌊R / d⌋,  R = r0 + r1 - w·n0 - rb,
//!
//! and R is so small that ⌊R / d⌋ = 1 - 1{R < d} - 1{R < 0} - 1{R < -d}: signs in a ring of a few bits more than d has. Where the
//! bound leaves room for a B that d divides, R >= -d and the last one goes; where d divides M too, R >= 0.

use std::hint::black_box;
use std::sync::Arc;

use covey_kernels::bits::{not_assign, pack_bits};
use covey_ring::{Ring, Word};

use super::comparison::{self, Bits, Shape, xor};
use super::gates::{converted, expanded};
use super::program::{Builder, GateProgram, Plane, Words};
use super::share::Arithmetic;

/// The numbers of one division.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers {
    divisor: u64,
    /// B.
    offset: u64,
    /// n1 and n0.
    quotient: u64,
    remainder: u64,
    /// What R is compared with.
    thresholds: Vec<i128>,
    /// Bits of the ring of R.
    small: u32,
}

/// The ring's modulus.
fn modulus(ring: Ring) -> u128 {
    match ring {
        Ring::Pow2(l) => 1 << l,
        Ring::Odd(n) => u128::from(n),
    }
}

fn numbers(ring: Ring, divisor: u64, bound: u32, width: u32) -> Option<Numbers> {
    let (m, d) = (modulus(ring), u128::from(divisor));
    let range = 1u128 << bound;
    // x + B is below (M + 1) / 2.
    let room = m.div_ceil(2);
    let divisible = range.div_ceil(d.max(1)).checked_mul(d)?;
    let offset = if divisible + range <= room { divisible } else { range };
    if d == 0 || offset + range > room {
        return None;
    }
    let (remainder, aligned) = (m % d, offset % d == 0);
    let thresholds = match (aligned, remainder == 0) {
        (true, true) => vec![1],
        (true, false) => vec![1, 0],
        (false, true) => vec![1, 0],
        (false, false) => vec![1, 0, -1],
    };
    let thresholds: Vec<i128> = thresholds.into_iter().map(|t: i128| t * d as i128).collect();
    // -most <= R - t < most.
    let most = d * thresholds.len() as u128;
    let small = (most - 1).checked_ilog2().map_or(1, |bits| bits + 2).max(2);
    (small <= width.min(62)).then(|| Numbers {
        divisor,
        offset: offset as u64,
        quotient: (m / d) as u64,
        remainder: remainder as u64,
        thresholds,
        small,
    })
}

/// Whether values `|x| < 2^bound` of `ring` can be divided by `divisor`.
pub(super) fn admits<W: Word>(ring: Ring, divisor: u64, bound: u32) -> bool {
    bound < ring.bits() && numbers(ring, divisor, bound, W::BITS).is_some()
}

/// Division by a public number with the same operations for every dividend.
#[derive(Clone, Copy)]
struct Divider {
    divisor: u64,
    /// ⌊2^64 / d⌋.
    reciprocal: u128,
}

impl Divider {
    fn new(divisor: u64) -> Self {
        Divider { divisor, reciprocal: (1 << 64) / u128::from(divisor) }
    }

    /// Quotient and remainder: the product with the reciprocal is the quotient or one less.
    #[inline(always)]
    fn divide(self, x: u64) -> (u64, u64) {
        let quotient = ((u128::from(x) * self.reciprocal) >> 64) as u64;
        let rest = x.wrapping_sub(quotient.wrapping_mul(self.divisor));
        // Hidden from the compiler, which would branch on it.
        let more = black_box(u64::from(rest >= self.divisor));
        (quotient + more, rest - more * self.divisor)
    }
}

/// ⌊x / d⌋ for `|x| < 2^bound`; [`admits`] says for which. `holder` compares its part of R with all thresholds at once.
pub(super) fn floor<W: Word>(ring: Ring, divisor: u64, bound: u32, shape: Shape, holder: usize) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    // A division that is refused has no program.
    let Some(numbers) = numbers(ring, divisor, bound, W::BITS) else { return builder.finish(&[x], &[]) };
    let arithmetic = Arithmetic::new(ring);
    let (offset, divider, small) = (numbers.offset, Divider::new(divisor), Ring::Pow2(numbers.small));
    let half = (modulus(ring).div_ceil(2)) as u64;
    let raised = builder.local_words((&[x], &[]), move |registers, out| {
        let offset = if registers.me == 0 { W::from_u64(offset) } else { W::ZERO };
        let raise = |(out, &x): (&mut W, &W)| *out = ring.reduce(arithmetic.add(x, offset));
        out.iter_mut().zip(registers.words(x)).for_each(raise);
    });
    let low = builder.local_planes((&[raised], &[]), 1, move |registers, to| {
        let high: Vec<u64> = registers.words(raised).iter().map(|x| u64::from(x.to_u64() >= half)).collect();
        let mut plane = vec![0; registers.len.div_ceil(64)];
        pack_bits(&high, &mut plane);
        not_assign(&mut plane);
        registers.set_plane(to[0], plane);
    })[0];
    let wrap = |builder: &mut Builder<W>, ring: Ring, sender: usize| -> Words {
        let bit = builder.local_words((&[], &[low]), move |registers, out| expanded(registers.plane(low), out));
        let both = builder.words(sender, low, bit, ring);
        let arithmetic = Arithmetic::new(ring);
        builder.local_words((&[both], &[]), move |registers, out| {
            let one = if registers.me == 0 { W::ONE } else { W::ZERO };
            out.iter_mut().zip(registers.words(both)).for_each(|(out, &both)| *out = arithmetic.sub(one, both));
        })
    };
    let in_ring = wrap(&mut builder, ring, 1);
    let in_small = match ring {
        // A share modulo 2^l is one modulo every smaller power of two.
        Ring::Pow2(l) if numbers.small <= l => in_ring,
        _ if numbers.remainder == 0 => in_ring,
        _ => wrap(&mut builder, small, 0),
    };
    let rest = {
        let (remainder, below) = (W::from_u64(numbers.remainder), W::from_u64(offset % divisor));
        builder.local_words((&[raised, in_small], &[]), move |registers, out| {
            let below = if registers.me == 0 { below } else { W::ZERO };
            let parts = registers.words(raised).iter().zip(registers.words(in_small));
            out.iter_mut().zip(parts).for_each(|(out, (x, &wrap))| {
                let rest = W::from_u64(divider.divide(x.to_u64()).1);
                *out = rest.sub(wrap.mul(remainder)).sub(below);
            });
        })
    };
    let top = numbers.small as usize - 1;
    let lanes: Vec<Bits> = numbers
        .thresholds
        .iter()
        .map(|&threshold| {
            Bits::mapped(&mut builder, rest, top + 1, move |me, rest| {
                if me == holder { rest.wrapping_sub(threshold as u64) } else { rest }
            })
        })
        .collect();
    let carries = comparison::carries_together(&mut builder, &lanes, 0..top, shape, holder);
    let signs: Vec<Plane> =
        lanes.iter().zip(carries).map(|(bits, carry)| xor(&mut builder, bits.raw[top], carry)).collect();
    let below: Vec<Words> =
        signs.iter().enumerate().map(|(i, &sign)| converted(&mut builder, sign, ring, i % 2)).collect();
    let quotient: W = ring.wrap(numbers.quotient.into());
    let constant: W = ring.wrap(1 - i128::from(offset / divisor));
    let needed = [&[raised, in_ring], &below[..]].concat();
    let out = builder.local_words((&needed, &[]), move |registers, out| {
        let constant = if registers.me == 0 { constant } else { W::ZERO };
        let parts = registers.words(raised).iter().zip(registers.words(in_ring));
        out.iter_mut().zip(parts).for_each(|(out, (x, &wrap))| {
            let own = arithmetic.add(W::from_u64(divider.divide(x.to_u64()).0), constant);
            *out = arithmetic.sub(own, arithmetic.mul(wrap, quotient));
        });
        for &below in &below {
            let sub = |(out, &below): (&mut W, &W)| *out = arithmetic.sub(*out, below);
            out.iter_mut().zip(registers.words(below)).for_each(sub);
        }
    });
    builder.finish(&[out], &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact_at_every_boundary() {
        for divisor in [1, 2, 3, 5, 49, 64, 1 << 31, (1 << 32) - 5, u64::MAX, 1 << 63] {
            let divider = Divider::new(divisor);
            for x in [0, 1, divisor - 1, divisor, divisor.wrapping_mul(7).wrapping_sub(1), u64::MAX - 1, u64::MAX] {
                assert_eq!(divider.divide(x), (x / divisor, x % divisor), "{x} / {divisor}");
            }
        }
    }

    #[test]
    fn comparisons_as_few_as_the_bound_allows() {
        let count = |ring, divisor, bound| numbers(ring, divisor, bound, 32).map(|n| n.thresholds.len());
        assert_eq!(count(Ring::Pow2(32), 49, 20), Some(2));
        assert_eq!(count(Ring::Pow2(32), 64, 20), Some(1));
        assert_eq!(count(Ring::Pow2(32), 49, 30), Some(3));
        assert_eq!(count(Ring::Pow2(32), 49, 31), None);
        assert_eq!(count(Ring::Odd(1_000_003), 16, 12), Some(2));
        assert_eq!(count(Ring::Odd(1_000_003), 16, 19), None);
    }
}
