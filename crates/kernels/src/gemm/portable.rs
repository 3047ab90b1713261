//! Arrays as vectors: the compiler turns these loops into whatever its target has.

use covey_ring::Word;

use super::blocked::{Block, Blocks, Panels, Product, blocked};
use super::fast::{self, Convolution};
use super::lanes::Vector;
use super::picked::{self, Picked};
use super::skinny::{self, FewRows, Transposed};

/// `N` words.
#[derive(Clone, Copy)]
struct Array<W, const N: usize>([W; N]);

impl<W: Word, const N: usize> Vector for Array<W, N> {
    type Word = W;
    const LANES: usize = N;
    /// All bits of the lanes.
    type Mask = [W; N];

    #[inline(always)]
    unsafe fn zero() -> Self {
        Array([W::ZERO; N])
    }
    #[inline(always)]
    unsafe fn splat(word: W) -> Self {
        Array([word; N])
    }
    #[inline(always)]
    unsafe fn load(from: *const W) -> Self {
        // SAFETY: the caller gives N readable words; the read is unaligned.
        Array(unsafe { from.cast::<[W; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut W) {
        // SAFETY: the caller gives N writable words; the write is unaligned.
        unsafe { to.cast::<[W; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(mut self, other: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = self.0[lane].add(other.0[lane]);
        }
        self
    }
    #[inline(always)]
    unsafe fn sub(mut self, other: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = self.0[lane].sub(other.0[lane]);
        }
        self
    }
    #[inline(always)]
    unsafe fn mul_add(mut self, x: Self, y: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = self.0[lane].add(x.0[lane].mul(y.0[lane]));
        }
        self
    }
    #[inline(always)]
    unsafe fn mask(bits: u16) -> [W; N] {
        std::array::from_fn(|lane| W::ZERO.sub(W::from_u64(u64::from(bits >> lane & 1))))
    }
    #[inline(always)]
    unsafe fn add_where(mut self, mask: [W; N], x: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = self.0[lane].add(x.0[lane] & mask[lane]);
        }
        self
    }
}

/// The product by columns: few or many. Vectors of 16 bytes suit the baselines of x86-64 and AArch64.
///
/// # Safety
/// Slices are long enough for the sizes.
pub(super) unsafe fn product<W: Word, B: Panels<W>>(product: &Product<'_, W, B>, c: &mut [W]) {
    // SAFETY: arrays need no instruction set; sizes are as the caller promises.
    unsafe {
        if skinny::goes_by_columns(product) {
            skinny::by_columns(product, c, add_dots)
        } else {
            blocked(product, c, Blocks { lanes: 128 / W::BITS as usize, vectors: 2, add: add_block })
        }
    }
}

#[inline(never)]
fn add_block<W: Word>(block: &Block<'_, W>, c: &mut [W]) {
    // SAFETY: arrays need no instruction set.
    unsafe {
        if const { W::BITS == 32 } { block.add::<Array<W, 4>, 4, 2>(c) } else { block.add::<Array<W, 2>, 4, 2>(c) }
    }
}

#[inline(never)]
fn add_dots<W: Word>(dots: &Transposed<'_, W>, c: &mut [W]) {
    // SAFETY: arrays need no instruction set.
    unsafe { if const { W::BITS == 32 } { dots.add::<Array<W, 4>>(c) } else { dots.add::<Array<W, 2>>(c) } }
}

/// A convolution of 3 × 3 taps in fewer products.
#[inline(never)]
pub(super) fn convolve<W: Word>(convolution: &Convolution<'_, W>, out: &mut [W]) {
    // SAFETY: arrays need no instruction set.
    unsafe {
        if const { W::BITS == 32 } {
            fast::convolve::<Array<W, 4>, 4, 2>(convolution, out)
        } else {
            fast::convolve::<Array<W, 2>, 4, 2>(convolution, out)
        }
    }
}

/// Sums of picked words.
///
/// # Safety
/// `picked` fits.
pub(super) unsafe fn add_picked<W: Word>(picked: &Picked<'_, W>, rows: usize, out: &mut [W]) {
    // SAFETY: arrays need no instruction set.
    unsafe {
        if const { W::BITS == 32 } {
            picked::add::<Array<W, 4>, 4, 2>(picked, rows, out)
        } else {
            picked::add::<Array<W, 2>, 4, 2>(picked, rows, out)
        }
    }
}

/// The product of few rows.
pub(super) fn few_rows<W: Word>(operands: &FewRows<'_, W>, c: &mut [W]) {
    // SAFETY: arrays need no instruction set.
    unsafe { skinny::few_rows::<Array<W, 4>>(operands, c) }
}
