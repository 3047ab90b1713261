//! AES through the `aes` crate, which uses AES-NI where there is one and is bitsliced, so constant-time, where there is not.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};

/// A key schedule; wiped on drop by the `aes` crate.
pub(super) struct Cipher(Aes128);

impl Cipher {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Cipher(Aes128::new(key.into()))
    }

    /// Whole blocks from `start` on.
    pub(super) fn blocks(&self, nonce: u64, start: u64, out: &mut [u8]) {
        const AT_ONCE: usize = 64;
        let mut blocks = [Block::default(); AT_ONCE];
        let mut counter = start;
        for out in out.chunks_mut(16 * AT_ONCE) {
            let blocks = &mut blocks[..out.len() / 16];
            for block in blocks.iter_mut() {
                block.copy_from_slice(&(u128::from(nonce) << 64 | u128::from(counter)).to_le_bytes());
                counter = counter.wrapping_add(1);
            }
            self.0.encrypt_blocks(blocks);
            for (out, block) in out.chunks_exact_mut(16).zip(blocks.iter()) {
                out.copy_from_slice(block);
            }
        }
    }
}
