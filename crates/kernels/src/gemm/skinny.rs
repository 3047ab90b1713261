//! Products with few columns or few rows. They do little work for each word of the large operand, so that one is read
//! once, as it lies.

use covey_ring::Word;

use super::blocked::{Columns, Panels, Product};
use super::lanes::Vector;
use crate::scratch::{Scratch, Use};

/// At most this many columns make a product of few columns.
pub(crate) const FEW_COLUMNS: usize = 16;
/// At most this many rows make a product of few rows.
pub(crate) const FEW_ROWS: usize = 4;
/// Words of the transposed right operand held at once: 64 KiB of u32.
const HELD: usize = 16 << 10;
/// Columns of it.
const COLUMNS: usize = 64;

/// Whether dot products with columns do better than multiples of rows.
pub(super) fn goes_by_columns<W: Word, B: Panels<W>>(product: &Product<'_, W, B>) -> bool {
    product.n <= FEW_COLUMNS || product.b.has_long_columns()
}

/// `c += a · b` by dot products of rows of `a` with columns of `b`. `add` is [`Transposed::add`] with vectors: compiled once, and not for each
/// kind of right operand.
///
/// # Safety
/// The processor has the instruction set of `add`.
#[inline(always)]
pub(super) unsafe fn by_columns<W: Word, B: Panels<W>>(
    product: &Product<'_, W, B>,
    c: &mut [W],
    add: unsafe fn(&Transposed<'_, W>, &mut [W]),
) {
    let &Product { m, n, k, a, stride, b, columns } = product;
    let held = n.min(COLUMNS);
    let depth = (HELD / held).min(k);
    let mut transposed = Scratch::new(Use::Right, depth * held * W::BYTES);
    let transposed = transposed.words::<W>();
    for (j0, k0) in (0..n).step_by(held).flat_map(|j0| (0..k).step_by(depth).map(move |k0| (j0, k0))) {
        let (held, depth) = (held.min(n - j0), depth.min(k - k0));
        let transposed = &mut transposed[..depth * held];
        b.pack_columns(k0..k0 + depth, j0..j0 + held, transposed);
        let held = Transposed { a: &a[k0..], stride, rows: m, transposed, depth, column: j0, columns };
        // SAFETY: as the caller promises.
        unsafe { add(&held, c) };
    }
}

/// Rows of `a` and some columns of `b` from `column` on, which are rows of `transposed`.
pub(super) struct Transposed<'a, W> {
    a: &'a [W],
    stride: usize,
    rows: usize,
    transposed: &'a [W],
    depth: usize,
    column: usize,
    columns: Columns,
}

impl<W: Word> Transposed<'_, W> {
    /// Adds their dot products to `c`, four by four.
    ///
    /// # Safety
    /// The processor has `V`'s instruction set.
    #[inline(always)]
    pub(super) unsafe fn add<V: Vector<Word = W>>(&self, c: &mut [W]) {
        let &Transposed { a, stride, rows: m, transposed, depth, column, columns } = self;
        let held = transposed.len() / depth;
        for i in (0..m).step_by(4) {
            for j in (0..held).step_by(4) {
                let dots = Dots { a: &a[i * stride..], stride, b: &transposed[j * depth..], depth };
                let (rows, few) = (4.min(m - i), 4.min(held - j));
                // SAFETY: as the caller promises.
                let sums = unsafe {
                    match (rows, few) {
                        (4, 4) => dots.run::<V, 4, 4>(),
                        (4, 3) => dots.run::<V, 4, 3>(),
                        (4, 2) => dots.run::<V, 4, 2>(),
                        (4, 1) => dots.run::<V, 4, 1>(),
                        (3, 4) => dots.run::<V, 3, 4>(),
                        (2, 4) => dots.run::<V, 2, 4>(),
                        (1, 4) => dots.run::<V, 1, 4>(),
                        _ => dots.one_by_one::<V>(rows, few),
                    }
                };
                for (r, sums) in sums[..rows].iter().enumerate() {
                    for (q, &sum) in sums[..few].iter().enumerate() {
                        let c = &mut c[(i + r) * columns.row + columns.offset(column + j + q)];
                        *c = c.add(sum);
                    }
                }
            }
        }
    }
}

/// Rows of `a`, `stride` apart, against rows of `b`, `depth` apart, over `depth` words.
struct Dots<'a, W> {
    a: &'a [W],
    stride: usize,
    b: &'a [W],
    depth: usize,
}

impl<W: Word> Dots<'_, W> {
    #[inline(always)]
    unsafe fn run<V: Vector<Word = W>, const R: usize, const Q: usize>(&self) -> [[W; 4]; 4] {
        let Dots { a, stride, b, depth } = *self;
        assert!(a.len() >= (R - 1) * stride + depth && b.len() >= Q * depth);
        let whole = depth / V::LANES * V::LANES;
        let mut out = [[W::ZERO; 4]; 4];
        // SAFETY: the assertion bounds every read: p + LANES <= depth.
        unsafe {
            let mut sums = [[V::zero(); Q]; R];
            for p in (0..whole).step_by(V::LANES) {
                let mut right = [V::zero(); Q];
                for q in 0..Q {
                    right[q] = V::load(b.as_ptr().add(q * depth + p));
                }
                for r in 0..R {
                    let left = V::load(a.as_ptr().add(r * stride + p));
                    for q in 0..Q {
                        sums[r][q] = sums[r][q].mul_add(left, right[q]);
                    }
                }
            }
            for r in 0..R {
                for q in 0..Q {
                    out[r][q] = sums[r][q].sum();
                }
            }
        }
        for r in 0..R {
            for q in 0..Q {
                for p in whole..depth {
                    out[r][q] = out[r][q].add(a[r * stride + p].mul(b[q * depth + p]));
                }
            }
        }
        out
    }

    /// The corner: fewer than four rows and columns.
    #[inline(always)]
    unsafe fn one_by_one<V: Vector<Word = W>>(&self, rows: usize, columns: usize) -> [[W; 4]; 4] {
        let mut out = [[W::ZERO; 4]; 4];
        for r in 0..rows {
            for q in 0..columns {
                let dot = Dots { a: &self.a[r * self.stride..], b: &self.b[q * self.depth..], ..*self };
                // SAFETY: as the caller promises.
                out[r][q] = unsafe { dot.run::<V, 1, 1>() }[0][0];
            }
        }
        out
    }
}

/// The operands of a product of few rows: all row-major, `a` and `b` with rows so many words apart.
#[derive(Clone, Copy)]
pub(crate) struct FewRows<'a, W> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: &'a [W],
    pub(crate) a_stride: usize,
    pub(crate) b: &'a [W],
    pub(crate) b_stride: usize,
}

/// `c += a · b` with few rows and a row-major `b`: eight rows of `b` at a time are scaled and added to each row of `c`.
///
/// # Safety
/// The processor has the instruction set of the function this is inlined into.
#[inline(always)]
pub(super) unsafe fn few_rows<V: Vector>(operands: &FewRows<'_, V::Word>, c: &mut [V::Word]) {
    const AT_ONCE: usize = 8;
    let &FewRows { m, n, k, a, a_stride, b, b_stride } = operands;
    let (whole, vectors) = (k / AT_ONCE * AT_ONCE, n / V::LANES * V::LANES);
    for p in (0..whole).step_by(AT_ONCE) {
        let b = &b[p * b_stride..];
        assert!(b.len() >= (AT_ONCE - 1) * b_stride + n);
        for i in 0..m {
            let (a, c) = (&a[i * a_stride + p..][..AT_ONCE], &mut c[i * n..(i + 1) * n]);
            // SAFETY: column j + LANES <= n of AT_ONCE rows, which were checked to be there.
            unsafe {
                let mut left = [V::zero(); AT_ONCE];
                for q in 0..AT_ONCE {
                    left[q] = V::splat(a[q]);
                }
                for j in (0..vectors).step_by(V::LANES) {
                    let mut sums = [V::load(c.as_ptr().add(j)), V::zero()];
                    for q in 0..AT_ONCE {
                        sums[q % 2] = sums[q % 2].mul_add(left[q], V::load(b.as_ptr().add(q * b_stride + j)));
                    }
                    sums[0].add(sums[1]).store(c.as_mut_ptr().add(j));
                }
            }
            for j in vectors..n {
                for q in 0..AT_ONCE {
                    c[j] = c[j].add(a[q].mul(b[q * b_stride + j]));
                }
            }
        }
    }
    for p in whole..k {
        for i in 0..m {
            let left = a[i * a_stride + p];
            for (c, &right) in c[i * n..(i + 1) * n].iter_mut().zip(&b[p * b_stride..][..n]) {
                *c = c.add(left.mul(right));
            }
        }
    }
}
