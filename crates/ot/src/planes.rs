//! Logic on bit planes that only OT needs.

use covey_kernels::vectorised;

vectorised! {
    /// Exchanges the bits of `a` and `b` where `bit` is 1.
    pub(crate) fn swap(a: &mut [u64], b: &mut [u64], bit: &[u64]) {
        assert!(a.len() == b.len() && a.len() == bit.len(), "lengths differ");
        a.iter_mut().zip(b).zip(bit).for_each(|((a, b), bit)| {
            let change = (*a ^ *b) & bit;
            *a ^= change;
            *b ^= change;
        });
    }

    /// `a` becomes `b` where `bit` is 1.
    pub(crate) fn choose(a: &mut [u64], b: &[u64], bit: &[u64]) {
        assert!(a.len() == b.len() && a.len() == bit.len(), "lengths differ");
        a.iter_mut().zip(b).zip(bit).for_each(|((a, b), bit)| *a ^= (*a ^ b) & bit);
    }
}

/// Of 2^`index.len()` entries of `width` words each, one after the other, leaves at the start the one whose number the planes
/// of `index` say, plane j its bit j. The others are overwritten.
pub(crate) fn select(entries: &mut [u64], index: &[&[u64]], width: usize) {
    let words = index.first().map_or(0, |plane| plane.len());
    for (bit, plane) in index.iter().enumerate().rev() {
        let (low, high) = entries.split_at_mut(width << bit);
        if words > 0 {
            for (low, high) in low.chunks_exact_mut(words).zip(high.chunks_exact(words)) {
                choose(low, high, plane);
            }
        }
    }
}
