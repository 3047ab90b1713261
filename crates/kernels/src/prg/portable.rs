//! AES through the `aes` crate, which uses AES-NI where there is one and is bitsliced, so constant-time, where there is not.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use zeroize::Zeroize;

/// A key schedule; wiped on drop by the `aes` crate.
pub(super) struct Cipher(Aes128);

impl Cipher {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Cipher(Aes128::new(key.into()))
    }

    /// Fills `out` from block `start` on.
    pub(super) fn fill(&self, nonce: u64, start: u64, out: &mut [u8]) {
        let mut counter = start;
        let mut count = |block: &mut Block| {
            block.copy_from_slice(&(u128::from(nonce) << 64 | u128::from(counter)).to_le_bytes());
            counter = counter.wrapping_add(1);
        };
        let (whole, rest) = Block::slice_as_chunks_mut(out);
        // As many as stay in the first-level cache between the two passes.
        for blocks in whole.chunks_mut(256) {
            blocks.iter_mut().for_each(&mut count);
            self.0.encrypt_blocks(blocks);
        }
        if !rest.is_empty() {
            let mut last = Block::default();
            count(&mut last);
            self.0.encrypt_block(&mut last);
            rest.copy_from_slice(&last[..rest.len()]);
            last.zeroize();
        }
    }
}
