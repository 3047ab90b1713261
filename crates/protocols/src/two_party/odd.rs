//! The sign over Z_n, n odd.
//!
//! With h = (n - 1) / 2 and s = x0 + x1 as integers, x is negative where h < s mod n. CrypTFlow2 (section 4.2) compares twice,
//! w = 1{s >= n} and d = 1{s > h}, or 1{s > n + h} where x0 > h, and looks the sign up in a table. No table is needed: where
//! x0 <= h, w implies d and no s passes n + h, so the sign is d·¬w = d ⊕ w; where x0 > h, d implies w and s > h, so it is
//! ¬(w·¬d) = ¬(d ⊕ w). Hence the sign is 1{x0 > h} ⊕ d ⊕ w, the first of which P0 knows.
//!
//! Both comparisons are with the same number of P1's, whose choices serve both (CrypTFlow2, section 4.2.1). The parties may swap
//! parts: `holder` is the one called P0 here.

use std::sync::Arc;

use covey_ring::{Ring, Word};

use super::comparison::{self, Bits, Shape, not, xor};
use super::gates::selected;
use super::program::{Builder, GateProgram, Plane, Words};

/// One plane: 1 where x < 0.
pub(super) fn msb<W: Word>(n: u64, shape: Shape, holder: usize) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let negative = sign(&mut builder, x, n, shape, holder);
    builder.finish(&[], &[negative])
}

/// max(x, 0).
pub(super) fn relu<W: Word>(n: u64, shape: Shape, holder: usize) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let negative = sign(&mut builder, x, n, shape, holder);
    let positive = not(&mut builder, negative);
    let out = selected(&mut builder, positive, x, Ring::Odd(n));
    builder.finish(&[out], &[])
}

fn sign<W: Word>(builder: &mut Builder<W>, x: Words, n: u64, shape: Shape, holder: usize) -> Plane {
    let h = (n - 1) / 2;
    // Both comparisons are 1{x1 + h > the holder's}, with numbers up to n + h; of 1{v0 > v1} in `comparison`, both sides negated.
    let bits = (u64::BITS - (n + h).leading_zeros()) as usize;
    let all = u64::MAX >> (64 - bits);
    let wraps: fn(u64, u64, u64) -> u64 = |x, n, h| n - 1 - x + h;
    let beyond: fn(u64, u64, u64) -> u64 = |x, n, h| n - 1 - x + n * u64::from(x > h);
    let lanes = [wraps, beyond].map(|threshold| {
        let own = move |me, x| if me == holder { all - threshold(x, n, h) } else { x + h };
        Bits::mapped(builder, x, bits, own)
    });
    let compared = comparison::carries_together(builder, &lanes, 0..bits, shape, holder);
    let high = builder.local_planes((&[x], &[]), 1, move |registers, to| {
        let own = |x: &W| u64::from(x.to_u64() > h && registers.me == holder);
        let values: Vec<u64> = registers.words(x).iter().map(own).collect();
        let mut plane = vec![0; registers.len.div_ceil(64)];
        covey_kernels::bits::pack_bits(&values, &mut plane);
        registers.set_plane(to[0], plane);
    })[0];
    let differ = xor(builder, compared[0], compared[1]);
    xor(builder, differ, high)
}
