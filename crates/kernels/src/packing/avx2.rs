//! 256-bit vectors: four elements at a time, two in each half. Halves are read and written at the byte at which the first of
//! the two starts.

use std::arch::x86_64::*;

use covey_ring::{Ring, Word, wire};

use super::place;

/// A byte that a shuffle clears.
const NONE: u8 = 0x80;

/// How far elements `4 * four..4 * four + 4` of eight are shifted in their first bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn shifts(four: usize, bits: usize) -> __m256i {
    let shift = |e| place(4 * four + e, bits).1 as i64;
    _mm256_setr_epi64x(shift(0), shift(1), shift(2), shift(3))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_table(table: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes.
    unsafe { _mm256_loadu_si256(table.as_ptr().cast()) }
}

/// How four elements become bytes.
struct Four {
    shifts: __m256i,
    /// Moves the second element of a half behind the first one.
    second: __m256i,
    /// Moves the second half behind the first one.
    half: __m256i,
}

impl Four {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(four: usize, bits: usize) -> Self {
        let first_byte = |e| place(4 * four + e, bits).0;
        let (mut second, mut half) = ([NONE; 32], [NONE; 32]);
        for pair in 0..2 {
            let behind = first_byte(2 * pair + 1) - first_byte(2 * pair);
            for byte in 0..8 {
                second[16 * pair + behind + byte] = 8 + byte as u8;
            }
        }
        let behind = first_byte(2) - first_byte(0);
        for byte in 0..16 {
            half[behind + byte] = byte as u8;
        }
        Four { shifts: shifts(four, bits), second: load_table(&second), half: load_table(&half) }
    }

    /// The bytes of four elements, the bits around them zero.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn bytes(&self, elements: __m256i) -> __m256i {
        let shifted = _mm256_sllv_epi64(elements, self.shifts);
        let first = _mm256_unpacklo_epi64(shifted, _mm256_setzero_si256());
        let pairs = _mm256_or_si256(first, _mm256_shuffle_epi8(shifted, self.second));
        let low = _mm256_zextsi128_si256(_mm256_castsi256_si128(pairs));
        let high = _mm256_permute2x128_si256::<0x11>(pairs, pairs);
        _mm256_or_si256(low, _mm256_shuffle_epi8(high, self.half))
    }
}

/// Elements of `bits` bits, 8 to [`WIDEST`](super::WIDEST).
///
/// # Safety
/// All [`wire::words_len`] bytes at `out` may be written; they are, and need not have been before.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pack<W: Word>(values: &[W], bits: u32, mut out: *mut u8) {
    let width = bits as usize;
    let (fours, mask) = ([Four::new(0, width), Four::new(1, width)], (1u64 << bits) - 1);
    let lanes = _mm256_set1_epi64x(mask as i64);
    // Elements of odd width: the fourth one ends and the fifth one starts within a byte.
    let (start, shared) = place(4, width);
    let mut left = wire::words_len(values.len(), Ring::Pow2(bits));
    let mut groups = values.as_chunks::<8>().0.iter();
    // Vectors of 32 bytes are written at the first and at the fifth element.
    while left >= start + 32
        && let Some(group) = groups.next()
    {
        let (first, second) = group.split_at(4);
        let end = (first[3].to_u64() & mask) >> (bits - 4) & ((1 << shared) - 1);
        let first = fours[0].bytes(_mm256_and_si256(load(first), lanes));
        let second = fours[1].bytes(_mm256_and_si256(load(second), lanes));
        let second = _mm256_or_si256(second, _mm256_zextsi128_si256(_mm_cvtsi64_si128(end as i64)));
        // SAFETY: both lie in what is left.
        unsafe {
            _mm256_storeu_si256(out.cast(), first);
            _mm256_storeu_si256(out.add(start).cast(), second);
            out = out.add(width);
        }
        left -= width;
    }
    let packed = 8 * (values.len() / 8 - groups.len());
    let mut last = [0; 64];
    let last = &mut last[..left];
    wire::pack_words_into(&values[packed..], Ring::Pow2(bits), last);
    // SAFETY: what is left.
    unsafe { out.copy_from_nonoverlapping(last.as_ptr(), left) };
}

/// Elements of `bits` bits, up to [`WIDEST`](super::WIDEST).
#[target_feature(enable = "avx2")]
pub(super) fn unpack<W: Word>(packed: &[u8], bits: u32, out: &mut [W]) {
    let width = bits as usize;
    let first_byte = |e| place(e, width).0;
    let table = |four: usize| {
        let mut table = [0; 32];
        for pair in 0..2 {
            let e = 4 * four + 2 * pair;
            for byte in 0..8 {
                table[16 * pair + byte] = byte as u8;
                table[16 * pair + 8 + byte] = (first_byte(e + 1) - first_byte(e) + byte) as u8;
            }
        }
        load_table(&table)
    };
    let (tables, shifts) = ([table(0), table(1)], [shifts(0, width), shifts(1, width)]);
    let lanes = _mm256_set1_epi64x(((1u64 << bits) - 1) as i64);
    let starts: [usize; 4] = std::array::from_fn(|pair| first_byte(2 * pair));
    let (mut left, mut done) = (packed, 0);
    for group in out.as_chunks_mut::<8>().0 {
        // Halves of 16 bytes are read where their first element starts.
        let Some(bytes) = left.get(..width.max(starts[3] + 16)) else { break };
        for (four, words) in group.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            // SAFETY: 16 bytes from each start on lie in `bytes`.
            let halves = unsafe {
                let half = |pair: usize| _mm_loadu_si128(bytes.as_ptr().add(starts[2 * four + pair]).cast());
                _mm256_set_m128i(half(1), half(0))
            };
            let elements = _mm256_srlv_epi64(_mm256_shuffle_epi8(halves, tables[four]), shifts[four]);
            store(_mm256_and_si256(elements, lanes), words);
        }
        left = &left[width..];
        done += 8;
    }
    wire::unpack_words_into(left, Ring::Pow2(bits), &mut out[done..]);
}

/// Four words, extended to 64 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn load<W: Word>(words: &[W]) -> __m256i {
    assert_eq!(words.len(), 4);
    // SAFETY: four words of 32 or 64 bits.
    unsafe {
        if const { W::BITS == 32 } {
            _mm256_cvtepu32_epi64(_mm_loadu_si128(words.as_ptr().cast()))
        } else {
            _mm256_loadu_si256(words.as_ptr().cast())
        }
    }
}

/// The inverse.
#[inline]
#[target_feature(enable = "avx2")]
fn store<W: Word>(elements: __m256i, words: &mut [W; 4]) {
    // SAFETY: as in `load`.
    unsafe {
        if const { W::BITS == 32 } {
            let even = _mm256_permutevar8x32_epi32(elements, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
            _mm_storeu_si128(words.as_mut_ptr().cast(), _mm256_castsi256_si128(even));
        } else {
            _mm256_storeu_si256(words.as_mut_ptr().cast(), elements);
        }
    }
}
