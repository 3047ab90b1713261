//! A block of 16 × 32 elements, or of 32 × 16: its sums of limb products, and the words they make.

use std::arch::x86_64::*;

use covey_ring::Word;

use super::tiles::{Panels, TILE, by_columns, by_rows};

/// The sums, from the highest weight down, two tiles each: left and right 16 columns, or upper and lower 16 rows.
#[repr(C, align(64))]
pub(super) struct Block([[u8; TILE]; 16]);

/// An empty block.
pub(super) const BLOCK: Block = Block([[0; TILE]; 16]);

impl Block {
    /// Sums the products of a left panel and two right ones.
    ///
    /// # Safety
    /// As for the kernels in [`super::tiles`], with `W::BYTES` tiles in a step.
    #[inline(always)]
    pub(super) unsafe fn run<W: Word>(&mut self, panels: Panels) {
        let out = self.0.as_mut_ptr().cast::<u8>();
        // SAFETY: as the caller promises; the block has room for 16 tiles.
        unsafe {
            if const { W::BITS == 32 } {
                by_columns::weights_3_2(panels, out);
                by_columns::weights_1_0(panels, out.add(4 * TILE));
            } else {
                by_columns::weights_7_6(panels, out);
                by_columns::weights_5_4(panels, out.add(4 * TILE));
                by_columns::weights_3_2(panels, out.add(8 * TILE));
                by_columns::weights_1_0(panels, out.add(12 * TILE));
            }
        }
    }

    /// Sums the products of two left panels and a right one; [`Block::store`] then takes the lower 16 rows for columns 16 to 31.
    ///
    /// # Safety
    /// As for [`Block::run`].
    #[inline(always)]
    pub(super) unsafe fn run_rows<W: Word>(&mut self, panels: Panels) {
        let out = self.0.as_mut_ptr().cast::<u8>();
        // SAFETY: as the caller promises; the block has room for 16 tiles.
        unsafe {
            if const { W::BITS == 32 } {
                by_rows::weights_3_2(panels, out);
                by_rows::weights_1_0(panels, out.add(4 * TILE));
            } else {
                by_rows::weights_7_6(panels, out);
                by_rows::weights_5_4(panels, out.add(4 * TILE));
                by_rows::weights_3_2(panels, out.add(8 * TILE));
                by_rows::weights_1_0(panels, out.add(12 * TILE));
            }
        }
    }

    /// Adds the sums up by weight and writes `rows` × `columns` words to `to`, rows `stride` words apart.
    ///
    /// # Safety
    /// The processor has AVX-512 F and BW. `to` is writable for those words. At most 16 rows and 32 columns.
    #[inline(always)]
    pub(super) unsafe fn store<W: Word>(&self, (rows, columns): (usize, usize), to: *mut W, stride: usize, add: bool) {
        for row in 0..rows {
            for half in 0..columns.div_ceil(16) {
                let valid = ((1u64 << (columns - 16 * half).min(16)) - 1) as u16;
                // SAFETY: as the caller promises: only valid columns are read and written.
                unsafe {
                    let to = to.add(row * stride + 16 * half);
                    if const { W::BITS == 32 } {
                        let words = self.weigh(row, half);
                        let to = to.cast::<i32>();
                        let words =
                            if add { _mm512_add_epi32(words, _mm512_maskz_loadu_epi32(valid, to)) } else { words };
                        _mm512_mask_storeu_epi32(to, valid, words);
                    } else {
                        let high = self.weigh(row, half);
                        for part in 0..2 {
                            let words = _mm512_slli_epi64::<32>(wide(high, part));
                            let words = _mm512_add_epi64(words, self.weigh_wide(row, half, part));
                            let valid = (valid >> (8 * part)) as u8;
                            let to = to.cast::<i64>().add(8 * part);
                            let words =
                                if add { _mm512_add_epi64(words, _mm512_maskz_loadu_epi64(valid, to)) } else { words };
                            _mm512_mask_storeu_epi64(to, valid, words);
                        }
                    }
                }
            }
        }
    }

    /// Sums number `index` of 16 elements, highest weight first.
    #[inline(always)]
    unsafe fn sums(&self, index: usize, row: usize, half: usize) -> __m512i {
        // SAFETY: a row of tile `2 * index + half`.
        unsafe { _mm512_load_si512(self.0[2 * index + half].as_ptr().add(64 * row).cast()) }
    }

    /// The first four sums, 8 bits apart, modulo 2^32.
    #[inline(always)]
    unsafe fn weigh(&self, row: usize, half: usize) -> __m512i {
        // SAFETY: as for `sums`.
        unsafe {
            let mut total = self.sums(0, row, half);
            for index in 1..4 {
                total = _mm512_add_epi32(_mm512_slli_epi32::<8>(total), self.sums(index, row, half));
            }
            total
        }
    }

    /// The last four sums of 8 elements, 8 bits apart, modulo 2^64.
    #[inline(always)]
    unsafe fn weigh_wide(&self, row: usize, half: usize, part: usize) -> __m512i {
        // SAFETY: as for `sums`.
        unsafe {
            let mut total = wide(self.sums(4, row, half), part);
            for index in 5..8 {
                total = _mm512_add_epi64(_mm512_slli_epi64::<8>(total), wide(self.sums(index, row, half), part));
            }
            total
        }
    }
}

/// Eight of 16 integers, zero-extended.
#[inline(always)]
unsafe fn wide(sums: __m512i, part: usize) -> __m512i {
    // SAFETY: the callers have AVX-512 F.
    unsafe {
        if part == 0 {
            _mm512_cvtepu32_epi64(_mm512_castsi512_si256(sums))
        } else {
            _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(sums))
        }
    }
}
