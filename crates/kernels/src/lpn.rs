//! Sparse linear codes over blocks: the encoding of silent oblivious transfer.

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

/// `out[j] = out[j] ⊕ (⊕ over i < WEIGHT of secret[index(first + j, i)])`. Index (row, i) is the 32-bit word `WEIGHT · row + i` of
/// stream 0 of `matrix`, whose key is public, modulo the length of the secret.
///
/// # Panics
/// If `first` is odd.
pub fn encode(matrix: &Prg, first: u64, secret: &Secret, out: &mut [Block]) {
    let secret = &*secret.0;
    // Two rows are five blocks of the stream.
    assert!(first.is_multiple_of(2), "row {first} does not start a block of the stream");
    let mask = (secret.len() - 1) as u32;
    let mut indices = [[0u32; WEIGHT]; ROWS];
    let mut row = first;
    for out in out.chunks_mut(ROWS) {
        let indices = &mut indices[..out.len()];
        matrix.fill_words_from(0, row / 2 * 5, indices.as_flattened_mut());
        for (out, indices) in out.iter_mut().zip(&*indices) {
            *out = gather(*out, secret, mask, indices);
        }
        row += ROWS as u64;
    }
}

/// Block operations on vector registers, which every x86-64 has: the compiler would use pairs of general ones, at twice the loads.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[inline(always)]
fn gather(start: Block, secret: &[Block], mask: u32, indices: &[u32; WEIGHT]) -> Block {
    use std::arch::x86_64::*;
    let mut out = start;
    // SAFETY: SSE2 is part of x86-64; `mask` is the length of the secret less one and that a power of two, so every index is
    // inside; blocks are 16 bytes.
    unsafe {
        let mut sum = _mm_loadu_si128((&raw const start).cast());
        for &index in indices {
            sum = _mm_xor_si128(sum, _mm_loadu_si128(secret.as_ptr().add((index & mask) as usize).cast()));
        }
        _mm_storeu_si128((&raw mut out).cast(), sum);
    }
    out
}

#[cfg(not(all(target_arch = "x86_64", not(feature = "portable-only"))))]
fn gather(start: Block, secret: &[Block], mask: u32, indices: &[u32; WEIGHT]) -> Block {
    indices.iter().fold(start, |sum, &index| sum ^ secret[(index & mask) as usize])
}
