//! Masks of whole tensors, drawn from a seed where they are needed instead of being held.

use std::sync::Arc;

use covey_kernels::{Prg, PrgStream};
use covey_ring::Word;
use zeroize::Zeroize;

/// Bytes of a seed.
pub(crate) const SEED_BYTES: usize = 32;

/// `count` mask words from a seed: what a party and a client it gave the seed to both compute. `tensor` numbers tensors
/// under one seed.
pub(crate) fn expand<W: Word>(seed: &[u8; SEED_BYTES], tensor: u64, count: usize) -> Vec<W> {
    #[cfg(test)]
    if let Some(words) = crate::randomness::script::expanded(seed, count) {
        return words;
    }
    let mut out = vec![W::ZERO; count];
    masks_of(seed).fill_words(tensor, &mut out);
    out
}

/// The generator of the masks under a seed; a tensor's number is its stream.
fn masks_of(seed: &[u8; SEED_BYTES]) -> Prg {
    let mut key = blake3::derive_key("covey 2026 masks of a client's tensor", seed);
    let prg = Prg::new(key[..16].try_into().expect("16 bytes"));
    key.zeroize();
    prg
}

/// A seed of the masks of tensors, that those who know the masks have in common. Not `Debug`.
#[derive(Clone)]
pub struct Seed(Arc<Prg>);

impl Seed {
    /// The generator of `seed`, which the caller wipes.
    pub fn new(seed: &[u8; 32]) -> Self {
        Seed(Arc::new(masks_of(seed)))
    }

    /// The mask of tensor number `tensor`.
    pub(crate) fn mask(&self, tensor: u64) -> Mask {
        Mask(PrgStream::new(self.0.clone(), tensor))
    }
}

/// The mask of one tensor under a seed: drawn where it is needed instead of being held.
#[derive(Clone)]
pub(crate) struct Mask(PrgStream);

impl Mask {
    /// The mask's words from element `start` on.
    pub fn fill<W: Word>(&self, start: usize, out: &mut [W]) {
        self.0.fill(start, out);
    }

    /// Adds the mask's words from element `start` on.
    pub fn add<W: Word>(&self, start: usize, out: &mut [W]) {
        self.0.add(start, out);
    }

    /// The mask as the stream that a weight's part is drawn from.
    pub fn into_stream(self) -> PrgStream {
        self.0
    }

    /// What tells this mask's seed from another without telling anything of it.
    pub fn fingerprint(&self) -> [u8; 32] {
        /// Above all tensors' numbers.
        const STREAM: u64 = 1 << 63;
        let mut words = [0u64; 4];
        self.0.prg().fill_words(STREAM | self.0.nonce(), &mut words);
        *blake3::hash(&words.map(u64::to_le_bytes).concat()).as_bytes()
    }

    /// Subtracts the whole mask.
    pub fn subtract<W: Word>(&self, out: &mut [W]) {
        self.0.prg().sub_words(self.0.nonce(), 0, out);
    }

    /// All `len` words.
    pub fn words<W: Word>(&self, len: usize) -> Vec<W> {
        let mut words = vec![W::ZERO; len];
        self.fill(0, &mut words);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_can_be_drawn_from_any_element_on() {
        let mask = Seed::new(&[7; 32]).mask(3);
        let (words, long) = (mask.words::<u32>(41), mask.words::<u64>(41));
        for start in 0..41 {
            for len in [0, 1, 2, 3, 5, 41 - start] {
                let len = len.min(41 - start);
                let (mut part, mut long_part) = (vec![0u32; len], vec![0u64; len]);
                mask.fill(start, &mut part);
                mask.fill(start, &mut long_part);
                assert_eq!((&part[..], &long_part[..]), (&words[start..start + len], &long[start..start + len]));
                mask.add(start, &mut part);
                mask.add(start, &mut long_part);
                assert!(part.iter().zip(&words[start..]).all(|(sum, word)| *sum == word.wrapping_mul(2)));
                assert!(long_part.iter().zip(&long[start..]).all(|(sum, word)| *sum == word.wrapping_mul(2)));
            }
        }
    }
}
