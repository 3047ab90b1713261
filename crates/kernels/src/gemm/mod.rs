//! Matrix products modulo 2^32 and 2^64.
//!
//! Three shapes, one text each, generic over the vector: `blocked` packs panels and keeps a register block of `c` (many
//! rows and columns); `skinny` reads the larger operand once, as it lies (few rows or few columns).

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx512;
mod blocked;
mod lanes;
mod portable;
mod skinny;

use covey_ring::Word;

use crate::dispatch;

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
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it; sizes are checked above.
        dispatch::Isa::Avx512 => unsafe { avx512::product(product, c) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it; sizes are checked above.
        dispatch::Isa::Avx2 => unsafe { avx2::product(product, c) },
        // SAFETY: sizes are checked above.
        _ => unsafe { portable::product(product, c) },
    }
}

fn few_rows<W: Word>(sizes: (usize, usize, usize), a: &[W], b: &[W], c: &mut [W]) {
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx512 => unsafe { avx512::few_rows(sizes, a, b, c) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx2 => unsafe { avx2::few_rows(sizes, a, b, c) },
        _ => portable::few_rows(sizes, a, b, c),
    }
}
