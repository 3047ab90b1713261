//! Convolutions of 3 × 3 taps without steps in tiles of 3 × 3 outputs, as [`super::fir::Three`] says, for tiles of limbs. The products of one
//! tap come first here, those of two behind:
//!
//! ```text
//! m_0 = h_0 (x_0 - x_1 - x_2)    m_3 = (h_0 + h_1) x_1    y_0 = m_0 + m_3 + m_4
//! m_1 = h_1 (x_2 - x_1 - x_3)    m_4 = (h_0 + h_2) x_2    y_1 = m_1 + m_3 + m_5
//! m_2 = h_2 (x_4 - x_2 - x_3)    m_5 = (h_1 + h_2) x_3    y_2 = m_2 + m_4 + m_5
//! ```

use std::ops::Range;

use covey_ring::Word;

use super::ConvGeometry;

/// Outputs of a tile along an axis, and taps.
pub(crate) const SIDE: usize = 3;
/// Products along an axis.
pub(crate) const TERMS: usize = 6;
/// Inputs of a tile along an axis.
pub(crate) const INPUTS: usize = 5;
/// The first three terms are of one tap, and enter the output of its number; their inputs are these, less the last two. Of the other
/// terms the input is that of the term's number less two.
pub(crate) const DIFFERENCES: [[usize; 3]; SIDE] = [[0, 1, 2], [2, 1, 3], [4, 2, 3]];
/// The other terms are of two taps, and enter two outputs.
pub(crate) const PAIRS: [[usize; 2]; SIDE] = [[0, 1], [0, 2], [1, 2]];

/// The taps of a term, which are also the outputs that it enters.
pub(crate) fn members(term: usize) -> (usize, Option<usize>) {
    if term < SIDE { (term, None) } else { (PAIRS[term - SIDE][0], Some(PAIRS[term - SIDE][1])) }
}

/// The tiles of a chunk: whole bands of three output rows, of one image or of several.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    pub(crate) images: Range<usize>,
    pub(crate) bands: Range<usize>,
    /// Tiles of a band.
    pub(crate) across: usize,
}

impl Tiles {
    /// The tiles of `positions` of each of `images`; positions begin and end with bands.
    pub(crate) fn new(geometry: &ConvGeometry, images: Range<usize>, positions: Range<usize>) -> Self {
        let width = geometry.output()[1];
        let bands = positions.start / (SIDE * width)..positions.end.div_ceil(SIDE * width);
        let whole = positions.end == geometry.positions() || positions.end == bands.end * SIDE * width;
        assert!(whole && positions.start == bands.start * SIDE * width, "convolution: a chunk of whole bands");
        Tiles { images, bands, across: width.div_ceil(SIDE) }
    }

    pub(crate) fn len(&self) -> usize {
        self.images.len() * self.bands.len() * self.across
    }
}

/// Writes a channel's outputs in the chunk's layout: `sums` has, for each place in a tile, a word for each tile, `stride` words from one
/// place to the next.
#[inline(always)]
pub(crate) fn outputs<W: Word>(geometry: &ConvGeometry, tiles: &Tiles, sums: &[W], stride: usize, out: &mut [W]) {
    let width = geometry.output()[1];
    let (bands, across) = (tiles.bands.len(), tiles.across);
    let images = out.len() / tiles.images.len();
    for (image, out) in out.chunks_exact_mut(images).enumerate() {
        for (line, out) in out.chunks_exact_mut(width).enumerate() {
            let first = (image * bands + line / SIDE) * across;
            let place = |column: usize| &sums[(line % SIDE * SIDE + column) * stride + first..][..across];
            let (left, middle, right) = (place(0), place(1), place(2));
            let mut tiles_out = out.chunks_exact_mut(SIDE);
            for (((out, &left), &middle), &right) in (&mut tiles_out).zip(left).zip(middle).zip(right) {
                (out[0], out[1], out[2]) = (left, middle, right);
            }
            let last = [left[across - 1], middle[across - 1]];
            let rest = tiles_out.into_remainder();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every product of a tap and an input goes to the output that it belongs to, and to no other.
    #[test]
    fn six_products_are_three_outputs_of_three_taps() {
        for tap in 0..SIDE {
            for input in 0..INPUTS {
                let mut outputs = [0; SIDE];
                for term in 0..TERMS {
                    let is = |place: usize| i32::from(place == input);
                    let of_inputs = match DIFFERENCES.get(term) {
                        Some(&[a, b, c]) => is(a) - is(b) - is(c),
                        None => is(term - 2),
                    };
                    let (first, second) = members(term);
                    let of_taps = i32::from(first == tap || second == Some(tap));
                    for output in [Some(first), second].into_iter().flatten() {
                        outputs[output] += of_taps * of_inputs;
                    }
                }
                let expected = [0, 1, 2].map(|output| i32::from(output + tap == input));
                assert_eq!(outputs, expected, "tap {tap}, input {input}");
            }
        }
    }
}
