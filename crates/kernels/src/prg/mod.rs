//! The pseudorandom generator: AES-128 in counter mode.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use std::arch::x86_64::{__m128i, __m256i};

use covey_ring::Word;
#[cfg(target_os = "linux")]
use zeroize::Zeroizing;

use crate::dispatch;
use crate::words::bytes_mut;
use combine::{Add, Combine, Sub};

mod combine;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod lanes;
mod portable;
#[cfg(target_os = "linux")]
mod schedule;
mod stream;
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
mod vaes;

#[cfg(target_os = "linux")]
pub(crate) use schedule::SCHEDULE;
pub use stream::PrgStream;

/// AES-128 in counter mode under one key.
///
/// Block `b` of stream `nonce` is AES of the 128-bit integer `nonce · 2^64 + b`, encoded little-endian. Streams of different
/// nonces never meet; a (nonce, block) pair must be used for one purpose only. Key and key schedule are wiped on
/// drop.
///
/// Not `Debug`: it holds a key.
pub struct Prg {
    cipher: Cipher,
    /// For a GPU's own schedule.
    #[cfg(target_os = "linux")]
    key: Zeroizing<[u8; 16]>,
}

enum Cipher {
    Portable(portable::Cipher),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    AesNi(lanes::Cipher<__m128i>),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Vaes256(lanes::Cipher<__m256i>),
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Vaes512(vaes::Cipher),
}

impl Prg {
    /// Bytes in a block.
    pub const BLOCK: usize = 16;

    /// The generator under `key`. The caller wipes its own copy.
    pub fn new(key: &[u8; 16]) -> Self {
        let cipher = match dispatch::aes() {
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: `Aes::Vaes512` includes AES-NI.
            dispatch::Aes::Vaes512 => Cipher::Vaes512(unsafe { vaes::Cipher::new(key) }),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor has it.
            dispatch::Aes::Vaes256 => Cipher::Vaes256(unsafe { lanes::Cipher::<__m256i>::new(key) }),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: the processor has it.
            dispatch::Aes::AesNi => Cipher::AesNi(unsafe { lanes::Cipher::<__m128i>::new(key) }),
            _ => Cipher::Portable(portable::Cipher::new(key)),
        };
        Prg {
            cipher,
            #[cfg(target_os = "linux")]
            key: Zeroizing::new(*key),
        }
    }

    /// Writes the eleven round keys, one behind the other, to where a GPU copies them from.
    #[cfg(target_os = "linux")]
    pub(crate) fn write_round_keys(&self, keys: &mut [u8; SCHEDULE]) {
        schedule::write_round_keys(&self.key, keys);
    }

    /// Fills `out` with the bytes of stream `nonce` from block `start_block` on; the last block may be cut short.
    pub fn fill(&self, nonce: u64, start_block: u64, out: &mut [u8]) {
        match &self.cipher {
            Cipher::Portable(cipher) => cipher.fill(nonce, start_block, out),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has AES-NI and AVX2.
            Cipher::AesNi(cipher) => unsafe { cipher.stream::<u32, combine::Replace>(nonce, start_block, out) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has VAES and AVX2.
            Cipher::Vaes256(cipher) => unsafe { cipher.stream::<u32, combine::Replace>(nonce, start_block, out) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has AVX-512 and VAES.
            Cipher::Vaes512(cipher) => unsafe { cipher.stream::<u32, combine::Replace>(nonce, start_block, out) },
        }
    }

    /// Fills `out` with uniform words: the bytes of stream `nonce` from its start, read little-endian.
    pub fn fill_words<W: Word>(&self, nonce: u64, out: &mut [W]) {
        self.fill_words_from(nonce, 0, out);
    }

    /// [`Prg::fill_words`] from block `start_block` of the stream on. A block gives `16 / W::BYTES` words.
    pub fn fill_words_from<W: Word>(&self, nonce: u64, start_block: u64, out: &mut [W]) {
        self.fill(nonce, start_block, bytes_mut(out));
        from_little_endian(out);
    }

    /// [`Prg::fill_words`] for 64-bit words.
    pub fn fill_u64(&self, nonce: u64, out: &mut [u64]) {
        self.fill_words(nonce, out);
    }

    /// `out = out + s`, s what [`Prg::fill_words_from`] gives.
    pub fn add_words<W: Word>(&self, nonce: u64, start_block: u64, out: &mut [W]) {
        self.combine::<W, Add>(nonce, start_block, out);
    }

    /// `out = out - s`, s what [`Prg::fill_words_from`] gives.
    pub fn sub_words<W: Word>(&self, nonce: u64, start_block: u64, out: &mut [W]) {
        self.combine::<W, Sub>(nonce, start_block, out);
    }

    fn combine<W: Word, C: Combine>(&self, nonce: u64, start_block: u64, out: &mut [W]) {
        match &self.cipher {
            Cipher::Portable(cipher) => {
                const AT_ONCE: usize = 128;
                let mut stream = [W::ZERO; AT_ONCE];
                let mut block = start_block;
                for out in out.chunks_mut(AT_ONCE) {
                    let stream = &mut stream[..out.len()];
                    cipher.fill(nonce, block, bytes_mut(stream));
                    from_little_endian(stream);
                    out.iter_mut().zip(&*stream).for_each(|(out, &s)| *out = C::word(*out, s));
                    block = block.wrapping_add((AT_ONCE * W::BYTES / Self::BLOCK) as u64);
                }
                stream.fill(W::ZERO);
                // Keeps the wipe.
                std::hint::black_box(&mut stream);
            }
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has AES-NI and AVX2.
            Cipher::AesNi(cipher) => unsafe { cipher.stream::<W, C>(nonce, start_block, bytes_mut(out)) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has VAES and AVX2.
            Cipher::Vaes256(cipher) => unsafe { cipher.stream::<W, C>(nonce, start_block, bytes_mut(out)) },
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            // SAFETY: made only where the processor has AVX-512 and VAES.
            Cipher::Vaes512(cipher) => unsafe { cipher.stream::<W, C>(nonce, start_block, bytes_mut(out)) },
        }
    }
}

/// Words read from the generator's bytes as they are in memory.
fn from_little_endian<W: Word>(words: &mut [W]) {
    if cfg!(target_endian = "big") {
        for word in words {
            let mut bytes = Vec::with_capacity(W::BYTES);
            W::extend_le(&[*word], &mut bytes);
            bytes.reverse();
            W::read_le(&bytes, std::slice::from_mut(word));
        }
    }
}
