//! Products of a receiver's bit b with words x of the sender, in additive shares: correlated OT over Z_2^l or Z_n.
//!
//! With A = H(K) and B = H(K ⊕ Δ) in the ring, the sender sends y = x + A + B and the receiver d = b ⊕ r. The receiver's share
//! of b·x is H(T) if b = 0 and y − H(T) if b = 1, the sender's is −A if d = 0 and −B if d = 1. Neither message depends on the
//! other: one round. One OT serves a row of words x that share b.
//!
//! Modulo n, A and B are ⌊h·n / 2^128⌋ for a hash h of 128 bits: off uniform by at most n / 2^128 < 2^-65.

use covey_kernels::bits::{expand_bits, xor};
use covey_kernels::hash::{hash, hash_pair, hash_pair_words, hash_words};
use covey_kernels::vectorised;
use covey_ring::{Ring, Word, from_signed};
use covey_store::wipe;

use crate::{Block, Received, Sent};

/// OTs hashed at once where a row is of several hashes.
const AT_ONCE: usize = 256;

/// The sender's side: a row of words for each OT.
pub struct WordSender<W: Word> {
    ring: Ring,
    width: usize,
    /// A and B, row after row, reduced.
    zero: Vec<W>,
    one: Vec<W>,
}

/// The receiver's side.
pub struct WordReceiver<W: Word> {
    ring: Ring,
    width: usize,
    /// r.
    random: Vec<u64>,
    /// H(T), reduced.
    pads: Vec<W>,
}

/// The words a hash makes in one part: its bits cut up, or one residue.
fn per_hash<W: Word>(ring: Ring) -> usize {
    match ring {
        Ring::Pow2(_) => 128 / W::BITS as usize,
        Ring::Odd(_) => 1,
    }
}

/// Word `index` of a hash.
#[inline(always)]
fn word_of<W: Word>(ring: Ring, hash: Block, index: usize) -> W {
    match ring {
        Ring::Pow2(_) => W::from_u64((hash.to_u128() >> (index * W::BITS as usize)) as u64),
        Ring::Odd(n) => {
            let n = u128::from(n);
            let carry = (u128::from(hash.low()) * n) >> 64;
            W::from_u64(((u128::from(hash.high()) * n + carry) >> 64) as u64)
        }
    }
}

/// Row by row of `width` words from hashes of parts 0, 1, …, which `parts` makes for [`AT_ONCE`] OTs at most.
fn rows<W: Word, const N: usize>(
    ring: Ring,
    width: usize,
    count: usize,
    mut out: [&mut [W]; N],
    mut part: impl FnMut(u32, usize, usize, &mut [[Block; AT_ONCE]; N]),
) {
    let mut hashes = [[Block::ZERO; AT_ONCE]; N];
    let step = per_hash::<W>(ring);
    for start in (0..count).step_by(AT_ONCE) {
        let taken = (count - start).min(AT_ONCE);
        for (number, first) in (0..width).step_by(step).enumerate() {
            part(number as u32, start, taken, &mut hashes);
            for (out, hashes) in out.iter_mut().zip(&hashes) {
                let rows = out[start * width..(start + taken) * width].chunks_exact_mut(width);
                for (row, &hash) in rows.zip(hashes) {
                    for (index, word) in row[first..].iter_mut().take(step).enumerate() {
                        *word = word_of(ring, hash, index);
                    }
                }
            }
        }
    }
    hashes.iter_mut().for_each(|hashes| wipe(hashes));
}

impl<W: Word> WordSender<W> {
    /// Hashes the OTs for rows of `width` elements of `ring`.
    pub fn new(ots: Sent, width: usize, ring: Ring) -> Self {
        let count = ots.len();
        let (mut zero, mut one) = (vec![W::ZERO; count * width], vec![W::ZERO; count * width]);
        if width == 1 && matches!(ring, Ring::Pow2(_)) {
            hash_pair_words(ots.key, 0, ots.first, ots.blocks, ots.delta, &mut zero, &mut one);
        } else {
            rows(ring, width, count, [&mut zero, &mut one], |part, start, taken, [zero, one]| {
                let blocks = &ots.blocks[start..start + taken];
                let (zero, one) = (&mut zero[..taken], &mut one[..taken]);
                hash_pair(ots.key, part, ots.first + start as u64, blocks, ots.delta, zero, one);
            });
        }
        WordSender { ring, width, zero, one }
    }

    /// The sender of these A and B.
    #[cfg(any(test, feature = "test-dealer"))]
    #[doc(hidden)]
    pub fn given(width: usize, ring: Ring, zero: Vec<W>, one: Vec<W>) -> Self {
        WordSender { ring, width, zero, one }
    }

    /// Turns x, row after row, into the message y, in place: `ots · width` elements.
    ///
    /// In Z_n x is below n.
    pub fn message(&self, values: &mut [W]) {
        match self.ring {
            Ring::Pow2(_) => add_both(values, &self.zero, &self.one),
            Ring::Odd(n) => add_both_modulo(values, &self.zero, &self.one, n),
        }
    }

    /// The sender's shares, row after row, from the receiver's plane d.
    pub fn share(mut self, correction: &[u64]) -> Vec<W> {
        let bits = by_word::<W>(correction, self.width, self.zero.len());
        match self.ring {
            Ring::Pow2(_) => negated_choice(&mut self.zero, &self.one, &bits),
            Ring::Odd(n) => negated_choice_modulo(&mut self.zero, &self.one, &bits, n),
        }
        std::mem::take(&mut self.zero)
    }
}

impl<W: Word> WordReceiver<W> {
    /// Hashes the OTs for rows of `width` elements of `ring`. This needs no choice.
    pub fn new(ots: Received, width: usize, ring: Ring) -> Self {
        let count = ots.len();
        let mut random = vec![0; count.div_ceil(64)];
        ots.choices(&mut random);
        let mut pads = vec![W::ZERO; count * width];
        if width == 1 && matches!(ring, Ring::Pow2(_)) {
            hash_words(ots.key, 0, ots.first, ots.blocks, &mut pads);
        } else {
            rows(ring, width, count, [&mut pads], |part, start, taken, [pads]| {
                hash(ots.key, part, ots.first + start as u64, &ots.blocks[start..start + taken], &mut pads[..taken]);
            });
        }
        WordReceiver { ring, width, random, pads }
    }

    /// The receiver of these r and H(T).
    #[cfg(any(test, feature = "test-dealer"))]
    #[doc(hidden)]
    pub fn given(width: usize, ring: Ring, random: Vec<u64>, pads: Vec<W>) -> Self {
        WordReceiver { ring, width, random, pads }
    }

    /// The message d for the plane b.
    pub fn correction(&self, choice: &[u64], out: &mut [u64]) {
        xor(out, choice, &self.random);
    }

    /// The receiver's shares, row after row, from the plane b and the message y.
    pub fn share(mut self, choice: &[u64], message: &[W]) -> Vec<W> {
        assert_eq!(choice.len(), self.random.len(), "choices of OTs");
        let bits = by_word::<W>(choice, self.width, self.pads.len());
        match self.ring {
            Ring::Pow2(_) => chosen_difference(&mut self.pads, message, &bits),
            Ring::Odd(n) => chosen_difference_modulo(&mut self.pads, message, &bits, n),
        }
        std::mem::take(&mut self.pads)
    }
}

/// The bit of each of `len` words, `width` of them for each bit of `plane`.
fn by_word<W: Word>(plane: &[u64], width: usize, len: usize) -> Vec<W> {
    let mut bits = vec![W::ZERO; len / width.max(1)];
    expand_bits(plane, &mut bits);
    if width == 1 {
        return bits;
    }
    let mut words = vec![W::ZERO; len];
    words.chunks_exact_mut(width.max(1)).zip(bits).for_each(|(row, bit)| row.fill(bit));
    words
}

/// x modulo n for x < 2n, without a branch.
#[inline(always)]
fn once<W: Word>(value: u64, n: u64) -> W {
    W::from_u64(from_signed(value.wrapping_sub(n), n))
}

vectorised! {
    fn add_both<W: Word>(out: &mut [W], a: &[W], b: &[W]) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| *out = out.add(a).add(b));
    }

    fn add_both_modulo<W: Word>(out: &mut [W], a: &[W], b: &[W], n: u64) {
        assert!(out.len() == a.len() && out.len() == b.len(), "lengths differ");
        out.iter_mut().zip(a).zip(b).for_each(|((out, &a), &b)| {
            let sum: u64 = once(a.to_u64() + b.to_u64(), n);
            *out = once(out.to_u64() + sum, n);
        });
    }

    /// `a = -(bit ? b : a)`
    fn negated_choice<W: Word>(a: &mut [W], b: &[W], bits: &[W]) {
        assert!(a.len() == b.len() && a.len() == bits.len(), "lengths differ");
        a.iter_mut().zip(b).zip(bits).for_each(|((a, &b), &bit)| *a = (*a ^ (*a ^ b) & bit.neg()).neg());
    }

    fn negated_choice_modulo<W: Word>(a: &mut [W], b: &[W], bits: &[W], n: u64) {
        assert!(a.len() == b.len() && a.len() == bits.len(), "lengths differ");
        a.iter_mut().zip(b).zip(bits).for_each(|((a, &b), &bit)| {
            let chosen = *a ^ (*a ^ b) & bit.neg();
            *a = once(n - chosen.to_u64(), n);
        });
    }

    /// `pad = bit ? y - pad : pad`
    fn chosen_difference<W: Word>(pads: &mut [W], y: &[W], bits: &[W]) {
        assert!(pads.len() == y.len() && pads.len() == bits.len(), "lengths differ");
        pads.iter_mut().zip(y).zip(bits).for_each(|((pad, &y), &bit)| {
            *pad = *pad ^ (*pad ^ y.sub(*pad)) & bit.neg();
        });
    }

    fn chosen_difference_modulo<W: Word>(pads: &mut [W], y: &[W], bits: &[W], n: u64) {
        assert!(pads.len() == y.len() && pads.len() == bits.len(), "lengths differ");
        pads.iter_mut().zip(y).zip(bits).for_each(|((pad, &y), &bit)| {
            let difference: W = once(y.to_u64() + n - pad.to_u64(), n);
            *pad = *pad ^ (*pad ^ difference) & bit.neg();
        });
    }
}

impl<W: Word> Drop for WordSender<W> {
    fn drop(&mut self) {
        wipe(&mut self.zero);
        wipe(&mut self.one);
    }
}

impl<W: Word> Drop for WordReceiver<W> {
    fn drop(&mut self) {
        wipe(&mut self.random);
        wipe(&mut self.pads);
    }
}
