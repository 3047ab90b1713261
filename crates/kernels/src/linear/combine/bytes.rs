//! Bytes of combinations, as the kernel in use multiplies with them.

use covey_ring::Word;

use super::{Positions, Run, STEP, has_tiles};
use crate::{Buffer, vectorised};

/// The bytes of some places, as the kernel in use reads them: for each difference that of another place.
pub(super) struct Right<W> {
    pub(super) places: usize,
    /// `[places, differences]`, unless there are tiles.
    pub(super) words: Buffer<W>,
    /// For tiles, group by group of [`Positions::COUNT`] differences: for four places after another those of each.
    #[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(dead_code))]
    pub(super) quads: Vec<u32>,
}

/// Differences after one another: a row's words from `at` on are those from `first` on.
struct Strip {
    at: usize,
    first: isize,
    len: usize,
}

/// Words copied at once. A strip's last copy may go past its end, where the next strip is written later.
const AT_ONCE: usize = 16;

impl<W: Word> Right<W> {
    pub(super) fn new(bytes: &[u8], runs: &[Run], differences: &[isize]) -> Self {
        let places: usize = runs.iter().map(|run| run.len).sum();
        if has_tiles() {
            return Right { places, words: Buffer::new(), quads: quads(bytes, runs, differences) };
        }
        let mut words = Buffer::stale(places * differences.len() + AT_ONCE);
        rows(bytes, runs, differences, differences.len(), &mut words);
        Right { places, words, quads: Vec::new() }
    }
}

/// For each place the words that lie a difference from it: rows of `stride` words, and [`AT_ONCE`] words behind them.
fn rows<W: Word>(bytes: &[u8], runs: &[Run], differences: &[isize], stride: usize, out: &mut [W]) {
    let ([first, .., last] | [first @ last]) = runs else { return };
    let [start, end] = [(first.place, differences[0]), (last.place + last.len, differences[differences.len() - 1])]
        .map(|(place, difference)| place.wrapping_add_signed(difference));
    let mut words = Buffer::stale(end - start + AT_ONCE);
    let (read, past) = words.split_at_mut(end - start);
    expand(read, &bytes[start..end]);
    past.fill(W::ZERO);
    let mut at = 0;
    let strips = differences.chunk_by(|one, next| one + 1 == *next).map(|strip| {
        at += strip.len();
        Strip { at: at - strip.len(), first: strip[0] - start as isize, len: strip.len() }
    });
    copy_strips(&words, runs, &strips.collect::<Vec<_>>(), stride, out);
}

/// [`rows`] as tiles take them: for each group of [`Positions::COUNT`] differences the bytes of four places in one word.
fn quads(bytes: &[u8], runs: &[Run], differences: &[isize]) -> Vec<u32> {
    let places: usize = runs.iter().map(|run| run.len).sum();
    let stride = differences.len().next_multiple_of(Positions::COUNT);
    let padded = places.next_multiple_of(STEP);
    let mut words = vec![0; padded * stride + AT_ONCE];
    rows(bytes, runs, differences, stride, &mut words);
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
fn copy_strips<W: Word>(words: &[W], runs: &[Run], strips: &[Strip], stride: usize, out: &mut [W]) {
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
    /// Bytes as words.
    fn expand<W: Word>(words: &mut [W], bytes: &[u8]) {
        for (word, &byte) in words.iter_mut().zip(bytes) {
            *word = W::from_u64(u64::from(byte));
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
    fn rows_and_quads_hold_the_byte_a_difference_away() {
        let bytes: Vec<u8> = (0..400u32).map(|n| (n * 37 % 251) as u8).collect();
        // Strips shorter and longer than what is copied at once, more differences than one group has.
        let differences: Vec<isize> = (-9..-2).chain(0..30).chain([35, 37]).chain(40..62).collect();
        let runs = [Run { place: 20, word: 0, len: 7 }, Run { place: 60, word: 7, len: 2 }];
        let places: Vec<usize> = (20..27).chain(60..62).collect();
        let byte = |place: usize, difference: isize| bytes[place.wrapping_add_signed(difference)];
        let right: Vec<u64> = {
            let mut out = Buffer::stale(places.len() * differences.len() + AT_ONCE);
            rows(&bytes, &runs, &differences, differences.len(), &mut out);
            out.to_vec()
        };
        let quads = quads(&bytes, &runs, &differences);
        for (row, &place) in places.iter().enumerate() {
            for (column, &difference) in differences.iter().enumerate() {
                let expected = byte(place, difference);
                assert_eq!(right[row * differences.len() + column], expected.into());
                let (group, within) = (column / Positions::COUNT, column % Positions::COUNT);
                let quad = quads[(group * STEP / 4 + row / 4) * Positions::COUNT + within];
                assert_eq!(quad.to_le_bytes()[row % 4], expected);
            }
        }
    }
}
