//! Matrix products modulo 2^32 and 2^64.
//!
//! Three shapes for vectors, one text each, generic over the vector: `blocked` packs panels and keeps a register block of
//! `c` (many rows and columns); `skinny` reads the larger operand once, as it lies (few rows or few columns). `fast` makes
//! convolutions of such products, fewer of them than taps. `picked` multiplies with zeros and ones. Where the processor has tiles,
//! `amx` takes every product that fills them.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
pub(crate) mod amx;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod avx512;
mod blocked;
pub(crate) mod fast;
mod lanes;
mod picked;
mod portable;
mod skinny;

use covey_ring::Word;

use crate::words::same;
use crate::{dispatch, threads};

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
pub(crate) use amx::permitted as tiles_permitted;
pub(crate) use blocked::{Columns, Matrix, Panels, Product, transpose};
pub(crate) use picked::{BITS_PAST, Picked, Run, WINDOW};
use skinny::FEW_COLUMNS;
pub(crate) use skinny::{FEW_ROWS, FewRows};

/// `c += a · b`, row-major and wrapping, with `a` `[m, k]`, `b` `[k, n]` and `c` `[m, n]`.
///
/// # Panics
/// If a slice has another length.
pub fn gemm<W: Word>(m: usize, n: usize, k: usize, a: &[W], b: &[W], c: &mut [W]) {
    gemm_concat(m, n, k, &[(a, b)], c);
}

/// `c += a_1 · b_1 + a_2 · b_2 + …`, one accumulation over all products; shapes of each as [`gemm`].
///
/// # Panics
/// If a slice has another length.
pub fn gemm_concat<W: Word>(m: usize, n: usize, k: usize, pairs: &[(&[W], &[W])], c: &mut [W]) {
    let match_sizes = pairs.iter().all(|(a, b)| a.len() == m * k && b.len() == k * n);
    assert!(match_sizes && c.len() == m * n, "matrix product: sizes do not match");
    let rows = rows_of_a_thread(m, n, k * pairs.len());
    let b: Vec<&[W]> = pairs.iter().map(|&(_, b)| b).collect();
    threads::each(c.chunks_mut((rows * n).max(1)).enumerate().collect(), |(index, c)| {
        let rows = index * rows..m.min((index + 1) * rows);
        let a: Vec<&[W]> = pairs.iter().map(|&(a, _)| &a[rows.start * k..rows.end * k]).collect();
        add_product(Sizes { m: rows.len(), n, k, a: k, b: n, c: n }, &a, &b, c);
    });
}

/// How many rows of a product each thread takes: all of them where fewer would not pay for packing the right operand again.
fn rows_of_a_thread(m: usize, n: usize, k: usize) -> usize {
    const LEAST: usize = 1 << 22;
    let parts = (m / 16).min(m * n * k / LEAST).min(threads::in_use()).max(1);
    if parts == 1 { m.max(1) } else { m.div_ceil(parts).next_multiple_of(16) }
}

/// A product's sizes, and the words from one row to the next of its three matrices.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) c: usize,
}

/// [`gemm_concat`] of parts of larger matrices.
pub(crate) fn add_product<W: Word>(sizes: Sizes, a: &[&[W]], b: &[&[W]], c: &mut [W]) {
    // Compiled here, for both words, and not in every crate that multiplies.
    if const { W::BITS == 32 } {
        add_product_u32(sizes, same::all(a), same::all(b), same::exclusive(c));
    } else {
        add_product_u64(sizes, same::all(a), same::all(b), same::exclusive(c));
    }
}

fn add_product_u32(sizes: Sizes, a: &[&[u32]], b: &[&[u32]], c: &mut [u32]) {
    add_product_of(sizes, a, b, c);
}

fn add_product_u64(sizes: Sizes, a: &[&[u64]], b: &[&[u64]], c: &mut [u64]) {
    add_product_of(sizes, a, b, c);
}

fn add_product_of<W: Word>(sizes: Sizes, a: &[&[W]], b: &[&[W]], c: &mut [W]) {
    let Sizes { m, n, k, .. } = sizes;
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    if tiles_pay(m, n, k * a.len()) {
        let left = amx::Left { parts: a, stride: sizes.a, rows: m, depth: k };
        let right = Matrix { parts: b, depth: k, stride: sizes.b };
        let c = amx::Output { words: c, stride: sizes.c, add: true };
        // SAFETY: tiles are in use only where they are permitted.
        return unsafe { amx::product(&left, &right, n, c) };
    }
    for (&a, b) in a.iter().zip(b) {
        if m <= FEW_ROWS && n > FEW_COLUMNS && sizes.c == n {
            few_rows(&FewRows { m, n, k, a, a_stride: sizes.a, b, b_stride: sizes.b }, c);
        } else {
            let b = Matrix { parts: &[b], depth: k, stride: sizes.b };
            let columns = Columns { row: sizes.c, ..Columns::plain(n) };
            product(&Product { m, n, k, a, stride: sizes.a, b: &b, columns }, c);
        }
    }
}

/// Whether a product is worth packing for tiles, where they are in use.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
fn tiles_pay(m: usize, n: usize, k: usize) -> bool {
    dispatch::level() == dispatch::Isa::Amx && m > FEW_ROWS && n >= 8 && k >= 16
}

/// `c += a · b` with vectors: a right operand of any kind and columns of `c` laid out in any way.
pub(crate) fn product<W: Word, B: Panels<W>>(product: &Product<'_, W, B>, c: &mut [W]) {
    let &Product { m, n, k, a, stride, .. } = product;
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let fits = a.len() >= (m - 1) * stride + k && c.len() >= product.columns.len(m, n);
    assert!(fits, "matrix product: sizes do not match");
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

/// Words of a vector.
pub(crate) fn lanes<W: Word>() -> usize {
    let bits = match dispatch::isa() {
        dispatch::Isa::Avx2 => 256,
        dispatch::Isa::Portable => 128,
        _ => 512,
    };
    bits / W::BITS as usize
}

/// A convolution of 3 × 3 taps in fewer products, with vectors.
///
/// # Panics
/// If sizes do not match.
pub(crate) fn convolve<W: Word>(convolution: &fast::Convolution<'_, W>, out: &mut [W]) {
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx512 => unsafe { avx512::convolve(convolution, out) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx2 => unsafe { avx2::convolve(convolution, out) },
        _ => portable::convolve(convolution, out),
    }
}

/// `c += a · b` for a few rows, with vectors.
pub(crate) fn few_rows<W: Word>(operands: &FewRows<'_, W>, c: &mut [W]) {
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx512 => unsafe { avx512::few_rows(operands, c) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx2 => unsafe { avx2::few_rows(operands, c) },
        _ => portable::few_rows(operands, c),
    }
}

/// Adds the sums of `rows` rows to `out`, for each row [`WINDOW`] sums of each window, with vectors.
///
/// # Panics
/// If sizes do not match.
pub(crate) fn add_picked<W: Word>(picked: &Picked<'_, W>, rows: usize, out: &mut [W]) {
    assert!(picked.fits(rows), "picked words: sizes do not match");
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it; sizes are checked above.
        dispatch::Isa::Avx512 => unsafe { avx512::add_picked(picked, rows, out) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it; sizes are checked above.
        dispatch::Isa::Avx2 => unsafe { avx2::add_picked(picked, rows, out) },
        // SAFETY: sizes are checked above.
        _ => unsafe { portable::add_picked(picked, rows, out) },
    }
}
