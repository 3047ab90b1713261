//! Universal hashing: a kilobyte becomes 32 bytes under a secret key, at the speed of memory.
//!
//! NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO 1999), four times under keys of their own: of words m and keys k modulo
//! 2^32 the sum of (m₀ + k₀)·(m₁ + k₁) over pairs, modulo 2^64. Two blocks that differ have the same sum under one key in at most
//! 2^-32 of all keys, and all four sums in at most 2^-128. That holds for blocks chosen without knowledge of the key, and says nothing
//! about what a sum tells of a block: whoever shows it to others hashes it again.

use crate::vectorised;

/// Bytes that become [`HASHED`] words.
pub const BLOCK: usize = 1024;

/// Words that a block becomes.
pub const HASHED: usize = 4;

/// Words of a key.
pub const KEY: usize = HASHED * BLOCK / 8;

vectorised! {
    /// Hashes whole blocks one after the other; `out` has [`HASHED`] words for each.
    ///
    /// # Panics
    /// If `key` has not [`KEY`] words, or lengths do not fit.
    pub fn compress(out: &mut [u64], blocks: &[u8], key: &[u64]) {
        assert_eq!(key.len(), KEY, "words of the key");
        assert_eq!(out.len() * BLOCK, blocks.len() * HASHED, "whole blocks");
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
