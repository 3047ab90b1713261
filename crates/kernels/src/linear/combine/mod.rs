//! Random combinations of a convolution's output positions.
//!
//! With P the patches of the input, a column for each output position, the output is W·P. For bits A, a row for each position, the
//! combinations of an output are `output · A`, those of an input `P · A`, and the first are W times the second: a check of the whole
//! output takes as many products as a few positions do.
//!
//! Positions are counted on a grid that has room for the output and for every phase of the input, the rows and columns that are equal
//! modulo the strides. What a kernel element reads then lies at a fixed distance from the position.
//!
//! A is a Toeplitz matrix (Mansour, Nisan, Tiwari: The computational complexity of universal hashing, 1993): combination i takes bit
//! s[p + f_i] of place p, for random s and different shifts f_i. For lowest bits, words modulo 2, it takes any vector but 0 to 0 with
//! chance 2^-COUNT: at the last place that is not 0, each combination has a bit that those of smaller shifts have not. An element that
//! reads a ahead takes the sum over q = p + a of s[q + f_i - a] times what lies at q. Elements share the sums of equal f_i - a, so that
//! a kernel of 3 x 3 takes 84 of them and not 9 · 48. Next to padding not all elements read: such regions are summed by themselves.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod tiles;

use std::ops::Range;

use covey_ring::Word;

use super::Chunk;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::dispatch::{Isa, level};
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::gemm::amx::Session;
use crate::gemm::{BITS_PAST, Picked, Run, WINDOW, add_picked};
use crate::{ConvGeometry, threads};

/// Threads take a multiple of so many rows, those of a tile.
const ROWS: usize = 16;

/// Places of the grid combined at once, at most: what a block of rows has there stays in a first-level cache, and sums of tiles fit 32 bits.
const PLACES: usize = 512;
/// Tiles take a multiple of so many.
const STEP: usize = 64;

/// Products below which a thread is not worth waking.
const PART: usize = 1 << 22;

/// Combinations of the output positions of a convolution of one group.
pub struct Positions {
    geometry: ConvGeometry,
    batch: usize,
    /// Places of one image, by row and column.
    grid: [usize; 2],
    /// By combination.
    shifts: Vec<usize>,
    /// Combination i takes bit `place + shifts[i]`: bit `n` is bit `n % 8` of byte `n / 8`.
    bits: Vec<u8>,
}

/// How much further than a position an element of the kernel reads, along one axis.
struct Reach {
    element: usize,
    /// Which of the input's rows or columns it reads, modulo the stride.
    phase: usize,
    /// On the grid.
    ahead: isize,
    /// Those of its phase that it reads.
    reads: Range<usize>,
}

/// An element of the kernel.
struct Tap {
    number: usize,
    ahead: isize,
}

/// A part of a tensor from which the same elements of the kernel read.
struct Region {
    runs: Vec<Run>,
    /// From one word of a run to the next.
    step: usize,
    taps: Vec<Tap>,
    /// Differences of shifts and of how far ahead elements read: one for each sum, in ascending order.
    differences: Vec<isize>,
}

/// The sums of a region's rows, one for each difference and some of no use.
struct Sums {
    /// The differences from which sums are computed together, unless there are tiles.
    windows: Vec<isize>,
    /// By difference, the sum's number in a row.
    numbers: Vec<usize>,
    /// Sums of a row.
    len: usize,
}

impl Sums {
    fn new(differences: &[isize]) -> Self {
        let (mut windows, mut numbers) = (Vec::<isize>::new(), Vec::new());
        for &difference in differences {
            let has = |first: &isize| difference < first + WINDOW as isize;
            if !windows.last().is_some_and(has) {
                windows.push(difference);
            }
            let first = windows[windows.len() - 1];
            numbers.push((windows.len() - 1) * WINDOW + (difference - first) as usize);
        }
        let len = windows.len() * WINDOW;
        Sums { windows, numbers, len }
    }

    /// Tiles take all combinations at once, of whatever differences.
    fn of_tiles(differences: &[isize]) -> Self {
        let count = differences.len();
        Sums { windows: Vec::new(), numbers: (0..count).collect(), len: count.next_multiple_of(Positions::COUNT) }
    }
}

/// Shifts of a grid of `width` columns: a block of rows and columns, or all next to each other where that is as good. A kernel's row of three
/// elements takes 14 neighbouring sums of a row of the block, which fit a window.
fn shifts(width: usize) -> impl Iterator<Item = usize> {
    let columns = if width < 16 { Positions::COUNT } else { 12 };
    (0..Positions::COUNT).map(move |combination| combination / columns * width + combination % columns)
}

/// What elements of the kernel need sums for.
fn differences(width: usize, taps: &[Tap]) -> Vec<isize> {
    let of = |tap: &Tap| shifts(width).map(move |shift| shift as isize - tap.ahead).collect::<Vec<_>>();
    let mut all: Vec<isize> = taps.iter().flat_map(of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Region {
    fn new(width: usize, step: usize, taps: Vec<Tap>) -> Self {
        Region { runs: Vec::new(), step, differences: differences(width, &taps), taps }
    }

    /// Adds a run, to the last one where it goes on from there.
    fn push(&mut self, place: usize, word: usize, len: usize) {
        match self.runs.last_mut() {
            Some(last) if last.place + last.len == place && last.word + last.len * self.step == word => last.len += len,
            _ => self.runs.push(Run { place, word, len }),
        }
    }

    fn places(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// The runs in parts of at most [`PLACES`] places, and of fewer where many sums are taken of each.
    fn parts(&self) -> Vec<Vec<Run>> {
        let most = (PLACES * 2 * Positions::COUNT / self.differences.len()).clamp(STEP, PLACES);
        let (mut parts, mut room) = (Vec::<Vec<Run>>::new(), 0);
        for run in &self.runs {
            let mut done = 0;
            while done < run.len {
                if room == 0 {
                    parts.push(Vec::new());
                    room = most;
                }
                let len = room.min(run.len - done);
                let part = Run { place: run.place + done, word: run.word + done * self.step, len };
                parts.last_mut().expect("pushed").push(part);
                (done, room) = (done + len, room - len);
            }
        }
        parts
    }
}

impl Positions {
    /// Combinations of all positions of `batch` images; `fill` writes random words. Two that are filled alike are the same on all
    /// processors.
    ///
    /// # Panics
    /// If the convolution has several groups.
    pub fn new(geometry: &ConvGeometry, batch: usize, fill: impl FnOnce(&mut [u32])) -> Self {
        assert_eq!(geometry.groups, 1, "combinations of positions");
        let mut words = vec![0; Self::drawn(geometry, batch) / 4];
        fill(&mut words);
        let past = [0; (WINDOW + BITS_PAST) / 8];
        let bits = words.iter().flat_map(|word| word.to_le_bytes()).chain(past).collect();
        let grid = geometry.grid();
        Positions { geometry: *geometry, batch, grid, shifts: shifts(grid[1]).collect(), bits }
    }

    /// How many combinations.
    pub const COUNT: usize = 48;

    /// Random bytes whose bits combinations of `batch` images are made of, as whole words.
    pub fn drawn(geometry: &ConvGeometry, batch: usize) -> usize {
        let [height, width] = geometry.grid();
        let bits = batch * height * width + shifts(width).max().unwrap_or(0);
        bits.div_ceil(32) * 4
    }

    /// Sums over the positions that combinations of an input take, for each of its channels.
    pub fn sums(geometry: &ConvGeometry) -> usize {
        of_phases(geometry).map(|differences| differences.len()).sum()
    }

    /// Sums that are held for each channel while an input or an output is combined, at most.
    pub fn held(geometry: &ConvGeometry) -> usize {
        let of_output = shifts(geometry.grid()[1]).map(|shift| shift as isize).collect();
        let of_each = of_phases(geometry).chain([of_output]);
        of_each.map(|differences| Sums::new(&differences).len).max().unwrap_or(0)
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
        let (run, [height, width]) = (&chunk.run, self.geometry.output());
        let mut region = Region::new(self.grid[1], 1, vec![Tap { number: 0, ahead: 0 }]);
        for image in chunk.images.clone() {
            for row in run.start / width..run.end.div_ceil(width).min(height) {
                let (start, end) = (run.start.max(row * width), run.end.min((row + 1) * width));
                let word = (image - chunk.images.start) * run.len() + start - run.start;
                region.push(self.place(image, row, start - row * width), word, end - start);
            }
        }
        let out = &mut out[chunk.rows.start * Self::COUNT..chunk.rows.end * Self::COUNT];
        self.add(&[region], words, chunk.columns(), chunk.rows.len(), out);
    }

    /// The combinations of the patches of `x`, `[batch, in_channels, height, width]`: `[in_channels, kernel height, kernel width, COUNT]`.
    ///
    /// # Panics
    /// If `x` has another length.
    pub fn of_inputs<W: Word>(&self, x: &[W]) -> Vec<W> {
        let ConvGeometry { in_channels, input: [height, width], kernel, .. } = self.geometry;
        assert_eq!(x.len(), self.batch * self.geometry.input_len(), "combinations: sizes do not match");
        let mut out = vec![W::ZERO; in_channels * kernel[0] * kernel[1] * Self::COUNT];
        self.add(&self.regions(), x, height * width, in_channels, &mut out);
        out
    }

    fn place(&self, image: usize, row: usize, column: usize) -> usize {
        (image * self.grid[0] + row) * self.grid[1] + column
    }

    /// The input's regions: of each phase those between which elements of the kernel start or cease to read.
    fn regions(&self) -> Vec<Region> {
        let ConvGeometry { input: [_, width], strides, .. } = self.geometry;
        let [rows, columns] = [0, 1].map(|axis| reaches(&self.geometry, axis));
        let mut regions = Vec::new();
        for [down, right] in phases(&self.geometry) {
            for high in intervals(&rows, down) {
                for wide in intervals(&columns, right) {
                    let [reading, across] = [(&rows, &high), (&columns, &wide)].map(|(reaches, interval)| {
                        let reads =
                            |reach: &&Reach| reach.reads.start <= interval.start && interval.end <= reach.reads.end;
                        reaches.iter().filter(reads).collect::<Vec<_>>()
                    });
                    let taps = taps(&self.geometry, reading, across, [down, right]);
                    if taps.is_empty() {
                        continue;
                    }
                    let mut region = Region::new(self.grid[1], strides[1], taps);
                    for image in 0..self.batch {
                        for row in high.clone() {
                            let word = image * self.geometry.input_len()
                                + (row * strides[0] + down) * width
                                + wide.start * strides[1]
                                + right;
                            region.push(self.place(image, row, wide.start), word, wide.len());
                        }
                    }
                    regions.push(region);
                }
            }
        }
        regions
    }

    /// Adds combinations of `rows` rows to `out`, `[rows, kernel elements, COUNT]`, on all threads. A row's words lie `apart` words behind
    /// those of the row before.
    fn add<W: Word>(&self, regions: &[Region], words: &[W], apart: usize, rows: usize, out: &mut [W]) {
        let of_row = out.len() / rows;
        let products: usize = regions.iter().map(|region| region.places() * region.differences.len() * rows).sum();
        let parts = threads::in_use().min(rows.div_ceil(ROWS)).min(products / PART).max(1);
        let rows = rows.div_ceil(parts).next_multiple_of(ROWS);
        threads::each(out.chunks_mut(rows * of_row).enumerate().collect(), |(part, out)| {
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: tiles are in use only where they are permitted; nothing called below opens another session where they are.
            let _session = has_tiles().then(|| unsafe { Session::new() });
            let words = &words[part * rows * apart..];
            regions.iter().for_each(|region| self.add_region(region, words, apart, of_row, out));
        });
    }

    /// [`Positions::add`] of one region, on this thread.
    fn add_region<W: Word>(&self, region: &Region, words: &[W], apart: usize, of_row: usize, out: &mut [W]) {
        let rows = out.len() / of_row;
        let differences = &region.differences[..];
        let Sums { windows, numbers, len } =
            if has_tiles() { Sums::of_tiles(differences) } else { Sums::new(differences) };
        let mut sums = vec![W::ZERO; rows * len];
        for runs in region.parts() {
            let picked = Picked { words, apart, runs: &runs, step: region.step, bits: &self.bits, windows: &windows };
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            if has_tiles() {
                // SAFETY: `add` has a session alive.
                unsafe { tiles::add(&picked, differences, rows, &mut sums) };
                continue;
            }
            add_picked(&picked, rows, &mut sums);
        }
        for tap in &region.taps {
            let at = |&shift: &usize| region.differences.binary_search(&(shift as isize - tap.ahead));
            let numbers: Vec<usize> =
                self.shifts.iter().map(|shift| numbers[at(shift).expect("a sum for each")]).collect();
            let strips: Vec<&[usize]> = numbers.chunk_by(|one, next| one + 1 == *next).collect();
            for (out, sums) in out.chunks_exact_mut(of_row).zip(sums.chunks_exact(len)) {
                let mut out = &mut out[tap.number * Self::COUNT..][..Self::COUNT];
                for strip in &strips {
                    let (those, rest) = out.split_at_mut(strip.len());
                    those.iter_mut().zip(&sums[strip[0]..]).for_each(|(out, &sum)| *out = out.add(sum));
                    out = rest;
                }
            }
        }
    }
}

/// The kernel's elements along an axis that read anything.
fn reaches(geometry: &ConvGeometry, axis: usize) -> Vec<Reach> {
    let (stride, output) = (geometry.strides[axis], geometry.output()[axis] as isize);
    let of = |element: usize| {
        // Output o reads input o·stride + at.
        let at = (element * geometry.dilations[axis]) as isize - geometry.pads[axis] as isize;
        let (ahead, phase) = (at.div_euclid(stride as isize), at.rem_euclid(stride as isize) as usize);
        let has = geometry.input[axis].saturating_sub(phase).div_ceil(stride) as isize;
        let reads = ahead.max(0) as usize..has.min(output + ahead).max(0) as usize;
        Reach { element, phase, ahead, reads }
    };
    (0..geometry.kernel[axis]).map(of).filter(|reach| !reach.reads.is_empty()).collect()
}

/// The differences of each phase of an input, where all elements read.
fn of_phases(geometry: &ConvGeometry) -> impl Iterator<Item = Vec<isize>> {
    let [rows, columns] = [0, 1].map(|axis| reaches(geometry, axis));
    phases(geometry).map(move |phase| differences(geometry.grid()[1], &taps(geometry, &rows, &columns, phase)))
}

/// Rows and columns of the input modulo the strides.
fn phases(geometry: &ConvGeometry) -> impl Iterator<Item = [usize; 2]> {
    let [down, right] = geometry.strides;
    (0..down).flat_map(move |row| (0..right).map(move |column| [row, column]))
}

/// Rows or columns of one phase, cut where an element starts or ceases to read.
fn intervals(reaches: &[Reach], phase: usize) -> Vec<Range<usize>> {
    let of_phase = reaches.iter().filter(|reach| reach.phase == phase);
    let mut ends: Vec<usize> = of_phase.flat_map(|reach| [reach.reads.start, reach.reads.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// The elements of one phase.
fn taps<'a>(
    geometry: &ConvGeometry,
    rows: impl IntoIterator<Item = &'a Reach>,
    columns: impl IntoIterator<Item = &'a Reach>,
    phase: [usize; 2],
) -> Vec<Tap> {
    let width = geometry.grid()[1] as isize;
    let columns: Vec<&Reach> = columns.into_iter().filter(|reach| reach.phase == phase[1]).collect();
    let of_row = |row: &'a Reach| {
        columns.iter().map(move |column| Tap {
            number: row.element * geometry.kernel[1] + column.element,
            ahead: row.ahead * width + column.ahead,
        })
    };
    rows.into_iter().filter(|reach| reach.phase == phase[0]).flat_map(of_row).collect()
}

fn has_tiles() -> bool {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    return level() == Isa::Amx;
    #[cfg(not(all(target_arch = "x86_64", not(feature = "portable-only"))))]
    return false;
}
