//! The product with many rows and columns: panels of `b` are packed for the first-level cache, and each pass over one
//! keeps a block of `c` in registers. `a` is read where it lies. (Goto, van de Geijn: Anatomy of high-performance
//! matrix multiplication, 2008.)

use std::ops::Range;

use covey_ring::Word;

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use super::amx;
use super::lanes::Vector;
use crate::scratch::{Scratch, Use};
use crate::words::copy_run;

/// The right operand, given panel by panel: a matrix, or what a convolution makes of an image.
pub(crate) trait Panels<W: Word> {
    /// Writes the block `rows` × `columns` to `out`, rows `stride >= columns.len()` words apart; leaves the rest of a
    /// row alone.
    fn pack(&self, rows: Range<usize>, columns: Range<usize>, stride: usize, out: &mut [W]);

    /// Whether words of a column are more often neighbours than words of a row.
    fn has_long_columns(&self) -> bool {
        false
    }

    /// Writes the block `rows` × `columns` to `out`, column after column.
    #[inline(always)]
    fn pack_columns(&self, rows: Range<usize>, columns: Range<usize>, out: &mut [W]) {
        transpose(self, rows, columns, out);
    }

    /// Packs the block `rows` × `columns` into tiles of limbs: panels of 16 columns, `panel` bytes apart.
    ///
    /// # Safety
    /// As for [`amx::pack_rows`]; there are rows and columns.
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    unsafe fn tiles(&self, rows: Range<usize>, columns: Range<usize>, panel: usize, out: *mut u8);
}

/// [`Panels::pack_columns`] by way of rows.
#[inline(always)]
pub(crate) fn transpose<W: Word>(
    panels: &(impl Panels<W> + ?Sized),
    rows: Range<usize>,
    columns: Range<usize>,
    out: &mut [W],
) {
    let (count, few) = (rows.len(), columns.len());
    let mut packed = Scratch::new(Use::Left, count * few * W::BYTES);
    let packed = &mut packed.words::<W>()[..count * few];
    panels.pack(rows, columns, few, packed);
    for (column, out) in out.chunks_exact_mut(count.max(1)).enumerate() {
        for (out, row) in out.iter_mut().zip(packed.chunks_exact(few)) {
            *out = row[column];
        }
    }
}

/// A row-major matrix whose rows lie in parts, one after another.
pub(crate) struct Matrix<'a, W> {
    /// Rows of each `stride` words apart.
    pub(crate) parts: &'a [&'a [W]],
    /// Rows of one part.
    pub(crate) depth: usize,
    pub(crate) stride: usize,
}

impl<W: Word> Panels<W> for Matrix<'_, W> {
    #[inline(always)]
    fn pack(&self, rows: Range<usize>, columns: Range<usize>, stride: usize, out: &mut [W]) {
        for (row, out) in rows.zip(out.chunks_mut(stride)) {
            let start = row % self.depth * self.stride;
            let part = self.parts[row / self.depth];
            copy_run(&part[start + columns.start..start + columns.end], &mut out[..columns.len()]);
        }
    }

    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    #[inline(always)]
    unsafe fn tiles(&self, rows: Range<usize>, columns: Range<usize>, panel: usize, out: *mut u8) {
        let (part, row) = (rows.start / self.depth, rows.start % self.depth);
        for part in &self.parts[part..rows.end.div_ceil(self.depth)] {
            assert!(part.len() >= (self.depth - 1) * self.stride + columns.end, "matrix product: sizes do not match");
        }
        let mut parts = self.parts[part..].iter();
        let next = parts.next().expect("rows exist")[row * self.stride..].as_ptr();
        let rows_left = self.depth - row;
        let groups = columns.len().div_ceil(16);
        let cursor = amx::MatrixRows { parts, next, rows_left, matrix: self, columns };
        // SAFETY: as the caller promises; the rows' columns were checked to exist.
        unsafe { amx::pack_rows::<W, _>(cursor, rows.len(), groups, panel, out) }
    }
}

/// Where column `j` of `c` lies: in runs of `run` columns, `skip` words from one run's start to the next; rows are
/// `row` words apart.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) row: usize,
    pub(crate) run: usize,
    pub(crate) skip: usize,
}

impl Columns {
    /// A row-major matrix of `columns` columns.
    pub(crate) fn plain(columns: usize) -> Self {
        Columns { row: columns, run: columns.max(1), skip: columns }
    }

    /// Offset of column `column` in row 0.
    #[inline(always)]
    pub(crate) fn offset(&self, column: usize) -> usize {
        column / self.run * self.skip + column % self.run
    }

    /// Words `c` must hold for `rows` rows and `columns` columns.
    pub(crate) fn len(&self, rows: usize, columns: usize) -> usize {
        if rows == 0 || columns == 0 { 0 } else { (rows - 1) * self.row + self.offset(columns - 1) + 1 }
    }
}

/// `c += a · b`: `a` is `[m, k]` with rows `stride` words apart, `b` `[k, n]`, `c` laid out by `columns`.
pub(crate) struct Product<'a, W, B> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: &'a [W],
    pub(crate) stride: usize,
    pub(crate) b: &'a B,
    pub(crate) columns: Columns,
}

/// Rows of `b` in a panel. Deep panels read and write `c` less often. That counts for more than panels that fit a first-level cache of
/// 32 KiB: the second-level cache is fast enough.
const DEPTH: usize = 256;
/// Rows of `b` packed for all held panels before the next rows. They lie far apart, and processors fetch ahead along few of them at a time.
const TOGETHER: usize = 16;
/// Bytes of packed panels held at once, within a second-level cache.
const PANELS_BYTES: usize = 512 << 10;
/// Rows of `a` that meet all held panels before the next rows: `ROWS * DEPTH` words stay in the second-level cache.
const ROWS: usize = 256;

/// How an instruction set adds products to `c`.
#[derive(Clone, Copy)]
pub(super) struct Blocks<W> {
    /// Words of a vector.
    pub(super) lanes: usize,
    /// Vectors of a panel.
    pub(super) vectors: usize,
    /// [`Block::add`] with these vectors: compiled once, and not for each kind of right operand.
    pub(super) add: unsafe fn(&Block<'_, W>, &mut [W]),
}

/// The product, panel by panel.
///
/// # Safety
/// The processor has the instruction set of `blocks`.
#[inline(always)]
pub(super) unsafe fn blocked<W: Word, B: Panels<W>>(product: &Product<'_, W, B>, c: &mut [W], blocks: Blocks<W>) {
    let &Product { m, n, k, a, stride: row, b, columns } = product;
    let Blocks { lanes, vectors, add } = blocks;
    let width = vectors * lanes;
    let held = (PANELS_BYTES / (DEPTH * W::BYTES) / width).max(1) * width;
    let mut panels = Scratch::new(Use::Right, DEPTH.min(k) * held.min(n.next_multiple_of(lanes)) * W::BYTES);
    let panels = panels.words::<W>();
    for j0 in (0..n).step_by(held) {
        let j1 = n.min(j0 + held);
        for k0 in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - k0);
            for rows in (k0..k0 + depth).step_by(TOGETHER).map(|row| row..(k0 + depth).min(row + TOGETHER)) {
                for j in (j0..j1).step_by(width) {
                    let columns = j..j1.min(j + width);
                    let stride = columns.len().next_multiple_of(lanes);
                    let panel = &mut panels[(j - j0) * depth..][..stride * depth];
                    b.pack(
                        rows.clone(),
                        columns,
                        stride,
                        &mut panel[(rows.start - k0) * stride..][..rows.len() * stride],
                    );
                }
            }
            for i in (0..m).step_by(ROWS) {
                for j in (j0..j1).step_by(width) {
                    let block = Block {
                        a: &a[i * row + k0..],
                        stride: row,
                        panel: &panels[(j - j0) * depth..],
                        depth,
                        rows: ROWS.min(m - i),
                        column: j,
                        valid: width.min(j1 - j),
                        columns,
                    };
                    // SAFETY: as the caller promises.
                    unsafe { add(&block, &mut c[i * columns.row..]) };
                }
            }
        }
    }
}

/// Rows of `a` and a panel: `rows` rows from the slices' starts, `valid` columns from `column`.
pub(super) struct Block<'a, W> {
    a: &'a [W],
    stride: usize,
    panel: &'a [W],
    depth: usize,
    rows: usize,
    column: usize,
    valid: usize,
    columns: Columns,
}

impl<W: Word> Block<'_, W> {
    /// Adds the product to `c`, in register blocks of `MR` rows × `NV` vectors, or one vector where all columns are in the first.
    ///
    /// # Safety
    /// The processor has `V`'s instruction set.
    #[inline(always)]
    pub(super) unsafe fn add<V: Vector<Word = W>, const MR: usize, const NV: usize>(&self, c: &mut [W]) {
        // SAFETY: as the caller promises.
        unsafe { if self.valid <= V::LANES { self.by_rows::<V, MR, 1>(c) } else { self.by_rows::<V, MR, NV>(c) } }
    }

    #[inline(always)]
    unsafe fn by_rows<V: Vector<Word = W>, const MR: usize, const NV: usize>(&self, c: &mut [W]) {
        const { assert!(MR == 4 || MR == 8) };
        let mut done = 0;
        while done < self.rows {
            let block = Block { a: &self.a[done * self.stride..], rows: self.rows - done, ..*self };
            let c = &mut c[done * self.columns.row..];
            // SAFETY: as the caller promises, in every arm.
            unsafe {
                done += match block.rows {
                    1 => block.run::<V, 1, NV>(c),
                    2 => block.run::<V, 2, NV>(c),
                    3 => block.run::<V, 3, NV>(c),
                    rows if rows < MR => block.run::<V, 4, NV>(c),
                    _ => block.run::<V, MR, NV>(c),
                };
            }
        }
    }

    /// The first `R` rows and `NV` vectors, the last of which may hold columns past `valid`. Returns `R`.
    #[inline(always)]
    unsafe fn run<V: Vector<Word = W>, const R: usize, const NV: usize>(&self, c: &mut [W]) -> usize {
        let width = NV * V::LANES;
        let left = Left { words: self.a, stride: self.stride };
        let start = self.columns.offset(self.column);
        for row in c.chunks(self.columns.row).take(R) {
            for v in 0..NV {
                // SAFETY: the caller has the instruction set.
                unsafe { V::fetch(row.as_ptr().wrapping_add(start + v * V::LANES)) };
            }
        }
        // SAFETY: the caller has the instruction set.
        let sums = unsafe { sums::<V, R, NV>(left, self.panel, width, self.depth) };
        let contiguous = self.columns.offset(self.column + self.valid - 1) == start + self.valid - 1;
        for (r, sums) in sums.iter().enumerate() {
            let c = &mut c[r * self.columns.row..];
            for (v, sum) in sums.iter().enumerate() {
                let lanes = V::LANES.min(self.valid - v * V::LANES);
                if contiguous && lanes == V::LANES {
                    let c = &mut c[start + v * V::LANES..][..V::LANES];
                    // SAFETY: the slice holds LANES words.
                    unsafe { V::load(c.as_ptr()).add(*sum).store(c.as_mut_ptr()) };
                } else {
                    let mut words = [W::ZERO; 16];
                    const { assert!(V::LANES <= 16) };
                    // SAFETY: the array holds at least LANES words.
                    unsafe { sum.store(words.as_mut_ptr()) };
                    for (lane, &word) in words[..lanes].iter().enumerate() {
                        let c = &mut c[self.columns.offset(self.column + v * V::LANES + lane)];
                        *c = c.add(word);
                    }
                }
            }
        }
        R
    }
}

/// Rows of a left operand, `stride` words apart.
#[derive(Clone, Copy)]
pub(super) struct Left<'a, W> {
    pub(super) words: &'a [W],
    pub(super) stride: usize,
}

/// The first `R` rows of `left` times `NV` vectors of a panel, whose rows are `stride` words apart: `depth` products for each sum.
///
/// # Safety
/// The processor has `V`'s instruction set.
///
/// # Panics
/// If an operand is too short.
#[inline(always)]
pub(super) unsafe fn sums<V: Vector, const R: usize, const NV: usize>(
    left: Left<'_, V::Word>,
    panel: &[V::Word],
    stride: usize,
    depth: usize,
) -> [[V; NV]; R] {
    let rows = stride.checked_mul(depth - 1).and_then(|words| words.checked_add(NV * V::LANES));
    assert!(rows.is_some_and(|words| panel.len() >= words) && left.words.len() >= (R - 1) * left.stride + depth);
    // SAFETY: the assertion bounds every read: rows r < R at r * stride + p, rows p < depth of the panel.
    unsafe {
        let mut sums = [[V::zero(); NV]; R];
        let (a, panel) = (left.words.as_ptr(), panel.as_ptr());
        for p in 0..depth {
            let mut right = [V::zero(); NV];
            for v in 0..NV {
                right[v] = V::load(panel.add(p * stride + v * V::LANES));
            }
            // A row of the left operand for each pair of vectors, or a pair of rows for one vector.
            for r in (0..R - R % 2).step_by(2) {
                let x = [V::splat_at(a.add(r * left.stride + p)), V::splat_at(a.add((r + 1) * left.stride + p))];
                for v in (0..NV - NV % 2).step_by(2) {
                    for r in [r, r + 1] {
                        let two = V::mul_add_two([sums[r][v], sums[r][v + 1]], [x[r % 2]; 2], [right[v], right[v + 1]]);
                        [sums[r][v], sums[r][v + 1]] = two;
                    }
                }
                if NV % 2 == 1 {
                    let two = V::mul_add_two([sums[r][NV - 1], sums[r + 1][NV - 1]], x, [right[NV - 1]; 2]);
                    [sums[r][NV - 1], sums[r + 1][NV - 1]] = two;
                }
            }
            if R % 2 == 1 {
                let x = V::splat_at(a.add((R - 1) * left.stride + p));
                for v in 0..NV {
                    sums[R - 1][v] = sums[R - 1][v].mul_add(x, right[v]);
                }
            }
        }
        sums
    }
}
