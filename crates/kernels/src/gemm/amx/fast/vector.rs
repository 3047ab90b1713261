//! Sixteen words in vectors, as [`load`](crate::gemm::amx::matrix::load) gives them.

use std::arch::x86_64::*;

use covey_ring::Word;

/// Sums of 16 words.
#[inline(always)]
pub(super) unsafe fn add<W: Word>([a, b]: [__m512i; 2], [c, d]: [__m512i; 2]) -> [__m512i; 2] {
    // SAFETY: the callers have AVX-512 F.
    unsafe {
        if const { W::BITS == 32 } {
            [_mm512_add_epi32(a, c), b]
        } else {
            [_mm512_add_epi64(a, c), _mm512_add_epi64(b, d)]
        }
    }
}

/// Writes 16 words.
#[inline(always)]
pub(super) unsafe fn store<W: Word>(words: [__m512i; 2], to: *mut W) {
    // SAFETY: the callers have AVX-512 F and 16 writable words.
    unsafe {
        _mm512_storeu_si512(to.cast(), words[0]);
        if const { W::BITS == 64 } {
            _mm512_storeu_si512(to.add(8).cast(), words[1]);
        }
    }
}

/// Differences of 16 words.
#[inline(always)]
pub(super) unsafe fn sub<W: Word>([a, b]: [__m512i; 2], [c, d]: [__m512i; 2]) -> [__m512i; 2] {
    // SAFETY: the callers have AVX-512 F.
    unsafe {
        if const { W::BITS == 32 } {
            [_mm512_sub_epi32(a, c), b]
        } else {
            [_mm512_sub_epi64(a, c), _mm512_sub_epi64(b, d)]
        }
    }
}
