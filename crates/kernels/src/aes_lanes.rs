//! Vectors of blocks for AES on processors without AVX-512: one block (AES-NI) or two (VAES of 256 bits). The hash and the generator
//! are written once over [`Lanes`]; functions that enable the instructions instantiate them.

use std::arch::x86_64::*;

use covey_ring::Word;
use zeroize::Zeroize;

use crate::Block;

/// Vectors in flight: they cover the latency of a round.
pub(crate) const AT_ONCE: usize = 8;

/// The most bytes of a vector.
pub(crate) const MOST_BYTES: usize = 32;

/// A vector of blocks. Implementations are inlined into functions that enable its instruction set.
pub(crate) trait Lanes: Copy + Zeroize {
    /// Blocks in one vector.
    const BLOCKS: usize;

    /// `block` in every lane.
    ///
    /// # Safety
    /// For all functions here: the processor has AVX2 and AES-NI, and VAES if the vector has 256 bits.
    unsafe fn splat(block: u128) -> Self;
    /// Blocks from `from`, which need not be aligned.
    ///
    /// # Safety
    /// `from` is readable for `BLOCKS` blocks.
    unsafe fn load(from: *const Block) -> Self;
    /// Blocks to `to`, which need not be aligned.
    ///
    /// # Safety
    /// `to` is writable for `BLOCKS` blocks.
    unsafe fn store(self, to: *mut Block);
    /// The low 32 bits of each block.
    ///
    /// # Safety
    /// `to` is writable for `AT_ONCE · BLOCKS` words.
    unsafe fn store_low_32(vectors: &[Self; AT_ONCE], to: *mut u32);
    /// The low 64 bits of each block.
    ///
    /// # Safety
    /// `to` is writable for `AT_ONCE · BLOCKS` words.
    unsafe fn store_low_64(vectors: &[Self; AT_ONCE], to: *mut u64);
    /// Pairs of blocks: lane by lane one of `self`, then one of `second`.
    ///
    /// # Safety
    /// `to` is writable for `2 · BLOCKS` blocks.
    unsafe fn store_pairs(self, second: Self, to: *mut Block);

    /// `self ⊕ other`
    unsafe fn xor(self, other: Self) -> Self;
    /// The sum of words of `W`.
    unsafe fn add<W: Word>(self, other: Self) -> Self;
    /// The difference of words of `W`.
    unsafe fn sub<W: Word>(self, other: Self) -> Self;
    /// σ of a tree: (low, high) becomes (high, low ⊕ high).
    unsafe fn spread(self) -> Self;

    /// A round of AES.
    unsafe fn round(self, keys: Self) -> Self;
    /// The last round of AES.
    unsafe fn last_round(self, keys: Self) -> Self;
    /// The round keys after `self` (FIPS 197, section 5.2), a cipher in each lane.
    unsafe fn next_keys(self, constant: i32) -> Self;
}

/// The constants of the ten rounds of a key schedule.
pub(crate) static CONSTANTS: [i32; 10] = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1B, 0x36];

/// The numbers of the lanes of four blocks.
pub(crate) static NUMBERS: [Block; 4] = [Block::new(0), Block::new(1), Block::new(2), Block::new(3)];

/// The round keys of one cipher, in every lane.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn schedule<L: Lanes>(key: u128) -> [L; 11] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut keys = [L::splat(key); 11];
        for (round, &constant) in CONSTANTS.iter().enumerate() {
            keys[round + 1] = keys[round].next_keys(constant);
        }
        keys
    }
}

/// The vectors at `from`.
///
/// # Safety
/// As for [`Lanes`]; `from` is readable for `AT_ONCE · L::BLOCKS` blocks.
#[inline(always)]
pub(crate) unsafe fn load_all<L: Lanes>(from: *const Block) -> [L; AT_ONCE] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut vectors = [L::splat(0); AT_ONCE];
        for (i, vector) in vectors.iter_mut().enumerate() {
            *vector = L::load(from.add(i * L::BLOCKS));
        }
        vectors
    }
}

/// All rounds but the last, and of the first only what follows the addition of its key.
///
/// # Safety
/// As for [`Lanes`].
#[inline(always)]
pub(crate) unsafe fn middle_rounds<L: Lanes>(states: &mut [L; AT_ONCE], keys: &[L; 11]) {
    for keys in &keys[1..10] {
        for state in &mut *states {
            // SAFETY: as the caller promises.
            *state = unsafe { state.round(*keys) };
        }
    }
}

/// The bytes of a last word, rotated, for every column: shifting rows then moves nothing, and what is left of a last round is the
/// substitution and the addition of the constant.
const ROTATED: i32 = 0x0C0F_0E0D;

impl Lanes for __m128i {
    const BLOCKS: usize = 1;

    #[inline(always)]
    unsafe fn splat(block: u128) -> Self {
        // SAFETY: the caller has AVX2 and AES-NI, as in all functions here.
        unsafe { _mm_set_epi64x((block >> 64) as i64, block as i64) }
    }
    #[inline(always)]
    unsafe fn load(from: *const Block) -> Self {
        // SAFETY: as the caller promises; loads and stores are unaligned, as are all here.
        unsafe { _mm_loadu_si128(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut Block) {
        // SAFETY: as the caller promises.
        unsafe { _mm_storeu_si128(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn store_low_32(vectors: &[Self; AT_ONCE], to: *mut u32) {
        for (i, four) in vectors.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: as the caller promises, four words for four vectors.
            unsafe {
                let low = _mm_unpacklo_epi32(four[0], four[1]);
                let high = _mm_unpacklo_epi32(four[2], four[3]);
                _mm_storeu_si128(to.add(4 * i).cast(), _mm_unpacklo_epi64(low, high));
            }
        }
    }
    #[inline(always)]
    unsafe fn store_low_64(vectors: &[Self; AT_ONCE], to: *mut u64) {
        for (i, two) in vectors.as_chunks::<2>().0.iter().enumerate() {
            // SAFETY: as the caller promises, two words for two vectors.
            unsafe { _mm_storeu_si128(to.add(2 * i).cast(), _mm_unpacklo_epi64(two[0], two[1])) }
        }
    }
    #[inline(always)]
    unsafe fn store_pairs(self, second: Self, to: *mut Block) {
        // SAFETY: as the caller promises.
        unsafe {
            self.store(to);
            second.store(to.add(1));
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm_xor_si128(self, other) }
    }
    #[inline(always)]
    unsafe fn add<W: Word>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { if const { W::BITS == 32 } { _mm_add_epi32(self, other) } else { _mm_add_epi64(self, other) } }
    }
    #[inline(always)]
    unsafe fn sub<W: Word>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { if const { W::BITS == 32 } { _mm_sub_epi32(self, other) } else { _mm_sub_epi64(self, other) } }
    }
    #[inline(always)]
    unsafe fn spread(self) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let high = _mm_unpackhi_epi64(_mm_setzero_si128(), self);
            _mm_xor_si128(_mm_shuffle_epi32::<0x4E>(self), high)
        }
    }

    #[inline(always)]
    unsafe fn round(self, keys: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm_aesenc_si128(self, keys) }
    }
    #[inline(always)]
    unsafe fn last_round(self, keys: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm_aesenclast_si128(self, keys) }
    }
    #[inline(always)]
    unsafe fn next_keys(self, constant: i32) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let rotated = _mm_shuffle_epi8(self, _mm_set1_epi32(ROTATED));
            let substituted = _mm_aesenclast_si128(rotated, _mm_set1_epi32(constant));
            // Word i becomes the exclusive or of words 0 to i: a prefix sum in two steps.
            let pairs = _mm_xor_si128(self, _mm_slli_si128::<4>(self));
            let sums = _mm_xor_si128(pairs, _mm_slli_si128::<8>(pairs));
            _mm_xor_si128(sums, substituted)
        }
    }
}

impl Lanes for __m256i {
    const BLOCKS: usize = 2;

    #[inline(always)]
    unsafe fn splat(block: u128) -> Self {
        // SAFETY: the caller has AVX2, AES-NI and VAES, as in all functions here.
        unsafe { _mm256_broadcastsi128_si256(<__m128i as Lanes>::splat(block)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const Block) -> Self {
        // SAFETY: as the caller promises; loads and stores are unaligned, as are all here.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut Block) {
        // SAFETY: as the caller promises.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }
    #[inline(always)]
    unsafe fn store_low_32(vectors: &[Self; AT_ONCE], to: *mut u32) {
        for (i, four) in vectors.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: as the caller promises, eight words for four vectors.
            unsafe {
                // Low words of blocks 0, 2, 4, 6 and then of 1, 3, 5, 7.
                let low = _mm256_castsi256_ps(_mm256_unpacklo_epi64(four[0], four[1]));
                let high = _mm256_castsi256_ps(_mm256_unpacklo_epi64(four[2], four[3]));
                let words = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(low, high));
                let ordered = _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
                _mm256_storeu_si256(to.add(8 * i).cast(), ordered);
            }
        }
    }
    #[inline(always)]
    unsafe fn store_low_64(vectors: &[Self; AT_ONCE], to: *mut u64) {
        for (i, two) in vectors.as_chunks::<2>().0.iter().enumerate() {
            // SAFETY: as the caller promises, four words for two vectors.
            unsafe {
                let words = _mm256_unpacklo_epi64(two[0], two[1]);
                _mm256_storeu_si256(to.add(4 * i).cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(words));
            }
        }
    }
    #[inline(always)]
    unsafe fn store_pairs(self, second: Self, to: *mut Block) {
        // SAFETY: as the caller promises.
        unsafe {
            _mm256_permute2x128_si256::<0x20>(self, second).store(to);
            _mm256_permute2x128_si256::<0x31>(self, second).store(to.add(2));
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm256_xor_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn add<W: Word>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { if const { W::BITS == 32 } { _mm256_add_epi32(self, other) } else { _mm256_add_epi64(self, other) } }
    }
    #[inline(always)]
    unsafe fn sub<W: Word>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { if const { W::BITS == 32 } { _mm256_sub_epi32(self, other) } else { _mm256_sub_epi64(self, other) } }
    }
    #[inline(always)]
    unsafe fn spread(self) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let high = _mm256_unpackhi_epi64(_mm256_setzero_si256(), self);
            _mm256_xor_si256(_mm256_shuffle_epi32::<0x4E>(self), high)
        }
    }

    #[inline(always)]
    unsafe fn round(self, keys: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm256_aesenc_epi128(self, keys) }
    }
    #[inline(always)]
    unsafe fn last_round(self, keys: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { _mm256_aesenclast_epi128(self, keys) }
    }
    #[inline(always)]
    unsafe fn next_keys(self, constant: i32) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let rotated = _mm256_shuffle_epi8(self, _mm256_set1_epi32(ROTATED));
            let substituted = _mm256_aesenclast_epi128(rotated, _mm256_set1_epi32(constant));
            let pairs = _mm256_xor_si256(self, _mm256_bslli_epi128::<4>(self));
            let sums = _mm256_xor_si256(pairs, _mm256_bslli_epi128::<8>(pairs));
            _mm256_xor_si256(sums, substituted)
        }
    }
}
