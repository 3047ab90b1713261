//! The blocks of one direction that are in memory: handed out in order, overwritten once they are used.

use covey_kernels::wipe_past_caches;
use covey_store::wipe;

use crate::silent::Secret;
use crate::{Block, HashKey, Received, Sent};

/// What is in memory of one direction; the first `taken` are gone, the first `wiped` of them also overwritten.
pub(super) struct Blocks {
    pub key: HashKey,
    /// Zero at the receiver.
    pub delta: Block,
    /// The number of `blocks[0]`.
    first: u64,
    blocks: Secret,
    taken: usize,
    wiped: usize,
}

impl Blocks {
    /// None yet; the first will have number `first`.
    pub fn new(key: HashKey, delta: Block, first: u64) -> Self {
        Blocks { key, delta, first, blocks: Secret(Vec::new()), taken: 0, wiped: 0 }
    }

    pub fn left(&self) -> usize {
        self.blocks.0.len() - self.taken
    }

    /// No block was ever here.
    pub fn is_fresh(&self) -> bool {
        self.first == 0 && self.blocks.0.is_empty()
    }

    /// Appends what `fill` appends, at most `more` blocks, to what is left: in the same memory if there is room, which is in this
    /// process's pages already, and else in memory of its own, as growing would leave copies behind. `spare` more blocks of room are
    /// made then.
    pub fn append<E>(
        &mut self,
        more: usize,
        spare: usize,
        fill: impl FnOnce(&mut Vec<Block>) -> Result<(), E>,
    ) -> Result<(), E> {
        let left = self.left();
        let held = &mut self.blocks.0;
        if held.capacity() >= left + more {
            held.copy_within(self.taken.., 0);
            wipe(&mut held[self.wiped.max(left)..]);
            held.truncate(left);
        } else {
            let mut blocks = Secret(Vec::with_capacity(left + more + spare));
            blocks.0.extend_from_slice(&held[self.taken..]);
            self.blocks = blocks;
        }
        self.first += self.taken as u64;
        (self.taken, self.wiped) = (0, 0);
        fill(&mut self.blocks.0)
    }

    /// Overwrites what was handed out before.
    pub fn wipe_taken(&mut self) {
        wipe_past_caches(&mut self.blocks.0[self.wiped..self.taken]);
        self.wiped = self.taken;
    }

    /// Marks the next `count`, of which there are enough, as gone; where they begin.
    pub fn advance(&mut self, count: usize) -> usize {
        self.taken += count;
        self.taken - count
    }

    /// What was handed out from `from` on, as the sender sees it.
    pub fn sent(&self, from: usize) -> Sent<'_> {
        let blocks = &self.blocks.0[from..self.taken];
        Sent { delta: self.delta, key: self.key, first: self.first + from as u64, blocks }
    }

    /// The same as the receiver sees it.
    pub fn received(&self, from: usize) -> Received<'_> {
        Received { key: self.key, first: self.first + from as u64, blocks: &self.blocks.0[from..self.taken] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks keep their numbers whatever memory they are in, and what is over of a larger run is gone.
    #[test]
    fn blocks_keep_their_numbers() {
        let block = |number: u64| Block::new(u128::from(number) << 1);
        for spare in [0, 3, 100] {
            let mut blocks = Blocks::new(HashKey(0), Block::ZERO, 0);
            let (mut made, mut used) = (0, 0);
            for (more, take) in [(10, 9), (8, 1), (1, 1), (40, 30), (12, 30), (5, 0), (2, 7), (30, 15)] {
                let fill = |held: &mut Vec<Block>| {
                    held.extend((made..made + more).map(block));
                    Ok::<(), ()>(())
                };
                assert!(blocks.append(more as usize, spare, fill).is_ok());
                made += more;
                assert_eq!(blocks.left() as u64, made - used);
                for _ in 0..take {
                    blocks.wipe_taken();
                    let from = blocks.advance(1);
                    let taken = blocks.received(from);
                    assert!(taken.first == used && taken.blocks == [block(used)], "number {used}");
                    assert!(blocks.blocks.0[..from].iter().all(|block| *block == Block::ZERO));
                    used += 1;
                }
            }
        }
    }
}
