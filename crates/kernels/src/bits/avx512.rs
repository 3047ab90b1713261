//! The halving steps compiled for AVX-512, where a row is one vector, with vector transposes between elements and rows;
//! single bits through mask registers.

use std::arch::x86_64::*;

use covey_ring::Word;

use super::portable::{self, GROUP, MASKS, Row, SIDE, Steps};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn to_planes<W: Word>(values: &[W], planes: usize, out: &mut [u64]) {
    portable::to_planes::<W, Vectors>(values, planes, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn from_planes<W: Word>(words: &[u64], planes: usize, out: &mut [W]) {
    portable::from_planes::<W, Vectors>(words, planes, out);
}

/// [`Steps`] as transposes of vectors. Only the functions above use it.
struct Vectors;

/// Words of a vector.
const fn lanes<W: Word>() -> usize {
    512 / W::BITS as usize
}

impl<W: Word> Steps<W> for Vectors {
    #[inline(always)]
    fn transpose(rows: &mut [Row]) {
        // SAFETY: only functions with AVX-512 come here.
        unsafe { transpose_rows(rows) }
    }

    #[inline(always)]
    fn load(group: &[W; GROUP], rows: &mut [Row]) {
        let lanes = lanes::<W>();
        assert_eq!(rows.len(), W::BITS as usize);
        for block in 0..rows.len() / lanes {
            // SAFETY: row i of the group is the BITS words from i * BITS, of which this block takes `lanes` from
            // block * lanes; the block becomes the rows from block * lanes. Only functions with AVX-512 come here.
            unsafe {
                let from = group.as_ptr().add(block * lanes);
                let to = rows.as_mut_ptr().add(block * lanes).cast::<__m512i>();
                if W::BITS == 32 {
                    let mut vectors = [_mm512_setzero_si512(); 16];
                    for i in 0..16 {
                        vectors[i] = _mm512_loadu_si512(from.add(32 * i).cast());
                    }
                    let vectors = transpose_16(vectors);
                    for i in 0..16 {
                        _mm512_storeu_si512(to.add(i), vectors[i]);
                    }
                } else {
                    let mut vectors = [_mm512_setzero_si512(); SIDE];
                    for i in 0..SIDE {
                        vectors[i] = _mm512_loadu_si512(from.add(64 * i).cast());
                    }
                    let vectors = transpose_8(vectors);
                    for i in 0..SIDE {
                        _mm512_storeu_si512(to.add(i), vectors[i]);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn store(rows: &[Row], group: &mut [W; GROUP]) {
        let lanes = lanes::<W>();
        assert_eq!(rows.len(), W::BITS as usize);
        for block in 0..rows.len() / lanes {
            // SAFETY: as in `load`, the other way.
            unsafe {
                let from = rows.as_ptr().add(block * lanes).cast::<__m512i>();
                let to = group.as_mut_ptr().add(block * lanes);
                if W::BITS == 32 {
                    let mut vectors = [_mm512_setzero_si512(); 16];
                    for i in 0..16 {
                        vectors[i] = _mm512_loadu_si512(from.add(i));
                    }
                    let vectors = transpose_16(vectors);
                    for i in 0..16 {
                        _mm512_storeu_si512(to.add(32 * i).cast(), vectors[i]);
                    }
                } else {
                    let mut vectors = [_mm512_setzero_si512(); SIDE];
                    for i in 0..SIDE {
                        vectors[i] = _mm512_loadu_si512(from.add(i));
                    }
                    let vectors = transpose_8(vectors);
                    for i in 0..SIDE {
                        _mm512_storeu_si512(to.add(64 * i).cast(), vectors[i]);
                    }
                }
            }
        }
    }
}

/// Exchanges the bits `MASKS[LEVEL] << 2^LEVEL` of rows `i` with the bits `MASKS[LEVEL]` of rows `i + SIZE`, within `2 * SIZE`
/// vectors. `SHIFT` is 2^LEVEL.
#[inline]
#[target_feature(enable = "avx512f")]
fn exchange<const LEVEL: usize, const SHIFT: u32, const SIZE: usize>(rows: &mut [__m512i; 8]) {
    let mask = _mm512_set1_epi64(MASKS[LEVEL] as i64);
    for i in (0..8).filter(|i| i & SIZE == 0) {
        let (low, high) = (rows[i], rows[i + SIZE]);
        // 0xE4 takes the first operand where the third is 1, the second elsewhere.
        rows[i] = _mm512_ternarylogic_epi64::<0xE4>(low, _mm512_slli_epi64::<SHIFT>(high), mask);
        rows[i + SIZE] = _mm512_ternarylogic_epi64::<0xE4>(_mm512_srli_epi64::<SHIFT>(low), high, mask);
    }
}

/// [`Steps::transpose`], eight rows at a time in registers: first rows that are multiples of 8 apart, then neighbours.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_rows(rows: &mut [Row]) {
    assert!(rows.len() == 32 || rows.len() == 64);
    let pointer = rows.as_mut_ptr().cast::<__m512i>();
    let load = |start: usize, step: usize| {
        let mut eight = [_mm512_setzero_si512(); 8];
        for (i, row) in eight.iter_mut().enumerate() {
            // SAFETY: start + 7 * step < rows.len() in the loops below; a row is 64 bytes.
            *row = unsafe { _mm512_loadu_si512(pointer.add(start + i * step)) };
        }
        eight
    };
    let store = |start: usize, step: usize, eight: [__m512i; 8]| {
        for (i, row) in eight.into_iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe { _mm512_storeu_si512(pointer.add(start + i * step), row) };
        }
    };
    for i in 0..8 {
        if rows.len() == 64 {
            let mut eight = load(i, 8);
            exchange::<5, 32, 4>(&mut eight);
            exchange::<4, 16, 2>(&mut eight);
            exchange::<3, 8, 1>(&mut eight);
            store(i, 8, eight);
        } else if i % 2 == 0 {
            // Rows i and i + 1, of four multiples of 8 each.
            let mut eight = [_mm512_setzero_si512(); 8];
            for (q, row) in eight.iter_mut().enumerate() {
                // SAFETY: i + 1 + 24 < 32.
                *row = unsafe { _mm512_loadu_si512(pointer.add(i + q / 4 + q % 4 * 8)) };
            }
            exchange::<4, 16, 2>(&mut eight);
            exchange::<3, 8, 1>(&mut eight);
            for (q, row) in eight.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(pointer.add(i + q / 4 + q % 4 * 8), row) };
            }
        }
    }
    for i in (0..rows.len()).step_by(8) {
        let mut eight = load(i, 1);
        exchange::<2, 4, 4>(&mut eight);
        exchange::<1, 2, 2>(&mut eight);
        exchange::<0, 1, 1>(&mut eight);
        store(i, 1, eight);
    }
}

/// Transposes 4 × 4 quarters of vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_quarters(v: [__m512i; 4]) -> [__m512i; 4] {
    let even = [_mm512_shuffle_i64x2::<0x88>(v[0], v[1]), _mm512_shuffle_i64x2::<0x88>(v[2], v[3])];
    let odd = [_mm512_shuffle_i64x2::<0xDD>(v[0], v[1]), _mm512_shuffle_i64x2::<0xDD>(v[2], v[3])];
    [
        _mm512_shuffle_i64x2::<0x88>(even[0], even[1]),
        _mm512_shuffle_i64x2::<0x88>(odd[0], odd[1]),
        _mm512_shuffle_i64x2::<0xDD>(even[0], even[1]),
        _mm512_shuffle_i64x2::<0xDD>(odd[0], odd[1]),
    ]
}

/// Transposes 8 × 8 words of 64 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_8(v: [__m512i; 8]) -> [__m512i; 8] {
    let mut out = v;
    // Lane L of `pairs[half][i]` holds column 2 L + half of rows 2 i and 2 i + 1.
    let mut pairs = [[v[0]; 4]; 2];
    for i in 0..4 {
        pairs[0][i] = _mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]);
        pairs[1][i] = _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]);
    }
    for half in 0..2 {
        let columns = transpose_quarters(pairs[half]);
        for lane in 0..4 {
            out[2 * lane + half] = columns[lane];
        }
    }
    out
}

/// Transposes 16 × 16 words of 32 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_16(v: [__m512i; 16]) -> [__m512i; 16] {
    let mut out = v;
    // Lane L of `fours[q][i]` holds column 4 L + q of rows 4 i to 4 i + 3.
    let mut fours = [[v[0]; 4]; 4];
    for i in 0..4 {
        let low = [_mm512_unpacklo_epi32(v[4 * i], v[4 * i + 1]), _mm512_unpacklo_epi32(v[4 * i + 2], v[4 * i + 3])];
        let high = [_mm512_unpackhi_epi32(v[4 * i], v[4 * i + 1]), _mm512_unpackhi_epi32(v[4 * i + 2], v[4 * i + 3])];
        fours[0][i] = _mm512_unpacklo_epi64(low[0], low[1]);
        fours[1][i] = _mm512_unpackhi_epi64(low[0], low[1]);
        fours[2][i] = _mm512_unpacklo_epi64(high[0], high[1]);
        fours[3][i] = _mm512_unpackhi_epi64(high[0], high[1]);
    }
    for q in 0..4 {
        let columns = transpose_quarters(fours[q]);
        for lane in 0..4 {
            out[4 * lane + q] = columns[lane];
        }
    }
    out
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn pack_bits<W: Word>(values: &[W], plane: &mut [u64]) {
    let (whole, rest) = values.as_chunks::<64>();
    for (word, values) in plane.iter_mut().zip(whole) {
        let mut bits = 0;
        for part in 0..64 / lanes::<W>() {
            // SAFETY: part < 64 / lanes, so the load stays inside the 64 words.
            let vector = unsafe { _mm512_loadu_si512(values.as_ptr().add(part * lanes::<W>()).cast()) };
            let mask = if W::BITS == 32 {
                u64::from(_mm512_test_epi32_mask(vector, _mm512_set1_epi32(1)))
            } else {
                u64::from(_mm512_test_epi64_mask(vector, _mm512_set1_epi64(1)))
            };
            bits |= mask << (part * lanes::<W>());
        }
        *word = bits;
    }
    portable::pack_bits(rest, &mut plane[whole.len()..]);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn expand_bits<W: Word>(plane: &[u64], out: &mut [W]) {
    let (whole, rest) = out.as_chunks_mut::<64>();
    for (&word, out) in plane.iter().zip(&mut *whole) {
        for part in 0..64 / lanes::<W>() {
            let bits = word >> (part * lanes::<W>());
            let vector = if W::BITS == 32 {
                _mm512_maskz_set1_epi32(bits as u16, 1)
            } else {
                _mm512_maskz_set1_epi64(bits as u8, 1)
            };
            // SAFETY: part < 64 / lanes, so the store stays inside the 64 words.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(part * lanes::<W>()).cast(), vector) };
        }
    }
    portable::expand_bits(&plane[whole.len()..], rest);
}
