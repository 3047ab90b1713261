//! 256-bit vectors: `vpmulld` for 32-bit words; 64-bit products are put together from three 32-bit ones.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use covey_ring::Word;

use super::blocked::{Block, Blocks, Panels, Product, blocked};
use super::fast::{self, Convolution};
use super::lanes::Vector;
use super::picked::{self, Picked};
use super::skinny::{self, FewRows, Transposed};

/// 8 words of 32 bits or 4 of 64.
#[derive(Clone, Copy)]
struct Ymm<W>(__m256i, PhantomData<W>);

impl<W: Word> Vector for Ymm<W> {
    type Word = W;
    const LANES: usize = 256 / W::BITS as usize;
    /// All bits of the lanes.
    type Mask = __m256i;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        Ymm(unsafe { _mm256_setzero_si256() }, PhantomData)
    }
    #[inline(always)]
    unsafe fn splat(word: W) -> Self {
        // SAFETY: the caller has AVX2.
        let vector = unsafe {
            if const { W::BITS == 32 } {
                _mm256_set1_epi32(word.to_u64() as i32)
            } else {
                _mm256_set1_epi64x(word.to_u64() as i64)
            }
        };
        Ymm(vector, PhantomData)
    }
    #[inline(always)]
    unsafe fn load(from: *const W) -> Self {
        // SAFETY: the caller has AVX2 and LANES readable words; the load is unaligned.
        Ymm(unsafe { _mm256_loadu_si256(from.cast()) }, PhantomData)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut W) {
        // SAFETY: the caller has AVX2 and LANES writable words; the store is unaligned.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        let sum = unsafe {
            if const { W::BITS == 32 } { _mm256_add_epi32(self.0, other.0) } else { _mm256_add_epi64(self.0, other.0) }
        };
        Ymm(sum, PhantomData)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        let difference = unsafe {
            if const { W::BITS == 32 } { _mm256_sub_epi32(self.0, other.0) } else { _mm256_sub_epi64(self.0, other.0) }
        };
        Ymm(difference, PhantomData)
    }
    #[inline(always)]
    unsafe fn fetch(from: *const W) {
        // SAFETY: a prefetch reads nothing, whatever its address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
    }
    #[inline(always)]
    unsafe fn mul_add(self, x: Self, y: Self) -> Self {
        // SAFETY: the caller has AVX2.
        let product = unsafe {
            if const { W::BITS == 32 } {
                _mm256_mullo_epi32(x.0, y.0)
            } else {
                // (x1·2^32 + x0)(y1·2^32 + y0) = (x1·y0 + x0·y1)·2^32 + x0·y0 modulo 2^64.
                let crossed = _mm256_mullo_epi32(x.0, _mm256_shuffle_epi32::<0b10_11_00_01>(y.0));
                let high = _mm256_add_epi32(_mm256_slli_epi64::<32>(crossed), crossed);
                let high = _mm256_and_si256(high, _mm256_set1_epi64x(!0 << 32));
                _mm256_add_epi64(_mm256_mul_epu32(x.0, y.0), high)
            }
        };
        // SAFETY: as above.
        unsafe { self.add(Ymm(product, PhantomData)) }
    }
    #[inline(always)]
    unsafe fn mask(bits: u16) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            if const { W::BITS == 32 } {
                let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
                _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits.into()), lanes), lanes)
            } else {
                let lanes = _mm256_setr_epi64x(1, 2, 4, 8);
                _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(bits.into()), lanes), lanes)
            }
        }
    }
    #[inline(always)]
    unsafe fn add_where(self, mask: __m256i, x: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { self.add(Ymm(_mm256_and_si256(mask, x.0), PhantomData)) }
    }
}

/// The product by columns: few or many.
///
/// # Safety
/// The processor has AVX2. Slices are long enough for the sizes.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn product<W: Word, B: Panels<W>>(product: &Product<'_, W, B>, c: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe {
        if skinny::goes_by_columns(product) {
            skinny::by_columns(product, c, add_dots)
        } else {
            blocked(product, c, Blocks { lanes: Ymm::<W>::LANES, vectors: 2, add: add_block })
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn add_block<W: Word>(block: &Block<'_, W>, c: &mut [W]) {
    // SAFETY: the processor has AVX2.
    unsafe { block.add::<Ymm<W>, 4, 2>(c) }
}

#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn add_dots<W: Word>(dots: &Transposed<'_, W>, c: &mut [W]) {
    // SAFETY: the processor has AVX2.
    unsafe { dots.add::<Ymm<W>>(c) }
}

/// A convolution of 3 × 3 taps in fewer products.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn convolve<W: Word>(convolution: &Convolution<'_, W>, out: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe { fast::convolve::<Ymm<W>, 4, 2>(convolution, out) }
}

/// Sums of picked words.
///
/// # Safety
/// The processor has AVX2, and `picked` fits.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn add_picked<W: Word>(picked: &Picked<'_, W>, rows: usize, out: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe { picked::add::<Ymm<W>, 4, 2>(picked, rows, out) }
}

/// The product of few rows.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn few_rows<W: Word>(operands: &FewRows<'_, W>, c: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe { skinny::few_rows::<Ymm<W>>(operands, c) }
}
