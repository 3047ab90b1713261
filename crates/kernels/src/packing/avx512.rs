//! 512-bit vectors: eight elements of l bits at a time become l bytes, and each byte takes the bits of at most two elements.

use std::arch::x86_64::*;

use covey_ring::{Ring, Word, wire};

use super::place;

#[inline]
#[target_feature(enable = "avx512f")]
fn load_table(table: &[u8; 64]) -> __m512i {
    // SAFETY: 64 readable bytes.
    unsafe { _mm512_loadu_si512(table.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn shifts(bits: usize) -> __m512i {
    let shift = |e| place(e, bits).1 as i64;
    _mm512_setr_epi64(shift(0), shift(1), shift(2), shift(3), shift(4), shift(5), shift(6), shift(7))
}

/// Elements of `bits` bits, 8 to [`WIDEST`](super::WIDEST).
///
/// # Safety
/// All [`wire::words_len`] bytes at `out` may be written; they are, and need not have been before.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(super) unsafe fn pack<W: Word>(values: &[W], bits: u32, mut out: *mut u8) {
    let width = bits as usize;
    // Which byte of the shifted elements each byte takes: of an even element, and of an odd one.
    let (mut tables, mut present) = ([[0u8; 64]; 2], [0u64; 2]);
    for e in 0..8 {
        let (first, shift) = place(e, width);
        for byte in 0..(shift + width).div_ceil(8) {
            tables[e % 2][first + byte] = (8 * e + byte) as u8;
            present[e % 2] |= 1 << (first + byte);
        }
    }
    let [even, odd] = [load_table(&tables[0]), load_table(&tables[1])];
    let (shifts, mask) = (shifts(width), _mm512_set1_epi64(((1u64 << bits) - 1) as i64));
    let (groups, rest) = values.as_chunks::<8>();
    for group in groups {
        let elements = load(group);
        let shifted = _mm512_sllv_epi64(_mm512_and_si512(elements, mask), shifts);
        let even = _mm512_maskz_permutexvar_epi8(present[0], even, shifted);
        let odd = _mm512_maskz_permutexvar_epi8(present[1], odd, shifted);
        // SAFETY: the mask lets `bits` bytes through, which is what eight elements take.
        unsafe {
            _mm512_mask_storeu_epi8(out.cast(), (1 << bits) - 1, _mm512_or_si512(even, odd));
            out = out.add(width);
        }
    }
    let mut last = [0; 64];
    let last = &mut last[..wire::words_len(rest.len(), Ring::Pow2(bits))];
    wire::pack_words_into(rest, Ring::Pow2(bits), last);
    // SAFETY: what is left.
    unsafe { out.copy_from_nonoverlapping(last.as_ptr(), last.len()) };
}

/// Elements of `bits` bits, up to [`WIDEST`](super::WIDEST).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(super) fn unpack<W: Word>(packed: &[u8], bits: u32, out: &mut [W]) {
    let width = bits as usize;
    let mut table = [0u8; 64];
    for e in 0..8 {
        for byte in 0..8 {
            table[8 * e + byte] = (place(e, width).0 + byte) as u8;
        }
    }
    let (gather, shifts) = (load_table(&table), shifts(width));
    let mask = _mm512_set1_epi64(((1u64 << bits) - 1) as i64);
    let (groups, rest) = out.as_chunks_mut::<8>();
    let (packed, last) = packed.split_at(groups.len() * width);
    for (group, packed) in groups.iter_mut().zip(packed.chunks_exact(width)) {
        // SAFETY: the mask lets `bits` bytes through, the length of `packed`.
        let bytes = unsafe { _mm512_maskz_loadu_epi8((1 << bits) - 1, packed.as_ptr().cast()) };
        let words = _mm512_srlv_epi64(_mm512_permutexvar_epi8(gather, bytes), shifts);
        store(_mm512_and_si512(words, mask), group);
    }
    wire::unpack_words_into(last, Ring::Pow2(bits), rest);
}

/// Eight words, extended to 64 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn load<W: Word>(words: &[W; 8]) -> __m512i {
    // SAFETY: eight words of 32 or 64 bits.
    unsafe {
        if const { W::BITS == 32 } {
            _mm512_cvtepu32_epi64(_mm256_loadu_si256(words.as_ptr().cast()))
        } else {
            _mm512_loadu_si512(words.as_ptr().cast())
        }
    }
}

/// The inverse.
#[inline]
#[target_feature(enable = "avx512f")]
fn store<W: Word>(elements: __m512i, words: &mut [W; 8]) {
    // SAFETY: as in `load`.
    unsafe {
        if const { W::BITS == 32 } {
            _mm256_storeu_si256(words.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(elements));
        } else {
            _mm512_storeu_si512(words.as_mut_ptr().cast(), elements);
        }
    }
}
