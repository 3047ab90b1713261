//! Universal hashing: a kilobyte becomes 16 bytes under a secret key, at the speed of memory.
//!
//! NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO 1999), twice under keys of their own: of words m and keys k modulo 2^32
//! the sum of (m₀ + k₀)·(m₁ + k₁) over pairs, modulo 2^64. Two blocks that differ have the same sum under one key in at most 2^-32 of
//! all keys, and both sums in at most 2^-64. That holds for blocks chosen without knowledge of the key, and says nothing about what a
//! sum tells of a block: whoever shows it to others hashes it again.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::dispatch::{Isa, isa};
use crate::vectorised;

/// Bytes that become [`HASHED`] words.
pub const BLOCK: usize = 1024;

/// Words that a block becomes.
pub const HASHED: usize = 2;

/// Words of a key.
pub const KEY: usize = HASHED * BLOCK / 8;

/// Hashes whole blocks one after the other; `out` has [`HASHED`] words for each.
///
/// # Panics
/// If `key` has not [`KEY`] words, or lengths do not fit.
pub fn compress(out: &mut [u64], blocks: &[u8], key: &[u64]) {
    assert_eq!(key.len(), KEY, "words of the key");
    assert_eq!(out.len() * BLOCK, blocks.len() * HASHED, "whole blocks");
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    if isa() >= Isa::Avx512 {
        // SAFETY: the processor has AVX-512; lengths are checked.
        return unsafe { avx512(out, blocks, key) };
    }
    by_pairs(out, blocks, key);
}

vectorised! {
    fn by_pairs(out: &mut [u64], blocks: &[u8], key: &[u64]) {
        for (out, block) in out.chunks_exact_mut(HASHED).zip(blocks.chunks_exact(BLOCK)) {
            for (out, key) in out.iter_mut().zip(key.chunks_exact(BLOCK / 8)) {
                let products = block.chunks_exact(8).zip(key).map(|(pair, &key)| {
                    let pair = u64::from_le_bytes(pair.try_into().expect("8 bytes"));
                    let low = (pair as u32).wrapping_add(key as u32);
                    let high = ((pair >> 32) as u32).wrapping_add((key >> 32) as u32);
                    u64::from(low) * u64::from(high)
                });
                *out = products.fold(0, u64::wrapping_add);
            }
        }
    }
}

/// All sums in one pass, where a compiler's loops would make one for each.
///
/// # Safety
/// Lengths are those that [`compress`] checks.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(out: &mut [u64], blocks: &[u8], key: &[u64]) {
    use std::arch::x86_64::*;

    for (out, block) in out.chunks_exact_mut(HASHED).zip(blocks.chunks_exact(BLOCK)) {
        let mut sums = [_mm512_setzero_si512(); HASHED];
        for pairs in 0..BLOCK / 64 {
            // SAFETY: a block has `BLOCK` bytes.
            let message = unsafe { _mm512_loadu_si512(block.as_ptr().add(64 * pairs).cast()) };
            for (number, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the key has `HASHED` times as many.
                let key = unsafe { _mm512_loadu_si512(key.as_ptr().add(number * BLOCK / 8 + 8 * pairs).cast()) };
                let words = _mm512_add_epi32(message, key);
                *sum = _mm512_add_epi64(*sum, _mm512_mul_epu32(words, _mm512_srli_epi64::<32>(words)));
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = _mm512_reduce_add_epi64(sum) as u64;
        }
    }
}
