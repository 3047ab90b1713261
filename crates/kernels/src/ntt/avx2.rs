//! 256-bit vectors: four doubles.

use std::arch::x86_64::*;

use super::lanes::{Lanes, MAGIC};

/// Four doubles.
#[derive(Clone, Copy)]
pub(super) struct Ymm(__m256d);

impl Ymm {
    /// Integers from words below 2^52.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn from_words(words: __m256i) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let magic = _mm256_set1_pd(MAGIC);
            Ymm(_mm256_sub_pd(_mm256_or_pd(_mm256_castsi256_pd(words), magic), magic))
        }
    }
}

impl Lanes for Ymm {
    type Words = __m256i;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        // SAFETY: the caller has AVX2, as in all functions here.
        Ymm(unsafe { _mm256_set1_pd(value) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: as the caller promises; the load is unaligned, as are all here.
        Ymm(unsafe { _mm256_loadu_pd(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_pd(to, self.0) }
    }
    #[inline(always)]
    unsafe fn load_residues(from: *const u64) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::from_words(Self::load_words(from)) }
    }
    #[inline(always)]
    unsafe fn store_residues(self, prime: Self, to: *mut u64) {
        // SAFETY: as the caller promises. The sign bit chooses what is added.
        unsafe {
            let magic = _mm256_set1_pd(MAGIC);
            let bias = _mm256_blendv_pd(magic, _mm256_add_pd(magic, prime.0), self.0);
            let words = _mm256_xor_pd(_mm256_add_pd(self.0, bias), magic);
            _mm256_storeu_si256(to.cast(), _mm256_castpd_si256(words));
        }
    }
    #[inline(always)]
    unsafe fn load_i32(from: *const i32) -> Self {
        // SAFETY: as the caller promises.
        Ymm(unsafe { _mm256_cvtepi32_pd(_mm_loadu_si128(from.cast())) })
    }
    #[inline(always)]
    unsafe fn load_words(from: *const u64) -> __m256i {
        // SAFETY: as the caller promises.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_pairs(from: *const u64) -> (__m256i, __m256i) {
        // SAFETY: as the caller promises.
        unsafe {
            let (a, b) = (Self::load_words(from), Self::load_words(from.add(4)));
            let (first, second) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            (_mm256_permute4x64_epi64::<0b11_01_10_00>(first), _mm256_permute4x64_epi64::<0b11_01_10_00>(second))
        }
    }
    #[inline(always)]
    unsafe fn low(words: __m256i) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::from_words(_mm256_and_si256(words, _mm256_set1_epi64x(0xffff_ffff))) }
    }
    #[inline(always)]
    unsafe fn high(words: __m256i, signed: bool) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let high = _mm256_srli_epi64::<32>(words);
            if !signed {
                return Self::from_words(high);
            }
            // The sign bit flipped adds 2^31.
            let shifted = Self::from_words(_mm256_xor_si256(high, _mm256_set1_epi64x(1 << 31)));
            shifted.sub(Self::splat((1_u64 << 31) as f64))
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        Ymm(unsafe { _mm256_add_pd(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        Ymm(unsafe { _mm256_sub_pd(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        Ymm(unsafe { _mm256_mul_pd(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, x: Self, y: Self) -> Self {
        // SAFETY: the caller has FMA.
        Ymm(unsafe { _mm256_fmadd_pd(self.0, x.0, y.0) })
    }
    #[inline(always)]
    unsafe fn mul_sub(self, x: Self, y: Self) -> Self {
        // SAFETY: the caller has FMA.
        Ymm(unsafe { _mm256_fmsub_pd(self.0, x.0, y.0) })
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, x: Self, y: Self) -> Self {
        // SAFETY: the caller has FMA.
        Ymm(unsafe { _mm256_fnmadd_pd(self.0, x.0, y.0) })
    }

    #[inline(always)]
    unsafe fn split<const HALF: usize>(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: as the caller promises.
        unsafe {
            if HALF == 2 {
                let (x, y) = (_mm256_permute2f128_pd::<0x20>(a.0, b.0), _mm256_permute2f128_pd::<0x31>(a.0, b.0));
                return (Ymm(x), Ymm(y));
            }
            (Ymm(_mm256_unpacklo_pd(a.0, b.0)), Ymm(_mm256_unpackhi_pd(a.0, b.0)))
        }
    }
    #[inline(always)]
    unsafe fn join<const HALF: usize>(x: Self, y: Self) -> (Self, Self) {
        // SAFETY: as the caller promises. Both shuffles undo themselves.
        unsafe { Self::split::<HALF>(x, y) }
    }
    fn block(half: usize, lane: usize) -> usize {
        if half == 2 { lane / 2 } else { [0, 2, 1, 3][lane] }
    }
}

super::vector::entries!(Ymm, "avx2,fma");
