//! Sparse linear codes over blocks: the encoding of silent oblivious transfer.

use std::mem::MaybeUninit;

use crate::memory::LargePages;
use crate::{Block, Prg};

/// Entries of the secret that each output adds up.
pub const WEIGHT: usize = 10;

/// Outputs whose indices are made at once.
const ROWS: usize = 512;

/// The secret of a code, laid out for reading all over the place; wiped on drop. Not `Debug`.
pub struct Secret(LargePages<Block>);

impl Secret {
    /// A copy of `blocks`.
    ///
    /// # Panics
    /// If their number is not a power of two up to 2^32.
    pub fn new(blocks: &[Block]) -> Self {
        assert!(blocks.len().is_power_of_two() && blocks.len() <= 1 << 32, "a secret of {} blocks", blocks.len());
        Secret(LargePages::copy_of(blocks))
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(Block::ZERO);
        zeroize::optimization_barrier(&*self.0);
    }
}

/// Appends `noise[j] ⊕ (⊕ over i < WEIGHT of secret[index(first + j, i)])` to `out`, which has room for it. Index (row, i) is the
/// 32-bit word `WEIGHT · row + i` of stream 0 of `matrix`, whose key is public, modulo the length of the secret.
///
/// What is appended does not pass through the caches, where the secret should stay.
///
/// # Panics
/// If `first` is odd, or if there is no room: growing would leave copies of secrets behind.
pub fn encode(matrix: &Prg, first: u64, secret: &Secret, noise: &[Block], out: &mut Vec<Block>) {
    let secret = &*secret.0;
    // Two rows are five blocks of the stream.
    assert!(first.is_multiple_of(2), "row {first} does not start a block of the stream");
    let mask = (secret.len() - 1) as u32;
    let mut indices = [[0u32; WEIGHT]; ROWS];
    let mut row = first;
    let room = &mut out.spare_capacity_mut()[..noise.len()];
    for (out, noise) in room.chunks_mut(ROWS).zip(noise.chunks(ROWS)) {
        let indices = &mut indices[..out.len()];
        matrix.fill_words_from(0, row / 2 * 5, indices.as_flattened_mut());
        for ((out, &noise), indices) in out.iter_mut().zip(noise).zip(&*indices) {
            gather(noise, secret, mask, indices, out);
        }
        row += ROWS as u64;
    }
    publish();
    // SAFETY: so many elements behind the last one have been written.
    unsafe { out.set_len(out.len() + noise.len()) };
}

/// Block operations on vector registers, which every x86-64 has: the compiler would use pairs of general ones, at twice the loads.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[inline(always)]
fn gather(start: Block, secret: &[Block], mask: u32, indices: &[u32; WEIGHT], out: &mut MaybeUninit<Block>) {
    use std::arch::x86_64::*;
    // SAFETY: SSE2 is part of x86-64; `mask` is the length of the secret less one and that a power of two, so every index is
    // inside; blocks are 16 bytes, and aligned to as many, as a store past the caches wants.
    unsafe {
        let mut sum = _mm_loadu_si128((&raw const start).cast());
        for &index in indices {
            sum = _mm_xor_si128(sum, _mm_loadu_si128(secret.as_ptr().add((index & mask) as usize).cast()));
        }
        _mm_stream_si128(out.as_mut_ptr().cast(), sum);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(feature = "portable-only"))))]
fn gather(start: Block, secret: &[Block], mask: u32, indices: &[u32; WEIGHT], out: &mut MaybeUninit<Block>) {
    out.write(indices.iter().fold(start, |sum, &index| sum ^ secret[(index & mask) as usize]));
}

/// Stores past the caches are not ordered with later ones, which tell other threads of them, without this.
fn publish() {
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    // SAFETY: SSE is part of x86-64. (Newer compilers do not call it unsafe.)
    #[allow(unused_unsafe)]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
const _: () = assert!(align_of::<Block>() == Block::BYTES);
