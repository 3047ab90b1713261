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

/// Does `each` with a run's length, as a constant where the run is so short that a call takes longer than the words.
macro_rules! by_length {
    ($len:expr, $each:ident, $long:expr) => {
        match $len {
            0 => {}
            1 => $each!(1),
            2 => $each!(2),
            3 => $each!(3),
            4 => $each!(4),
            5 => $each!(5),
            6 => $each!(6),
            7 => $each!(7),
            8 => $each!(8),
            _ => $long,
        }
    };
}

/// Copies a run to another of its length.
#[inline(always)]
pub(crate) fn copy_run<W: Word>(from: &[W], to: &mut [W]) {
    macro_rules! words {
        ($n:literal) => {
            to[..$n].copy_from_slice(&from[..$n])
        };
    }
    by_length!(to.len(), words, copy_long(from, to))
}

/// A run of more than 8 words. A closure would be compiled without the caller's instruction set.
#[inline(always)]
fn copy_long<W: Word>(from: &[W], to: &mut [W]) {
    match to.len() {
        ..=16 => copy_ends::<W, 8>(from, to),
        17..=32 => copy_ends::<W, 16>(from, to),
        33..=64 => copy_ends::<W, 32>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// A run of `N` to `2 * N` words: its first and its last ones, which may overlap.
#[inline(always)]
fn copy_ends<W: Word, const N: usize>(from: &[W], to: &mut [W]) {
    let start = to.len() - N;
    to[..N].copy_from_slice(&from[..N]);
    to[start..start + N].copy_from_slice(&from[start..start + N]);
}

/// Sets a run to zeros.
#[inline(always)]
pub(crate) fn clear<W: Word>(to: &mut [W]) {
    macro_rules! words {
        ($n:literal) => {
            to[..$n].copy_from_slice(&[W::ZERO; $n])
        };
    }
    by_length!(to.len(), words, to.fill(W::ZERO))
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
