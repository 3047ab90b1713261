//! Combinations by tiles: words in limbs, and bits as bytes.

use covey_ring::Word;

use super::{Positions, STEP};
use crate::gemm::amx::combine;
use crate::gemm::{Picked, Run};
use crate::{Buffer, vectorised};

/// Rows of a tile.
const ROWS: usize = 16;

/// Adds to `sums`, rows of a multiple of [`Positions::COUNT`], those of `rows` rows over the runs, one for each of `differences`.
///
/// # Safety
/// A session of tiles is alive.
pub(super) unsafe fn add<W: Word>(picked: &Picked<'_, W>, differences: &[isize], rows: usize, sums: &mut [W]) {
    let &Picked { words, apart, runs, step, bits, .. } = picked;
    let columns = sums.len() / rows;
    let quads = quads(bits, runs, differences);
    let mut left = Left::new(runs.iter().map(|run| run.len).sum());
    let depth = left.places.next_multiple_of(STEP);
    for (block, sums) in sums.chunks_mut(ROWS * columns).enumerate() {
        let rows = sums.len() / columns;
        // SAFETY: a processor with tiles has these vectors, and the caller has a session alive.
        unsafe {
            left.fill(rows, |row, out| gather(&words[(block * ROWS + row) * apart..], runs, step, out));
            for (group, quads) in quads.chunks_exact(depth / 4 * Positions::COUNT).enumerate() {
                combine::combine(&left.limbs, 0, quads, depth, (rows, columns), &mut sums[group * Positions::COUNT..]);
            }
        }
    }
}

/// Rows of words over some places, and their limbs.
struct Left<W> {
    words: Buffer<W>,
    limbs: Buffer<W>,
    places: usize,
    stride: usize,
}

impl<W: Word> Left<W> {
    fn new(places: usize) -> Self {
        // An odd number of cache lines, or the rows would share few sets of the first-level cache.
        let stride = (places.div_ceil(STEP) | 1) * STEP;
        Left { words: Buffer::stale(ROWS * stride), limbs: Buffer::stale(ROWS * stride), places, stride }
    }

    /// Writes `rows` rows; what is left in the others is of no use.
    ///
    /// # Safety
    /// The processor has tiles.
    unsafe fn fill(&mut self, rows: usize, fill: impl Fn(usize, &mut [W])) {
        for (row, words) in self.words.chunks_exact_mut(self.stride).take(rows).enumerate() {
            let (words, rest) = words.split_at_mut(self.places);
            fill(row, words);
            rest.fill(W::ZERO);
        }
        // SAFETY: a processor with tiles has these vectors.
        unsafe { combine::cut(&self.words, &mut self.limbs) };
    }
}

/// The words of runs.
fn gather<W: Word>(words: &[W], runs: &[Run], step: usize, mut out: &mut [W]) {
    for run in runs {
        let (part, rest) = out.split_at_mut(run.len);
        if step == 1 {
            part.copy_from_slice(&words[run.word..run.word + run.len]);
        } else {
            part.iter_mut().zip(words[run.word..].iter().step_by(step)).for_each(|(out, word)| *out = *word);
        }
        out = rest;
    }
}

/// Differences after one another: a row's words from `at` on are those from `first` on.
struct Strip {
    at: usize,
    first: isize,
    len: usize,
}

/// Words copied at once. A strip's last copy may go past its end, where the next strip is written later.
const AT_ONCE: usize = 16;

/// For each place the bits that lie a difference from it: rows of `stride` words, and [`AT_ONCE`] words behind them.
fn rows(bits: &[u8], runs: &[Run], differences: &[isize], stride: usize, out: &mut [u32]) {
    let ([first, .., last] | [first @ last]) = runs else { return };
    let [start, end] = [(first.place, differences[0]), (last.place + last.len, differences[differences.len() - 1])]
        .map(|(place, difference)| place.wrapping_add_signed(difference));
    // Whole bytes.
    let start = start / 8 * 8;
    let mut words = vec![0; (end - start).next_multiple_of(8) + AT_ONCE];
    expand(&mut words, &bits[start / 8..end.div_ceil(8)]);
    let mut at = 0;
    let strips = differences.chunk_by(|one, next| one + 1 == *next).map(|strip| {
        at += strip.len();
        Strip { at: at - strip.len(), first: strip[0] - start as isize, len: strip.len() }
    });
    copy_strips(&words, runs, &strips.collect::<Vec<_>>(), stride, out);
}

/// [`rows`] as tiles take them: for each group of [`Positions::COUNT`] differences a byte for each of four places in one word.
fn quads(bits: &[u8], runs: &[Run], differences: &[isize]) -> Vec<u32> {
    let places: usize = runs.iter().map(|run| run.len).sum();
    let stride = differences.len().next_multiple_of(Positions::COUNT);
    let padded = places.next_multiple_of(STEP);
    let mut words = vec![0; padded * stride + AT_ONCE];
    rows(bits, runs, differences, stride, &mut words);
    let mut quads = vec![0; padded / 4 * stride];
    for (group, quads) in quads.chunks_exact_mut(padded / 4 * Positions::COUNT).enumerate() {
        for (number, quads) in quads.chunks_exact_mut(Positions::COUNT).enumerate() {
            let of =
                |place: usize| &words[(4 * number + place) * stride + group * Positions::COUNT..][..Positions::COUNT];
            join(quads, of(0), of(1), of(2), of(3));
        }
    }
    quads
}

/// A row for each place of the runs, strip by strip.
fn copy_strips(words: &[u32], runs: &[Run], strips: &[Strip], stride: usize, out: &mut [u32]) {
    let mut row = 0;
    for run in runs {
        for place in run.place..run.place + run.len {
            for strip in strips {
                let (from, to) = (place.wrapping_add_signed(strip.first), row + strip.at);
                for done in (0..strip.len).step_by(AT_ONCE) {
                    let from = &words[from + done..from + done + AT_ONCE];
                    out[to + done..to + done + AT_ONCE].copy_from_slice(from);
                }
            }
            row += stride;
        }
    }
}

vectorised! {
    /// Bits as words.
    fn expand(words: &mut [u32], bits: &[u8]) {
        for (words, &byte) in words.chunks_exact_mut(8).zip(bits) {
            for (bit, word) in words.iter_mut().enumerate() {
                *word = u32::from(byte >> bit & 1);
            }
        }
    }

    /// Four bytes, each in a word, in one.
    fn join(quads: &mut [u32], first: &[u32], second: &[u32], third: &[u32], fourth: &[u32]) {
        for ((((quad, &a), &b), &c), &d) in quads.iter_mut().zip(first).zip(second).zip(third).zip(fourth) {
            *quad = a | b << 8 | c << 16 | d << 24;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quads_hold_the_bit_a_difference_away() {
        let bits: Vec<u8> = (0..50u32).map(|n| (n * 37 % 251) as u8).collect();
        // Strips shorter and longer than what is copied at once, more differences than one group has.
        let differences: Vec<isize> = (-9..-2).chain(0..30).chain([35, 37]).chain(40..62).collect();
        let runs = [Run { place: 20, word: 0, len: 7 }, Run { place: 60, word: 7, len: 2 }];
        let places: Vec<usize> = (20..27).chain(60..62).collect();
        let quads = quads(&bits, &runs, &differences);
        for (row, &place) in places.iter().enumerate() {
            for (column, &difference) in differences.iter().enumerate() {
                let at = place.wrapping_add_signed(difference);
                let (group, within) = (column / Positions::COUNT, column % Positions::COUNT);
                let quad = quads[(group * STEP / 4 + row / 4) * Positions::COUNT + within];
                assert_eq!(quad.to_le_bytes()[row % 4], bits[at / 8] >> (at % 8) & 1);
            }
        }
    }
}
