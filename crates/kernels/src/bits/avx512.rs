//! Transposes through GF2P8AFFINEQB, which multiplies 8 × 8 bit matrices: with the data as the matrix and the identity as the
//! other operand it transposes them. Around it, bytes are gathered by value of the element's byte ("limb") and words of 64
//! elements by plane. Single bits go through mask registers.
//!
//! 64 elements of 32 bits become one vector for each limb, whose word `j` is plane `8 limb + j`; eight such groups are then
//! transposed as 8 × 8 words, so that a plane's 512 bits are stored at once. Words of 64 bits are two halves of 32.

use std::arch::x86_64::*;

use covey_ring::Word;

use super::portable;

/// Elements transposed at once.
const GROUP: usize = 512;
/// Groups whose planes are stored together. Planes lie a power of two apart as often as not, so that lines of many planes crowd
/// each other out of the first-level cache: a plane's lines are written one after the other, and asked for shortly before.
const BATCH: usize = 4;
/// How many planes before.
const AHEAD: usize = 2;
/// 64-bit words of a plane over a group, and vectors of a group for each limb.
const WORDS: usize = GROUP / 64;
/// Bytes of a 32-bit word.
const LIMBS: usize = 4;

/// A group by limbs and 64 elements each.
type Limbs = [[__m512i; WORDS]; LIMBS];

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
pub(super) fn to_planes<W: Word>(values: &[W], planes: usize, out: &mut [u64]) {
    let width = values.len().div_ceil(64);
    let mut limbs = [[[_mm512_setzero_si512(); WORDS]; LIMBS]; BATCH];
    let mut stage = [[_mm512_setzero_si512(); BATCH]; 8];
    for (batch, values) in values.chunks(BATCH * GROUP).enumerate() {
        for half in 0..planes.div_ceil(32) {
            let planes = (planes - 32 * half).min(32);
            let start = |plane: usize| (32 * half + plane) * width + batch * BATCH * WORDS;
            for (values, limbs) in values.chunks(GROUP).zip(&mut limbs) {
                let mut padded;
                let whole = match values.try_into() {
                    Ok(whole) => whole,
                    Err(_) => {
                        padded = [W::ZERO; GROUP];
                        padded[..values.len()].copy_from_slice(values);
                        &padded
                    }
                };
                match planes.div_ceil(8) {
                    1 => split::<W, 1>(whole, half, limbs),
                    2 => split::<W, 2>(whole, half, limbs),
                    3 => split::<W, 3>(whole, half, limbs),
                    _ => split::<W, 4>(whole, half, limbs),
                }
            }
            let held = values.len().div_ceil(64);
            for limb in 0..planes.div_ceil(8) {
                for (index, limbs) in limbs[..held.div_ceil(WORDS)].iter().enumerate() {
                    let rows = transpose_words(limbs[limb]);
                    for j in 0..8 {
                        stage[j][index] = rows[j];
                    }
                }
                for j in 0..8 {
                    if held == BATCH * WORDS {
                        prefetch(out, start(8 * limb + j + AHEAD));
                    }
                    if 8 * limb + j < planes {
                        let start = start(8 * limb + j);
                        store(&mut out[start..start + held], &stage[j]);
                    }
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
pub(super) fn from_planes<W: Word>(words: &[u64], planes: usize, out: &mut [W]) {
    let width = out.len().div_ceil(64);
    // Limbs that no plane reaches stay zero.
    let mut halves = [[[_mm512_setzero_si512(); WORDS]; LIMBS]; 2];
    for (group, out) in out.chunks_mut(GROUP).enumerate() {
        let held = out.len().div_ceil(64);
        for half in 0..planes.div_ceil(32) {
            let planes = (planes - 32 * half).min(32);
            for (limb, vectors) in halves[half][..planes.div_ceil(8)].iter_mut().enumerate() {
                let first = 32 * half + 8 * limb;
                let mut rows = [_mm512_setzero_si512(); 8];
                for j in 0..8 {
                    if 8 * limb + j < planes {
                        let start = (first + j) * width + group * WORDS;
                        rows[j] = load_words(&words[start..start + held]);
                    }
                }
                let columns = transpose_words(rows);
                for i in 0..WORDS {
                    vectors[i] = transpose_bits(_mm512_permutexvar_epi8(table(&PLANES_TO_BYTES), columns[i]));
                }
            }
        }
        match (&mut *out).try_into() {
            Ok(whole) => join(&halves, planes, whole),
            Err(_) => {
                let mut padded = [W::ZERO; GROUP];
                join(&halves, planes, &mut padded);
                out.copy_from_slice(&padded[..out.len()]);
            }
        }
    }
}

/// A permutation of bytes.
type Table = [u8; 64];

/// A table of which byte `to(l, e)` comes from byte `from(l, e)`, for all `l` and `e`.
macro_rules! table {
    ($rows:literal x $columns:literal, |$l:ident, $e:ident| $to:expr, $from:expr) => {{
        let mut table = [0u8; 64];
        let mut $l = 0;
        while $l < $rows {
            let mut $e = 0;
            while $e < $columns {
                table[$to] = $from as u8;
                $e += 1;
            }
            $l += 1;
        }
        table
    }};
}

/// From 16 words of 32 bits to 16 bytes of each limb. Each eight in reverse order, as [`transpose_bits`] wants them.
const WORDS_TO_LIMBS: Table = table!(4 x 16, |l, e| 16 * l + (e ^ 7), 4 * e + l);
/// Back, in order.
const LIMBS_TO_WORDS: Table = table!(4 x 16, |l, e| 4 * e + l, 16 * l + e);
/// [`LIMBS_TO_WORDS`] where the two limbs there are lie in quarters 0 and 2 (and those of the next 16 elements in 1 and 3).
const TWO_LIMBS_TO_WORDS: [Table; 2] =
    [table!(2 x 16, |l, e| 4 * e + l, 32 * l + e), table!(2 x 16, |l, e| 4 * e + l, 32 * l + 16 + e)];
/// From 8 elements a word, byte j of plane j, to a plane a word.
const BYTES_TO_PLANES: Table = table!(8 x 8, |j, q| 8 * j + q, 8 * q + j);
/// Back, each eight in reverse order.
const PLANES_TO_BYTES: Table = table!(8 x 8, |j, q| 8 * q + (j ^ 7), 8 * j + q);

#[inline]
#[target_feature(enable = "avx512f")]
fn table(table: &Table) -> __m512i {
    // SAFETY: 64 readable bytes.
    unsafe { _mm512_loadu_si512(table.as_ptr().cast()) }
}

/// The 8 × 8 bit matrix in each word, whose rows are its bytes from the last to the first, transposed, rows from the first on:
/// bit i of byte j of the result is bit j of byte 7 - i.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn transpose_bits(matrices: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(_mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64), matrices)
}

/// The lower `COUNT` limbs of half `half` of the words, by planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
fn split<W: Word, const COUNT: usize>(values: &[W; GROUP], half: usize, limbs: &mut Limbs) {
    let (gather, order) = (table(&WORDS_TO_LIMBS), table(&BYTES_TO_PLANES));
    let odd = _mm512_set1_epi32(half as i32);
    let every_other = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let every_other = _mm512_add_epi32(every_other, odd);
    for i in 0..WORDS {
        let mut quarters = [_mm512_setzero_si512(); 4];
        for (z, quarter) in quarters.iter_mut().enumerate() {
            // SAFETY: 64 i + 16 z + 16 <= GROUP; a vector is 16 words of 32 bits or 8 of 64.
            let words = unsafe {
                let from = values.as_ptr().add(64 * i + 16 * z);
                let low = _mm512_loadu_si512(from.cast());
                if const { W::BITS == 32 } {
                    low
                } else {
                    _mm512_permutex2var_epi32(low, every_other, _mm512_loadu_si512(from.add(8).cast()))
                }
            };
            *quarter = _mm512_permutexvar_epi8(gather, words);
        }
        let bytes = transpose_quarters(quarters);
        for limb in 0..COUNT {
            limbs[limb][i] = _mm512_permutexvar_epi8(order, transpose_bits(bytes[limb]));
        }
    }
}

/// The inverse of [`split`] from the bytes of each limb, in both halves; `planes` tells which there are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn join<W: Word>(halves: &[Limbs; 2], planes: usize, out: &mut [W; GROUP]) {
    let lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let upper = _mm512_add_epi32(lower, _mm512_set1_epi32(8));
    for i in 0..WORDS {
        let low = if planes <= 16 { join_two(&halves[0], i) } else { join_four(&halves[0], i) };
        let high = match planes {
            0..=32 => [_mm512_setzero_si512(); 4],
            33..=48 => join_two(&halves[1], i),
            _ => join_four(&halves[1], i),
        };
        for z in 0..4 {
            // SAFETY: as in `split`.
            unsafe {
                let to = out.as_mut_ptr().add(64 * i + 16 * z);
                if const { W::BITS == 32 } {
                    _mm512_storeu_si512(to.cast(), low[z]);
                } else {
                    _mm512_storeu_si512(to.cast(), _mm512_permutex2var_epi32(low[z], lower, high[z]));
                    _mm512_storeu_si512(to.add(8).cast(), _mm512_permutex2var_epi32(low[z], upper, high[z]));
                }
            }
        }
    }
}

/// Words of 32 bits from four limbs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn join_four(limbs: &Limbs, i: usize) -> [__m512i; 4] {
    let order = table(&LIMBS_TO_WORDS);
    let mut words = transpose_quarters([limbs[0][i], limbs[1][i], limbs[2][i], limbs[3][i]]);
    words.iter_mut().for_each(|words| *words = _mm512_permutexvar_epi8(order, *words));
    words
}

/// Words of 32 bits from the lower two limbs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn join_two(limbs: &Limbs, i: usize) -> [__m512i; 4] {
    const LOWER_BYTES: __mmask64 = 0x3333_3333_3333_3333;
    let pairs = [
        _mm512_shuffle_i64x2::<0x44>(limbs[0][i], limbs[1][i]),
        _mm512_shuffle_i64x2::<0xEE>(limbs[0][i], limbs[1][i]),
    ];
    let mut words = [_mm512_setzero_si512(); 4];
    for z in 0..4 {
        let order = table(&TWO_LIMBS_TO_WORDS[z % 2]);
        words[z] = _mm512_maskz_permutexvar_epi8(LOWER_BYTES, order, pairs[z / 2]);
    }
    words
}

/// Asks for the lines of a batch's words from `start` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn prefetch(out: &[u64], start: usize) {
    for line in 0..=BATCH {
        // SAFETY: a hint that may name any address. (Newer compilers do not call it unsafe.)
        #[allow(unused_unsafe)]
        unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(out.as_ptr().wrapping_add(start + line * WORDS).cast())
        }
    }
}

/// Stores the first `out.len()` words.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(out: &mut [u64], vectors: &[__m512i; BATCH]) {
    let (whole, rest) = out.as_chunks_mut::<WORDS>();
    for (out, &vector) in whole.iter_mut().zip(vectors) {
        // SAFETY: a vector is 8 words.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), vector) };
    }
    if !rest.is_empty() {
        // SAFETY: the mask lets through the words of `rest`.
        unsafe { _mm512_mask_storeu_epi64(rest.as_mut_ptr().cast(), first(rest.len()), vectors[whole.len()]) };
    }
}

/// The inverse, zeros after the last word.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_words(words: &[u64]) -> __m512i {
    // SAFETY: as in `store_words`.
    unsafe {
        if words.len() == 8 {
            _mm512_loadu_si512(words.as_ptr().cast())
        } else {
            _mm512_maskz_loadu_epi64(first(words.len()), words.as_ptr().cast())
        }
    }
}

/// The first `count` of 8.
fn first(count: usize) -> __mmask8 {
    assert!(count < 8);
    (1 << count) - 1
}

/// Transposes 4 × 4 quarters of vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_quarters(v: [__m512i; 4]) -> [__m512i; 4] {
    let low = [_mm512_shuffle_i64x2::<0x44>(v[0], v[1]), _mm512_shuffle_i64x2::<0x44>(v[2], v[3])];
    let high = [_mm512_shuffle_i64x2::<0xEE>(v[0], v[1]), _mm512_shuffle_i64x2::<0xEE>(v[2], v[3])];
    [
        _mm512_shuffle_i64x2::<0x88>(low[0], low[1]),
        _mm512_shuffle_i64x2::<0xDD>(low[0], low[1]),
        _mm512_shuffle_i64x2::<0x88>(high[0], high[1]),
        _mm512_shuffle_i64x2::<0xDD>(high[0], high[1]),
    ]
}

/// Transposes 8 × 8 words of 64 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_words(v: [__m512i; 8]) -> [__m512i; 8] {
    let mut out = v;
    // Quarter L of `pairs[half][i]` holds column 2 L + half of rows 2 i and 2 i + 1.
    let mut pairs = [[v[0]; 4]; 2];
    for i in 0..4 {
        pairs[0][i] = _mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]);
        pairs[1][i] = _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]);
    }
    for half in 0..2 {
        let columns = transpose_quarters(pairs[half]);
        for quarter in 0..4 {
            out[2 * quarter + half] = columns[quarter];
        }
    }
    out
}

/// Words of a vector.
const fn lanes<W: Word>() -> usize {
    512 / W::BITS as usize
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn pack_bits<W: Word>(values: &[W], plane: &mut [u64]) {
    let (whole, rest) = values.as_chunks::<64>();
    for (word, values) in plane.iter_mut().zip(whole) {
        let mut bits = 0;
        for part in 0..64 / lanes::<W>() {
            // SAFETY: part < 64 / lanes, so the load stays inside the 64 words.
            let vector = unsafe { _mm512_loadu_si512(values.as_ptr().add(part * lanes::<W>()).cast()) };
            let mask = if const { W::BITS == 32 } {
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
            let vector = if const { W::BITS == 32 } {
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
