//! Convolutions of 3 × 3 taps without steps in fewer products, by fast FIR algorithms: 36 for each tile of 3 × 3 outputs instead of 81, or
//! 64 for each of 4 × 4 instead of 144.
//!
//! Three or four outputs of three taps, `y_i = h_0 x_i + h_1 x_(i+1) + h_2 x_(i+2)`, take six or eight products: the transpose of Karatsuba's
//! product of polynomials, of three terms, or of pairs of terms within pairs, where the last of four taps is none. Three outputs are
//!
//! ```text
//! m_0 = h_0 (x_0 - x_1 - x_2)    m_3 = h_1 (x_2 - x_1 - x_3)    y_0 = m_0 + m_1 + m_2
//! m_1 = (h_0 + h_1) x_1          m_4 = (h_1 + h_2) x_3          y_1 = m_1 + m_3 + m_4
//! m_2 = (h_0 + h_2) x_2          m_5 = h_2 (x_4 - x_2 - x_3)    y_2 = m_2 + m_4 + m_5
//! ```
//!
//! and four are
//!
//! ```text
//! m_0 = h_0 (x_0 + x_3 - x_1 - x_2)    m_4 = h_1 (x_2 + x_3 - x_1 - x_4)    y_0 = m_0 + m_1 + m_2 + m_3
//! m_1 = (h_0 + h_1) (x_1 - x_3)        m_5 = h_1 (x_4 - x_3)                y_1 = m_1 + m_3 + m_4 + m_5
//! m_2 = (h_0 + h_2) (x_2 - x_3)        m_6 = h_2 (x_4 - x_2)                y_2 = m_2 + m_3 + m_6
//! m_3 = (h_0 + h_1 + h_2) x_3          m_7 = h_2 (x_5 - x_3)                y_3 = m_3 + m_5 + m_7
//! ```
//!
//! Nothing is divided, so both hold in any ring. Rows within columns, six times six or eight times eight products, of six times six sums of
//! taps. Each is a matrix product over channels, of all output channels and all tiles. Tiles of 3 × 3 take fewer sums and differences. Tiles
//! of 4 × 4 divide most sizes of networks, and are fewer.

use std::ops::Range;

use covey_ring::Word;

use super::ConvGeometry;

/// Taps along an axis.
pub(crate) const TAPS: usize = 3;
/// Inputs of a tile along an axis, at most.
pub(crate) const INPUTS: usize = 6;
/// Outputs of a tile along an axis, at most.
pub(crate) const SIDES: usize = 4;
/// Sums of taps along an axis, in both algorithms.
pub(crate) const KINDS: usize = 6;

/// A product's factors: the inputs that are added and those that are taken off, and which of the sums of taps.
pub(crate) struct Term {
    pub(crate) plus: &'static [usize],
    pub(crate) minus: &'static [usize],
    pub(crate) kind: usize,
}

const fn term(plus: &'static [usize], minus: &'static [usize], kind: usize) -> Term {
    Term { plus, minus, kind }
}

/// How the outputs of a tile along an axis are computed.
pub(crate) trait Algorithm {
    /// Outputs.
    const SIDE: usize;
    /// The products; those of one sum of taps follow each other.
    const TERMS: &'static [Term];
    /// The taps of each sum.
    const SUMS: [&'static [usize]; KINDS];
    /// The products that enter each output. The first to enter output `i` is product `i`.
    const ENTERING: &'static [&'static [usize]];
}

/// Three outputs.
pub(crate) struct Three;

impl Algorithm for Three {
    const SIDE: usize = 3;
    const TERMS: &'static [Term] = &[
        term(&[0], &[1, 2], 0),
        term(&[1], &[], 1),
        term(&[2], &[], 2),
        term(&[2], &[1, 3], 3),
        term(&[3], &[], 4),
        term(&[4], &[2, 3], 5),
    ];
    const SUMS: [&'static [usize]; KINDS] = [&[0], &[0, 1], &[0, 2], &[1], &[1, 2], &[2]];
    const ENTERING: &'static [&'static [usize]] = &[&[0, 1, 2], &[1, 3, 4], &[2, 4, 5]];
}

/// Four outputs.
pub(crate) struct Four;

impl Algorithm for Four {
    const SIDE: usize = 4;
    const TERMS: &'static [Term] = &[
        term(&[0, 3], &[1, 2], 0),
        term(&[1], &[3], 1),
        term(&[2], &[3], 2),
        term(&[3], &[], 3),
        term(&[2, 3], &[1, 4], 4),
        term(&[4], &[3], 4),
        term(&[4], &[2], 5),
        term(&[5], &[3], 5),
    ];
    const SUMS: [&'static [usize]; KINDS] = [&[0], &[0, 1], &[0, 2], &[0, 1, 2], &[1], &[2]];
    const ENTERING: &'static [&'static [usize]] = &[&[0, 1, 2, 3], &[1, 3, 4, 5], &[2, 3, 6], &[3, 5, 7]];
}

/// The tiles of a chunk: bands of output rows from its first row on, of one image or of several.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    /// Outputs of a tile along an axis.
    pub(crate) side: usize,
    pub(crate) images: Range<usize>,
    /// Output rows of each image.
    pub(crate) rows: Range<usize>,
    /// Tiles of a band.
    pub(crate) across: usize,
}

impl Tiles {
    /// The tiles of `side` × `side` outputs of `positions`, whole rows, of each of `images`.
    pub(crate) fn new(side: usize, geometry: &ConvGeometry, images: Range<usize>, positions: Range<usize>) -> Self {
        let width = geometry.output()[1];
        let whole = positions.start.is_multiple_of(width) && positions.end.is_multiple_of(width);
        assert!(whole && positions.end <= geometry.positions(), "convolution: a chunk of whole rows");
        Tiles { side, images, rows: positions.start / width..positions.end / width, across: width.div_ceil(side) }
    }

    /// Bands of each image.
    pub(crate) fn bands(&self) -> usize {
        self.rows.len().div_ceil(self.side)
    }

    pub(crate) fn len(&self) -> usize {
        self.images.len() * self.bands() * self.across
    }

    /// The tiles in groups of at most `most`, and of one band at least: of whole images where they have no more, or else of bands of one.
    /// With each group, which of the chunk's columns it is.
    pub(crate) fn groups(&self, geometry: &ConvGeometry, most: usize) -> Vec<(Tiles, Range<usize>)> {
        let width = geometry.output()[1];
        let of_image = self.rows.len() * width;
        let at = |image: usize| (image - self.images.start) * of_image;
        let tiles = self.bands() * self.across;
        if tiles <= most {
            let groups = parts(self.images.len(), tiles, most).map(|part| {
                let images = self.images.start + part.start..self.images.start + part.end;
                let columns = at(images.start)..at(images.end);
                (Tiles { images, ..self.clone() }, columns)
            });
            return groups.collect();
        }
        let of_bands = |image: usize| {
            parts(self.bands(), self.across, most).map(move |part| {
                let rows = part.start * self.side..self.rows.len().min(part.end * self.side);
                let columns = at(image) + rows.start * width..at(image) + rows.end * width;
                let rows = self.rows.start + rows.start..self.rows.start + rows.end;
                (Tiles { images: image..image + 1, rows, ..self.clone() }, columns)
            })
        };
        self.images.clone().flat_map(of_bands).collect()
    }
}

/// `0..count` in parts of about one length, so that each has at most `most` tiles, or one image or band.
fn parts(count: usize, tiles: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let of_part = (most / tiles.max(1)).clamp(1, count.max(1));
    let size = count.div_ceil(count.div_ceil(of_part).max(1)).max(1);
    (0..count).step_by(size).map(move |start| start..count.min(start + size))
}

/// Writes a channel's outputs in the chunk's layout, of tiles of `A`: `sums` has, for each place in a tile, a word for each tile, `stride`
/// words from one place to the next.
#[inline(always)]
pub(crate) fn outputs<A: Algorithm, W: Word>(tiles: &Tiles, width: usize, sums: &[W], stride: usize, out: &mut [W]) {
    let (bands, across) = (tiles.bands(), tiles.across);
    let of_image = out.len() / tiles.images.len();
    for (image, out) in out.chunks_exact_mut(of_image).enumerate() {
        for (line, out) in out.chunks_exact_mut(width).enumerate() {
            let first = (image * bands + line / A::SIDE) * across;
            let mut places = [&sums[..0]; SIDES];
            for (column, place) in places[..A::SIDE].iter_mut().enumerate() {
                *place = &sums[(line % A::SIDE * A::SIDE + column) * stride + first..][..across];
            }
            let mut whole = out.chunks_exact_mut(A::SIDE);
            for (tile, out) in (&mut whole).enumerate() {
                for (out, place) in out.iter_mut().zip(&places) {
                    *out = place[tile];
                }
            }
            for (out, place) in whole.into_remainder().iter_mut().zip(&places) {
                *out = place[across - 1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every product of a tap and an input goes to the output that it belongs to, and to no other.
    fn check<A: Algorithm>() {
        for tap in 0..TAPS {
            for input in 0..A::SIDE + TAPS - 1 {
                let product = |term: usize| {
                    let Term { plus, minus, kind } = A::TERMS[term];
                    let of_inputs = i32::from(plus.contains(&input)) - i32::from(minus.contains(&input));
                    of_inputs * i32::from(A::SUMS[kind].contains(&tap))
                };
                assert_eq!(A::ENTERING.len(), A::SIDE);
                for (output, terms) in A::ENTERING.iter().enumerate() {
                    let sum: i32 = terms.iter().map(|&term| product(term)).sum();
                    assert_eq!(sum, i32::from(output + tap == input), "tap {tap}, input {input}, output {output}");
                    assert!(terms[0] == output && terms.is_sorted(), "the first product of output {output}");
                }
            }
        }
        assert!(A::TERMS.is_sorted_by_key(|term| term.kind));
    }

    #[test]
    fn products_are_the_outputs_of_three_taps() {
        check::<Three>();
        check::<Four>();
    }

    #[test]
    fn groups_are_every_column_once() {
        let geometry = ConvGeometry {
            in_channels: 3,
            out_channels: 8,
            groups: 1,
            input: [23, 10],
            kernel: [3, 3],
            strides: [1, 1],
            pads: [1; 4],
            dilations: [1, 1],
        };
        for (side, images, rows) in [(4, 0..1, 0..23), (3, 2..9, 0..23), (4, 1..2, 12..23), (3, 3..5, 0..12)] {
            let tiles = Tiles::new(side, &geometry, images, rows.start * 10..rows.end * 10);
            for most in [1, 3, 7, 18, 40, 1000] {
                let groups = tiles.groups(&geometry, most);
                let mut next = 0;
                for (group, columns) in &groups {
                    assert_eq!(columns.start, next, "{tiles:?}, {most}");
                    assert_eq!(columns.len(), group.images.len() * group.rows.len() * 10);
                    assert!(group.len() <= most || group.images.len() * group.bands() == 1, "{group:?}, {most}");
                    next = columns.end;
                }
                assert_eq!(next, tiles.images.len() * tiles.rows.len() * 10);
                assert_eq!(groups.iter().map(|(group, _)| group.len()).sum::<usize>(), tiles.len());
            }
        }
    }
}
