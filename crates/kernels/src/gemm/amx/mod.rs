//! Products on tiles of 8-bit integers. Words are cut into 8-bit limbs; limb products of equal weight are summed in one tile
//! of 32-bit sums, and those whose weight lies past the word are left out: 10 of 16 for 32-bit words, 36 of 64 for 64-bit ones.
//!
//! Sums wrap modulo 2^32, which a 32-bit word does not notice. Of a 64-bit word, weights 4 to 7 are scaled by 2^32 and more,
//! so neither do they; weights 0 to 3 sum at most `4 * STEPS * DEPTH` products below 2^16 and never wrap.

pub(crate) mod combine;
pub(crate) mod fast;
mod matrix;
mod pack;
mod store;
mod tiles;

use std::marker::PhantomData;
use std::ops::Range;

use covey_ring::Word;

pub(crate) use matrix::{MatrixRows, load};
pub(crate) use pack::{Rows, right as pack_rows};
pub(crate) use tiles::{Session, permitted};

use super::blocked::Panels;
use crate::scratch::{Line, Scratch, Use};
use store::BLOCK;
use tiles::{DEPTH, SIDE, TILE};

/// Steps of [`DEPTH`] products that are summed in tiles, at most, before they are added to `c`.
const STEPS: usize = 16;
/// Bytes of packed columns held at once, within a second-level cache.
const RIGHT_BYTES: usize = 768 << 10;
/// Up to this many rows, packing the right operand is most of the work. Passes are then shallow and wide, at most so many
/// steps: a right operand is read fastest along its rows.
const FEW: usize = 64;
const SHALLOW: usize = 4;
/// Groups of 16 columns packed together, so that memory is read some cache lines at a time.
const GROUPS: usize = 16;
/// Bytes left free after each panel of packed columns.
const PAD: usize = 64;
/// Rows packed at once when the left operand is not packed beforehand.
const ROWS: usize = 1024;

const _: () = assert!(4 * STEPS * DEPTH * 255 * 255 <= u32::MAX as usize);

/// The left operand in limbs: for 16 rows after another, for 64 columns after another, a step of `W::BYTES` tiles.
pub(crate) struct Packed<W> {
    lines: Vec<Line>,
    rows: usize,
    depth: usize,
    word: PhantomData<W>,
}

/// A left operand whose columns lie in parts: row `i` is row `i` of each part in turn.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a, W> {
    /// Each row-major, rows `stride` words apart.
    pub(crate) parts: &'a [&'a [W]],
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    /// Columns of one part.
    pub(crate) depth: usize,
}

impl<W: Word> Left<'_, W> {
    /// Words `columns` of row `row`, then zeros.
    #[inline(always)]
    fn copy(&self, row: usize, columns: Range<usize>, out: &mut [W; DEPTH]) {
        let mut done = 0;
        for (index, part) in self.parts.iter().enumerate() {
            let start = columns.start.max(index * self.depth);
            let end = columns.end.min((index + 1) * self.depth);
            if start < end {
                let from = row * self.stride + start - index * self.depth;
                out[done..done + end - start].copy_from_slice(&part[from..from + end - start]);
                done += end - start;
            }
        }
        out[done..].fill(W::ZERO);
    }

    /// Packs a block of rows and columns.
    ///
    /// # Safety
    /// The processor has AVX-512 F, BW and VBMI. `out` is a cache-line boundary, writable for all row blocks and steps.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    unsafe fn pack(&self, rows: Range<usize>, columns: Range<usize>, out: *mut u8) {
        let step = W::BYTES * TILE;
        let steps = columns.len().div_ceil(DEPTH);
        let mut words = [W::ZERO; DEPTH];
        for row in rows.start..rows.start + rows.len().next_multiple_of(SIDE) {
            for index in 0..steps {
                let start = columns.start + index * DEPTH;
                if row < rows.end {
                    self.copy(row, start..columns.end.min(start + DEPTH), &mut words);
                } else {
                    words.fill(W::ZERO);
                }
                let (block, lane) = ((row - rows.start) / SIDE, (row - rows.start) % SIDE);
                // SAFETY: as the caller promises; a row of the first tile of a step within the output.
                unsafe { pack::left_row(&words, out.add((block * steps + index) * step + lane * DEPTH)) }
            }
        }
    }
}

impl<W: Word> Packed<W> {
    /// # Safety
    /// The processor has AVX-512 F, BW and VBMI.
    pub(crate) unsafe fn new(left: &Left<'_, W>) -> Self {
        let (rows, depth) = (left.rows, left.parts.len() * left.depth);
        let bytes = rows.next_multiple_of(SIDE) * depth.next_multiple_of(DEPTH) * W::BYTES;
        let mut lines = Line::zeroed(bytes);
        // SAFETY: the memory holds every step of every row block.
        unsafe { left.pack(0..rows, 0..depth, lines.as_mut_ptr().cast()) };
        Packed { lines, rows, depth, word: PhantomData }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

/// `0..depth` in ranges of about equally many steps, at most `most`.
fn passes(depth: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let steps = depth.div_ceil(DEPTH);
    let size = steps.div_ceil(steps.div_ceil(most).max(1)).max(1) * DEPTH;
    (0..depth).step_by(size).map(move |start| start..depth.min(start + size))
}

/// The left operand of a pass: row blocks `stride` bytes apart, from the pass's first column on.
#[derive(Clone, Copy)]
struct LeftPanels {
    start: *const u8,
    stride: usize,
    rows: usize,
}

/// `c = packed rows · b`, or `c +=` that: `rows` (from a multiple of 16) of the left operand and its first `depth` columns, `columns`
/// columns of `b`; `c` is row-major with rows `stride` words apart.
///
/// # Safety
/// The process is permitted to use tiles.
///
/// # Panics
/// If `c` is too short or `rows` does not exist.
pub(crate) unsafe fn product_packed<W: Word, B: Panels<W>>(
    left: &Packed<W>,
    depth: usize,
    rows: Range<usize>,
    right: &B,
    columns: usize,
    c: Output<'_, W>,
) {
    assert!(
        rows.start.is_multiple_of(SIDE) && rows.end <= left.rows && depth <= left.depth,
        "matrix product: sizes do not match"
    );
    let step = W::BYTES * TILE;
    let stride = left.depth.div_ceil(DEPTH) * step;
    let mut c = c;
    c.check(rows.len(), columns);
    // SAFETY: permission is the caller's promise.
    let _session = unsafe { Session::new() };
    for range in passes(depth, STEPS) {
        // SAFETY: the operand holds this row block and step.
        let first =
            unsafe { left.lines.as_ptr().cast::<u8>().add(rows.start / SIDE * stride + range.start / DEPTH * step) };
        let panels = LeftPanels { start: first, stride, rows: rows.len() };
        // SAFETY: the session is alive; the operand holds the rows and steps; `c` is checked.
        unsafe { pass(panels, range, right, columns, &mut c) };
        c.add = true;
    }
}

/// [`product_packed`] for a left operand in words.
///
/// # Safety
/// The process is permitted to use tiles.
///
/// # Panics
/// If a slice is too short.
pub(crate) unsafe fn product<W: Word, B: Panels<W>>(left: &Left<'_, W>, right: &B, columns: usize, c: Output<'_, W>) {
    let mut c = c;
    c.check(left.rows, columns);
    let depth = left.parts.len() * left.depth;
    let held = left.rows.min(ROWS).next_multiple_of(SIDE) * depth.min(STEPS * DEPTH).next_multiple_of(DEPTH);
    let mut scratch = Scratch::new(Use::Left, held * W::BYTES);
    // SAFETY: permission is the caller's promise.
    let _session = unsafe { Session::new() };
    for range in passes(depth, if left.rows <= FEW { SHALLOW } else { STEPS }) {
        for row in (0..left.rows).step_by(ROWS) {
            let rows = row..left.rows.min(row + ROWS);
            let stride = range.len().div_ceil(DEPTH) * W::BYTES * TILE;
            // SAFETY: the scratch memory holds that many rows and steps.
            unsafe { left.pack(rows.clone(), range.clone(), scratch.as_mut_ptr()) };
            let panels = LeftPanels { start: scratch.as_mut_ptr(), stride, rows: rows.len() };
            let mut part = Output { words: &mut c.words[row * c.stride..], ..c };
            // SAFETY: the session is alive; rows and steps were just packed; `c` is checked.
            unsafe { pass(panels, range.clone(), right, columns, &mut part) };
        }
        c.add = true;
    }
}

/// Where a product goes: row-major, rows `stride` words apart.
pub(crate) struct Output<'a, W> {
    pub(crate) words: &'a mut [W],
    pub(crate) stride: usize,
    /// Whether the product is added to what is there.
    pub(crate) add: bool,
}

impl<W: Word> Output<'_, W> {
    fn check(&self, rows: usize, columns: usize) {
        let len = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * self.stride + columns };
        assert!(self.words.len() >= len, "matrix product: sizes do not match");
    }
}

/// One pass over `c`, for the products `depth` of each element: columns are packed for the second-level cache, then meet all rows.
///
/// # Safety
/// A session is alive. `left` is readable for its rows and the steps of `depth`; `c` holds its rows and `columns`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn pass<W: Word, B: Panels<W>>(
    left: LeftPanels,
    depth: Range<usize>,
    right: &B,
    columns: usize,
    c: &mut Output<'_, W>,
) {
    let step = W::BYTES * TILE;
    let steps = depth.len().div_ceil(DEPTH);
    // One line more, or the panels' starts would share one set of the first-level cache.
    let panel = steps * step + PAD;
    // As many columns as fit, in shares of equal size.
    let most = (RIGHT_BYTES / panel).max(2) / 2 * 2 * SIDE;
    let shares = columns.div_ceil(most).max(1);
    let held = columns.div_ceil(shares).next_multiple_of(2 * SIDE);
    let mut scratch = Scratch::new(Use::Right, held / SIDE * panel);
    let packed = scratch.as_mut_ptr();
    let mut sums = BLOCK;
    for start in (0..columns).step_by(held) {
        let end = columns.min(start + held);
        for column in (start..end).step_by(GROUPS * SIDE) {
            let columns = column..end.min(column + GROUPS * SIDE);
            // SAFETY: the scratch memory holds that many panels.
            unsafe { right.tiles(depth.clone(), columns, panel, packed.add((column - start) / SIDE * panel)) };
        }
        for row in (0..left.rows).step_by(SIDE) {
            for column in (start..end).step_by(2 * SIDE) {
                let index = (column - start) / SIDE;
                // SAFETY: as the caller promises; a last single panel stands in for its missing neighbour.
                unsafe {
                    let first = packed.add(index * panel).cast_const();
                    let second = if column + SIDE < end { first.add(panel) } else { first };
                    let panels = tiles::Panels {
                        shared: left.start.add(row / SIDE * left.stride),
                        pair: [first, second],
                        steps,
                        step,
                    };
                    sums.run::<W>(panels);
                    sums.store(
                        (SIDE.min(left.rows - row), (2 * SIDE).min(end - column)),
                        c.words.as_mut_ptr().add(row * c.stride + column),
                        c.stride,
                        c.add,
                    );
                }
            }
        }
    }
}
