//! Word slices as bytes.

use covey_ring::Word;

/// The bytes of `words`, in memory order.
#[inline(always)]
pub(crate) fn bytes<W: Word>(words: &[W]) -> &[u8] {
    // SAFETY: as in `bytes_mut`; the borrow is shared.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// [`bytes`], mutable.
#[inline(always)]
pub(crate) fn bytes_mut<W: Word>(words: &mut [W]) -> &mut [u8] {
    // SAFETY: Word is sealed to u32 and u64: no padding, and every bit pattern is valid both ways; u8 needs no
    // alignment; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}
