//! A chunk of a linear map cut among threads.

use std::marker::PhantomData;
use std::ops::Range;

use covey_ring::Word;

use super::Chunk;
use super::chunk::split;
use crate::{Buffer, ConvGeometry, threads};

/// Products of two words below which a thread is not worth waking.
const LEAST: usize = 1 << 22;

/// Rows and columns of a tile.
const SIDE: usize = 16;

/// Where every share writes its part of a chunk.
struct Place<'a, W> {
    words: *mut W,
    chunk: PhantomData<&'a mut [W]>,
}

// SAFETY: threads write to disjoint parts of the words, which `Place` borrows exclusively.
unsafe impl<W: Send> Sync for Place<'_, W> {}

impl<W: Word> Place<'_, W> {
    /// # Safety
    /// The chunk has words for `run` from `at` on, and nobody else writes them.
    unsafe fn write(&self, at: usize, run: &[W]) {
        // SAFETY: as the caller promises.
        unsafe { self.words.add(at).copy_from_nonoverlapping(run.as_ptr(), run.len()) };
    }
}

/// Where a chunk may be cut, counted from its start, and what a part takes.
#[derive(Clone, Copy)]
pub(super) struct Cuts {
    /// Rows are cut at multiples of this.
    rows: usize,
    /// So is a run of positions.
    run: usize,
    /// What a row takes before its products, in products of two words, and what a column takes.
    of_row: usize,
    of_column: usize,
}

impl Cuts {
    /// Of a convolution: kernels take rows by tiles within a group, and bands of positions.
    pub(super) fn of_conv2d(geometry: &ConvGeometry) -> Self {
        let channels = geometry.out_channels / geometry.groups;
        let whole = geometry.groups == 1 || channels.is_multiple_of(SIDE);
        let rows = if whole { SIDE } else { SIDE.next_multiple_of(channels) };
        let cuts = Cuts { rows, run: SIDE.next_multiple_of(Chunk::band(geometry)), ..Cuts::of_dense() };
        // A row's weights are added up to as many terms as a tile of nine positions.
        if geometry.is_fast() { Cuts { of_row: 32, of_column: 4, ..cuts } } else { cuts }
    }

    pub(super) fn of_dense() -> Self {
        // Products read rows in place, and gather columns.
        Cuts { rows: SIDE, run: SIDE, of_row: 2, of_column: 16 }
    }

    /// What a part of so many rows and columns takes.
    fn cost(&self, rows: usize, columns: usize) -> usize {
        rows * columns + self.of_row * rows + self.of_column * columns
    }
}

/// Has `product` compute a chunk, whose elements take `depth` products each: in parts, on all threads.
pub(super) fn on_threads<W: Word>(
    chunk: &Chunk,
    depth: usize,
    cuts: Cuts,
    out: &mut [W],
    product: impl Fn(&Chunk, &mut [W]) + Sync,
) {
    let wanted = threads::in_use().min(chunk.len() * depth / LEAST);
    let shares = if wanted > 1 { chunk.shares(wanted, cuts) } else { Vec::new() };
    if shares.len() < 2 {
        return product(chunk, out);
    }
    assert_eq!(out.len(), chunk.len(), "the size of a chunk");
    let place = Place { words: out.as_mut_ptr(), chunk: PhantomData };
    threads::each(shares, |share| {
        let mut words = Buffer::stale(share.len());
        product(&share, &mut words);
        for (at, run) in chunk.runs_of(&share).zip(words.chunks_exact(share.run.len())) {
            // SAFETY: a share's runs lie within the chunk's words, whose number is checked, and no two shares have a run in common.
            unsafe { place.write(at, run) };
        }
    });
}

impl Chunk {
    /// Cuts it into about `wanted` parts, so that the longest takes the least time: parts are of unequal length, and those by rows read
    /// all columns again, those by columns all rows.
    fn shares(&self, wanted: usize, cuts: Cuts) -> Vec<Chunk> {
        let most = self.rows.len().div_ceil(cuts.rows).min(wanted);
        let grids = (1..=most).map(|down| self.grid(down, wanted / down, cuts));
        let longest = |[rows, images, runs]: &[Vec<Range<usize>>; 3]| {
            let longest = |ranges: &[Range<usize>]| ranges.iter().map(Range::len).max().unwrap_or(0);
            cuts.cost(longest(rows), longest(images) * longest(runs))
        };
        let Some([rows, images, runs]) = grids.min_by_key(longest) else { return Vec::new() };
        let mut shares = Vec::new();
        for rows in &rows {
            for images in &images {
                for run in &runs {
                    shares.push(Chunk { rows: rows.clone(), images: images.clone(), run: run.clone(), ..*self });
                }
            }
        }
        shares
    }

    /// Its rows, images and runs of positions in about `down` parts of rows and `across` of columns.
    fn grid(&self, down: usize, across: usize, cuts: Cuts) -> [Vec<Range<usize>>; 3] {
        let rows = within(&self.rows, self.rows.len().div_ceil(down), cuts.rows).collect();
        let images: Vec<_> = within(&self.images, self.images.len().div_ceil(across), 1).collect();
        // Kernels count columns from image to image: a part of several images has all of their positions.
        let of_run = if images.iter().all(|part| part.len() == 1) { across.div_ceil(images.len()) } else { 1 };
        let runs = within(&self.run, self.run.len().div_ceil(of_run), cuts.run).collect();
        [rows, images, runs]
    }

    /// Where the runs of a part of the chunk start among its words.
    fn runs_of(&self, part: &Chunk) -> impl Iterator<Item = usize> + use<> {
        let (images, run, columns) = (self.images.clone(), self.run.clone(), self.columns());
        let (first_row, part) = (self.rows.start, part.clone());
        let starts = part.rows.flat_map(move |row| part.images.clone().map(move |image| (row, image)));
        starts.map(move |(row, image)| {
            (row - first_row) * columns + (image - images.start) * run.len() + part.run.start - run.start
        })
    }
}

/// A range in parts of about `wanted`, all but the last a multiple of `align` long.
fn within(range: &Range<usize>, wanted: usize, align: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let start = range.start;
    split(range.len(), wanted, align).map(move |part| start + part.start..start + part.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinearWeight, Part, threads::use_threads};

    fn geometry(channels: [usize; 2], side: usize, kernel: usize, groups: usize) -> ConvGeometry {
        ConvGeometry {
            in_channels: channels[0],
            out_channels: channels[1],
            input: [side; 2],
            kernel: [kernel; 2],
            strides: [1; 2],
            pads: [kernel / 2; 4],
            dilations: [1; 2],
            groups,
        }
    }

    fn words(len: usize, seed: u64) -> Vec<u64> {
        (0..len as u64).map(|i| (i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect()
    }

    #[test]
    fn shares_are_every_element_of_a_chunk_once() {
        let narrow = |width| ConvGeometry { input: [52, width], ..geometry([64, 128], 1, 3, 1) };
        let geometries = [
            (geometry([3, 64], 40, 3, 1), 1),
            (geometry([8, 96], 14, 3, 1), 3),
            (geometry([4, 6], 9, 3, 1), 5),
            (geometry([1, 512], 3, 3, 1), 1),
            (narrow(5), 1),
            (narrow(3), 2),
            (geometry([48, 48], 14, 3, 2), 1),
            (geometry([336, 336], 14, 3, 14), 1),
            (geometry([40, 40], 12, 3, 8), 2),
            (geometry([64, 16], 8, 1, 1), 9),
        ];
        for (geometry, batch) in geometries {
            let (cuts, channels) = (Cuts::of_conv2d(&geometry), geometry.out_channels / geometry.groups);
            for chunk in Chunk::of_conv2d(&geometry, batch, 1 << 14) {
                for wanted in [2, 3, 7, 16, 64] {
                    let mut times = vec![0; chunk.len()];
                    for share in chunk.shares(wanted, cuts) {
                        let run = share.run.start - chunk.run.start;
                        assert!(run.is_multiple_of(Chunk::band(&geometry)), "{share:?} of {chunk:?}");
                        assert!(share.images.len() == 1 || share.run == chunk.run, "{share:?} of {chunk:?}");
                        // As tiles of a group take them.
                        assert!((share.rows.start % channels).is_multiple_of(SIDE), "{share:?} of {chunk:?}");
                        for at in chunk.runs_of(&share) {
                            times[at..at + share.run.len()].iter_mut().for_each(|times| *times += 1);
                        }
                    }
                    assert!(times.iter().all(|&times| times == 1), "{wanted} shares of {chunk:?}");
                }
            }
        }
    }

    #[test]
    fn products_are_the_same_on_any_number_of_threads() {
        let maps = [
            (geometry([16, 48], 30, 3, 1), 1),
            (geometry([16, 48], 30, 3, 1), 3),
            (geometry([64, 64], 12, 1, 2), 2),
            (geometry([64, 64], 33, 3, 64), 1),
            (ConvGeometry { input: [52, 5], ..geometry([64, 128], 1, 3, 1) }, 1),
            (geometry([336, 336], 14, 3, 14), 1),
            (geometry([64, 64], 8, 3, 1), 9),
            (geometry([256, 64], 8, 1, 1), 9),
            (geometry([64, 64], 12, 3, 64), 5),
        ];
        let mut results = Vec::new();
        for threads in [1, 2, 3, 4, 5, 8, 16] {
            use_threads(Some(threads)).unwrap();
            let mut outputs = Vec::new();
            for (geometry, batch) in &maps {
                let w = Part::Words(words(geometry.weights_len(), 5));
                let x = words(batch * geometry.input_len(), 9);
                let mut out = vec![0; batch * geometry.output_len()];
                LinearWeight::conv2d(geometry, vec![w]).map(*batch, &[&x], &mut out);
                outputs.push(out);
            }
            for (batch, inputs, columns) in [(1, 1000, 3000), (40, 300, 200)] {
                let w = Part::Words(words(inputs * columns, 3));
                let x = words(batch * inputs, 4);
                let mut out = vec![0; batch * columns];
                LinearWeight::dense(inputs, columns, vec![w]).map(batch, &[&x], &mut out);
                outputs.push(out);
            }
            let (a, b, mut out) = (words(200 * 300, 1), words(300 * 100, 2), vec![7; 200 * 100]);
            crate::gemm(200, 100, 300, &a, &b, &mut out);
            outputs.push(out);
            results.push(outputs);
        }
        use_threads(Some(1)).unwrap();
        assert!(results.iter().all(|outputs| outputs == &results[0]));
    }
}
