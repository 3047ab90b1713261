//! The words of one stream of a generator, from any element on.

use std::sync::Arc;

use covey_ring::Word;

use super::Prg;

/// The words of stream `nonce` of a generator: drawn where they are needed instead of being held, by the processor or by a GPU.
///
/// Not `Debug`: it holds a key.
#[derive(Clone)]
pub struct PrgStream {
    prg: Arc<Prg>,
    nonce: u64,
}

impl PrgStream {
    /// Stream `nonce` of `prg`.
    pub fn new(prg: Arc<Prg>, nonce: u64) -> Self {
        PrgStream { prg, nonce }
    }

    /// Its generator.
    pub fn prg(&self) -> &Prg {
        &self.prg
    }

    /// Its number.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Its words from element `start` on.
    pub fn fill<W: Word>(&self, start: usize, out: &mut [W]) {
        let (block, out) = self.head(start, out, |_, word| word);
        self.prg.fill_words_from(self.nonce, block, out);
    }

    /// Adds its words from element `start` on.
    pub fn add<W: Word>(&self, start: usize, out: &mut [W]) {
        let (block, out) = self.head(start, out, W::add);
        self.prg.add_words(self.nonce, block, out);
    }

    /// Writes the sum of the words of `streams` from element `start` on.
    pub(crate) fn fill_sum<W: Word>(streams: &[PrgStream], start: usize, out: &mut [W]) {
        let Some((first, others)) = streams.split_first() else { return out.fill(W::ZERO) };
        first.fill(start, out);
        others.iter().for_each(|other| other.add(start, out));
    }

    /// Combines `out` with the rest of the block that `start` lies in. Returns the next block, and the words from there on.
    fn head<'a, W: Word>(&self, start: usize, out: &'a mut [W], combine: impl Fn(W, W) -> W) -> (u64, &'a mut [W]) {
        let per_block = Prg::BLOCK / W::BYTES;
        let (block, skip) = ((start / per_block) as u64, start % per_block);
        if skip == 0 {
            return (block, out);
        }
        let (head, rest) = out.split_at_mut((per_block - skip).min(out.len()));
        let mut words = [W::ZERO; Prg::BLOCK / size_of::<u32>()];
        self.prg.fill_words_from(self.nonce, block, &mut words[..per_block]);
        head.iter_mut().zip(&words[skip..]).for_each(|(out, &word)| *out = combine(*out, word));
        (block + 1, rest)
    }
}
