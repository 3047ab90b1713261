//! 512-bit vectors: eight doubles.

use std::arch::x86_64::*;

use super::lanes::{Lanes, MAGIC};

/// Eight doubles.
#[derive(Clone, Copy)]
pub(super) struct Zmm(__m512d);

impl Zmm {
    /// Integers from words below 2^52.
    ///
    /// # Safety
    /// The processor has AVX-512 F and DQ.
    #[inline(always)]
    unsafe fn from_words(words: __m512i) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let magic = _mm512_set1_pd(MAGIC);
            Zmm(_mm512_sub_pd(_mm512_or_pd(_mm512_castsi512_pd(words), magic), magic))
        }
    }
}

impl Lanes for Zmm {
    type Words = __m512i;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f64) -> Self {
        // SAFETY: the caller has AVX-512 F and DQ, as in all functions here.
        Zmm(unsafe { _mm512_set1_pd(value) })
    }
    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: as the caller promises; the load is unaligned, as are all here.
        Zmm(unsafe { _mm512_loadu_pd(from) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: as the caller promises.
        unsafe { _mm512_storeu_pd(to, self.0) }
    }
    #[inline(always)]
    unsafe fn load_residues(from: *const u64) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::from_words(Self::load_words(from)) }
    }
    #[inline(always)]
    unsafe fn store_residues(self, prime: Self, to: *mut u64) {
        // SAFETY: as the caller promises.
        unsafe {
            let magic = _mm512_set1_pd(MAGIC);
            let negative = _mm512_movepi64_mask(_mm512_castpd_si512(self.0));
            let residue = _mm512_mask_add_pd(self.0, negative, self.0, prime.0);
            let words = _mm512_xor_pd(_mm512_add_pd(residue, magic), magic);
            _mm512_storeu_si512(to.cast(), _mm512_castpd_si512(words));
        }
    }
    #[inline(always)]
    unsafe fn load_i32(from: *const i32) -> Self {
        // SAFETY: as the caller promises.
        Zmm(unsafe { _mm512_cvtepi32_pd(_mm256_loadu_si256(from.cast())) })
    }
    #[inline(always)]
    unsafe fn load_words(from: *const u64) -> __m512i {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_pairs(from: *const u64) -> (__m512i, __m512i) {
        // SAFETY: as the caller promises.
        unsafe {
            let (a, b) = (Self::load_words(from), Self::load_words(from.add(8)));
            let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
            (_mm512_permutex2var_epi64(a, even, b), _mm512_permutex2var_epi64(a, odd, b))
        }
    }
    #[inline(always)]
    unsafe fn low(words: __m512i) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::from_words(_mm512_and_si512(words, _mm512_set1_epi64(0xffff_ffff))) }
    }
    #[inline(always)]
    unsafe fn high(words: __m512i, signed: bool) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let high = _mm512_srli_epi64::<32>(words);
            if !signed {
                return Self::from_words(high);
            }
            // The sign bit flipped adds 2^31.
            let shifted = Self::from_words(_mm512_xor_si512(high, _mm512_set1_epi64(1 << 31)));
            shifted.sub(Self::splat((1_u64 << 31) as f64))
        }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        Zmm(unsafe { _mm512_add_pd(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        Zmm(unsafe { _mm512_sub_pd(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        Zmm(unsafe { _mm512_mul_pd(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn mul_add(self, x: Self, y: Self) -> Self {
        // SAFETY: as the caller promises.
        Zmm(unsafe { _mm512_fmadd_pd(self.0, x.0, y.0) })
    }
    #[inline(always)]
    unsafe fn mul_sub(self, x: Self, y: Self) -> Self {
        // SAFETY: as the caller promises.
        Zmm(unsafe { _mm512_fmsub_pd(self.0, x.0, y.0) })
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, x: Self, y: Self) -> Self {
        // SAFETY: as the caller promises.
        Zmm(unsafe { _mm512_fnmadd_pd(self.0, x.0, y.0) })
    }

    #[inline(always)]
    unsafe fn split<const HALF: usize>(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: as the caller promises.
        unsafe {
            let (x, y) = match HALF {
                4 => (_mm512_shuffle_f64x2::<0b01_00_01_00>(a.0, b.0), _mm512_shuffle_f64x2::<0b11_10_11_10>(a.0, b.0)),
                2 => (
                    _mm512_permutex2var_pd(a.0, _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13), b.0),
                    _mm512_permutex2var_pd(a.0, _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15), b.0),
                ),
                _ => (_mm512_unpacklo_pd(a.0, b.0), _mm512_unpackhi_pd(a.0, b.0)),
            };
            (Zmm(x), Zmm(y))
        }
    }
    #[inline(always)]
    unsafe fn join<const HALF: usize>(x: Self, y: Self) -> (Self, Self) {
        // SAFETY: as the caller promises.
        unsafe {
            if HALF != 2 {
                // The shuffles of `split` undo themselves.
                return Self::split::<HALF>(x, y);
            }
            let a = _mm512_permutex2var_pd(x.0, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), y.0);
            let b = _mm512_permutex2var_pd(x.0, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), y.0);
            (Zmm(a), Zmm(b))
        }
    }
    fn block(half: usize, lane: usize) -> usize {
        if half == 1 { [0, 4, 1, 5, 2, 6, 3, 7][lane] } else { lane / half }
    }
}

super::vector::entries!(Zmm, "avx512f,avx512bw,avx512dq,avx512vl");
