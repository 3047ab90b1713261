//! Element-wise arithmetic on words, modulo 2^32 or 2^64.
//!
//! Functions that end in `_assign` update their first argument, the others overwrite it. All slices have the length of the
//! first; planes (`&[u64]`) have a bit for each element of it, as in [`crate::bits`], and what lies past the last one is
//! ignored.

use covey_ring::Word;

use crate::vectorised;

vectorised! {
    /// `out = a + b`
    pub fn add<W: Word>(out: &mut [W], a: &[W], b: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = a.add(b));
    }

    /// `out = a - b`
    pub fn sub<W: Word>(out: &mut [W], a: &[W], b: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = a.sub(b));
    }

    /// `out = a · b`
    pub fn mul<W: Word>(out: &mut [W], a: &[W], b: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = a.mul(b));
    }

    /// `out = a + b + c`
    pub fn add3<W: Word>(out: &mut [W], a: &[W], b: &[W], c: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len() && out.len() == c.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).zip(c).for_each(|(((out, &a), &b), &c)| *out = a.add(b).add(c));
    }

    /// `out = out + a`
    pub fn add_assign<W: Word>(out: &mut [W], a: &[W]) {
        assert!(out.len() == a.len(), "lengths differ");
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = out.add(a));
    }

    /// `out = out - a`
    pub fn sub_assign<W: Word>(out: &mut [W], a: &[W]) {
        assert!(out.len() == a.len(), "lengths differ");
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = out.sub(a));
    }

    /// `out = a - out`
    pub fn sub_from_assign<W: Word>(out: &mut [W], a: &[W]) {
        assert!(out.len() == a.len(), "lengths differ");
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = a.sub(*out));
    }

    /// `out = out + a · b`
    pub fn mul_add_assign<W: Word>(out: &mut [W], a: &[W], b: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = out.add(a.mul(b)));
    }

    /// `out = out - a · b`
    pub fn mul_sub_assign<W: Word>(out: &mut [W], a: &[W], b: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = out.sub(a.mul(b)));
    }

    /// `out = out + c`
    pub fn add_constant_assign<W: Word>(out: &mut [W], c: W) {
        out.iter_mut().for_each(|out| *out = out.add(c));
    }

    /// `out = c · out`
    pub fn mul_constant_assign<W: Word>(out: &mut [W], c: W) {
        out.iter_mut().for_each(|out| *out = out.mul(c));
    }

    /// `out = -out`
    pub fn neg_assign<W: Word>(out: &mut [W]) {
        out.iter_mut().for_each(|out| *out = out.neg());
    }

    /// `out = a ≫ bits`, logical; `bits < W::BITS`.
    pub fn shr<W: Word>(out: &mut [W], a: &[W], bits: u32) {
        assert!(out.len() == a.len() && bits < W::BITS, "lengths differ or shift too far");
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = a.shr(bits));
    }

    /// `out = out ≫ bits`, logical; `bits < W::BITS`.
    pub fn shr_assign<W: Word>(out: &mut [W], bits: u32) {
        assert!(bits < W::BITS, "shift too far");
        out.iter_mut().for_each(|out| *out = out.shr(bits));
    }

    /// `out = out ≪ bits`; `bits < W::BITS`.
    pub fn shl_assign<W: Word>(out: &mut [W], bits: u32) {
        assert!(bits < W::BITS, "shift too far");
        out.iter_mut().for_each(|out| *out = out.shl(bits));
    }

    /// `out = out & mask`: the low l bits with mask 2^l - 1.
    pub fn and_constant_assign<W: Word>(out: &mut [W], mask: W) {
        out.iter_mut().for_each(|out| *out = *out & mask);
    }

    /// `out = bit ? a : b` for the bits of `plane`.
    pub fn select<W: Word>(out: &mut [W], plane: &[u64], a: &[W], b: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        assert_eq!(plane.len(), out.len().div_ceil(64), "one bit for each element");
        each_run(plane, out.len(), |bits: W, run| {
            let (out, a, b) = (&mut out[run.clone()], &a[run.clone()], &b[run]);
            for (i, ((out, &a), &b)) in out.iter_mut().zip(a).zip(b).enumerate() {
                *out = b ^ (a ^ b) & ones::<W>(bits, i);
            }
        });
    }

    /// `out = bit ? -out : out` for the bits of `plane`.
    pub fn neg_where<W: Word>(out: &mut [W], plane: &[u64]) {
        assert_eq!(plane.len(), out.len().div_ceil(64), "one bit for each element");
        each_run(plane, out.len(), |bits: W, run| {
            for (i, out) in out[run].iter_mut().enumerate() {
                let mask = ones::<W>(bits, i);
                *out = (*out ^ mask).sub(mask);
            }
        });
    }

    /// `out = bit ? out + a : out` for the bits of `plane`.
    pub fn add_where<W: Word>(out: &mut [W], plane: &[u64], a: &[W]) {
        assert!(out.len() == a.len(), "lengths differ");
        assert_eq!(plane.len(), out.len().div_ceil(64), "one bit for each element");
        each_run(plane, out.len(), |bits: W, run| {
            for (i, (out, &a)) in out[run.clone()].iter_mut().zip(&a[run]).enumerate() {
                *out = out.add(a & ones::<W>(bits, i));
            }
        });
    }

    /// `out = bit ? out + c : out` for the bits of `plane`; with c = -1 the bits are taken off.
    pub fn add_constant_where<W: Word>(out: &mut [W], plane: &[u64], c: W) {
        assert_eq!(plane.len(), out.len().div_ceil(64), "one bit for each element");
        each_run(plane, out.len(), |bits: W, run| {
            for (i, out) in out[run].iter_mut().enumerate() {
                *out = out.add(c & ones::<W>(bits, i));
            }
        });
    }
}

/// The bits of `plane` as words of `W::BITS` bits, each with the elements it stands for.
#[inline(always)]
fn each_run<W: Word>(plane: &[u64], len: usize, mut f: impl FnMut(W, std::ops::Range<usize>)) {
    let width = W::BITS as usize;
    for (index, &word) in plane.iter().enumerate() {
        for part in 0..64 / width {
            let start = 64 * index + part * width;
            if start < len {
                f(W::from_u64(word >> (part * width)), start..len.min(start + width));
            }
        }
    }
}

/// All ones where bit `i` of `bits` is 1, else zero.
#[inline(always)]
fn ones<W: Word>(bits: W, i: usize) -> W {
    (bits.shr(i as u32) & W::ONE).neg()
}
