//! Arrays as vectors: the compiler turns these loops into whatever its target has.

use covey_ring::Word;

use super::lanes::Vector;

/// `N` words.
#[derive(Clone, Copy)]
pub(super) struct Array<W, const N: usize>([W; N]);

impl<W: Word, const N: usize> Vector for Array<W, N> {
    type Word = W;
    const LANES: usize = N;

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
    unsafe fn mul_add(mut self, x: Self, y: Self) -> Self {
        for lane in 0..N {
            self.0[lane] = self.0[lane].add(x.0[lane].mul(y.0[lane]));
        }
        self
    }
}
