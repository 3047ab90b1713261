//! What goes with OTs on disk, and ranges of them that were set aside for a run.

use std::sync::Arc;

use super::blocks::Blocks;
use super::by_sender;
use crate::silent::Parameters;
use crate::{Block, HashKey, Instance, OtError, Received, Result, Sent};
use covey_store::{self as store, BatchName, InUse, Items, Kind};

pub(super) const OTS: Kind = *b"cot-v2  ";
pub(super) const STATE: Kind = *b"cotnext2";

/// OTs read from disk at once.
const READ_AHEAD: u64 = 1 << 18;

/// A range of a batch, for both directions, by sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// The batch.
    pub batch: BatchName,
    /// Where it begins.
    pub start: [u64; 2],
    /// How many.
    pub count: [u64; 2],
}

/// What goes with the OTs of a direction.
#[derive(Clone)]
pub(super) struct About {
    pub instance: Instance,
    /// Of the extension that made them.
    pub parameters: Parameters,
    /// The number of item 0.
    pub first: u64,
    pub key: HashKey,
    /// Zero at the receiver.
    pub delta: Block,
}

impl About {
    const LEN: usize = 32 + 1 + 4 + 8 + 3 * 8 + 8 + 16 + 16;

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend_from_slice(&self.instance.session);
        out.push(self.instance.sender);
        out.extend_from_slice(&self.instance.lane.to_le_bytes());
        out.extend_from_slice(&self.instance.number.to_le_bytes());
        self.parameters.sizes().iter().for_each(|size| out.extend_from_slice(&size.to_le_bytes()));
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.key.0.to_le_bytes());
        out.extend_from_slice(&self.delta.to_bytes());
        out
    }

    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(*taken)
        }
        let bytes = &mut bytes;
        let instance = Instance {
            session: take(bytes)?,
            sender: take::<1>(bytes)?[0],
            lane: u32::from_le_bytes(take(bytes)?),
            number: u64::from_le_bytes(take(bytes)?),
        };
        let mut number = || take(bytes).map(u64::from_le_bytes);
        let parameters = Parameters::of_sizes([number()?, number()?, number()?])?;
        let first = number()?;
        let key = HashKey(u128::from_le_bytes(take(bytes)?));
        let delta = Block::from_bytes(take(bytes)?);
        bytes.is_empty().then_some(About { instance, parameters, first, key, delta })
    }

    /// The name of the material: the same at both parties, and no other's.
    pub fn id(&self, kind: &Kind, count: u64) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("covey 2026 stock of correlated OTs: name");
        hasher.update(kind);
        hasher.update(&About { delta: Block::ZERO, ..self.clone() }.to_bytes());
        hasher.update(&count.to_le_bytes());
        hasher.finalize().into()
    }
}

/// OTs set aside on disk: this process alone uses them, once. Dropped, what is left of them is lost. Not `Debug`.
pub struct Reserved {
    me: usize,
    sent: Run,
    received: Run,
    _in_use: Arc<InUse>,
}

/// Those of one direction, read as they are used.
struct Run {
    items: Items,
    blocks: Blocks,
}

impl Reserved {
    /// What party `me` set aside, by sender; none where it cannot be read.
    pub(super) fn new(me: usize, set_aside: store::Reserved<2>) -> Option<Self> {
        let store::Reserved { ranges, about, items, in_use, .. } = set_aside;
        let mut runs = items.into_iter().zip(about).zip(ranges).map(|((items, about), range)| {
            let About { key, delta, first, .. } = About::from_bytes(&about)?;
            Some(Run { items, blocks: Blocks::new(key, delta, first + range.start) })
        });
        let [sent, received] = by_sender(me, runs.next()??, runs.next()??);
        Some(Reserved { me, sent, received, _in_use: in_use })
    }

    /// How many are left, by sender.
    pub fn left(&self) -> [u64; 2] {
        by_sender(self.me, self.sent.left(), self.received.left())
    }

    /// Takes the next `sent` of which this party is the sender, and the next `received` of the others. They are gone afterwards.
    ///
    /// # Errors
    /// If fewer are left. Files that cannot be read or do not verify: what was read before may still be taken, and the rest is lost.
    pub fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)> {
        let (from, to) = (self.sent.take(sent)?, self.received.take(received)?);
        Ok((self.sent.blocks.sent(from), self.received.blocks.received(to)))
    }
}

impl Run {
    fn left(&self) -> u64 {
        self.blocks.left() as u64 + self.items.left()
    }

    fn take(&mut self, count: usize) -> Result<usize> {
        self.blocks.wipe_taken();
        let here = self.blocks.left();
        if here < count {
            let (more, on_disk) = ((count - here) as u64, self.items.left());
            if more > on_disk {
                return Err(OtError::Short { wanted: count as u64, left: self.left() });
            }
            let more = more.max(READ_AHEAD).min(on_disk);
            self.blocks.append(more as usize, 0, |blocks| {
                self.items.take_with(more, |bytes| {
                    blocks.extend(bytes.as_chunks().0.iter().map(|block| Block::from_bytes(*block)));
                })
            })?;
        }
        Ok(self.blocks.advance(count))
    }
}
