//! Word slices as bytes, and as what they are.

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

/// Values of a word type under another name for it, once the width says that it is the same.
pub(crate) mod same {
    use covey_ring::Word;

    /// A value of a type over words.
    #[inline(always)]
    pub(crate) fn shared<W: Word, V: Word, T: Over<W>>(value: &T) -> &T::With<V> {
        assert_eq!(W::BITS, V::BITS);
        // SAFETY: Word is sealed to u32 and u64, so words of one width are one type, and so are `T` and `T::With<V>`.
        unsafe { &*std::ptr::from_ref(value).cast() }
    }

    /// A slice.
    #[inline(always)]
    pub(crate) fn slice<W: Word, V: Word>(words: &[W]) -> &[V] {
        assert_eq!(W::BITS, V::BITS);
        // SAFETY: as in `shared`.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
    }

    /// Slices.
    #[inline(always)]
    pub(crate) fn all<'a, 'b, W: Word, V: Word>(slices: &'a [&'b [W]]) -> &'a [&'b [V]] {
        assert_eq!(W::BITS, V::BITS);
        // SAFETY: as in `shared`.
        unsafe { std::slice::from_raw_parts(slices.as_ptr().cast(), slices.len()) }
    }

    /// A slice to write to.
    #[inline(always)]
    pub(crate) fn exclusive<W: Word, V: Word>(words: &mut [W]) -> &mut [V] {
        assert_eq!(W::BITS, V::BITS);
        // SAFETY: as in `shared`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
    }

    /// A type over words.
    pub(crate) trait Over<W> {
        /// The same type over others.
        type With<V>;
    }
}
