//! Arithmetic modulo a prime below 2^50 with vectors of doubles, which hold every integer up to 2^53.
//!
//! Bounds are in units of U = 2^50: "x is below k" says |x| <= k·U. All numbers here are integers, and as long as none passes
//! 8 (2^53), sums and differences are exact.

/// 2^52, whose double has the integers below 2^52 as its low bits.
pub(super) const MAGIC: f64 = (1_u64 << 52) as f64;

/// A vector of doubles. Implementations for an instruction set are inlined into functions that enable it.
pub(super) trait Lanes: Copy {
    /// As many unsigned 64-bit words.
    type Words: Copy;
    /// Doubles in one vector.
    const LANES: usize;

    /// `value` in every lane.
    ///
    /// # Safety
    /// For all functions here: the processor has the vector's instruction set.
    unsafe fn splat(value: f64) -> Self;
    /// `LANES` doubles from `from`, which need not be aligned.
    ///
    /// # Safety
    /// `from` is readable for `LANES` elements; so for all functions that read.
    unsafe fn load(from: *const f64) -> Self;
    /// `LANES` doubles to `to`, which need not be aligned.
    ///
    /// # Safety
    /// `to` is writable for `LANES` elements; so for all functions that write.
    unsafe fn store(self, to: *mut f64);
    /// Integers below 2^52 from words.
    unsafe fn load_residues(from: *const u64) -> Self;
    /// Integers of -q..q, none of which is -0, to words as residues of the prime q in all lanes.
    unsafe fn store_residues(self, prime: Self, to: *mut u64);
    /// Signed integers.
    unsafe fn load_i32(from: *const i32) -> Self;
    /// Words.
    unsafe fn load_words(from: *const u64) -> Self::Words;
    /// The first and the second words of `LANES` pairs.
    unsafe fn load_pairs(from: *const u64) -> (Self::Words, Self::Words);
    /// The low 32 bits of words.
    unsafe fn low(words: Self::Words) -> Self;
    /// The high 32 bits of words, as signed integers or not.
    unsafe fn high(words: Self::Words, signed: bool) -> Self;

    /// `self + other`
    unsafe fn add(self, other: Self) -> Self;
    /// `self - other`
    unsafe fn sub(self, other: Self) -> Self;
    /// `self · other`
    unsafe fn mul(self, other: Self) -> Self;
    /// `self · x + y`, rounded once.
    unsafe fn mul_add(self, x: Self, y: Self) -> Self;
    /// `self · x - y`, rounded once.
    unsafe fn mul_sub(self, x: Self, y: Self) -> Self;
    /// `y - self · x`, rounded once.
    unsafe fn neg_mul_add(self, x: Self, y: Self) -> Self;

    /// Of the elements in `a` and then `b`, in blocks of `2·HALF` elements, the lower and the upper halves of all blocks. `HALF`
    /// is a power of two below `LANES`. Lane `l` of both results is of block `block(HALF, l)`.
    unsafe fn split<const HALF: usize>(a: Self, b: Self) -> (Self, Self);
    /// The inverse of `split`.
    unsafe fn join<const HALF: usize>(x: Self, y: Self) -> (Self, Self);
    /// Which block a lane of what `split` gives is of.
    fn block(half: usize, lane: usize) -> usize;
}

/// A prime in every lane, and what reduces by it.
#[derive(Clone, Copy)]
pub(super) struct Modulus<V> {
    prime: V,
    inverse: V,
    round: V,
}

impl<V: Lanes> Modulus<V> {
    /// # Safety
    /// For all functions here: the processor has the vector's instruction set.
    #[inline(always)]
    pub unsafe fn new(prime: u64) -> Self {
        /// Adding it rounds a number of less than 2^51 to the nearest integer: doubles from 2^52 to 2^53 are the integers.
        const ROUND: f64 = (3_u64 << 51) as f64;
        let prime = prime as f64;
        // SAFETY: as the caller promises.
        unsafe { Modulus { prime: V::splat(prime), inverse: V::splat(1.0 / prime), round: V::splat(ROUND) } }
    }

    /// a·w modulo q, exactly, in -q..q.
    ///
    /// Requires |a·w| <= 2^51·(q - 1); so a below 4 and |w| <= q/2 will do, or a and w both in 0..q. The result r has
    /// |r| <= q·(1/2 + |a·w/q|·2^-52·(1 + 2^-53)). For a below k and |w| <= q/2 that is below 1/2 + k/8.
    ///
    /// Proof. Let h = a·w·(1 + d) be the rounded product, with |d| <= 2^-53. |h| < 2^101, so it is a multiple of its last place, at
    /// most 2^48, and l = a·w - h is an integer of at most 2^47: exact. The inverse is (1 + e)/q with |e| <= 2^-53. The fused
    /// sum rounds once, to an integer c that is within 1/2 of h·inverse = (a·w/q)·(1 + d)·(1 + e). So c is within
    /// 1/2 + |a·w/q|·(2^-52 + 2^-106) of a·w/q, and r = a·w - c·q is as small as said. h - c·q = r - l is an integer below 2^53: the
    /// fused difference is exact, and so is adding l.
    #[inline(always)]
    pub unsafe fn product(self, a: V, w: V) -> V {
        // SAFETY: as the caller promises.
        unsafe {
            let (high, low) = self.product_parts(a, w);
            high.add(low)
        }
    }

    /// Two products, their steps in turn: each waits for the last, and a processor looks ahead only so far.
    #[inline(always)]
    pub unsafe fn products(self, a: [V; 2], w: [V; 2]) -> [V; 2] {
        // SAFETY: as the caller promises.
        unsafe {
            let high = [a[0].mul(w[0]), a[1].mul(w[1])];
            let quotient = [high[0].mul_add(self.inverse, self.round), high[1].mul_add(self.inverse, self.round)];
            let low = [a[0].mul_sub(w[0], high[0]), a[1].mul_sub(w[1], high[1])];
            let quotient = [quotient[0].sub(self.round), quotient[1].sub(self.round)];
            let high = [quotient[0].neg_mul_add(self.prime, high[0]), quotient[1].neg_mul_add(self.prime, high[1])];
            [high[0].add(low[0]), high[1].add(low[1])]
        }
    }

    /// The product as the sum of two integers: the first at most 2^47 larger than the product, the second at most 2^47.
    #[inline(always)]
    pub unsafe fn product_parts(self, a: V, w: V) -> (V, V) {
        // SAFETY: as the caller promises.
        unsafe {
            let high = a.mul(w);
            let low = a.mul_sub(w, high);
            let quotient = high.mul_add(self.inverse, self.round).sub(self.round);
            (quotient.neg_mul_add(self.prime, high), low)
        }
    }

    /// x modulo q for x below 8, in -q..q: at most q/2 + 1.
    ///
    /// The quotient is within 1/2 + |x/q|·2^-53 of x/q, and less than 2^51 as q > 8; the difference is an integer below 2^53 and exact.
    #[inline(always)]
    pub unsafe fn reduce(self, x: V) -> V {
        // SAFETY: as the caller promises.
        unsafe {
            let quotient = x.mul_add(self.inverse, self.round).sub(self.round);
            quotient.neg_mul_add(self.prime, x)
        }
    }

    /// Stores x of -q..q, which is not -0, as residues.
    ///
    /// Nothing here makes -0 but from -0: a difference of equal numbers is 0, and where the first part of a product is -0, the
    /// second is 0.
    #[inline(always)]
    pub unsafe fn store(self, x: V, to: *mut u64) {
        // SAFETY: as the caller promises.
        unsafe { x.store_residues(self.prime, to) }
    }
}

/// What a transform reads first or writes last.
pub(super) trait Memory: Copy {
    /// A vector from element `at`.
    ///
    /// # Safety
    /// The vector's elements are readable, and the processor has the instruction set.
    unsafe fn load<V: Lanes>(self, at: usize) -> V;
}

/// Doubles between passes.
#[derive(Clone, Copy)]
pub(super) struct Doubles(pub *mut f64);

impl Memory for Doubles {
    #[inline(always)]
    unsafe fn load<V: Lanes>(self, at: usize) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load(self.0.add(at)) }
    }
}

/// Residues, below 1.
#[derive(Clone, Copy)]
pub(super) struct Residues(pub *const u64);

impl Memory for Residues {
    #[inline(always)]
    unsafe fn load<V: Lanes>(self, at: usize) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_residues(self.0.add(at)) }
    }
}

/// Signed integers of 32 bits, below 1.
#[derive(Clone, Copy)]
pub(super) struct Small(pub *const i32);

impl Memory for Small {
    #[inline(always)]
    unsafe fn load<V: Lanes>(self, at: usize) -> V {
        // SAFETY: as the caller promises.
        unsafe { V::load_i32(self.0.add(at)) }
    }
}
