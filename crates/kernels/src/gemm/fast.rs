//! Fast convolutions ([`crate::conv::fir`]) with vectors: for each term of rows and of columns, a product over channels of output channels
//! and tiles.
//!
//! Weights rest as words, and their sums are made anew for each group of tiles: they are four times as many words as the taps, which
//! takes longer to read from memory than to add up. For some of the channels and one row term after another, the inputs' column terms
//! are made for all tiles of the group, then the weights' for a few output channels after another. All of them stay in the
//! second-level cache, and a panel of one term in the first-level cache while these output channels pass.

use std::marker::PhantomData;
use std::ops::Range;

use covey_ring::Word;

use super::blocked::{Left, sums};
use super::lanes::Vector;
use crate::ConvGeometry;
use crate::conv::fir::{Algorithm, Four, INPUTS, KINDS, TAPS, Term, Three, Tiles, outputs};
use crate::scratch::{Line, Scratch, Use};

/// Channels whose weights lie together.
const BLOCK: usize = 64;
/// Channels whose terms are held at once, at most.
const DEPTH: usize = 2 * BLOCK;
/// Bytes of the inputs' terms held at once: with the weights' they stay within a second-level cache of 1 MB.
const RIGHT_BYTES: usize = 600 << 10;
/// Output channels whose terms are held at once.
const ROWS: usize = 32;
/// Output channels between that whose weights are read and that whose weights are fetched.
const AHEAD: usize = 4;
/// Words that a vector may read past the last weight.
const PAST: usize = 16;
/// Taps of a kernel.
const KERNEL: usize = TAPS * TAPS;
/// Cache lines of a panel's row.
const PANEL: usize = 3;

/// Words of a panel's row.
const fn panel_words<V: Vector>() -> usize {
    PANEL * size_of::<Line>() / V::Word::BYTES
}

/// The weights: for some channels (input channels, part after part) after others, for each output channel, for each tap, a word for each
/// of them.
pub(crate) struct Weights<W> {
    words: Vec<W>,
    rows: usize,
    columns: usize,
}

impl<W: Word> Weights<W> {
    /// Of parts `[out_channels, in_channels, 3, 3]`.
    pub(crate) fn new(geometry: &ConvGeometry, parts: &[Vec<W>]) -> Self {
        let (rows, depth) = (geometry.out_channels, geometry.in_channels);
        let columns = parts.len() * depth;
        let mut weights = Weights { words: vec![W::ZERO; rows * KERNEL * columns + PAST], rows, columns };
        for (index, part) in parts.iter().enumerate() {
            for (at, taps) in part.chunks_exact(KERNEL).enumerate() {
                let (row, channel) = (at / depth, index * depth + at % depth);
                let (start, width) = weights.taps(row, channel / BLOCK);
                for (tap, &word) in taps.iter().enumerate() {
                    weights.words[start + tap * width + channel % BLOCK] = word;
                }
            }
        }
        weights
    }

    /// Where the taps of an output channel begin that are of a block of channels, and words from one tap to the next.
    #[inline(always)]
    fn taps(&self, row: usize, block: usize) -> (usize, usize) {
        let width = BLOCK.min(self.columns - block * BLOCK);
        (KERNEL * (self.rows * block * BLOCK + row * width), width)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// The blocks of the first `channels` channels: for each, its channels and its weights, rows of all taps for each output channel.
    pub(crate) fn blocks(&self, channels: usize) -> impl Iterator<Item = (Range<usize>, &[W])> {
        (0..channels.div_ceil(BLOCK)).map(move |block| {
            let (start, width) = self.taps(0, block);
            (block * BLOCK..block * BLOCK + width, &self.words[start..][..self.rows * KERNEL * width])
        })
    }
}

/// The most tiles of a group: their terms take about [`RIGHT_BYTES`], and they are whole bands of common widths.
fn of_group<W: Word>(side: usize) -> usize {
    if side == 3 { 640 / W::BYTES } else { 448 / W::BYTES }
}

/// The tiles in which vectors of `lanes` words compute `positions` of each of `images` in least time, as measured on AVX-512. None where
/// patches take less: vectors of few tiles are mostly empty.
pub(crate) fn tiles<W: Word>(
    geometry: &ConvGeometry,
    images: &Range<usize>,
    positions: &Range<usize>,
    lanes: usize,
) -> Option<Tiles> {
    let three = by::<Three, W>(geometry, images, positions, lanes);
    let (four, fours) = by::<Four, W>(geometry, images, positions, lanes);
    // What sums and differences of 4 × 4 take beyond those of 3 × 3.
    let four = (four + four / 7, fours);
    let (least, tiles) = if four.0 < three.0 { four } else { three };
    let by_patches = (images.len() * positions.len()).next_multiple_of(lanes) * KERNEL;
    (least * 8 < by_patches * 7).then_some(tiles)
}

/// The tiles of `A`, and how many products they take for each pair of an output channel and an input channel.
fn by<A: Algorithm, W: Word>(
    geometry: &ConvGeometry,
    images: &Range<usize>,
    positions: &Range<usize>,
    lanes: usize,
) -> (usize, Tiles) {
    /// The weights' sums, which are made for each group, take as long as so many products.
    const SUMS: usize = 128;
    let tiles = Tiles::new(A::SIDE, geometry, images.clone(), positions.clone());
    let groups = tiles.groups(geometry, of_group::<W>(A::SIDE));
    let words: usize = groups.iter().map(|(group, _)| group.len().next_multiple_of(lanes)).sum();
    (words * A::TERMS.len().pow(2) + groups.len() * SUMS, tiles)
}

/// The convolution of `xs`, the first parts, for the output channels `rows` and `tiles`.
pub(crate) struct Convolution<'a, W> {
    pub(crate) weights: &'a Weights<W>,
    pub(crate) geometry: &'a ConvGeometry,
    pub(crate) xs: &'a [&'a [W]],
    pub(crate) rows: Range<usize>,
    pub(crate) tiles: &'a Tiles,
}

/// Writes the convolution in the layout of its chunk, in register blocks of `MR` rows × `NV` vectors.
///
/// # Safety
/// The processor has `V`'s instruction set.
///
/// # Panics
/// If a slice is too short or `rows` does not exist.
#[inline(always)]
pub(super) unsafe fn convolve<V: Vector, const MR: usize, const NV: usize>(
    convolution: &Convolution<'_, V::Word>,
    out: &mut [V::Word],
) {
    // SAFETY: as the caller promises.
    unsafe {
        match convolution.tiles.side {
            3 => convolve_by::<V, Three, MR, NV>(convolution, out),
            _ => convolve_by::<V, Four, MR, NV>(convolution, out),
        }
    }
}

/// [`convolve`] in tiles of `A`.
///
/// # Safety
/// As [`convolve`].
#[inline(always)]
unsafe fn convolve_by<V: Vector, A: Algorithm, const MR: usize, const NV: usize>(
    convolution: &Convolution<'_, V::Word>,
    out: &mut [V::Word],
) {
    let &Convolution { weights, geometry, xs, ref rows, tiles } = convolution;
    let all = xs.len() * geometry.in_channels;
    let columns = out.len() / rows.len().max(1);
    assert!(rows.end <= weights.rows && all <= weights.columns, "convolution: sizes do not match");
    for (tiles, at) in tiles.groups(geometry, of_group::<V::Word>(A::SIDE)) {
        let mut group = Group::<V, A>::new(geometry, &tiles, rows.len(), DEPTH.min(all));
        for start in (0..all).step_by(DEPTH) {
            let channels = start..all.min(start + DEPTH);
            for held in (0..A::TERMS.len()).step_by(group.row_terms) {
                // SAFETY: the caller has the instruction set.
                unsafe {
                    for row_term in 0..group.row_terms {
                        group.pack_inputs(xs, channels.clone(), held, row_term);
                    }
                    for first in (0..rows.len()).step_by(ROWS) {
                        let count = ROWS.min(rows.len() - first);
                        let from = rows.start + first;
                        for row_term in 0..group.row_terms {
                            let kind = A::TERMS[held + row_term].kind;
                            if row_term == 0 || kind != A::TERMS[held + row_term - 1].kind {
                                group.pack_weights(weights, from..from + count, channels.clone(), kind);
                            }
                            group.add_products::<MR, NV>(channels.len(), first, count, (held, row_term), start == 0);
                        }
                    }
                }
            }
        }
        let stride = group.stride;
        let totals = group.totals.words::<V::Word>().chunks_exact(A::SIDE * A::SIDE * stride);
        for (sums, out) in totals.zip(out.chunks_exact_mut(columns)) {
            outputs::<A, _>(&tiles, geometry.output()[1], sums, stride, &mut out[at.clone()]);
        }
    }
}

/// A group of tiles, and the memory to compute it in.
struct Group<'a, V: Vector, A> {
    geometry: &'a ConvGeometry,
    tiles: &'a Tiles,
    /// Vectors that have the tiles of a band, and those of all.
    across: usize,
    vectors: usize,
    /// Words from one channel of the inputs' terms to the next, and from one place of the totals to the next.
    stride: usize,
    /// Words from one column term of the inputs to the next.
    right_term: usize,
    /// Words from one output channel of the weights' sums to the next, and from one sum of columns to the next.
    left_stride: usize,
    left_kind: usize,
    /// Row terms that are held.
    row_terms: usize,
    /// One row term of what the tiles of one channel read: a line for each band.
    lines: Scratch,
    line: usize,
    /// For each row term that is held, for each column term, for each channel, a word for each tile.
    right: Scratch,
    /// For each sum of columns, for each of some output channels, a word for each channel.
    left: Scratch,
    /// For each column term, for each of these output channels, the products of a panel.
    terms: Scratch,
    /// For each output channel, for each place in a tile, a word for each tile.
    totals: Scratch,
    zeros: Vec<V::Word>,
    algorithm: PhantomData<A>,
}

impl<'a, V: Vector, A: Algorithm> Group<'a, V, A> {
    fn new(geometry: &'a ConvGeometry, tiles: &'a Tiles, rows: usize, depth: usize) -> Self {
        let bytes = V::Word::BYTES;
        let of_line = size_of::<Line>() / bytes;
        let across = tiles.across.div_ceil(V::LANES);
        // Vectors of the last band go past its tiles. Rows of an odd number of cache lines meet in no set of the first-level cache.
        let stride = ((tiles.len() + V::LANES - 1).div_ceil(of_line) | 1) * of_line;
        // So do the places of terms that are written in turn.
        let right_term = (depth + 1) * stride;
        let left_stride = depth.next_multiple_of(V::LANES);
        let left_kind = (ROWS + 1) * left_stride;
        let terms = A::TERMS.len();
        let fit = RIGHT_BYTES / (terms * right_term * bytes);
        let row_terms = [1, 2, 3, 4].into_iter().map(|parts| terms / parts).find(|&few| few <= fit).unwrap_or(1);
        let line = (A::SIDE * (across * V::LANES + 1)).next_multiple_of(of_line);
        let bands = tiles.images.len() * tiles.bands();
        let mut lines = Scratch::new(Use::Planes, bands * line * bytes);
        // What lies past the input's edges stays zero.
        lines.words::<V::Word>()[..bands * line].fill(V::Word::ZERO);
        Group {
            geometry,
            tiles,
            across,
            vectors: tiles.len().div_ceil(V::LANES),
            stride,
            right_term,
            left_stride,
            left_kind,
            row_terms,
            lines,
            line,
            right: Scratch::new(Use::Right, row_terms * terms * right_term * bytes),
            left: Scratch::new(Use::Left, KINDS * left_kind * bytes),
            terms: Scratch::new(Use::Terms, terms * ROWS * PANEL * size_of::<Line>()),
            totals: Scratch::new(Use::Sums, rows * A::SIDE * A::SIDE * stride * bytes),
            zeros: vec![V::Word::ZERO; geometry.input[1]],
            algorithm: PhantomData,
        }
    }

    /// Makes the terms of `channels` that are of row term `row_term` of those from `first` on.
    ///
    /// # Safety
    /// As [`convolve`].
    #[inline(always)]
    unsafe fn pack_inputs(&mut self, xs: &[&[V::Word]], channels: Range<usize>, first: usize, row_term: usize) {
        let count = self.geometry.in_channels;
        for (index, channel) in channels.enumerate() {
            self.add_rows(xs[channel / count], channel % count, first + row_term);
            let (tiles, stride, line, right_term) = (self.tiles, self.stride, self.line, self.right_term);
            let bands = tiles.images.len() * tiles.bands();
            let lines = &self.lines.words::<V::Word>()[..bands * line];
            let of_row = A::TERMS.len() * right_term;
            let right = &mut self.right.words::<V::Word>()[row_term * of_row..][..of_row];
            assert!(line >= A::SIDE * (self.across * V::LANES + 1) && (index + 1) * stride <= right_term);
            assert!(stride >= (bands - 1) * tiles.across + self.across * V::LANES);
            for (band, line) in lines.chunks_exact(line).enumerate() {
                for vector in 0..self.across {
                    let first = band * tiles.across + vector * V::LANES;
                    // SAFETY: a line has words for one tile more than its vectors; a row of the terms for the last band's vectors.
                    unsafe {
                        let from = line.as_ptr().add(A::SIDE * vector * V::LANES);
                        let mut x = [V::zero(); INPUTS];
                        x[..A::SIDE].copy_from_slice(&V::phases(A::SIDE, from)[..A::SIDE]);
                        x[A::SIDE..A::SIDE + 2].copy_from_slice(&V::phases(A::SIDE, from.add(A::SIDE))[..2]);
                        let to = right.as_mut_ptr().add(index * stride + first);
                        for (term, Term { plus, minus, .. }) in A::TERMS.iter().enumerate() {
                            let mut sum = x[plus[0]];
                            for &input in &plus[1..] {
                                sum = sum.add(x[input]);
                            }
                            for &input in *minus {
                                sum = sum.sub(x[input]);
                            }
                            sum.store(to.add(term * right_term));
                        }
                    }
                }
            }
        }
    }

    /// Writes one row term of what the tiles read of a channel.
    #[inline(always)]
    fn add_rows(&mut self, x: &[V::Word], channel: usize, row_term: usize) {
        let ([height, width], pads) = (self.geometry.input, self.geometry.pads);
        let (from, length) = (pads[1], self.line);
        let Tiles { images, rows, .. } = self.tiles;
        let bands = images.clone().flat_map(|image| rows.clone().step_by(A::SIDE).map(move |first| (image, first)));
        for ((image, first), line) in bands.zip(self.lines.words::<V::Word>().chunks_exact_mut(length)) {
            let plane = &x[(image * self.geometry.in_channels + channel) * height * width..][..height * width];
            let row = |place: usize| {
                let y = (first + place).wrapping_sub(pads[0]);
                if y < height { &plane[y * width..][..width] } else { &self.zeros[..] }
            };
            let end = length.min(from + width).max(from);
            let line = &mut line[from.min(length)..end.min(length)];
            match (A::TERMS[row_term].plus, A::TERMS[row_term].minus) {
                (&[a], []) => line.copy_from_slice(&row(a)[..line.len()]),
                (&[a], &[b]) => {
                    for ((line, &a), &b) in line.iter_mut().zip(row(a)).zip(row(b)) {
                        *line = a.sub(b);
                    }
                }
                (&[a], &[b, c]) => {
                    for (((line, &a), &b), &c) in line.iter_mut().zip(row(a)).zip(row(b)).zip(row(c)) {
                        *line = a.sub(b).sub(c);
                    }
                }
                (&[a, b], &[c, d]) => {
                    let taken = row(c).iter().zip(row(d));
                    for (((line, &a), &b), (&c, &d)) in line.iter_mut().zip(row(a)).zip(row(b)).zip(taken) {
                        *line = a.add(b).sub(c.add(d));
                    }
                }
                _ => unreachable!("terms are of these forms"),
            }
        }
    }

    /// Makes the sums of columns of `rows` over `channels` whose taps are of the sum `kind` of rows.
    ///
    /// # Safety
    /// As [`convolve`].
    #[inline(always)]
    unsafe fn pack_weights(
        &mut self,
        weights: &Weights<V::Word>,
        rows: Range<usize>,
        channels: Range<usize>,
        kind: usize,
    ) {
        let (stride, left_kind) = (self.left_stride, self.left_kind);
        let left = &mut self.left.words::<V::Word>()[..KINDS * left_kind];
        assert!(rows.len() <= ROWS && rows.end <= weights.rows && channels.start.is_multiple_of(BLOCK));
        assert!(channels.end <= weights.columns && channels.len() <= stride);
        for block in channels.start / BLOCK..channels.end.div_ceil(BLOCK) {
            for (index, row) in rows.clone().enumerate() {
                let (start, width) = weights.taps(row, block);
                let to = index * stride + block * BLOCK - channels.start;
                for at in (0..width.min(channels.end - block * BLOCK)).step_by(V::LANES) {
                    // SAFETY: the last tap's words are followed by as many as a vector has; rows of the terms are whole vectors.
                    unsafe {
                        let taps = weights.words.as_ptr().add(start + at);
                        let mut columns = [V::zero(); TAPS];
                        for &down in A::SUMS[kind] {
                            for (right, column) in columns.iter_mut().enumerate() {
                                let tap = taps.add((TAPS * down + right) * width);
                                V::fetch(tap.wrapping_add(AHEAD * KERNEL * width));
                                *column = column.add(V::load(tap));
                            }
                        }
                        let to = left.as_mut_ptr().add(to + at);
                        for (index, sum) in A::SUMS.iter().enumerate() {
                            let mut words = columns[sum[0]];
                            for &right in &sum[1..] {
                                words = words.add(columns[right]);
                            }
                            words.store(to.add(index * left_kind));
                        }
                    }
                }
            }
        }
    }

    /// Adds the products of what is packed to the totals of output channels from `first` on, `count` of them; sets them where they are
    /// `new` and no term has entered them.
    ///
    /// # Safety
    /// As [`convolve`].
    #[inline(always)]
    unsafe fn add_products<const MR: usize, const NV: usize>(
        &mut self,
        channels: usize,
        first: usize,
        count: usize,
        (held, row_term): (usize, usize),
        new: bool,
    ) {
        // SAFETY: as the caller promises, in every arm.
        unsafe {
            let panels = self.vectors.div_ceil(NV);
            for panel in 0..panels {
                let vectors = panel * self.vectors / panels..(panel + 1) * self.vectors / panels;
                const { assert!(NV == 2) };
                match vectors.len() {
                    1 => self.multiply::<MR, 1>(channels, row_term, vectors.start, count),
                    _ => self.multiply::<MR, NV>(channels, row_term, vectors.start, count),
                }
                self.add_terms(first, count, held + row_term, new, vectors);
            }
        }
    }

    /// The products over `depth` channels of the first `count` output channels and a panel of `NV` vectors of tiles.
    ///
    /// # Safety
    /// As [`convolve`].
    #[inline(always)]
    unsafe fn multiply<const MR: usize, const NV: usize>(
        &mut self,
        depth: usize,
        row_term: usize,
        vector: usize,
        count: usize,
    ) {
        const { assert!(ROWS.is_multiple_of(MR)) };
        let (left_stride, left_kind, stride, right_term) =
            (self.left_stride, self.left_kind, self.stride, self.right_term);
        let left = &self.left.words::<V::Word>()[..KINDS * left_kind];
        let of_row = A::TERMS.len() * right_term;
        let right = &self.right.words::<V::Word>()[row_term * of_row..][..of_row];
        let terms = self.terms.words::<V::Word>();
        for (term, Term { kind, .. }) in A::TERMS.iter().enumerate() {
            let panel = &right[term * right_term + vector * V::LANES..];
            for row in (0..count).step_by(MR) {
                let left = Left { words: &left[kind * left_kind + row * left_stride..], stride: left_stride };
                let to = &mut terms[(term * ROWS + row) * panel_words::<V>()..][..MR * panel_words::<V>()];
                // SAFETY: the caller has the instruction set; a panel's row has words for the vectors.
                unsafe {
                    let sums = sums::<V, MR, NV>(left, panel, stride, depth);
                    for r in 0..MR {
                        for v in 0..NV {
                            sums[r][v].store(to.as_mut_ptr().add(r * panel_words::<V>() + v * V::LANES));
                        }
                    }
                }
            }
        }
    }

    /// Adds the terms of a panel to the outputs that they enter.
    ///
    /// # Safety
    /// As [`convolve`].
    #[inline(always)]
    unsafe fn add_terms(&mut self, first: usize, count: usize, row_term: usize, new: bool, vectors: Range<usize>) {
        let stride = self.stride;
        let terms = &self.terms.words::<V::Word>()[..A::TERMS.len() * ROWS * panel_words::<V>()];
        let totals = self.totals.words::<V::Word>()[first * A::SIDE * A::SIDE * stride..]
            .chunks_exact_mut(A::SIDE * A::SIDE * stride);
        assert!(count <= ROWS && vectors.end * V::LANES <= stride);
        for (row, totals) in totals.take(count).enumerate() {
            for vector in vectors.clone() {
                let at = row * panel_words::<V>() + (vector - vectors.start) * V::LANES;
                // SAFETY: the panel has these vectors for each term and output channel, the totals for each place.
                unsafe {
                    let term = |term: usize| V::load(terms.as_ptr().add(term * ROWS * panel_words::<V>() + at));
                    for (right, entering) in A::ENTERING.iter().enumerate() {
                        let mut sum = term(entering[0]);
                        for &entering in &entering[1..] {
                            sum = sum.add(term(entering));
                        }
                        for (down, entering) in A::ENTERING.iter().enumerate() {
                            if entering.contains(&row_term) {
                                let place =
                                    totals.as_mut_ptr().add((down * A::SIDE + right) * stride + vector * V::LANES);
                                // The first term to enter a row of outputs is that of its number.
                                if new && down == row_term { sum } else { V::load(place).add(sum) }.store(place);
                            }
                        }
                    }
                }
            }
        }
    }
}
