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

/// `out[i] = x[indices[i]]`, or 0 where the index is `u32::MAX`.
///
/// # Panics
/// If lengths differ or another index is past the end of `x`.
pub fn gather<W: Word>(out: &mut [W], x: &[W], indices: &[u32]) {
    assert!(out.len() == indices.len(), "lengths differ");
    assert!(end_of(indices) <= x.len(), "an index past the end");
    if x.is_empty() {
        return out.fill(W::ZERO);
    }
    picked(out, x, indices);
}

/// One past the highest of the indices of a gather.
pub fn end_of(indices: &[u32]) -> usize {
    let mut end = 0;
    ends(indices, &mut end);
    end as usize
}

vectorised! {
    /// One past the highest index that is not `u32::MAX`, or 0.
    fn ends(indices: &[u32], end: &mut u32) {
        // One more is 0 for `u32::MAX`.
        *end = indices.iter().fold(0, |end, &index| end.max(index.wrapping_add(1)));
    }

    /// The body of [`gather`].
    fn picked<W: Word>(out: &mut [W], x: &[W], indices: &[u32]) {
        for (out, &index) in out.iter_mut().zip(indices) {
            let is_there = index != u32::MAX;
            let at = if is_there { index as usize } else { 0 };
            // SAFETY: `x` has an element, and the only caller has seen that it has all the others. Checking each again would
            // keep the loop from being vectorised.
            let word = unsafe { *x.get_unchecked(at) };
            *out = if is_there { word } else { W::ZERO };
        }
    }
}
