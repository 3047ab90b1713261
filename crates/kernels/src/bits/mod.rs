//! Between words and bit planes, and logic on planes.
//!
//! Planes are plane-major, as in [`covey_ring::BitTensor`]: bit `p` of element `i` is bit `i % 64` of word
//! `p * len.div_ceil(64) + i / 64`.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx512;
mod planes;
mod portable;

use covey_ring::Word;

pub use planes::*;

use crate::dispatch;

/// Calls the twin of a kernel for the instruction set in use; `$portable` where there is none.
macro_rules! twin {
    ($name:ident($($argument:expr),*), $portable:expr) => {
        match dispatch::isa() {
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor has it; `check` has seen the sizes.
            isa if isa >= dispatch::Isa::Avx512 => unsafe { avx512::$name($($argument),*) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor has it; `check` has seen the sizes.
            dispatch::Isa::Avx2 => unsafe { avx2::$name($($argument),*) },
            _ => $portable,
        }
    };
}

/// Writes the low `planes` bits of `values` as bit planes: `out` holds `planes * values.len().div_ceil(64)` words. Bits past
/// the last element are zero.
///
/// # Panics
/// If `planes` is not in `1..=W::BITS` or `out` has another length.
pub fn to_planes<W: Word>(values: &[W], planes: usize, out: &mut [u64]) {
    check::<W>(values.len(), planes, out.len());
    if planes == 1 {
        return pack_bits(values, out);
    }
    twin!(to_planes(values, planes, out), portable::to_planes::<W, portable::WordByWord>(values, planes, out))
}

/// The inverse of [`to_planes`]: `out[i]` has bit `p` of element `i` at bit `p`, and zeros above. Bits of a plane past the last
/// element are ignored.
///
/// # Panics
/// If `planes` is not in `1..=W::BITS` or `words` does not hold `planes * out.len().div_ceil(64)` words.
pub fn from_planes<W: Word>(words: &[u64], planes: usize, out: &mut [W]) {
    check::<W>(out.len(), planes, words.len());
    if planes == 1 {
        return expand_bits(words, out);
    }
    twin!(from_planes(words, planes, out), portable::from_planes::<W, portable::WordByWord>(words, planes, out))
}

/// The lowest bit of each value as one plane of `values.len().div_ceil(64)` words; bits past the last element are zero.
///
/// # Panics
/// If `plane` has another length.
pub fn pack_bits<W: Word>(values: &[W], plane: &mut [u64]) {
    check::<W>(values.len(), 1, plane.len());
    twin!(pack_bits(values, plane), portable::pack_bits(values, plane))
}

/// The bits of one plane as words 0 and 1. Bits past the last element are ignored.
///
/// # Panics
/// If `plane` does not hold `out.len().div_ceil(64)` words.
pub fn expand_bits<W: Word>(plane: &[u64], out: &mut [W]) {
    check::<W>(out.len(), 1, plane.len());
    twin!(expand_bits(plane, out), portable::expand_bits(plane, out))
}

fn check<W: Word>(len: usize, planes: usize, words: usize) {
    assert!((1..=W::BITS as usize).contains(&planes), "bit planes: {planes} planes of {}-bit words", W::BITS);
    assert_eq!(words, planes * len.div_ceil(64), "bit planes: {planes} planes of {len} bits");
}
