//! Random combinations of a convolution's output positions.
//!
//! With P the patches of the input, a column for each output position, the output is W·P. For bytes A, a row for each position, the
//! combinations of an output are `output · A`, those of an input `P · A`, and the first are W times the second: a check of the whole
//! output takes as many products as a few positions do.
//!
//! Positions are counted on a grid that has room for the output and for every phase of the input, the rows and columns that are equal
//! modulo the strides. What a kernel element reads then lies at a fixed distance from the position, so that an input is copied once and
//! not once for each element; where it reads padding, the position's bytes are taken for 0.

use std::ops::Range;

use covey_ring::Word;

use super::Chunk;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::dispatch::{Isa, level};
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::gemm::amx::{Session, combine};
use crate::gemm::{Sizes, add_product};
use crate::scratch::{Line, words, words_mut};
use crate::{Buffer, ConvGeometry, threads, vectorised};

/// Rows computed at once.
const ROWS: usize = 16;
/// Places of the grid combined at once are a multiple of this.
const STEP: usize = 64;
/// So many at least: their bytes stay in a first-level cache.
const LEAST: usize = 512;
/// At most: their sums fit 32 bits.
const MOST: usize = 1 << 15;

/// Products below which a thread is not worth waking.
const PART: usize = 1 << 22;

/// Combinations of the output positions of a convolution of one group.
pub struct Positions {
    geometry: ConvGeometry,
    batch: usize,
    /// Places of one image, by row and column.
    grid: [usize; 2],
    /// For four places after another those bytes of each combination.
    bytes: Vec<Line>,
}

/// An element of the kernel.
struct Tap {
    number: usize,
    /// Which of the input's rows and columns it reads, modulo the strides.
    phase: [usize; 2],
    /// How far ahead on the grid.
    ahead: isize,
    /// Rows and columns of the output where it reads no padding.
    inside: [Range<usize>; 2],
}

/// What lies in a run of the grid, a row or a whole image: words, `step` apart, at some of its places, and zeros.
struct Run<'a, W> {
    places: Range<usize>,
    words: &'a [W],
    step: usize,
}

/// How a tensor lies on the grid.
#[derive(Clone, Copy)]
enum Lie {
    /// As it is in memory, image by image.
    Images,
    Rows,
}

/// Rows of words over a range of the grid.
struct Planes<W> {
    words: Buffer<W>,
    /// In limbs, where the processor has tiles.
    #[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(dead_code))]
    limbs: Buffer<W>,
    stride: usize,
}

impl Positions {
    /// Combinations of all positions of `batch` images; `fill` writes random words. Two that are filled alike are the same on all
    /// processors.
    ///
    /// # Panics
    /// If the convolution has several groups.
    pub fn new(geometry: &ConvGeometry, batch: usize, fill: impl FnOnce(&mut [u32])) -> Self {
        assert_eq!(geometry.groups, 1, "combinations of positions");
        let mut bytes = Line::zeroed(Self::places(geometry, batch) * Self::COUNT);
        fill(words_mut(&mut bytes));
        Positions { geometry: *geometry, batch, grid: geometry.grid(), bytes }
    }

    /// How many combinations.
    pub const COUNT: usize = 48;

    /// Places of the grid of `batch` images, each of which takes a byte of every combination.
    pub fn places(geometry: &ConvGeometry, batch: usize) -> usize {
        let [height, width] = geometry.grid();
        (batch * height * width).next_multiple_of(STEP)
    }

    /// Whether the places of both convolutions, of as many output channels and positions, are the same.
    pub fn are_alike(one: &ConvGeometry, other: &ConvGeometry) -> bool {
        (one.output(), one.grid()) == (other.output(), other.grid())
    }

    /// Adds to `out`, `[out_channels, COUNT]`, the combinations of an output of which `words` is the chunk `chunk`.
    ///
    /// # Panics
    /// If `words` or `out` is too short for the chunk.
    pub fn add_outputs<W: Word>(&self, chunk: &Chunk, words: &[W], out: &mut [W]) {
        assert_eq!(words.len(), chunk.len(), "the size of a chunk");
        let (output, run, columns) = (self.geometry.output(), &chunk.run, chunk.columns());
        let lie = if self.grid == output { Lie::Images } else { Lie::Rows };
        let [height, width] = match lie {
            Lie::Images => [1, output[0] * output[1]],
            Lie::Rows => output,
        };
        let run_of = |_: [usize; 2], channel: usize, image: usize, row: usize| {
            if !chunk.images.contains(&image) || row >= height {
                return None;
            }
            let first = row * width;
            let (start, end) = (run.start.max(first), run.end.min(first + width));
            let from = channel * columns + (image - chunk.images.start) * run.len() + start.saturating_sub(run.start);
            (start < end).then(|| Run {
                places: start - first..end - first,
                words: &words[from..from + end - start],
                step: 1,
            })
        };
        let place = |image: usize, position: usize| {
            (image * self.grid[0] + position / output[1]) * self.grid[1] + position % output[1]
        };
        let range = place(chunk.images.start, run.start)..place(chunk.images.end - 1, run.end - 1) + 1;
        let out = &mut out[chunk.rows.start * Self::COUNT..chunk.rows.end * Self::COUNT];
        let itself = Tap { number: 0, phase: [0, 0], ahead: 0, inside: self.grid.map(|size| 0..size) };
        self.add(range, chunk.rows.len(), &[itself], lie, run_of, out);
    }

    /// The combinations of the patches of `x`, `[batch, in_channels, height, width]`: `[in_channels, kernel height, kernel width, COUNT]`.
    ///
    /// # Panics
    /// If `x` has another length.
    pub fn of_inputs<W: Word>(&self, x: &[W]) -> Vec<W> {
        let ConvGeometry { in_channels, input: [height, width], strides, .. } = self.geometry;
        assert_eq!(x.len(), self.batch * self.geometry.input_len(), "combinations: sizes do not match");
        let lie = if strides == [1, 1] && self.grid == [height, width] { Lie::Images } else { Lie::Rows };
        let run_of = |phase: [usize; 2], channel: usize, image: usize, row: usize| {
            let x = &x[(image * in_channels + channel) * height * width..][..height * width];
            let (words, step) = match lie {
                Lie::Images => (x, 1),
                Lie::Rows => {
                    let row = row * strides[0] + phase[0];
                    (x.chunks_exact(width).nth(row)?.get(phase[1]..)?, strides[1])
                }
            };
            Some(Run { places: 0..words.len().div_ceil(step), words, step })
        };
        let taps = self.taps();
        let mut out = vec![W::ZERO; in_channels * taps.len() * Self::COUNT];
        let places = 0..self.batch * self.grid[0] * self.grid[1];
        for same in taps.chunk_by(|a, b| a.phase == b.phase) {
            self.add(places.clone(), in_channels, same, lie, run_of, &mut out);
        }
        out
    }

    /// The kernel's elements, by phase.
    fn taps(&self) -> Vec<Tap> {
        let ConvGeometry { kernel, strides, dilations, pads, input, .. } = self.geometry;
        let output = self.geometry.output();
        let along = |axis: usize, element: usize| {
            // Output o reads input o·stride + at.
            let at = (element * dilations[axis]) as isize - pads[axis] as isize;
            let (ahead, phase) =
                (at.div_euclid(strides[axis] as isize), at.rem_euclid(strides[axis] as isize) as usize);
            let has = input[axis].saturating_sub(phase).div_ceil(strides[axis]) as isize;
            let end = (has - ahead).clamp(0, output[axis] as isize) as usize;
            (phase, ahead, (-ahead).max(0) as usize..end)
        };
        let of = |number: usize| {
            let [(py, y, rows), (px, x, columns)] = [along(0, number / kernel[1]), along(1, number % kernel[1])];
            Tap { number, phase: [py, px], ahead: y * self.grid[1] as isize + x, inside: [rows, columns] }
        };
        let mut taps: Vec<Tap> = (0..kernel[0] * kernel[1]).map(of).collect();
        taps.sort_by_key(|tap| tap.phase);
        taps
    }

    /// Adds the combinations of the places `range` of `rows` rows to `out`, `[rows, kernel elements, COUNT]`, for elements of one phase:
    /// on all threads. `run_of(phase, row, image, grid row)` is what lies there, if anything does.
    fn add<'a, W: Word>(
        &self,
        range: Range<usize>,
        rows: usize,
        taps: &[Tap],
        lie: Lie,
        run_of: impl Fn([usize; 2], usize, usize, usize) -> Option<Run<'a, W>> + Sync,
        out: &mut [W],
    ) {
        let (blocks, apart) = (rows.div_ceil(ROWS), out.len() / rows);
        let most = range.len() * rows * taps.len() * Self::COUNT / PART;
        let parts = threads::in_use().min(blocks).min(most).max(1);
        let rows = blocks.div_ceil(parts) * ROWS;
        threads::each(out.chunks_mut(rows * apart).enumerate().collect(), |(part, out)| {
            let run_of = |phase, row, image, at| run_of(phase, part * rows + row, image, at);
            self.add_rows(range.clone(), out.len().div_ceil(apart), taps, lie, run_of, out);
        });
    }

    /// [`Positions::add`] on this thread.
    fn add_rows<'a, W: Word>(
        &self,
        range: Range<usize>,
        rows: usize,
        taps: &[Tap],
        lie: Lie,
        run_of: impl Fn([usize; 2], usize, usize, usize) -> Option<Run<'a, W>>,
        out: &mut [W],
    ) {
        let apart = out.len() / rows;
        let reach = |most: isize, tap: &Tap| most.max(tap.ahead);
        let ahead = taps.iter().fold(0, reach) as usize;
        let behind = taps.iter().fold(0, |most: isize, tap| most.max(-tap.ahead)) as usize;
        let size = LEAST.max(2 * (ahead + behind)).next_multiple_of(STEP).min(MOST);
        let start = range.start / STEP * STEP;
        let end = range.end.next_multiple_of(STEP).min(Self::places(&self.geometry, self.batch));
        let mut planes: Vec<Planes<W>> =
            (0..rows.div_ceil(ROWS)).map(|_| Planes::new(behind + size.min(end - start) + ahead)).collect();
        let mut masked = Buffer::stale(size / 4 * Self::COUNT);
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: tiles are in use only where they are permitted; nothing called below opens another session where they are.
        let _session = (level() == Isa::Amx).then(|| unsafe { Session::new() });
        for first in (start..end).step_by(size) {
            let depth = size.min(end - first);
            for (block, planes) in planes.iter_mut().enumerate() {
                let rows = block * ROWS..rows.min((block + 1) * ROWS);
                planes.fill(rows.len(), behind + depth + ahead, |row, words| {
                    let (before, words) = words.split_at_mut(behind.saturating_sub(first));
                    before.fill(W::ZERO);
                    let from = (first + before.len()) - behind;
                    self.fill(from, words, lie, |image, at| run_of(taps[0].phase, rows.start + row, image, at));
                });
            }
            let bytes = &words::<u32>(&self.bytes)[first / 4 * Self::COUNT..][..depth / 4 * Self::COUNT];
            let masked = &mut masked[..bytes.len()];
            masked.copy_from_slice(bytes);
            for tap in taps {
                self.each_outside(tap, first, depth, |place| {
                    let quad = &mut masked[place / 4 * Self::COUNT..][..Self::COUNT];
                    quad.iter_mut().for_each(|bytes| *bytes &= !(0xFF << (8 * (place % 4))));
                });
                let right = Right::new(masked);
                let from = behind.wrapping_add_signed(tap.ahead);
                for (block, planes) in planes.iter().enumerate() {
                    let count = ROWS.min(rows - block * ROWS);
                    let out = &mut out[block * ROWS * apart + tap.number * Self::COUNT..];
                    planes.combine(from, &right, depth, (count, apart), out);
                }
                self.each_outside(tap, first, depth, |place| {
                    let quad = place / 4 * Self::COUNT..(place / 4 + 1) * Self::COUNT;
                    masked[quad.clone()].copy_from_slice(&bytes[quad]);
                });
            }
        }
    }

    /// Of `depth` places from `start` on, numbered from 0, those where the kernel's element reads padding.
    fn each_outside(&self, tap: &Tap, start: usize, depth: usize, mut each: impl FnMut(usize)) {
        let ([rows, columns], [height, width]) = (&tap.inside, self.grid);
        if *rows == (0..height) && *columns == (0..width) {
            return;
        }
        let (mut row, mut column, mut at) = (start / width % height, start % width, 0);
        while at < depth {
            let next = (at + width - column).min(depth);
            let place = |of: usize| (at + of.saturating_sub(column)).min(next);
            let inside = if rows.contains(&row) { place(columns.start)..place(columns.end) } else { next..next };
            (at..inside.start).chain(inside.end.max(inside.start)..next).for_each(&mut each);
            (at, column, row) = (next, 0, (row + 1) % height);
        }
    }

    /// Fills words from place `start` of the grid on.
    fn fill<'a, W: Word>(
        &self,
        start: usize,
        mut out: &mut [W],
        lie: Lie,
        run_of: impl Fn(usize, usize) -> Option<Run<'a, W>>,
    ) {
        let [height, width] = match lie {
            Lie::Images => [1, self.grid[0] * self.grid[1]],
            Lie::Rows => self.grid,
        };
        let (mut image, mut row, mut place) = (start / width / height, start / width % height, start % width);
        while !out.is_empty() {
            let (part, rest) = out.split_at_mut(out.len().min(width - place));
            let run = if image < self.batch { run_of(image, row) } else { None };
            match run {
                Some(run) => run.copy(place, part),
                None => part.fill(W::ZERO),
            }
            (out, place, row) = (rest, 0, row + 1);
            if row == height {
                (image, row) = (image + 1, 0);
            }
        }
    }
}

impl<W: Word> Run<'_, W> {
    /// Places of the run from `first` on.
    #[inline(always)]
    fn copy(&self, first: usize, out: &mut [W]) {
        let end = first + out.len();
        let start = self.places.start.clamp(first, end);
        let stop = self.places.end.clamp(start, end);
        out[..start - first].fill(W::ZERO);
        out[stop - first..].fill(W::ZERO);
        let out = &mut out[start - first..stop - first];
        if out.is_empty() {
            return;
        }
        let from = (start - self.places.start) * self.step;
        if self.step == 1 {
            out.copy_from_slice(&self.words[from..from + out.len()]);
        } else {
            out.iter_mut().enumerate().for_each(|(i, out)| *out = self.words[from + i * self.step]);
        }
    }
}

/// The bytes of a range of places, as the kernel in use reads them.
struct Right<'a, W> {
    #[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(dead_code))]
    bytes: &'a [u32],
    /// As words, `[places, COUNT]`, unless there are tiles.
    words: Vec<W>,
}

impl<'a, W: Word> Right<'a, W> {
    fn new(bytes: &'a [u32]) -> Self {
        let mut words = Vec::new();
        if !has_tiles() {
            words.resize(4 * bytes.len(), W::ZERO);
            for (quad, words) in bytes.chunks_exact(Positions::COUNT).zip(words.chunks_exact_mut(4 * Positions::COUNT))
            {
                expand(words, quad);
            }
        }
        Right { bytes, words }
    }
}

vectorised! {
    /// Four places' bytes as words.
    fn expand<W: Word>(words: &mut [W], quad: &[u32]) {
        for (place, words) in words.chunks_exact_mut(quad.len()).enumerate() {
            for (word, &bytes) in words.iter_mut().zip(quad) {
                *word = W::from_u64(u64::from(bytes >> (8 * place) & 0xFF));
            }
        }
    }
}

fn has_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    return level() == Isa::Amx;
    #[cfg(not(all(target_arch = "x86_64", not(feature = "portable-only"))))]
    return false;
}

impl<W: Word> Planes<W> {
    /// Rows of at least `len` words.
    fn new(len: usize) -> Self {
        // An odd number of cache lines, or the rows would share few sets of the first-level cache.
        let stride = (len.div_ceil(STEP) | 1) * STEP;
        let limbs = if has_tiles() { Buffer::stale(ROWS * stride) } else { Buffer::new() };
        Planes { words: Buffer::stale(ROWS * stride), limbs, stride }
    }

    /// Writes the first `len` words of `rows` rows; what is left in the others is of no use.
    fn fill(&mut self, rows: usize, len: usize, fill: impl Fn(usize, &mut [W])) {
        for (row, words) in self.words.chunks_exact_mut(self.stride).take(rows).enumerate() {
            fill(row, &mut words[..len]);
        }
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        if has_tiles() {
            // SAFETY: a processor with tiles has these vectors.
            unsafe { combine::cut(&self.words, &mut self.limbs) };
        }
    }

    /// Adds to `out` the first rows from word `ahead` on times the bytes of `depth` places: so many rows, and so far apart in `out`.
    fn combine(&self, ahead: usize, right: &Right<'_, W>, depth: usize, rows: (usize, usize), out: &mut [W]) {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        if has_tiles() {
            // SAFETY: `add` has a session alive.
            return unsafe { combine::combine(&self.limbs, ahead, right.bytes, depth, rows, out) };
        }
        let (m, n) = (rows.0, Positions::COUNT);
        let sizes = Sizes { m, n, k: depth, a: self.stride, b: n, c: rows.1 };
        add_product(sizes, &[&self.words[ahead..]], &[&right.words], out);
    }
}
