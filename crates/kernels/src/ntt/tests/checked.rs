//! Vectors of doubles that check what their arithmetic rests on: integers stay below 2^53, and sums and products are exact.

use super::super::lanes::Lanes;

/// `N` doubles.
#[derive(Clone, Copy)]
pub(super) struct Checked<const N: usize>([f64; N]);

/// The largest integer up to which doubles have all.
const WHOLE: f64 = (1_u64 << 53) as f64;

fn integer(value: f64) -> i128 {
    assert!(value.abs() <= WHOLE && value.fract() == 0.0, "{value} is no integer up to 2^53");
    value as i128
}

impl<const N: usize> Checked<N> {
    fn zip(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Checked(std::array::from_fn(|lane| with(self.0[lane], other.0[lane])))
    }

    /// x·y ± z, fused.
    fn fused(self, other: Self, third: Self, check: impl Fn([f64; 3], f64)) -> Self {
        Checked(std::array::from_fn(|lane| {
            let operands @ [x, y, z] = [self.0[lane], other.0[lane], third.0[lane]];
            let result = x.mul_add(y, z);
            check(operands, result);
            result
        }))
    }

    fn negative(self) -> Self {
        Checked(self.0.map(|value| -value))
    }
}

impl<const N: usize> Lanes for Checked<N> {
    type Words = [u64; N];
    const LANES: usize = N;

    unsafe fn splat(value: f64) -> Self {
        Checked([value; N])
    }
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: as the caller promises; so below.
        Checked(unsafe { from.cast::<[f64; N]>().read_unaligned() })
    }
    unsafe fn store(self, to: *mut f64) {
        // SAFETY: as the caller promises.
        unsafe { to.cast::<[f64; N]>().write_unaligned(self.0) }
    }
    unsafe fn load_residues(from: *const u64) -> Self {
        // SAFETY: as the caller promises.
        Checked(unsafe { Self::load_words(from) }.map(|word| {
            assert!(word >> 50 == 0);
            word as f64
        }))
    }
    unsafe fn store_residues(self, prime: Self, to: *mut u64) {
        let words = self.zip(prime, |value, prime| {
            assert!(
                value.abs() < prime && value.to_bits() != (-0.0_f64).to_bits(),
                "{value} is not below {prime} or -0"
            );
            if value < 0.0 { value + prime } else { value }
        });
        // SAFETY: as the caller promises.
        unsafe { to.cast::<[u64; N]>().write_unaligned(words.0.map(|value| integer(value) as u64)) }
    }
    unsafe fn load_i32(from: *const i32) -> Self {
        // SAFETY: as the caller promises.
        Checked(unsafe { from.cast::<[i32; N]>().read_unaligned() }.map(f64::from))
    }
    unsafe fn load_words(from: *const u64) -> [u64; N] {
        // SAFETY: as the caller promises.
        unsafe { from.cast::<[u64; N]>().read_unaligned() }
    }
    unsafe fn load_pairs(from: *const u64) -> ([u64; N], [u64; N]) {
        // SAFETY: as the caller promises.
        let pairs = unsafe { from.cast::<[[u64; 2]; N]>().read_unaligned() };
        (pairs.map(|pair| pair[0]), pairs.map(|pair| pair[1]))
    }
    unsafe fn low(words: [u64; N]) -> Self {
        Checked(words.map(|word| f64::from(word as u32)))
    }
    unsafe fn high(words: [u64; N], signed: bool) -> Self {
        let high = words.map(|word| (word >> 32) as u32);
        Checked(high.map(|high| if signed { f64::from(high as i32) } else { f64::from(high) }))
    }

    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |x, y| {
            assert_eq!(integer(x) + integer(y), integer(x + y));
            x + y
        })
    }
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: there is nothing to have.
        unsafe { self.add(other.negative()) }
    }
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |x, y| x * y)
    }
    /// For quotients alone, which are rounded where doubles are the integers.
    unsafe fn mul_add(self, x: Self, y: Self) -> Self {
        self.fused(x, y, |_, result| assert!((WHOLE / 2.0..=WHOLE).contains(&result)))
    }
    /// For what rounding a product loses.
    unsafe fn mul_sub(self, x: Self, y: Self) -> Self {
        self.fused(x, y.negative(), |[x, y, z], result| {
            assert_eq!(integer(x) * integer(y) + z as i128, integer(result));
            assert!(result.abs() <= (1_u64 << 47) as f64);
        })
    }
    /// For what a multiple of the prime leaves.
    unsafe fn neg_mul_add(self, x: Self, y: Self) -> Self {
        let exact = |[x, y, z]: [f64; 3], result| assert_eq!(integer(x) * integer(y) + z as i128, integer(result));
        self.negative().fused(x, y, exact)
    }

    unsafe fn split<const HALF: usize>(a: Self, b: Self) -> (Self, Self) {
        let element = |index: usize| if index < N { a.0[index] } else { b.0[index - N] };
        let of = |lane: usize| element(2 * HALF * (lane / HALF) + lane % HALF);
        let upper = |lane: usize| element(2 * HALF * (lane / HALF) + HALF + lane % HALF);
        (Checked(std::array::from_fn(of)), Checked(std::array::from_fn(upper)))
    }
    unsafe fn join<const HALF: usize>(x: Self, y: Self) -> (Self, Self) {
        let element = |index: usize| {
            let (block, at) = (index / (2 * HALF), index % (2 * HALF));
            if at < HALF { x.0[block * HALF + at] } else { y.0[block * HALF + at - HALF] }
        };
        (Checked(std::array::from_fn(element)), Checked(std::array::from_fn(|lane| element(N + lane))))
    }
    fn block(half: usize, lane: usize) -> usize {
        lane / half
    }
}
