//! Words to planes by their bytes: those of one weight are brought together, and each of their bits is then the sign that a mask of
//! signs collects. Few planes cost little. The others are the portable kernels, compiled for AVX2.

use std::arch::x86_64::*;

use covey_ring::Word;

use super::portable::{self, GROUP, Row, SIDE, WordByWord};
use crate::words::bytes;

/// Elements whose bits are one word of a plane.
const CHUNK: usize = 64;

#[target_feature(enable = "avx2")]
pub(super) fn to_planes<W: Word>(values: &[W], planes: usize, out: &mut [u64]) {
    let width = values.len().div_ceil(CHUNK);
    // A cache line of each plane at once: planes may lie so that words of all of them share few places in the cache.
    let mut rows = [[0u64; SIDE]; 64];
    for (group, values) in values.chunks(GROUP).enumerate() {
        for (side, values) in values.chunks(CHUNK).enumerate() {
            match values.try_into() {
                Ok(whole) => words_of_planes(whole, planes, side, &mut rows),
                Err(_) => {
                    let mut padded = [W::ZERO; CHUNK];
                    padded[..values.len()].copy_from_slice(values);
                    words_of_planes(&padded, planes, side, &mut rows);
                }
            }
        }
        let words = values.len().div_ceil(CHUNK);
        for (plane, row) in rows[..planes].iter().enumerate() {
            let out = &mut out[plane * width + group * SIDE..];
            match out.first_chunk_mut() {
                Some(out) if words == SIDE => *out = *row,
                _ => out[..words].copy_from_slice(&row[..words]),
            }
        }
    }
}

/// Word `side` of each row, one for each plane.
#[inline]
#[target_feature(enable = "avx2")]
fn words_of_planes<W: Word>(values: &[W; CHUNK], planes: usize, side: usize, rows: &mut [Row; 64]) {
    let (low, high) = by_bytes(values, planes);
    for (byte, rows) in rows.as_chunks_mut::<8>().0.iter_mut().enumerate().take(planes.div_ceil(8)) {
        let (mut low, mut high) = (low[byte], high[byte]);
        for row in rows.iter_mut().rev() {
            let signs = (_mm256_movemask_epi8(low) as u32, _mm256_movemask_epi8(high) as u32);
            row[side % SIDE] = u64::from(signs.0) | u64::from(signs.1) << 32;
            (low, high) = (_mm256_add_epi8(low, low), _mm256_add_epi8(high, high));
        }
    }
}

/// For each byte of a word that `planes` reach, that of elements 0 to 31 and of elements 32 to 63, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn by_bytes<W: Word>(values: &[W; CHUNK], planes: usize) -> ([__m256i; 8], [__m256i; 8]) {
    let (low, high) = bytes(values).split_at(CHUNK / 2 * W::BYTES);
    if const { W::BITS == 32 } {
        return (bytes_of_32(low, planes), bytes_of_32(high, planes));
    }
    (bytes_of_64(low, planes), bytes_of_64(high, planes))
}

/// 16 bytes of each half of `bytes` from `at` on, so that the lanes of a vector are far apart.
#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8], at: usize) -> __m256i {
    let (low, high) = (&bytes[at..at + 16], &bytes[bytes.len() / 2 + at..][..16]);
    // SAFETY: both are 16 bytes.
    unsafe { _mm256_loadu2_m128i(high.as_ptr().cast(), low.as_ptr().cast()) }
}

/// Of 32 words of 32 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes_of_32(words: &[u8], planes: usize) -> [__m256i; 8] {
    // Of four words the first bytes, the second, the third, the fourth.
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    let mut out = [_mm256_setzero_si256(); 8];
    let mut fours = out;
    for i in 0..4 {
        fours[i] = _mm256_shuffle_epi8(load(words, 16 * i), order);
    }
    let (a, b) = (_mm256_unpacklo_epi32(fours[0], fours[1]), _mm256_unpacklo_epi32(fours[2], fours[3]));
    (out[0], out[1]) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    if planes > 16 {
        let (a, b) = (_mm256_unpackhi_epi32(fours[0], fours[1]), _mm256_unpackhi_epi32(fours[2], fours[3]));
        (out[2], out[3]) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    }
    out
}

/// Of 32 words of 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn bytes_of_64(words: &[u8], planes: usize) -> [__m256i; 8] {
    // Of two words the first bytes, the second, and so on.
    let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    let mut out = [_mm256_setzero_si256(); 8];
    let (mut low, mut high) = ([out[0]; 4], [out[0]; 4]);
    for i in 0..4 {
        let first = _mm256_shuffle_epi8(load(words, 32 * i), order);
        let second = _mm256_shuffle_epi8(load(words, 32 * i + 16), order);
        low[i] = _mm256_unpacklo_epi16(first, second);
        high[i] = _mm256_unpackhi_epi16(first, second);
    }
    for (fours, out) in [low, high].iter().zip(out.as_chunks_mut::<4>().0).take(planes.div_ceil(32)) {
        let (a, b) = (_mm256_unpacklo_epi32(fours[0], fours[1]), _mm256_unpacklo_epi32(fours[2], fours[3]));
        (out[0], out[1]) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        let (a, b) = (_mm256_unpackhi_epi32(fours[0], fours[1]), _mm256_unpackhi_epi32(fours[2], fours[3]));
        (out[2], out[3]) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    }
    out
}

#[target_feature(enable = "avx2")]
pub(super) fn from_planes<W: Word>(words: &[u64], planes: usize, out: &mut [W]) {
    portable::from_planes::<W, WordByWord>(words, planes, out);
}

#[target_feature(enable = "avx2")]
pub(super) fn pack_bits<W: Word>(values: &[W], plane: &mut [u64]) {
    portable::pack_bits(values, plane);
}

#[target_feature(enable = "avx2")]
pub(super) fn expand_bits<W: Word>(plane: &[u64], out: &mut [W]) {
    portable::expand_bits(plane, out);
}
