//! The pseudorandom generator: AES-128 in counter mode.

use covey_ring::Word;
use zeroize::Zeroize;

use crate::dispatch;
use crate::words::bytes_mut;

mod portable;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod vaes;

/// AES-128 in counter mode under one key.
///
/// Block `b` of stream `nonce` is AES of the 128-bit integer `nonce · 2^64 + b`, encoded little-endian. Streams of different
/// nonces never meet; a (nonce, block) pair must be used for one purpose only. The key schedule is wiped on drop.
///
/// Not `Debug`: it holds a key.
pub struct Prg {
    cipher: Cipher,
}

enum Cipher {
    Portable(portable::Cipher),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Vaes(vaes::Cipher),
}

impl Cipher {
    fn blocks(&self, nonce: u64, start: u64, out: &mut [u8]) {
        match self {
            Cipher::Portable(cipher) => cipher.blocks(nonce, start, out),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has AVX-512 and VAES; `Prg::fill` passes whole blocks.
            Cipher::Vaes(cipher) => unsafe { cipher.blocks(nonce, start, out) },
        }
    }
}

impl Prg {
    /// Bytes in a block.
    pub const BLOCK: usize = 16;

    /// The generator under `key`. The caller wipes its own copy.
    pub fn new(key: &[u8; 16]) -> Self {
        let cipher = match dispatch::isa() {
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: `Isa::Avx512` includes AES-NI.
            isa if isa >= dispatch::Isa::Avx512 => Cipher::Vaes(unsafe { vaes::Cipher::new(key) }),
            _ => Cipher::Portable(portable::Cipher::new(key)),
        };
        Prg { cipher }
    }

    /// Fills `out` with the bytes of stream `nonce` from block `start_block` on; the last block may be cut short.
    pub fn fill(&self, nonce: u64, start_block: u64, out: &mut [u8]) {
        let (whole, rest) = out.split_at_mut(out.len() / Self::BLOCK * Self::BLOCK);
        self.cipher.blocks(nonce, start_block, whole);
        if !rest.is_empty() {
            let mut last = [0; Self::BLOCK];
            self.cipher.blocks(nonce, start_block.wrapping_add((whole.len() / Self::BLOCK) as u64), &mut last);
            rest.copy_from_slice(&last[..rest.len()]);
            last.zeroize();
        }
    }

    /// Fills `out` with uniform words: the bytes of stream `nonce` from its start, read little-endian.
    pub fn fill_words<W: Word>(&self, nonce: u64, out: &mut [W]) {
        self.fill_words_from(nonce, 0, out);
    }

    /// [`Prg::fill_words`] from block `start_block` of the stream on. A block gives `16 / W::BYTES` words.
    pub fn fill_words_from<W: Word>(&self, nonce: u64, start_block: u64, out: &mut [W]) {
        self.fill(nonce, start_block, bytes_mut(out));
        if cfg!(target_endian = "big") {
            for word in out {
                let mut bytes = Vec::with_capacity(W::BYTES);
                W::extend_le(&[*word], &mut bytes);
                bytes.reverse();
                W::read_le(&bytes, std::slice::from_mut(word));
            }
        }
    }

    /// [`Prg::fill_words`] for 64-bit words.
    pub fn fill_u64(&self, nonce: u64, out: &mut [u64]) {
        self.fill_words(nonce, out);
    }
}
