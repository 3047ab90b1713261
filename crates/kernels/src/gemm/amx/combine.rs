//! Words combined by bytes: a right operand of one limb takes four products of tiles for 32-bit words where others take ten.

use std::arch::asm;
use std::arch::x86_64::*;

use covey_ring::Word;

use super::matrix::load;
use super::pack::limb_rows;
use super::tiles::{DEPTH, SIDE};
use crate::Buffer;
use crate::scratch::Line;

/// Columns of the bytes: three tiles.
pub(crate) const COLUMNS: usize = 3 * SIDE;
/// Limbs whose sums are in tiles at once.
const LIMBS: usize = 4;

/// 16 rows of words, cut into limbs: rows of all words for each limb after the other.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL and VBMI.
///
/// # Panics
/// If `words` is not 16 rows of a multiple of 64 words, or `out` not as long.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(crate) unsafe fn cut<W: Word>(words: &[W], out: &mut Buffer<W>) {
    let stride = words.len() / SIDE;
    let fits = words.len() == SIDE * stride && stride.is_multiple_of(DEPTH);
    assert!(fits && out.len() == words.len(), "combinations: sizes do not match");
    let start: *mut u8 = out.as_mut_ptr().cast();
    for (step, words) in words.chunks_exact(DEPTH).enumerate() {
        // SAFETY: 64 words are read; a limb's row of 64 bytes is step `step` of the limb's 16 rows.
        unsafe {
            let mut quarters = [[_mm512_setzero_si512(); 2]; 4];
            for (quarter, words) in quarters.iter_mut().zip(words.chunks_exact(16)) {
                *quarter = load::<W>(u16::MAX, words.as_ptr());
            }
            limb_rows::<W>(quarters, start.add(step * DEPTH), SIDE * stride);
        }
    }
}

/// `out += words · bytes`: 16 rows of words, in limbs as [`cut`] leaves them, from number `offset` on, and `depth` bytes a column. `bytes`
/// holds, for four positions after another, those of each column; `rows` rows of `out` lie `apart` words apart.
///
/// # Safety
/// A session of tiles is alive.
///
/// # Panics
/// If a slice is too short or `depth` not a multiple of 64 below 2^16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub(crate) unsafe fn combine<W: Word>(
    limbs: &Buffer<W>,
    offset: usize,
    bytes: &[u32],
    depth: usize,
    (rows, apart): (usize, usize),
    out: &mut [W],
) {
    let stride = limbs.len() / SIDE;
    // Sums of 2^16 products of bytes fit 32 bits.
    let fits = offset + depth <= stride && bytes.len() >= depth / 4 * COLUMNS;
    let room = rows <= SIDE && rows > 0 && out.len() >= (rows - 1) * apart + COLUMNS;
    assert!(
        fits && room && depth.is_multiple_of(DEPTH) && depth < 1 << 16 && depth > 0,
        "combinations: sizes do not match"
    );
    let mut tiles = [Line::ZERO; LIMBS * COLUMNS];
    for first in (0..W::BYTES).step_by(LIMBS) {
        // SAFETY: rows and steps are within the limbs and the bytes, and rows of 16 columns within `out`, by the check above; tiles of
        // three blocks of columns for each limb.
        unsafe {
            for limb in 0..LIMBS {
                let left = limbs.as_ptr().cast::<u8>().add((first + limb) * SIDE * stride + offset);
                let tiles = tiles.as_mut_ptr().add(limb * COLUMNS).cast();
                one_limb(left, stride, bytes.as_ptr().cast(), depth / DEPTH, tiles);
            }
            for row in 0..rows {
                for block in 0..COLUMNS / SIDE {
                    let limb =
                        |limb: usize| _mm512_load_si512(tiles.as_ptr().add(limb * COLUMNS + block * SIDE + row).cast());
                    let out = out.as_mut_ptr().add(row * apart + block * SIDE);
                    add::<W>([limb(0), limb(1), limb(2), limb(3)], first > 0, out);
                }
            }
        }
    }
}

/// Adds 16 sums of each of four limbs, of a word's high half or its low one, to 16 words.
#[inline(always)]
unsafe fn add<W: Word>(limbs: [__m512i; LIMBS], high: bool, out: *mut W) {
    // SAFETY: as the caller promises.
    unsafe {
        if const { W::BITS == 32 } {
            let low = _mm512_add_epi32(limbs[0], _mm512_slli_epi32::<8>(limbs[1]));
            let rest = _mm512_add_epi32(_mm512_slli_epi32::<16>(limbs[2]), _mm512_slli_epi32::<24>(limbs[3]));
            let sum = _mm512_add_epi32(_mm512_loadu_si512(out.cast()), _mm512_add_epi32(low, rest));
            return _mm512_storeu_si512(out.cast(), sum);
        }
        for half in 0..2 {
            let wide = |limb: __m512i| match half {
                0 => _mm512_cvtepu32_epi64(_mm512_castsi512_si256(limb)),
                _ => _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(limb)),
            };
            let low = _mm512_add_epi64(wide(limbs[0]), _mm512_slli_epi64::<8>(wide(limbs[1])));
            let rest =
                _mm512_add_epi64(_mm512_slli_epi64::<16>(wide(limbs[2])), _mm512_slli_epi64::<24>(wide(limbs[3])));
            let mut sum = _mm512_add_epi64(low, rest);
            if high {
                sum = _mm512_slli_epi64::<32>(sum);
            }
            let out = out.add(8 * half);
            _mm512_storeu_si512(out.cast(), _mm512_add_epi64(_mm512_loadu_si512(out.cast()), sum));
        }
    }
}

/// A limb of 16 rows, `stride` bytes apart, against three tiles' columns of bytes: all that one reading of the rows can meet.
///
/// # Safety
/// A session is alive. Rows are readable for `steps` times 64 bytes, and `right` for as many rows of columns; `out` is writable for three
/// tiles.
#[inline(always)]
unsafe fn one_limb(left: *const u8, stride: usize, right: *const u8, steps: usize, out: *mut u8) {
    // SAFETY: as the caller promises; every register written is named.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "2:",
            "tileloadd tmm3, [{left} + {stride}]",
            "tileloadd tmm4, [{right} + {quad}]",
            "tdpbuud tmm0, tmm3, tmm4",
            "tileloadd tmm5, [{right} + {quad} + 64]",
            "tdpbuud tmm1, tmm3, tmm5",
            "tileloadd tmm6, [{right} + {quad} + 128]",
            "tdpbuud tmm2, tmm3, tmm6",
            "add {left}, 64",
            "add {right}, 16*192",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{out} + {row}], tmm0",
            "tilestored [{out} + {row} + 1024], tmm1",
            "tilestored [{out} + {row} + 2048], tmm2",
            left = inout(reg) left => _,
            right = inout(reg) right => _,
            steps = inout(reg) steps => _,
            stride = in(reg) stride,
            quad = in(reg) 4 * COLUMNS,
            row = in(reg) DEPTH,
            out = in(reg) out,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _,
            options(nostack)
        );
    }
}
