//! Words cut into 8-bit limbs, one tile for each limb. A step of the left operand holds, limb by limb, 16 rows of 64
//! words; one of the right operand, limb by limb, 16 rows of 16 columns of 4 words: as the tile instruction wants them.

use std::arch::x86_64::*;

use covey_ring::Word;

use super::matrix::load;
use super::tiles::{DEPTH, SIDE, TILE};

/// Reads a right operand row after row, in groups of 16 columns.
pub(crate) trait Rows {
    /// Where a row is.
    type Row: Copy;

    /// The next row.
    ///
    /// # Safety
    /// There is one.
    unsafe fn next(&mut self) -> Self::Row;

    /// A group of a row: 16 words of 32 bits in the first vector, or of 64 bits in both. Columns that do not exist are zero.
    ///
    /// # Safety
    /// The processor has AVX-512 F and BW. The row came from [`Rows::next`], the group has a column.
    unsafe fn load(&self, row: Self::Row, group: usize) -> [__m512i; 2];
}

/// Packs the next `count` rows, and rows of zeros up to a whole step, of `groups` groups, whose panels start `panel` bytes
/// apart. All groups of four rows come before the next rows, so that memory is read in its order.
///
/// # Safety
/// The processor has AVX-512 F and BW. Rows and groups exist. `out` and the panels are cache-line boundaries, each writable
/// for `count.div_ceil(DEPTH)` steps of `W::BYTES` tiles.
#[inline(always)]
pub(crate) unsafe fn right<W: Word, R: Rows>(mut rows: R, count: usize, groups: usize, panel: usize, out: *mut u8) {
    for quad in 0..count.next_multiple_of(DEPTH) / 4 {
        // SAFETY: as the caller promises; rows are read while there are some; quad `quad % 16` of step `quad / 16` is
        // within each panel.
        unsafe {
            let out = out.add(quad / SIDE * W::BYTES * TILE + quad % SIDE * DEPTH);
            if 4 * quad + 4 <= count {
                let four = [rows.next(), rows.next(), rows.next(), rows.next()];
                for group in 0..groups {
                    let words = [
                        rows.load(four[0], group),
                        rows.load(four[1], group),
                        rows.load(four[2], group),
                        rows.load(four[3], group),
                    ];
                    store_quad::<W>(words, out.add(group * panel));
                }
                continue;
            }
            let zero = [[_mm512_setzero_si512(); 2]; 4];
            for group in 0..groups {
                store_quad::<W>(zero, out.add(group * panel));
            }
            if 4 * quad < count {
                let mut last = [None; 4];
                for row in last.iter_mut().take(count - 4 * quad) {
                    *row = Some(rows.next());
                }
                for group in 0..groups {
                    let mut words = zero;
                    for (words, row) in words.iter_mut().zip(last) {
                        if let Some(row) = row {
                            *words = rows.load(row, group);
                        }
                    }
                    store_quad::<W>(words, out.add(group * panel));
                }
            }
        }
    }
}

/// Four rows of a group.
#[inline(always)]
pub(super) unsafe fn store_quad<W: Word>(words: [[__m512i; 2]; 4], out: *mut u8) {
    // SAFETY: as the caller of `right` promises.
    unsafe {
        if const { W::BITS == 32 } {
            store_limbs([words[0][0], words[1][0], words[2][0], words[3][0]], out);
        } else {
            let (mut low, mut high) = ([_mm512_setzero_si512(); 4], [_mm512_setzero_si512(); 4]);
            for row in 0..4 {
                [low[row], high[row]] = halves(words[row]);
            }
            store_limbs(low, out);
            store_limbs(high, out.add(4 * TILE));
        }
    }
}

/// The low 32 bits of 16 words of 64, and the high ones.
#[inline(always)]
unsafe fn halves([first, second]: [__m512i; 2]) -> [__m512i; 2] {
    // SAFETY: as the callers promise.
    unsafe {
        let low = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let high = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        [_mm512_permutex2var_epi32(first, low, second), _mm512_permutex2var_epi32(first, high, second)]
    }
}

/// Byte `l` of lane `c` of the four vectors, in order, becomes lane `c` of limb `l`.
#[inline(always)]
unsafe fn store_limbs([w0, w1, w2, w3]: [__m512i; 4], out: *mut u8) {
    const ODD_WORDS: u32 = 0xAAAA_AAAA;
    const ODD_BYTES: u64 = 0xAAAA_AAAA_AAAA_AAAA;
    // SAFETY: as the caller of `right` promises.
    unsafe {
        // Halves first: `low02` holds the low halves of w0 and w2 side by side.
        let low02 = _mm512_mask_blend_epi16(ODD_WORDS, w0, _mm512_slli_epi32::<16>(w2));
        let high02 = _mm512_mask_blend_epi16(ODD_WORDS, _mm512_srli_epi32::<16>(w0), w2);
        let low13 = _mm512_mask_blend_epi16(ODD_WORDS, w1, _mm512_slli_epi32::<16>(w3));
        let high13 = _mm512_mask_blend_epi16(ODD_WORDS, _mm512_srli_epi32::<16>(w1), w3);
        let limbs = [
            _mm512_mask_blend_epi8(ODD_BYTES, low02, _mm512_slli_epi16::<8>(low13)),
            _mm512_mask_blend_epi8(ODD_BYTES, _mm512_srli_epi16::<8>(low02), low13),
            _mm512_mask_blend_epi8(ODD_BYTES, high02, _mm512_slli_epi16::<8>(high13)),
            _mm512_mask_blend_epi8(ODD_BYTES, _mm512_srli_epi16::<8>(high02), high13),
        ];
        for (limb, &words) in limbs.iter().enumerate() {
            _mm512_store_si512(out.add(limb * TILE).cast(), words);
        }
    }
}

/// Packs 64 words of one row of the left operand; `out` is that row in the step's first tile.
///
/// # Safety
/// The processor has AVX-512 F, BW and VBMI. `out` is a cache-line boundary inside the first tile of a writable step.
#[inline(always)]
pub(crate) unsafe fn left_row<W: Word>(words: &[W; DEPTH], out: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut quarters = [[_mm512_setzero_si512(); 2]; 4];
        for (quarter, words) in quarters.iter_mut().zip(words.chunks_exact(16)) {
            *quarter = load::<W>(u16::MAX, words.as_ptr());
        }
        left_quarters::<W>(quarters, out);
    }
}

/// [`left_row`] of words in vectors, 16 each, as [`Rows::load`] gives them.
///
/// # Safety
/// As for [`left_row`].
#[inline(always)]
pub(super) unsafe fn left_quarters<W: Word>(words: [[__m512i; 2]; 4], out: *mut u8) {
    // SAFETY: each limb's row lies one tile on.
    unsafe { limb_rows::<W>(words, out, TILE) }
}

/// Rows of 64 limbs of words in vectors, 16 each, `stride` bytes apart.
///
/// # Safety
/// The processor has AVX-512 F, BW and VBMI. Rows are cache lines, writable.
#[inline(always)]
pub(super) unsafe fn limb_rows<W: Word>(words: [[__m512i; 2]; 4], out: *mut u8, stride: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let (mut low, mut high) = ([_mm512_setzero_si512(); 4], [_mm512_setzero_si512(); 4]);
        for quarter in 0..4 {
            if const { W::BITS == 32 } {
                low[quarter] = words[quarter][0];
            } else {
                [low[quarter], high[quarter]] = halves(words[quarter]);
            }
        }
        store_limb_rows(low, out, stride);
        if const { W::BITS == 64 } {
            store_limb_rows(high, out.add(4 * stride), stride);
        }
    }
}

/// Byte `l` of all lanes of the four vectors, in order, becomes row `l`, `stride` bytes on from the one before.
#[inline(always)]
unsafe fn store_limb_rows(words: [__m512i; 4], out: *mut u8, stride: usize) {
    const fn by_limb() -> [u8; 64] {
        let mut index = [0; 64];
        let mut i = 0;
        while i < 64 {
            index[i] = (i % 16 * 4 + i / 16) as u8;
            i += 1;
        }
        index
    }
    const BY_LIMB: [u8; 64] = by_limb();
    // SAFETY: as the caller of `limb_rows` promises.
    unsafe {
        // Limb by limb within each vector, 16 bytes of each; then the 4 × 4 quarters are transposed.
        let order = _mm512_loadu_si512(BY_LIMB.as_ptr().cast());
        let (a, b) = (_mm512_permutexvar_epi8(order, words[0]), _mm512_permutexvar_epi8(order, words[1]));
        let (c, d) = (_mm512_permutexvar_epi8(order, words[2]), _mm512_permutexvar_epi8(order, words[3]));
        let (ab01, ab23) = (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xEE>(a, b));
        let (cd01, cd23) = (_mm512_shuffle_i64x2::<0x44>(c, d), _mm512_shuffle_i64x2::<0xEE>(c, d));
        let rows = [
            _mm512_shuffle_i64x2::<0x88>(ab01, cd01),
            _mm512_shuffle_i64x2::<0xDD>(ab01, cd01),
            _mm512_shuffle_i64x2::<0x88>(ab23, cd23),
            _mm512_shuffle_i64x2::<0xDD>(ab23, cd23),
        ];
        for (limb, &row) in rows.iter().enumerate() {
            _mm512_store_si512(out.add(limb * stride).cast(), row);
        }
    }
}
