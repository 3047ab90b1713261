//! Matrix products modulo 2^32 and 2^64.
//!
//! Three shapes, one text each, generic over the vector: `blocked` packs panels and keeps a register block of `c` (many
//! rows and columns); `skinny` reads the larger operand once, as it lies (few rows or few columns).

mod blocked;
mod lanes;
mod portable;
mod skinny;

use covey_ring::Word;

pub(crate) use blocked::{Columns, Matrix, Panels, Product};
use skinny::FEW_COLUMNS;

/// `c += a · b`, row-major and wrapping, with `a` `[m, k]`, `b` `[k, n]` and `c` `[m, n]`.
///
/// # Panics
/// If a slice has another length.
pub fn gemm<W: Word>(m: usize, n: usize, k: usize, a: &[W], b: &[W], c: &mut [W]) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "matrix product: sizes do not match");
    if m <= skinny::FEW_ROWS && n > FEW_COLUMNS {
        few_rows((m, n, k), a, b, c)
    } else {
        product(&Product { m, n, k, a, b: &Matrix { data: b, columns: n }, columns: Columns::plain(n) }, c)
    }
}

/// [`gemm`] with a right operand of any kind and columns of `c` laid out in any way.
pub(crate) fn product<W: Word, B: Panels<W>>(product: &Product<'_, W, B>, c: &mut [W]) {
    let &Product { m, n, k, a, .. } = product;
    assert!(a.len() == m * k && c.len() >= product.columns.len(m, n), "matrix product: sizes do not match");
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    // SAFETY: arrays need no instruction set; sizes are checked above.
    unsafe {
        match (n <= FEW_COLUMNS, W::BITS) {
            (true, 32) => skinny::few_columns::<portable::Array<W, 4>, B>(product, c),
            (true, _) => skinny::few_columns::<portable::Array<W, 2>, B>(product, c),
            (false, 32) => blocked::blocked::<portable::Array<W, 4>, B, 4, 2>(product, c),
            (false, _) => blocked::blocked::<portable::Array<W, 2>, B, 4, 2>(product, c),
        }
    }
}

fn few_rows<W: Word>(sizes: (usize, usize, usize), a: &[W], b: &[W], c: &mut [W]) {
    // SAFETY: arrays need no instruction set.
    unsafe { skinny::few_rows::<portable::Array<W, 4>>(sizes, a, b, c) }
}
