//! Silent correlated OT: from a few tens of thousands of correlated OTs, millions for a fraction of a bit each, under learning parity
//! with noise (Yang, Weng, Lan, Zhang, Wang: Ferret, CCS 2020, semi-honest, regular noise; trees as in Guo et al.: Half-tree,
//! EUROCRYPT 2023).
//!
//! One iteration. For each tree the sender holds nodes whose sum on every level is Δ; for level i it sends the sum of the first
//! children ⊕ K_i of a correlated OT. The receiver, with T_i = K_i ⊕ b·Δ, has the sum of the children on side b: it comes to
//! know all leaves but one, α, whose path goes the other way at each level. Leaves v of the sender and w of the receiver (at α
//! the sum of all its others) are then equal but for w_α = v_α ⊕ Δ. With more correlated OTs as secret (K', T' = K' ⊕ u·Δ)
//! and a public sparse matrix A, the outputs K = A·K' ⊕ v and T = A·T' ⊕ w are correlated with choice bits A·u ⊕ e, e one in each α.
//!
//! Bit 0 of a block holds the choice: of leaves it is cleared, and set in w_α. The receiver touches memory in the same order
//! whatever α. The last outputs start the next iteration.

mod parameters;

use covey_kernels::hash::tree::{TreeHash, add_to_pair};
use covey_kernels::{Prg, lpn};
use covey_store::wipe;
use zeroize::Zeroizing;

pub use parameters::{ALL, B10, B11, B12, Parameters};

use crate::base::BaseOt;
use crate::instance::{Purpose, random};
use crate::softspoken::{self, ReceiverSetup, SenderSetup};
use crate::{Block, Channel, HashKey, Instance, OtError, Result};

/// The digits of SoftSpoken where it starts an extension: few OTs, so that its work matters less than its bytes.
pub const BOOTSTRAP_DIGITS: usize = 8;

/// Trees of one message.
const PIECE: usize = 64;

/// The sets iterated before `target`, which needs more OTs than SoftSpoken makes well.
fn nested(target: &Parameters) -> Option<Parameters> {
    (target.consumed() > 2 * B10.consumed()).then_some(B10)
}

/// OTs that the first iterations make beyond what they start with; the rest is kept for the next.
fn bootstrap_adds(target: &Parameters) -> usize {
    nested(target).map_or(0, |set| set.outputs() - target.consumed())
}

/// Bytes that starting sends, SoftSpoken's set-up aside: by the sender, by the receiver.
fn bootstrap_bytes(target: &Parameters) -> [usize; 2] {
    let first = nested(target).unwrap_or(*target);
    [nested(target).map_or(0, |set| set.bytes()), softspoken::extend_bytes(BOOTSTRAP_DIGITS, first.consumed())]
}

/// Bytes that an extension of at least `count` OTs sends from nothing, the base OTs included: by the sender, by the receiver.
pub fn cold_bytes(target: &Parameters, count: usize) -> [usize; 2] {
    let [sender, receiver] = softspoken::setup_bytes(&crate::base::Ristretto);
    let [more, others] = extend_bytes(target, false, count);
    [sender + more, receiver + others]
}

/// So many OTs at most are few: SoftSpoken alone sends half as much for them as an extension's start, and does far less work. As the
/// start makes more than are few, it is the better choice for whoever comes a third time.
pub fn few_at_most(target: &Parameters) -> usize {
    let start: usize = extend_bytes(target, false, 1).iter().sum();
    start / 2 / softspoken::extend_bytes(BOOTSTRAP_DIGITS, 8) * 8
}

/// Bytes that `count` OTs by SoftSpoken send from nothing, the base OTs included: by the sender, by the receiver.
pub fn few_bytes(count: usize) -> [usize; 2] {
    let [sender, receiver] = softspoken::setup_bytes(&crate::base::Ristretto);
    [sender, receiver + softspoken::extend_bytes(BOOTSTRAP_DIGITS, count)]
}

/// Messages of the same.
pub fn few_messages(count: usize) -> [usize; 2] {
    let [sender, receiver] = softspoken::SETUP_MESSAGES;
    [sender, receiver + softspoken::extend_messages(count)]
}

/// Messages that an extension of at least `count` OTs sends from nothing: by the sender, by the receiver.
pub fn cold_messages(target: &Parameters, count: usize) -> [usize; 2] {
    let [sender, receiver] = softspoken::SETUP_MESSAGES;
    let iteration = |set: &Parameters| set.trees.div_ceil(PIECE);
    let first = nested(target).unwrap_or(*target);
    let sender =
        sender + nested(target).map_or(0, |set| iteration(&set)) + iterations(target, false, count) * iteration(target);
    [sender, receiver + softspoken::extend_messages(first.consumed())]
}

/// Bytes that an extension of at least `count` OTs sends, whether its start is behind it or not: by the sender, by the receiver.
pub fn extend_bytes(target: &Parameters, started: bool, count: usize) -> [usize; 2] {
    if count == 0 {
        return [0; 2];
    }
    let [sender, receiver] = if started { [0; 2] } else { bootstrap_bytes(target) };
    [sender + iterations(target, started, count) * target.bytes(), receiver]
}

/// OTs that an extension of at least `count` makes.
pub fn extend_count(target: &Parameters, started: bool, count: usize) -> usize {
    if count == 0 {
        return 0;
    }
    let first = if started { 0 } else { bootstrap_adds(target) };
    first + iterations(target, started, count) * target.added()
}

fn iterations(target: &Parameters, started: bool, count: usize) -> usize {
    let first = if started { 0 } else { bootstrap_adds(target) };
    count.saturating_sub(first).div_ceil(target.added())
}

/// What is public of an instance: the keys of its matrices and trees.
struct Public {
    instance: Instance,
    transcript: [u8; 32],
    /// Iterations done, those of every set.
    iteration: u64,
}

impl Public {
    /// The matrix of the next iteration, and the key of its trees.
    fn next(&mut self) -> (Prg, u128) {
        let keys: [u8; 32] = self.instance.derive(Purpose::Code, self.iteration, &[&self.transcript]);
        self.iteration += 1;
        let (matrix, trees) = keys.split_at(16);
        let half = |half: &[u8]| std::array::from_fn(|byte| half[byte]);
        (Prg::new(&half(matrix)), u128::from_le_bytes(half(trees)))
    }
}

/// Blocks wiped on drop.
pub(crate) struct Secret(pub(crate) Vec<Block>);

impl Drop for Secret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// What both sides hold of an instance.
struct State {
    parameters: Parameters,
    public: Public,
    key: HashKey,
    /// What starts the next iteration; empty before the first.
    kept: Secret,
}

impl State {
    fn new(instance: &Instance, parameters: Parameters, transcript: [u8; 32], key: HashKey) -> Self {
        let public = Public { instance: *instance, transcript, iteration: 0 };
        State { parameters, public, key, kept: Secret(Vec::new()) }
    }

    /// What an iteration of `set` starts from. It is gone, whatever becomes of the iteration: no secret serves two codes.
    fn take_kept(&mut self, set: Parameters) -> Result<Secret> {
        let kept = std::mem::replace(&mut self.kept, Secret(Vec::new()));
        if kept.0.len() == set.consumed() { Ok(kept) } else { Err(OtError::Interrupted) }
    }

    /// Bytes before the blocks.
    const FIXED: usize = 32 + 8 + 16;

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(Self::FIXED + 16 * self.kept.0.len()));
        bytes.extend_from_slice(&self.public.transcript);
        bytes.extend_from_slice(&self.public.iteration.to_le_bytes());
        bytes.extend_from_slice(&self.key.0.to_le_bytes());
        self.kept.0.iter().for_each(|block| bytes.extend_from_slice(&block.to_bytes()));
        bytes
    }

    fn from_bytes(instance: &Instance, parameters: Parameters, bytes: &[u8]) -> Option<Self> {
        let (transcript, bytes) = bytes.split_first_chunk()?;
        let (iteration, bytes) = bytes.split_first_chunk()?;
        let (key, bytes) = bytes.split_first_chunk()?;
        let kept = bytes.as_chunks().0.iter().map(|block| Block::from_bytes(*block)).collect::<Vec<Block>>();
        (kept.len() == parameters.consumed() && bytes.len().is_multiple_of(16)).then(|| State {
            parameters,
            public: Public { instance: *instance, transcript: *transcript, iteration: u64::from_le_bytes(*iteration) },
            key: HashKey(u128::from_le_bytes(*key)),
            kept: Secret(kept),
        })
    }
}

/// The sender of one instance. Not `Debug`.
pub struct SilentSender {
    state: State,
    delta: Block,
    setup: Option<softspoken::Sender>,
}

/// The receiver of one instance. Not `Debug`.
pub struct SilentReceiver {
    state: State,
    setup: Option<softspoken::Receiver>,
}

/// The two sides of an instance, as far as they are alike.
pub(crate) trait Side: Sized {
    fn set_up(
        base: &dyn BaseOt,
        channel: &mut dyn Channel,
        instance: &Instance,
        parameters: Parameters,
    ) -> Result<Self>;

    /// Whether there was an iteration.
    fn begun(&self) -> bool;

    fn extend_few(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()>;

    fn extend(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()>;

    /// The public value of the hash and Δ, zero at the receiver.
    fn identity(&self) -> (HashKey, Block);

    /// What the next iteration needs, once there was a first.
    fn to_bytes(self) -> Option<Zeroizing<Vec<u8>>>;

    fn from_bytes(instance: &Instance, parameters: Parameters, delta: Block, bytes: &[u8]) -> Option<Self>;
}

macro_rules! side {
    ($name:ident, |$self:ident| $delta:expr, |$state:ident, $given:ident| $new:expr) => {
        impl $name {
            /// Appends the blocks of at least `count` more OTs: [`extend_count`] of them.
            ///
            /// # Errors
            /// The channel's.
            pub fn extend(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()> {
                let parameters = self.state.parameters;
                let iterations = iterations(&parameters, self.setup.is_none(), count);
                if count == 0 {
                    return Ok(());
                }
                // What is kept back is cut off at the end: growing would leave copies behind.
                out.reserve(extend_count(&parameters, self.setup.is_none(), count) + parameters.consumed());
                covey_kernels::prefer_large_pages(out);
                let start = out.len();
                let result = self.extend_by(channel, iterations, out);
                if result.is_err() {
                    wipe(&mut out[start..]);
                    out.truncate(start);
                }
                result
            }

            /// Appends the blocks of `count` more OTs by SoftSpoken alone, which is less work for a few of them
            /// ([`few_at_most`]), as long as there was no iteration.
            ///
            /// # Errors
            /// The channel's; if there was an iteration.
            pub fn extend_few(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()> {
                let start = out.len();
                let setup = self.setup.as_mut().ok_or(OtError::Interrupted)?;
                let result = setup.extend(channel, count, out);
                if result.is_err() {
                    wipe(&mut out[start..]);
                    out.truncate(start);
                }
                result
            }

            fn extend_by(&mut self, channel: &mut dyn Channel, iterations: usize, out: &mut Vec<Block>) -> Result<()> {
                let parameters = self.state.parameters;
                if let Some(mut setup) = self.setup.take() {
                    let first = nested(&parameters).unwrap_or(parameters);
                    setup.extend(channel, first.consumed(), &mut self.state.kept.0)?;
                    if nested(&parameters).is_some() {
                        self.iterate(channel, first, out)?;
                    }
                }
                (0..iterations).try_for_each(|_| self.iterate(channel, parameters, out))
            }

            /// The public value of the hash.
            pub fn key(&self) -> HashKey {
                self.state.key
            }
        }

        impl Side for $name {
            fn set_up(
                base: &dyn BaseOt,
                channel: &mut dyn Channel,
                instance: &Instance,
                parameters: Parameters,
            ) -> Result<Self> {
                $name::set_up(base, channel, instance, parameters)
            }

            fn begun(&self) -> bool {
                self.setup.is_none()
            }

            fn extend_few(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()> {
                $name::extend_few(self, channel, count, out)
            }

            fn extend(&mut self, channel: &mut dyn Channel, count: usize, out: &mut Vec<Block>) -> Result<()> {
                $name::extend(self, channel, count, out)
            }

            fn identity(&self) -> (HashKey, Block) {
                let $self = self;
                (self.state.key, $delta)
            }

            fn to_bytes(self) -> Option<Zeroizing<Vec<u8>>> {
                self.setup.is_none().then(|| self.state.to_bytes())
            }

            fn from_bytes(instance: &Instance, parameters: Parameters, $given: Block, bytes: &[u8]) -> Option<Self> {
                let $state = State::from_bytes(instance, parameters, bytes)?;
                Some($new)
            }
        }
    };
}

side!(SilentSender, |side| side.delta, |state, delta| SilentSender { state, delta, setup: None });
side!(SilentReceiver, |_side| Block::ZERO, |state, _delta| SilentReceiver { state, setup: None });

/// The sender of one instance and the receiver of another, with the base OTs of both at once. The peer does the same.
///
/// # Errors
/// The channel's, and malformed messages.
pub fn both_set_up(
    base: &dyn BaseOt,
    channel: &mut dyn Channel,
    [sent, received]: [&Instance; 2],
    [sent_set, received_set]: [Parameters; 2],
) -> Result<(SilentSender, SilentReceiver)> {
    let (sender, receiver) = softspoken::both_setups(base, channel, [sent, received], BOOTSTRAP_DIGITS)?;
    Ok((SilentSender::new(&sender, sent, sent_set), SilentReceiver::new(&receiver, received, received_set)))
}

impl SilentSender {
    /// The sender of `instance`, from a set-up with [`BOOTSTRAP_DIGITS`]. Nothing is sent yet.
    pub fn new(setup: &SenderSetup, instance: &Instance, parameters: Parameters) -> Self {
        let state = State::new(instance, parameters, setup.transcript(), setup.hash_key(instance));
        SilentSender { state, delta: setup.delta(), setup: Some(setup.sender(instance)) }
    }

    /// Base OTs with the peer and the sender of `instance`.
    ///
    /// # Errors
    /// The channel's, and malformed messages.
    pub fn set_up(
        base: &dyn BaseOt,
        channel: &mut dyn Channel,
        instance: &Instance,
        parameters: Parameters,
    ) -> Result<Self> {
        Ok(Self::new(&SenderSetup::new(base, channel, instance, BOOTSTRAP_DIGITS)?, instance, parameters))
    }

    /// Δ.
    pub fn delta(&self) -> Block {
        self.delta
    }

    /// One iteration of `set`; as many of the last outputs as the next iteration needs are kept.
    fn iterate(&mut self, channel: &mut dyn Channel, set: Parameters, out: &mut Vec<Block>) -> Result<()> {
        let (matrix, key) = self.state.public.next();
        let roots = Prg::new(&Zeroizing::new(random::<16>()?));
        let used = self.state.take_kept(set)?;
        let (secret, levels) = used.0.split_at(set.secret());
        let secret = lpn::Secret::new(secret);
        let levels: Vec<&[Block]> = levels.chunks_exact(set.depth).collect();
        for (piece, levels) in levels.chunks(PIECE).enumerate() {
            let (first, len) = (piece * PIECE, set.depth * Block::BYTES);
            let mut message = vec![0; levels.len() * len];
            let mut trees: Vec<_> = levels.iter().zip(message.chunks_exact_mut(len)).collect();
            let code = (&matrix, (first << set.depth) as u64, &secret);
            let noise = |index: usize, (levels, message): &mut (&&[Block], &mut [u8]), nodes: &mut [Block]| {
                let tree = first + index;
                let mut root = Zeroizing::new([0; 16]);
                roots.fill(0, tree as u64, &mut *root);
                let hash = TreeHash::new(key ^ tree as u128);
                plant(&hash, Block::from_bytes(*root), self.delta, levels, nodes, message);
            };
            lpn::encode_runs(code, 1 << set.depth, &mut trees, noise, out);
            channel.send(message)?;
        }
        self.state.kept = keep_back(out, self.state.parameters.consumed());
        Ok(())
    }
}

impl SilentReceiver {
    /// The receiver of `instance`, from a set-up with [`BOOTSTRAP_DIGITS`]. Nothing is sent yet.
    pub fn new(setup: &ReceiverSetup, instance: &Instance, parameters: Parameters) -> Self {
        let state = State::new(instance, parameters, setup.transcript(), setup.hash_key(instance));
        SilentReceiver { state, setup: Some(setup.receiver(instance)) }
    }

    /// Base OTs with the peer and the receiver of `instance`.
    ///
    /// # Errors
    /// The channel's, and malformed messages.
    pub fn set_up(
        base: &dyn BaseOt,
        channel: &mut dyn Channel,
        instance: &Instance,
        parameters: Parameters,
    ) -> Result<Self> {
        Ok(Self::new(&ReceiverSetup::new(base, channel, instance, BOOTSTRAP_DIGITS)?, instance, parameters))
    }

    fn iterate(&mut self, channel: &mut dyn Channel, set: Parameters, out: &mut Vec<Block>) -> Result<()> {
        let (matrix, key) = self.state.public.next();
        let used = self.state.take_kept(set)?;
        let (secret, levels) = used.0.split_at(set.secret());
        let secret = lpn::Secret::new(secret);
        let levels: Vec<&[Block]> = levels.chunks_exact(set.depth).collect();
        for (piece, levels) in levels.chunks(PIECE).enumerate() {
            let message = channel.recv(levels.len() * set.depth * Block::BYTES)?;
            let sums: Vec<Block> = message.as_chunks::<16>().0.iter().map(|sum| Block::from_bytes(*sum)).collect();
            let first = piece * PIECE;
            let mut trees: Vec<_> = levels.iter().zip(sums.chunks_exact(set.depth)).collect();
            let code = (&matrix, (first << set.depth) as u64, &secret);
            let noise = |index: usize, (levels, sums): &mut (&&[Block], &[Block]), nodes: &mut [Block]| {
                let hash = TreeHash::new(key ^ (first + index) as u128);
                puncture(&hash, levels, sums, nodes);
            };
            lpn::encode_runs(code, 1 << set.depth, &mut trees, noise, out);
        }
        self.state.kept = keep_back(out, self.state.parameters.consumed());
        Ok(())
    }
}

/// Moves the last `keep` outputs to where the next iteration starts from.
fn keep_back(out: &mut Vec<Block>, keep: usize) -> Secret {
    let start = out.len() - keep;
    let kept = out[start..].to_vec();
    wipe(&mut out[start..]);
    out.truncate(start);
    Secret(kept)
}

/// The sender's leaves, lowest bits clear. The message is the sum of the first children of each level under the OT's block.
fn plant(hash: &TreeHash, root: Block, delta: Block, levels: &[Block], nodes: &mut [Block], message: &mut [u8]) {
    nodes[0] = root;
    nodes[1] = root ^ delta;
    for (level, (&key, message)) in levels.iter().zip(message.as_chunks_mut::<16>().0).enumerate() {
        let sum = if level == 0 { root } else { hash.double(&mut nodes[..2 << level]) };
        *message = (key ^ sum).to_bytes();
    }
    add_to_pair(nodes, 0, [Block::ZERO; 2], true);
}

/// The receiver's leaves, lowest bits clear but at α. On every level the node on α's path is held as zero.
fn puncture(hash: &TreeHash, levels: &[Block], sums: &[Block], nodes: &mut [Block]) {
    // What the children of a zero node become, both of them, until they are put right.
    let junk = hash.hash(Block::ZERO);
    let side = |level: usize| levels[level].low() & 1;
    let known = levels[0] ^ sums[0];
    nodes[0] = known.times(1 ^ side(0));
    nodes[1] = known.times(side(0));
    // The sum of all known nodes of the level, and α's ancestor there.
    let (mut total, mut path) = (known, 1 ^ side(0) as usize);
    let last = levels.len() - 1;
    for level in 1..=last {
        let first = hash.double(&mut nodes[..2 << level]);
        let side = side(level);
        // The sum of side b of all known nodes, less that of all but one of them.
        let sibling = levels[level] ^ sums[level] ^ first ^ junk ^ total.times(side);
        total ^= sibling;
        let (known, missing) = if level == last {
            let lowest = Block::new(1);
            let clear = |block: Block| block ^ lowest.times(block.low());
            (clear(junk) ^ clear(sibling), clear(junk) ^ clear(total) ^ lowest)
        } else {
            (junk ^ sibling, junk)
        };
        let change = [missing.times(side) ^ known.times(1 ^ side), missing.times(1 ^ side) ^ known.times(side)];
        add_to_pair(&mut nodes[..2 << level], path, change, level == last);
        path = 2 * path + (1 ^ side as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaves agree but at α, where they differ by Δ; over all choices of the OTs α takes every place once.
    #[test]
    fn trees_are_punctured_in_one_place() {
        let prg = Prg::new(&[3; 16]);
        let block = |stream: u64, number: usize| {
            let mut bytes = [0; 16];
            prg.fill(stream, number as u64, &mut bytes);
            Block::from_bytes(bytes)
        };
        let even = |block: Block| block ^ Block::new(u128::from(block.low() & 1));
        let delta = even(block(0, 0)) ^ Block::new(1);
        for depth in 2..=8 {
            let hash = TreeHash::new(depth as u128);
            let sent: Vec<Block> = (0..depth).map(|level| even(block(1, level))).collect();
            let mut places = vec![0; 1 << depth];
            for choices in 0..1u64 << depth {
                let held: Vec<Block> = (0..depth).map(|level| sent[level] ^ delta.times(choices >> level)).collect();
                let mut message = vec![0; 16 * depth];
                let (mut v, mut w) = (vec![Block::new(9); 1 << depth], vec![Block::new(7); 1 << depth]);
                plant(&hash, block(2, choices as usize), delta, &sent, &mut v, &mut message);
                let sums: Vec<Block> = message.as_chunks().0.iter().map(|sum| Block::from_bytes(*sum)).collect();
                puncture(&hash, &held, &sums, &mut w);
                assert!(v.iter().all(|v| v.low() & 1 == 0));
                let other: Vec<usize> = (0..1 << depth).filter(|&leaf| v[leaf] != w[leaf]).collect();
                assert!(other.len() == 1 && w[other[0]] == v[other[0]] ^ delta, "depth {depth}: {other:?}");
                places[other[0]] += 1;
            }
            assert!(places.iter().all(|&times| times == 1), "{places:?}");
        }
    }
}
