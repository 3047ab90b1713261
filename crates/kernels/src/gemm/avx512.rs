//! 512-bit vectors: `vpmulld` for 32-bit words, `vpmullq` for 64-bit words.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use covey_ring::Word;

use super::blocked::{Block, Blocks, Panels, Product, blocked};
use super::fast::{self, Convolution};
use super::lanes::Vector;
use super::picked::{self, Picked};
use super::skinny::{self, FewRows, Transposed};

/// 16 words of 32 bits or 8 of 64.
#[derive(Clone, Copy)]
struct Zmm<W>(__m512i, PhantomData<W>);

impl<W: Word> Vector for Zmm<W> {
    type Word = W;
    const LANES: usize = 512 / W::BITS as usize;
    type Mask = u16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512.
        Zmm(unsafe { _mm512_setzero_si512() }, PhantomData)
    }
    #[inline(always)]
    unsafe fn splat(word: W) -> Self {
        // SAFETY: the caller has AVX-512.
        let vector = unsafe {
            if const { W::BITS == 32 } {
                _mm512_set1_epi32(word.to_u64() as i32)
            } else {
                _mm512_set1_epi64(word.to_u64() as i64)
            }
        };
        Zmm(vector, PhantomData)
    }
    #[inline(always)]
    unsafe fn splat_at(from: *const W) -> Self {
        // SAFETY: the caller has AVX-512 F and a readable word.
        Zmm(
            unsafe { if const { W::BITS == 32 } { broadcast_32(from.cast()) } else { broadcast_64(from.cast()) } },
            PhantomData,
        )
    }
    #[inline(always)]
    unsafe fn load(from: *const W) -> Self {
        // SAFETY: the caller has AVX-512 and LANES readable words; the load is unaligned.
        Zmm(unsafe { _mm512_loadu_si512(from.cast()) }, PhantomData)
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut W) {
        // SAFETY: the caller has AVX-512 and LANES writable words; the store is unaligned.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        let sum = unsafe {
            if const { W::BITS == 32 } { _mm512_add_epi32(self.0, other.0) } else { _mm512_add_epi64(self.0, other.0) }
        };
        Zmm(sum, PhantomData)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        let difference = unsafe {
            if const { W::BITS == 32 } { _mm512_sub_epi32(self.0, other.0) } else { _mm512_sub_epi64(self.0, other.0) }
        };
        Zmm(difference, PhantomData)
    }
    #[inline(always)]
    unsafe fn phases(count: usize, from: *const W) -> [Self; 4] {
        assert!(count == 3 || count == 4);
        // SAFETY: the caller has AVX-512 and so many vectors of readable words.
        unsafe {
            let mut words = [_mm512_setzero_si512(); 4];
            for vector in 0..count {
                words[vector] = _mm512_loadu_si512(from.add(vector * Self::LANES).cast());
            }
            let [a, b, c, _] = words;
            let mut phases = [Self::zero(); 4];
            for phase in 0..count {
                phases[phase].0 = if count == 3 { third::<W>([a, b, c], phase) } else { fourth::<W>(words, phase) };
            }
            phases
        }
    }
    #[inline(always)]
    unsafe fn fetch(from: *const W) {
        // SAFETY: a prefetch reads nothing, whatever its address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
    }
    #[inline(always)]
    unsafe fn mul_add(self, x: Self, y: Self) -> Self {
        // SAFETY: the caller has AVX-512 F and DQ.
        let product =
            unsafe { if const { W::BITS == 32 } { _mm512_mullo_epi32(x.0, y.0) } else { multiply_64(x.0, y.0) } };
        // SAFETY: as above.
        unsafe { self.add(Zmm(product, PhantomData)) }
    }
    #[inline(always)]
    unsafe fn mask(bits: u16) -> u16 {
        bits
    }
    #[inline(always)]
    unsafe fn add_where(self, mask: u16, x: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        let sum = unsafe {
            if const { W::BITS == 32 } {
                _mm512_mask_add_epi32(self.0, mask, self.0, x.0)
            } else {
                _mm512_mask_add_epi64(self.0, mask as u8, self.0, x.0)
            }
        };
        Zmm(sum, PhantomData)
    }
    #[inline(always)]
    unsafe fn mul_add_two(sums: [Self; 2], x: [Self; 2], y: [Self; 2]) -> [Self; 2] {
        // Without closures, which are not inlined here unless the build is optimised in full.
        let (sums, x, y) = ([sums[0].0, sums[1].0], [x[0].0, x[1].0], [y[0].0, y[1].0]);
        // SAFETY: the caller has AVX-512 F and DQ.
        let sums =
            unsafe { if const { W::BITS == 32 } { multiply_add_32(sums, x, y) } else { multiply_add_64(sums, x, y) } };
        [Zmm(sums[0], PhantomData), Zmm(sums[1], PhantomData)]
    }
}

/// `vpmullq` onto its own operand. Golden Cove cores make the instruction wait for its destination's last writer, though it
/// does not read it (GCC calls it a false dependency), which halves the rate unless the destination is an operand anyhow.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn multiply_64(x: __m512i, y: __m512i) -> __m512i {
    let mut product = x;
    // SAFETY: reads and writes the named registers only; the function enables the instruction.
    unsafe {
        std::arch::asm!(
            "vpmullq {product}, {product}, {y}",
            product = inout(zmm_reg) product,
            y = in(zmm_reg) y,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    product
}

/// Instructions for words of one width.
macro_rules! instructions {
    ($word:ty, $broadcast:ident, $multiply_add:ident, $of_broadcast:literal, $of_multiply:literal, $of_add:literal) => {
        /// The word in every lane. Next to assembly, compilers take the instruction's twin of floats, which holds up products on Zen 4 cores.
        ///
        /// # Safety
        /// The word is readable.
        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn $broadcast(from: *const $word) -> __m512i {
            let word: __m512i;
            // SAFETY: reads the word, as the caller promises; the function enables the instruction.
            unsafe {
                std::arch::asm!(
                    concat!($of_broadcast, " {word}, [{from}]"),
                    word = out(zmm_reg) word,
                    from = in(reg) from,
                    options(pure, readonly, nostack, preserves_flags)
                );
            }
            word
        }

        /// `sums + x · y`, pair by pair. Zen 4 cores fill their four units better where two products precede two sums. Compilers let single
        /// ones alternate. Products replace an operand for the reason of [`multiply_64`].
        #[inline]
        #[target_feature(enable = "avx512f,avx512dq")]
        fn $multiply_add(sums: [__m512i; 2], x: [__m512i; 2], y: [__m512i; 2]) -> [__m512i; 2] {
            let [mut first, mut second] = sums;
            // SAFETY: reads and writes the named registers only; the function enables the instructions.
            unsafe {
                std::arch::asm!(
                    concat!($of_multiply, " {x0}, {x0}, {y0}"),
                    concat!($of_multiply, " {x1}, {x1}, {y1}"),
                    concat!($of_add, " {first}, {first}, {x0}"),
                    concat!($of_add, " {second}, {second}, {x1}"),
                    x0 = inout(zmm_reg) x[0] => _,
                    x1 = inout(zmm_reg) x[1] => _,
                    y0 = in(zmm_reg) y[0],
                    y1 = in(zmm_reg) y[1],
                    first = inout(zmm_reg) first,
                    second = inout(zmm_reg) second,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            [first, second]
        }
    };
}

instructions!(u32, broadcast_32, multiply_add_32, "vpbroadcastd", "vpmulld", "vpaddd");
instructions!(u64, broadcast_64, multiply_add_64, "vpbroadcastq", "vpmullq", "vpaddq");

/// The product by columns: few or many.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL. Slices are long enough for the sizes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn product<W: Word, B: Panels<W>>(product: &Product<'_, W, B>, c: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe {
        if skinny::goes_by_columns(product) {
            skinny::by_columns(product, c, add_dots)
        } else {
            blocked(product, c, Blocks { lanes: Zmm::<W>::LANES, vectors: 2, add: add_block })
        }
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn add_block<W: Word>(block: &Block<'_, W>, c: &mut [W]) {
    // SAFETY: the processor has AVX-512 F, BW, DQ and VL.
    unsafe { block.add::<Zmm<W>, 8, 2>(c) }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn add_dots<W: Word>(dots: &Transposed<'_, W>, c: &mut [W]) {
    // SAFETY: the processor has AVX-512 F, BW, DQ and VL.
    unsafe { dots.add::<Zmm<W>>(c) }
}

/// A convolution of 3 × 3 taps in fewer products.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn convolve<W: Word>(convolution: &Convolution<'_, W>, out: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe { fast::convolve::<Zmm<W>, 8, 2>(convolution, out) }
}

/// Sums of picked words.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL, and `picked` fits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn add_picked<W: Word>(picked: &Picked<'_, W>, rows: usize, out: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe { picked::add::<Zmm<W>, 8, 3>(picked, rows, out) }
}

/// The product of few rows.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn few_rows<W: Word>(operands: &FewRows<'_, W>, c: &mut [W]) {
    // SAFETY: as the caller promises.
    unsafe { skinny::few_rows::<Zmm<W>>(operands, c) }
}

/// Every fourth word of four vectors, from number `phase` on.
#[inline(always)]
unsafe fn fourth<W: Word>([a, b, c, d]: [__m512i; 4], phase: usize) -> __m512i {
    /// Where they are in two vectors.
    const fn places<const LANES: usize, const SKIP: usize>() -> [[i32; 16]; 4] {
        let mut places = [[0; 16]; 4];
        let mut phase = 0;
        while phase < 4 {
            let mut lane = 0;
            while lane < LANES / 2 {
                places[phase][lane * SKIP] = (4 * lane + phase) as i32;
                lane += 1;
            }
            phase += 1;
        }
        places
    }
    const NARROW: [[i32; 16]; 4] = places::<16, 1>();
    // Numbers of 64 bits.
    const WIDE: [[i32; 16]; 4] = places::<8, 2>();
    // SAFETY: the callers have AVX-512 F.
    unsafe {
        let (low, high) = if const { W::BITS == 32 } {
            let places = _mm512_loadu_si512(NARROW[phase].as_ptr().cast());
            (_mm512_permutex2var_epi32(a, places, b), _mm512_permutex2var_epi32(c, places, d))
        } else {
            let places = _mm512_loadu_si512(WIDE[phase].as_ptr().cast());
            (_mm512_permutex2var_epi64(a, places, b), _mm512_permutex2var_epi64(c, places, d))
        };
        _mm512_inserti64x4::<1>(low, _mm512_castsi512_si256(high))
    }
}

/// Every third word of three vectors.
#[inline(always)]
pub(super) unsafe fn third<W: Word>([a, b, c]: [__m512i; 3], phase: usize) -> __m512i {
    /// Where the words are: in the first two vectors, then in those found there and the third vector.
    const fn places<const LANES: usize, const SKIP: usize>() -> [[[i32; 16]; 2]; 3] {
        let mut places = [[[0; 16]; 2]; 3];
        let mut phase = 0;
        while phase < 3 {
            let mut lane = 0;
            while lane < LANES {
                let word = 3 * lane + phase;
                places[phase][0][lane * SKIP] = if word < 2 * LANES { word as i32 } else { 0 };
                places[phase][1][lane * SKIP] = if word < 2 * LANES { lane as i32 } else { (word - LANES) as i32 };
                lane += 1;
            }
            phase += 1;
        }
        places
    }
    const NARROW: [[[i32; 16]; 2]; 3] = places::<16, 1>();
    // Numbers of 64 bits.
    const WIDE: [[[i32; 16]; 2]; 3] = places::<8, 2>();
    // SAFETY: the callers have AVX-512 F and three readable vectors.
    unsafe {
        if const { W::BITS == 32 } {
            let [first, second] = &NARROW[phase];
            let (first, second) =
                (_mm512_loadu_si512(first.as_ptr().cast()), _mm512_loadu_si512(second.as_ptr().cast()));
            _mm512_permutex2var_epi32(_mm512_permutex2var_epi32(a, first, b), second, c)
        } else {
            let [first, second] = &WIDE[phase];
            let (first, second) =
                (_mm512_loadu_si512(first.as_ptr().cast()), _mm512_loadu_si512(second.as_ptr().cast()));
            _mm512_permutex2var_epi64(_mm512_permutex2var_epi64(a, first, b), second, c)
        }
    }
}
