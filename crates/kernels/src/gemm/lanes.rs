//! What the matrix kernels ask of a vector of words.

use covey_ring::Word;

/// A vector of words. Implementations for an instruction set are inlined into functions that enable it.
pub(super) trait Vector: Copy {
    /// The element.
    type Word: Word;
    /// Elements in one vector, at most 16.
    const LANES: usize;
    /// Which lanes.
    type Mask: Copy;

    /// All zero.
    ///
    /// # Safety
    /// For all functions here: the processor has the vector's instruction set.
    unsafe fn zero() -> Self;
    /// `word` in every lane.
    unsafe fn splat(word: Self::Word) -> Self;
    /// The word at `from` in every lane.
    ///
    /// # Safety
    /// `from` is readable.
    #[inline(always)]
    unsafe fn splat_at(from: *const Self::Word) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::splat(*from) }
    }
    /// `LANES` words from `from`, which need not be aligned.
    ///
    /// # Safety
    /// `from` is readable for `LANES` words.
    unsafe fn load(from: *const Self::Word) -> Self;
    /// `LANES` words to `to`, which need not be aligned.
    ///
    /// # Safety
    /// `to` is writable for `LANES` words.
    unsafe fn store(self, to: *mut Self::Word);
    /// `self + other`, lane by lane.
    unsafe fn add(self, other: Self) -> Self;
    /// `self - other`, lane by lane.
    unsafe fn sub(self, other: Self) -> Self;
    /// `self + x * y`, lane by lane.
    unsafe fn mul_add(self, x: Self, y: Self) -> Self;
    /// Two of [`Vector::mul_add`], both products before both sums where that is faster.
    #[inline(always)]
    unsafe fn mul_add_two(sums: [Self; 2], x: [Self; 2], y: [Self; 2]) -> [Self; 2] {
        // SAFETY: as the caller promises.
        unsafe { [sums[0].mul_add(x[0], y[0]), sums[1].mul_add(x[1], y[1])] }
    }
    /// The lanes whose bit is set; lane 0 has the lowest bit.
    unsafe fn mask(bits: u16) -> Self::Mask;
    /// `self + x` in the lanes of `mask`, `self` in the others.
    unsafe fn add_where(self, mask: Self::Mask, x: Self) -> Self;
    /// The words from `from` in steps of `count`, which is 3 or 4: from the first, from the second, and so on.
    ///
    /// # Safety
    /// `from` is readable for `count * LANES` words.
    #[inline(always)]
    unsafe fn phases(count: usize, from: *const Self::Word) -> [Self; 4] {
        let mut words = [[Self::Word::ZERO; 16]; 4];
        const { assert!(Self::LANES <= 16) };
        // SAFETY: as the caller promises; the arrays hold at least LANES words.
        unsafe {
            for lane in 0..Self::LANES {
                for (phase, words) in words[..count].iter_mut().enumerate() {
                    words[lane] = *from.add(count * lane + phase);
                }
            }
            let mut phases = [Self::zero(); 4];
            for (phase, words) in phases.iter_mut().zip(&words) {
                *phase = Self::load(words.as_ptr());
            }
            phases
        }
    }
    /// Has the processor fetch what lies at `_from`, which may be anywhere: it will be read soon.
    #[inline(always)]
    unsafe fn fetch(_from: *const Self::Word) {}
    /// The sum of all lanes.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Word {
        let mut lanes = [Self::Word::ZERO; 16];
        const { assert!(Self::LANES <= 16) };
        // SAFETY: the array holds at least LANES words.
        unsafe { self.store(lanes.as_mut_ptr()) };
        lanes[..Self::LANES].iter().fold(Self::Word::ZERO, |sum, &lane| sum.add(lane))
    }
}
