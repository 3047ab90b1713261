//! The weights of a fast convolution: at rest as words, packed as sums of taps.

use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

use covey_ring::Word;

use super::PLACES;
use super::vector::add;
use crate::ConvGeometry;
use crate::conv::fast::{self, PAIRS, members};
use crate::gemm::amx::matrix::load;
use crate::gemm::amx::pack::left_quarters;
use crate::gemm::amx::tiles::{DEPTH, SIDE, TILE};
use crate::scratch::{self, Line};

/// The weights: for 16 output channels after another, for 64 columns (input channels, part after part) after another, 16 rows of nine
/// taps of 64 words.
pub(crate) struct Weights<W> {
    lines: Vec<Line>,
    /// Columns, in steps.
    steps: usize,
    rows: usize,
    word: PhantomData<W>,
}

/// Words of a step of 16 rows.
const STEP_WORDS: usize = SIDE * PLACES * DEPTH;

impl<W: Word> Weights<W> {
    /// Of parts `[out_channels, in_channels, 3, 3]`.
    pub(crate) fn new(geometry: &ConvGeometry, parts: &[Vec<W>]) -> Self {
        let (rows, depth) = (geometry.out_channels, geometry.in_channels);
        let steps = (parts.len() * depth).div_ceil(DEPTH);
        let mut lines = Line::zeroed(rows.div_ceil(SIDE) * steps * STEP_WORDS * W::BYTES);
        let words: &mut [W] = scratch::words_mut(&mut lines);
        for (index, part) in parts.iter().enumerate() {
            for (at, taps) in part.chunks_exact(PLACES).enumerate() {
                let (row, column) = (at / depth, index * depth + at % depth);
                let start = (row / SIDE * steps + column / DEPTH) * STEP_WORDS + row % SIDE * PLACES * DEPTH;
                for (tap, &word) in taps.iter().enumerate() {
                    words[start + tap * DEPTH + column % DEPTH] = word;
                }
            }
        }
        Weights { lines, steps, rows, word: PhantomData }
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.lines[..])
    }

    /// The output channels.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The input channels of all parts, and more.
    pub(super) fn columns(&self) -> usize {
        self.steps * DEPTH
    }

    /// What [`Weights::pack`] will read of two row blocks, if there are such blocks, to be fetched in `times` shares.
    pub(super) fn ahead(&self, block: usize, steps: Range<usize>, times: usize) -> [Ahead; 2] {
        [block, block + 1].map(|block| {
            let lines = STEP_WORDS * W::BYTES / size_of::<Line>();
            let start = (block * self.steps + steps.start) * lines;
            let count = steps.len() * lines;
            Ahead { next: self.lines.as_ptr().wrapping_add(start), lines: count, share: count.div_ceil(times) }
        })
    }

    /// Packs row term `row_term` of a row block: for each term of its columns, `panel` bytes apart, the steps `steps`.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW and VBMI. `out` is a cache-line boundary, writable for six panels, which hold the steps.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    pub(super) unsafe fn pack(&self, block: usize, steps: Range<usize>, row_term: usize, panel: usize, out: *mut u8) {
        let words: &[W] = scratch::words(&self.lines);
        let step = W::BYTES * TILE;
        let (first, second) = members(row_term);
        for (index, at) in steps.enumerate() {
            let block = &words[(block * self.steps + at) * STEP_WORDS..][..STEP_WORDS];
            for (lane, taps) in block.chunks_exact(PLACES * DEPTH).enumerate() {
                // SAFETY: nine taps of 64 words; rows of the first tile of steps within the output.
                unsafe {
                    let taps = taps.as_ptr();
                    let mut sums = [[[_mm512_setzero_si512(); 2]; 4]; fast::SIDE];
                    for down in 0..fast::SIDE {
                        for quarter in 0..4 {
                            let tap = |right: usize| taps.add((down * fast::SIDE + right) * DEPTH + 16 * quarter);
                            sums[down][quarter] = load::<W>(u16::MAX, tap(first));
                            if let Some(second) = second {
                                sums[down][quarter] = add::<W>(sums[down][quarter], load::<W>(u16::MAX, tap(second)));
                            }
                        }
                    }
                    let out = out.add(index * step + lane * DEPTH);
                    for term in 0..fast::SIDE {
                        left_quarters::<W>(sums[term], out.add(term * panel));
                        let [first, second] = PAIRS[term];
                        let mut pair = sums[first];
                        for quarter in 0..4 {
                            pair[quarter] = add::<W>(pair[quarter], sums[second][quarter]);
                        }
                        left_quarters::<W>(pair, out.add((fast::SIDE + term) * panel));
                    }
                }
            }
        }
    }
}

/// Memory that will be read soon, to be fetched into the second-level cache a few lines at a time.
pub(super) struct Ahead {
    next: *const Line,
    lines: usize,
    /// Lines each time.
    share: usize,
}

impl Ahead {
    #[inline(always)]
    pub(super) fn fetch(&mut self) {
        let lines = self.share.min(self.lines);
        for line in 0..lines {
            // SAFETY: a prefetch reads nothing, whatever its address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.next.wrapping_add(line).cast()) };
        }
        self.next = self.next.wrapping_add(lines);
        self.lines -= lines;
    }
}
