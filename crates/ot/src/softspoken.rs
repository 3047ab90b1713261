//! SoftSpoken OT extension for semi-honest parties (Roy: SoftSpokenOT, CRYPTO 2022): correlated OTs from 128 base OTs,
//! for 128/k − 1 bits each and about 2^k/k AES blocks a 16-byte block, k from 2 to 8.
//!
//! Δ is cut into digits of k bits. For each, a GGM tree gives the receiver 2^k seeds s_x and the sender all but that of x = Δ's
//! digit. With r_x the stream of s_x, the receiver has u' = ⊕ r_x and, for each bit j of x, v_j = ⊕ r_x over the x with that bit;
//! the sender, numbering its streams by y = x ⊕ digit so that the missing one counts nowhere, has w_j = v_j ⊕ Δ_j·u'. The
//! receiver's choices u are the first digit's u'; for the others it sends u' ⊕ u.
//!
//! As in every correlated OT here, bit 0 of a block is fixed (Δ's is 1, K's 0, T's the choice): 127 bits are secret.

use std::hint::black_box;

use covey_kernels::Prg;
use covey_kernels::bits::{from_planes, xor_assign};
use covey_kernels::constant_time::declassified;
use covey_store::wipe;
use zeroize::Zeroizing;

use crate::base::{self, BaseOt, Seed};
use crate::instance::{Purpose, random};
use crate::{Block, Channel, HashKey, Instance, Result};

/// Bits of Δ, and base OTs.
const BITS: usize = 128;
/// OTs made at once: what stays in the second-level cache.
const CHUNK: usize = 8192;
/// OTs of one message at most; a multiple of [`CHUNK`].
const PIECE: usize = 1 << 18;

/// What the sender keeps of the set-up with one peer. Not `Debug`.
pub struct SenderSetup {
    delta: Block,
    /// For each digit the seeds by y, from 1 on.
    seeds: Zeroizing<Vec<Vec<Seed>>>,
    /// Of all messages so far: public, random, and different in each set-up.
    transcript: [u8; 32],
}

/// The sender's set-up between its first message and the answer. Not `Debug`.
struct SenderRequest {
    delta: Block,
    base: base::Request,
}

/// What the receiver keeps. Not `Debug`.
pub struct ReceiverSetup {
    /// For each digit the seeds by x.
    seeds: Zeroizing<Vec<Vec<Seed>>>,
    transcript: [u8; 32],
}

/// The bits of each digit of Δ.
fn digits(k: usize) -> impl Iterator<Item = usize> {
    (0..BITS).step_by(k).map(move |start| k.min(BITS - start))
}

/// Bytes that set-up with digits of any size sends: by the sender, by the receiver.
pub fn setup_bytes(base: &dyn BaseOt) -> [usize; 2] {
    let [receiver, sender] = base.bytes(BITS);
    [receiver, sender + BITS * 2 * Block::BYTES]
}

/// Bytes that the receiver sends for `count` OTs with digits of `k` bits; the sender sends none.
pub fn extend_bytes(k: usize, count: usize) -> usize {
    (digits(k).count() - 1) * count.div_ceil(8)
}

/// Messages of a set-up: by the sender, by the receiver.
pub const SETUP_MESSAGES: [usize; 2] = [1, 2];

/// Messages that the receiver sends for `count` OTs; the sender sends none.
pub fn extend_messages(count: usize) -> usize {
    count.div_ceil(PIECE)
}

fn check(k: usize) {
    assert!((2..=8).contains(&k), "digits of {k} bits");
}

/// Two seeds from one.
fn children(seed: &Seed) -> [Seed; 2] {
    let mut both = [0; 32];
    Prg::new(seed).fill(0, 0, &mut both);
    let children = [0, 1].map(|half| std::array::from_fn(|byte| both[16 * half + byte]));
    wipe(&mut both);
    children
}

fn xor_seed(a: &mut Seed, b: &Seed) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
}

/// The hash that binds instances to a set-up's messages.
fn transcript(instance: &Instance, messages: &[u8]) -> [u8; 32] {
    // Of messages that were sent in the open.
    declassified(instance.derive(Purpose::TreeMask, u64::MAX, &[blake3::hash(messages).as_bytes()]))
}

/// The sender's set-up of one instance and the receiver's of another, with the base OTs of both at once. The peer does the same.
///
/// # Errors
/// The channel's, and malformed messages.
pub fn both_setups(
    base: &dyn BaseOt,
    channel: &mut dyn Channel,
    [sent, received]: [&Instance; 2],
    k: usize,
) -> Result<(SenderSetup, ReceiverSetup)> {
    let request = SenderRequest::new(base, channel, sent)?;
    let receiver = ReceiverSetup::new(base, channel, received, k)?;
    Ok((SenderSetup::from_request(request, base, channel, sent, k)?, receiver))
}

impl SenderRequest {
    /// Draws Δ and sends the message of the base OTs' receiver.
    fn new(base: &dyn BaseOt, channel: &mut dyn Channel, instance: &Instance) -> Result<Self> {
        let delta = Block::from_bytes(random()?);
        let delta = delta ^ Block::new(1 ^ u128::from(delta.low() & 1));
        // What it gets of level t is the sum of the children it has a seed for: not of those on the way to Δ's digit.
        let choices = Zeroizing::new((0..BITS).map(|index| 1 ^ bit(delta, index)).collect::<Vec<u8>>());
        Ok(SenderRequest { delta, base: base.request(channel, instance, &choices)? })
    }
}

fn bit(delta: Block, index: usize) -> u8 {
    (delta.to_u128() >> index) as u8 & 1
}

impl SenderSetup {
    /// The sender's set-up: base OTs, as their receiver, then the seeds of the trees. `instance` names the set-up itself.
    ///
    /// # Errors
    /// The channel's, and malformed messages.
    pub fn new(base: &dyn BaseOt, channel: &mut dyn Channel, instance: &Instance, k: usize) -> Result<Self> {
        Self::from_request(SenderRequest::new(base, channel, instance)?, base, channel, instance, k)
    }

    /// What is left of it after its first message.
    fn from_request(
        request: SenderRequest,
        base: &dyn BaseOt,
        channel: &mut dyn Channel,
        instance: &Instance,
        k: usize,
    ) -> Result<Self> {
        check(k);
        let SenderRequest { delta, base: request } = request;
        let bit = |index: usize| bit(delta, index);
        let strings = base.receive(channel, instance, request)?;
        let message = channel.recv(BITS * 2 * Block::BYTES)?;
        let mut seeds = Zeroizing::new(Vec::new());
        let mut start = 0;
        for bits in digits(k) {
            // By y: the node at 0 is the one without a seed.
            let mut nodes: Vec<Seed> = vec![[0; 16]];
            for index in (start..start + bits).rev() {
                let on_path = 0u8.wrapping_sub(bit(index));
                let mut next = Zeroizing::new(Vec::with_capacity(2 * nodes.len()));
                let mut sum: Seed = instance.derive(Purpose::TreeMask, index as u64, &[&strings[index]]);
                let masked = &message.as_chunks::<32>().0[index];
                for (byte, sum) in sum.iter_mut().enumerate() {
                    let (zero, one) = (masked[byte], masked[16 + byte]);
                    // The chosen half, without a branch: bit 0 of Δ means the second.
                    *sum ^= one ^ (one ^ zero) & on_path;
                }
                for node in &nodes {
                    let [zero, one] = children(node);
                    // Child 0 by y is that in Δ's direction.
                    let toward = std::array::from_fn(|byte| zero[byte] ^ (zero[byte] ^ one[byte]) & on_path);
                    let away = std::array::from_fn(|byte| one[byte] ^ (zero[byte] ^ one[byte]) & on_path);
                    next.extend([toward, away]);
                }
                next[0] = [0; 16];
                next[1] = sum;
                for away in (3..next.len()).step_by(2) {
                    let other = next[away];
                    xor_seed(&mut next[1], &other);
                }
                nodes = std::mem::take(&mut *next);
            }
            nodes.remove(0);
            seeds.push(nodes);
            start += bits;
        }
        let transcript = transcript(instance, &message);
        Ok(SenderSetup { delta, seeds, transcript })
    }

    /// Δ.
    pub fn delta(&self) -> Block {
        self.delta
    }

    /// The public value of `instance`'s hash.
    pub fn hash_key(&self, instance: &Instance) -> HashKey {
        hash_key(instance, &self.transcript)
    }

    /// A hash of the set-up's messages.
    pub(crate) fn transcript(&self) -> [u8; 32] {
        self.transcript
    }

    /// The sender of `instance`.
    pub fn sender(&self, instance: &Instance) -> Sender {
        Sender { delta: self.delta, streams: Streams::new(instance, &self.seeds, 1), made: 0 }
    }
}

impl ReceiverSetup {
    /// The receiver's set-up: base OTs, as their sender, then the seeds of the trees. `instance` names the set-up itself.
    ///
    /// # Errors
    /// The channel's, and malformed messages.
    pub fn new(base: &dyn BaseOt, channel: &mut dyn Channel, instance: &Instance, k: usize) -> Result<Self> {
        check(k);
        let strings = base.send(channel, instance, BITS)?;
        let mut message = vec![0; BITS * 2 * Block::BYTES];
        let mut seeds = Zeroizing::new(Vec::new());
        let mut start = 0;
        for bits in digits(k) {
            let mut nodes = Zeroizing::new(vec![random()?]);
            for index in (start..start + bits).rev() {
                let next: Vec<Seed> = nodes.iter().flat_map(children).collect();
                let mut sums: [Seed; 2] =
                    [0, 1].map(|v| instance.derive(Purpose::TreeMask, index as u64, &[&strings[index][v]]));
                for pair in next.chunks_exact(2) {
                    xor_seed(&mut sums[0], &pair[0]);
                    xor_seed(&mut sums[1], &pair[1]);
                }
                message[32 * index..][..32].copy_from_slice(sums.as_flattened());
                nodes = Zeroizing::new(next);
            }
            seeds.push(std::mem::take(&mut *nodes));
            start += bits;
        }
        let transcript = transcript(instance, &message);
        channel.send(message)?;
        Ok(ReceiverSetup { seeds, transcript })
    }

    /// The public value of `instance`'s hash.
    pub fn hash_key(&self, instance: &Instance) -> HashKey {
        hash_key(instance, &self.transcript)
    }

    /// A hash of the set-up's messages.
    pub(crate) fn transcript(&self) -> [u8; 32] {
        self.transcript
    }

    /// The receiver of `instance`.
    pub fn receiver(&self, instance: &Instance) -> Receiver {
        Receiver { streams: Streams::new(instance, &self.seeds, 0), made: 0 }
    }
}

fn hash_key(instance: &Instance, transcript: &[u8; 32]) -> HashKey {
    HashKey(u128::from_le_bytes(instance.derive(Purpose::Hash, 0, &[transcript])))
}

/// The streams of one instance: for each digit by x or y from `first` on.
struct Streams {
    first: usize,
    digits: Vec<Vec<Prg>>,
}

impl Streams {
    fn new(instance: &Instance, seeds: &[Vec<Seed>], first: usize) -> Self {
        let stream = |digit: usize, seed: &Seed| {
            let key = Zeroizing::new(instance.derive(Purpose::Seed, digit as u64, &[seed]));
            Prg::new(&key)
        };
        let digits =
            seeds.iter().enumerate().map(|(digit, seeds)| seeds.iter().map(|seed| stream(digit, seed)).collect());
        Streams { first, digits: digits.collect() }
    }

    /// The planes ⊕ r_x over the x with bit j, plane after plane, of the streams of `digit` in chunk `chunk`. `sum` becomes ⊕ r_x.
    fn planes(&self, digit: usize, chunk: u64, planes: &mut [u64], sum: &mut [u64], scratch: &mut [u64]) {
        let words = sum.len();
        let streams = &self.digits[digit];
        planes.fill(0);
        // Sums of finished subtrees: `scratch` holds that of each height, one above the other.
        for x in 0..streams.len() + self.first {
            match x.checked_sub(self.first) {
                Some(index) => streams[index].fill_u64(chunk, sum),
                None => sum.fill(0),
            }
            let mut height = 0;
            while x >> height & 1 == 1 {
                let left = &scratch[height * words..][..words];
                xor_assign(&mut planes[height * words..][..words], sum);
                xor_assign(sum, left);
                height += 1;
            }
            if 1 << height < streams.len() + self.first {
                scratch[height * words..][..words].copy_from_slice(sum);
            }
        }
    }
}

/// The sender of one instance. Not `Debug`.
pub struct Sender {
    delta: Block,
    streams: Streams,
    /// Chunks made.
    made: u64,
}

/// The receiver of one instance. Not `Debug`.
pub struct Receiver {
    streams: Streams,
    made: u64,
}

/// Working memory for a chunk.
struct Work {
    planes: Vec<u64>,
    sum: Vec<u64>,
    choices: Vec<u64>,
    scratch: Vec<u64>,
    halves: [Vec<u64>; 2],
}

impl Work {
    fn new(len: usize) -> Self {
        let words = len.div_ceil(64);
        Work {
            planes: vec![0; BITS * words],
            sum: vec![0; words],
            choices: vec![0; words],
            scratch: vec![0; 8 * words],
            halves: [vec![0; len], vec![0; len]],
        }
    }

    /// The planes as blocks.
    fn blocks(&mut self, out: &mut Vec<Block>) {
        let (low, high) = self.planes.split_at(self.planes.len() / 2);
        from_planes(low, 64, &mut self.halves[0]);
        from_planes(high, 64, &mut self.halves[1]);
        let both = self.halves[0].iter().zip(&self.halves[1]);
        out.extend(both.map(|(&low, &high)| Block::new(u128::from(high) << 64 | u128::from(low))));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        for buffer in [&mut self.planes, &mut self.sum, &mut self.choices, &mut self.scratch] {
            wipe(buffer);
        }
        self.halves.iter_mut().for_each(|half| wipe(half));
    }
}

/// The sizes of the chunks of `count` OTs.
fn chunks(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(CHUNK).map(move |start| CHUNK.min(count - start))
}

impl Sender {
    /// Appends K of `count` more OTs.
    ///
    /// # Errors
    /// The channel's.
    pub fn extend(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()> {
        let digits = self.streams.digits.len();
        out.reserve(count);
        for start in (0..count).step_by(PIECE) {
            let piece = PIECE.min(count - start);
            let message = channel.recv((digits - 1) * piece.div_ceil(8))?;
            let mut message = message.as_slice();
            for len in chunks(piece) {
                let mut work = Work::new(len);
                let mut bit = 0;
                for digit in 0..digits {
                    let words = work.sum.len();
                    let bits = (self.streams.digits[digit].len() + 1).ilog2() as usize;
                    let planes = &mut work.planes[bit * words..][..bits * words];
                    self.streams.planes(digit, self.made, planes, &mut work.sum, &mut work.scratch);
                    if digit > 0 {
                        let (correction, later) = message.split_at(len.div_ceil(8));
                        message = later;
                        covey_kernels::packing::unpack_plane_into(correction, &mut work.sum);
                        for (index, plane) in planes.chunks_exact_mut(words).enumerate() {
                            // Hidden from the compiler, which would branch on it.
                            let mask = black_box(((self.delta.to_u128() >> (bit + index)) as u64 & 1).wrapping_neg());
                            plane.iter_mut().zip(&work.sum).for_each(|(plane, sum)| *plane ^= sum & mask);
                        }
                    }
                    bit += bits;
                }
                let words = work.sum.len();
                work.planes[..words].fill(0);
                work.blocks(out);
                self.made += 1;
            }
        }
        Ok(())
    }
}

impl Receiver {
    /// Appends T of `count` more OTs.
    ///
    /// # Errors
    /// The channel's.
    pub fn extend(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()> {
        let digits = self.streams.digits.len();
        out.reserve(count);
        for start in (0..count).step_by(PIECE) {
            let piece = PIECE.min(count - start);
            let mut message = Vec::with_capacity((digits - 1) * piece.div_ceil(8));
            for len in chunks(piece) {
                let mut work = Work::new(len);
                let mut bit = 0;
                for digit in 0..digits {
                    let words = work.sum.len();
                    let bits = self.streams.digits[digit].len().ilog2() as usize;
                    let planes = &mut work.planes[bit * words..][..bits * words];
                    self.streams.planes(digit, self.made, planes, &mut work.sum, &mut work.scratch);
                    if digit == 0 {
                        work.choices.copy_from_slice(&work.sum);
                    } else {
                        xor_assign(&mut work.sum, &work.choices);
                        covey_kernels::packing::pack_plane(&work.sum, len, &mut message);
                    }
                    bit += bits;
                }
                let words = work.sum.len();
                work.planes[..words].copy_from_slice(&work.choices);
                work.blocks(out);
                self.made += 1;
            }
            channel.send(message)?;
        }
        Ok(())
    }
}
