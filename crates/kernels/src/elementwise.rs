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

    /// `out = -out`
    pub fn neg_assign<W: Word>(out: &mut [W]) {
        out.iter_mut().for_each(|out| *out = out.neg());
    }

    /// `out = out ≫ bits`, zeros coming in; `bits < W::BITS`.
    pub fn shr_assign<W: Word>(out: &mut [W], bits: u32) {
        assert!(bits < W::BITS, "shift too far");
        out.iter_mut().for_each(|out| *out = out.shr(bits));
    }

    /// `out = out ≪ bits`; `bits < W::BITS`.
    pub fn shl_assign<W: Word>(out: &mut [W], bits: u32) {
        assert!(bits < W::BITS, "shift too far");
        out.iter_mut().for_each(|out| *out = out.shl(bits));
    }
}
