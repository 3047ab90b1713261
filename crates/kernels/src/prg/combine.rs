//! What becomes of a word and the generator's word for it.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use std::arch::x86_64::*;

use covey_ring::Word;

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::aes_lanes::Lanes;

pub(super) trait Combine {
    /// Whether the old word counts.
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    const READS: bool = true;

    fn word<W: Word>(old: W, stream: W) -> W;

    /// [`Combine::word`] on a vector.
    ///
    /// # Safety
    /// The processor has AVX-512 F.
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    unsafe fn vector<W: Word>(old: __m512i, stream: __m512i) -> __m512i;

    /// [`Combine::word`] on a shorter vector.
    ///
    /// # Safety
    /// As for [`Lanes`].
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    unsafe fn lanes<W: Word, L: Lanes>(old: L, stream: L) -> L;
}

macro_rules! combine {
    ($($name:ident: |$old:ident, $stream:ident| $word:expr, $narrow:expr, $wide:expr, $lanes:expr;)*) => {$(
        pub(super) struct $name;

        impl Combine for $name {
            #[inline(always)]
            fn word<W: Word>($old: W, $stream: W) -> W {
                $word
            }

            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            #[inline(always)]
            unsafe fn vector<W: Word>($old: __m512i, $stream: __m512i) -> __m512i {
                // SAFETY: the caller has AVX-512 F.
                unsafe { if const { W::BITS == 32 } { $narrow } else { $wide } }
            }

            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            #[inline(always)]
            unsafe fn lanes<W: Word, L: Lanes>($old: L, $stream: L) -> L {
                // SAFETY: as the caller promises.
                unsafe { $lanes }
            }
        }
    )*};
}

combine! {
    Add: |old, stream| old.add(stream), _mm512_add_epi32(old, stream), _mm512_add_epi64(old, stream), old.add::<W>(stream);
    Sub: |old, stream| old.sub(stream), _mm512_sub_epi32(old, stream), _mm512_sub_epi64(old, stream), old.sub::<W>(stream);
}

/// The generator's word, whatever was there.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
pub(super) struct Replace;

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
impl Combine for Replace {
    const READS: bool = false;

    fn word<W: Word>(_old: W, stream: W) -> W {
        stream
    }

    #[inline(always)]
    unsafe fn vector<W: Word>(_old: __m512i, stream: __m512i) -> __m512i {
        stream
    }

    #[inline(always)]
    unsafe fn lanes<W: Word, L: Lanes>(_old: L, stream: L) -> L {
        stream
    }
}
