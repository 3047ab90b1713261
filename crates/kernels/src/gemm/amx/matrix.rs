//! A plain matrix as a right operand.

use std::arch::x86_64::*;
use std::ops::Range;
use std::slice::Iter;

use covey_ring::Word;

use super::Rows;
use crate::gemm::Matrix;

/// Rows fetched ahead into the second-level cache: each is in another page, where the processor's own prefetching starts anew.
const AHEAD: usize = 16;

/// Rows of a matrix, part after part.
pub(crate) struct MatrixRows<'a, W> {
    /// Parts after the current one.
    pub(crate) parts: Iter<'a, &'a [W]>,
    /// The next row, and how many the current part still has.
    pub(crate) next: *const W,
    pub(crate) rows_left: usize,
    pub(crate) matrix: &'a Matrix<'a, W>,
    pub(crate) columns: Range<usize>,
}

impl<W: Word> Rows for MatrixRows<'_, W> {
    type Row = *const W;

    #[inline(always)]
    unsafe fn next(&mut self) -> *const W {
        let row = self.next.wrapping_add(self.columns.start);
        self.next = self.next.wrapping_add(self.matrix.stride);
        self.rows_left -= 1;
        if self.rows_left == 0
            && let Some(part) = self.parts.next()
        {
            (self.next, self.rows_left) = (part.as_ptr(), self.matrix.depth);
        }
        row
    }

    #[inline(always)]
    unsafe fn load(&self, row: *const W, group: usize) -> [__m512i; 2] {
        let count = (self.columns.len() - 16 * group).min(16);
        let valid = ((1u32 << count) - 1) as u16;
        let from = row.wrapping_add(16 * group);
        // SAFETY: the row exists, so its columns do; masked lanes are not read. A prefetch reads nothing, whatever its address.
        unsafe {
            for line in 0..W::BYTES / 4 {
                let ahead = from.wrapping_add(AHEAD * self.matrix.stride + 16 * line * 4 / W::BYTES);
                _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
            }
            load(valid, from)
        }
    }
}

/// Sixteen words from `from`, zero where not `valid`.
///
/// # Safety
/// The processor has AVX-512 F. `from` is readable at the valid words.
#[inline(always)]
pub(crate) unsafe fn load<W: Word>(valid: u16, from: *const W) -> [__m512i; 2] {
    // SAFETY: as the caller promises; masked lanes are not read.
    unsafe {
        if const { W::BITS == 32 } {
            [_mm512_maskz_loadu_epi32(valid, from.cast()), _mm512_setzero_si512()]
        } else {
            [
                _mm512_maskz_loadu_epi64(valid as u8, from.cast()),
                _mm512_maskz_loadu_epi64((valid >> 8) as u8, from.wrapping_add(8).cast()),
            ]
        }
    }
}
