//! How the output of a linear map is cut. A chunk is computed, masked and sent while the next is computed, so the cut is part
//! of the protocol: it depends on sizes only.

use std::ops::{Deref, Range};

use covey_ring::Word;

use crate::{ConvGeometry, gemm};

/// Columns of packed inputs a chunk has at least, where the tensor has them: all weights are read again for each chunk, and
/// fewer products than this for each weight would leave the kernels waiting for memory.
const COLUMNS: usize = 256;

/// One piece of a linear map's output, stored row-major: rows are output channels, or samples of a dense layer; columns are
/// output positions of one image or of several, or outputs of a dense layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub(super) axis: Axis,
    /// Channels or samples.
    pub(crate) rows: Range<usize>,
    /// Images; one for a dense layer.
    pub(crate) images: Range<usize>,
    /// Positions of each image, or outputs.
    pub(crate) run: Range<usize>,
    /// Words in the tensor from one row, and from one image, to the next.
    pub(super) row_stride: usize,
    pub(super) image_stride: usize,
}

/// What the channels of a tensor are in its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Rows,
    Columns,
}

/// All chunks of an output: every element is in exactly one. Only this file cuts one, so that threads may write them beside each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks(Vec<Chunk>);

impl Deref for Chunks {
    type Target = [Chunk];

    fn deref(&self) -> &[Chunk] {
        &self.0
    }
}

impl IntoIterator for Chunks {
    type Item = Chunk;
    type IntoIter = std::vec::IntoIter<Chunk>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// `0..total` in ranges of about `wanted`, all but the last a multiple of `align` long.
pub(super) fn split(total: usize, wanted: usize, align: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let pieces = ((total + wanted / 2) / wanted.max(1)).max(1);
    let size = if pieces == 1 { total } else { total.div_ceil(pieces).next_multiple_of(align) };
    (0..total).step_by(size.max(1)).map(move |start| start..total.min(start + size))
}

impl Chunk {
    /// The chunks of a convolution's output `[batch, out_channels, height, width]`, of about `elements` elements each.
    pub fn of_conv2d(geometry: &ConvGeometry, batch: usize, elements: usize) -> Chunks {
        let (channels, positions, elements) = (geometry.out_channels, geometry.positions(), elements.max(1));
        let per_group = channels / geometry.groups;
        // A depthwise convolution re-reads no weights to speak of: whole planes of fewer channels then.
        let least = match geometry.is_depthwise() {
            true => positions.min(elements),
            // Square: the sums and differences of weights are made again for each run of columns, those of inputs for each of rows.
            false if geometry.is_fast() => 7 * elements.isqrt() / 4,
            false => COLUMNS,
        };
        let columns = (elements / channels).max(least);
        let images = (columns / positions).max(1);
        let align = if geometry.groups == 1 { 16 } else { per_group };
        let band = Self::band(geometry);
        let mut chunks = Vec::new();
        for images in split(batch, images, 1) {
            for run in split(positions, columns, band) {
                for rows in split(channels, elements.div_ceil(images.len() * run.len()), align) {
                    chunks.push(Chunk {
                        axis: Axis::Rows,
                        rows,
                        images: images.clone(),
                        run: run.clone(),
                        row_stride: positions,
                        image_stride: channels * positions,
                    });
                }
            }
        }
        Chunks(chunks)
    }

    /// The chunks of a dense layer's output `[batch, outputs]`, of about `elements` elements each.
    pub fn of_dense(outputs: usize, batch: usize, elements: usize) -> Chunks {
        let elements = elements.max(1);
        // Square, as far as the sizes let it: either operand is packed again for each chunk.
        let side = elements.isqrt();
        let (rows, run) = if batch <= side {
            (batch.max(1), elements / batch.max(1))
        } else if outputs <= side {
            (elements / outputs.max(1), outputs)
        } else {
            (side, side)
        };
        let mut chunks = Vec::new();
        for rows in split(batch, rows.max(1), 16) {
            for run in split(outputs, run.max(1), 32) {
                chunks.push(Chunk {
                    axis: Axis::Columns,
                    rows: rows.clone(),
                    images: 0..1,
                    run,
                    row_stride: outputs,
                    image_stride: 0,
                });
            }
        }
        Chunks(chunks)
    }

    /// Positions of a convolution are cut at multiples of this.
    pub(super) fn band(geometry: &ConvGeometry) -> usize {
        // Whole bands of three rows and of four, as fast convolutions compute them.
        if geometry.is_fast() { 12 * geometry.output()[1] } else { 32 }
    }

    /// Elements.
    #[allow(clippy::len_without_is_empty)] // No chunk is empty.
    pub fn len(&self) -> usize {
        self.rows.len() * self.images.len() * self.run.len()
    }

    /// The images or samples it is of.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn samples(&self) -> Range<usize> {
        match self.axis {
            Axis::Rows => self.images.clone(),
            Axis::Columns => self.rows.clone(),
        }
    }

    /// Columns of a row.
    pub(crate) fn columns(&self) -> usize {
        self.images.len() * self.run.len()
    }

    /// Copies the chunk's elements, `chunk`, to their places in the whole output, `tensor`.
    ///
    /// # Panics
    /// If `chunk` has another length than the chunk or `tensor` is too short.
    pub fn scatter<T: Copy>(&self, chunk: &[T], tensor: &mut [T]) {
        assert_eq!(chunk.len(), self.len(), "the size of a chunk");
        self.each_place(0, chunk, |place, piece| tensor[place..][..piece.len()].copy_from_slice(piece));
    }

    /// Hands out where in the whole output the chunk's elements from number `start` on, `part`, belong, run by run.
    ///
    /// # Panics
    /// If `part` goes past the end of the chunk.
    pub(crate) fn each_place<T>(&self, start: usize, mut part: &[T], mut piece_at: impl FnMut(usize, &[T])) {
        assert!(start + part.len() <= self.len(), "the size of a chunk");
        let run = self.run.len();
        let mut within = start % run;
        for place in self.pieces().skip(start / run) {
            let (piece, rest) = part.split_at(part.len().min(run - within));
            piece_at(place + within, piece);
            (part, within) = (rest, 0);
            if part.is_empty() {
                break;
            }
        }
    }

    /// Copies the chunk's elements out of the whole output: the inverse of [`Chunk::scatter`].
    ///
    /// # Panics
    /// As [`Chunk::scatter`].
    pub fn gather<T: Copy>(&self, tensor: &[T], chunk: &mut [T]) {
        assert_eq!(chunk.len(), self.len(), "the size of a chunk");
        for (piece, start) in chunk.chunks_exact_mut(self.run.len()).zip(self.pieces()) {
            piece.copy_from_slice(&tensor[start..start + piece.len()]);
        }
    }

    /// Where the chunk's runs start in the tensor, in the chunk's order.
    fn pieces(&self) -> impl Iterator<Item = usize> + '_ {
        let starts = self.rows.clone().flat_map(|row| self.images.clone().map(move |image| (row, image)));
        starts.map(|(row, image)| row * self.row_stride + image * self.image_stride + self.run.start)
    }

    /// Adds to `out` the chunk's elements with their channels combined to `combined` others: `out` is `[batch, combined, height, width]`
    /// and `matrix` `[combined, out_channels]`, or of a dense layer `[batch, combined]` and `[outputs, combined]`.
    ///
    /// # Panics
    /// If a slice is too short or `chunk` has another length than the chunk.
    pub fn add_combined<W: Word>(&self, combined: usize, matrix: &[W], chunk: &[W], out: &mut [W]) {
        assert_eq!(chunk.len(), self.len(), "the size of a chunk");
        let columns = self.columns();
        if self.axis == Axis::Columns {
            let matrix = &matrix[self.run.start * combined..self.run.end * combined];
            let out = &mut out[self.rows.start * combined..self.rows.end * combined];
            return gemm(self.rows.len(), combined, columns, chunk, matrix, out);
        }
        let channels = matrix.len() / combined.max(1);
        let rows: Vec<W> = matrix.chunks_exact(channels).flat_map(|row| &row[self.rows.clone()]).copied().collect();
        let mut sums = vec![W::ZERO; combined * columns];
        gemm(combined, columns, self.rows.len(), &rows, chunk, &mut sums);
        let (run, positions) = (self.run.len(), self.row_stride);
        for (index, sums) in sums.chunks_exact(run).enumerate() {
            let (channel, image) = (index / self.images.len(), self.images.start + index % self.images.len());
            let start = (image * combined + channel) * positions + self.run.start;
            out[start..start + run].iter_mut().zip(sums).for_each(|(out, &sum)| *out = out.add(sum));
        }
    }

    /// Adds each output channel's bias to the chunk's elements; `bias` is that of all channels.
    ///
    /// # Panics
    /// If `out` has another length than the chunk or `bias` is too short.
    pub fn add_bias<W: Word>(&self, bias: &[W], out: &mut [W]) {
        assert_eq!(out.len(), self.len(), "the size of a chunk");
        let rows = out.chunks_exact_mut(self.columns());
        match self.axis {
            Axis::Rows => {
                for (out, &bias) in rows.zip(&bias[self.rows.clone()]) {
                    out.iter_mut().for_each(|out| *out = out.add(bias));
                }
            }
            Axis::Columns => {
                let bias = &bias[self.run.clone()];
                for out in rows {
                    out.iter_mut().zip(bias).for_each(|(out, &bias)| *out = out.add(bias));
                }
            }
        }
    }
}
