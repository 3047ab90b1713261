//! A dealer in the place of an extension. For tests only.

use covey_kernels::Prg;
use covey_kernels::hash::HashKey;

use crate::{Block, ReceivedBlocks, SentBlocks};

/// Deals the correlated OTs of one instance.
pub struct Dealer {
    prg: Prg,
    delta: Block,
    dealt: u64,
}

impl Dealer {
    /// The same seed deals the same OTs.
    pub fn new(seed: u64) -> Self {
        let prg = Prg::new(&(u128::from(seed) | 1 << 127).to_le_bytes());
        let mut delta = [0; 16];
        prg.fill(0, 0, &mut delta);
        Dealer { prg, delta: Block::from_bytes(delta) ^ Block::new(u128::from(!delta[0] & 1)), dealt: 0 }
    }

    /// The next `count`.
    pub fn deal(&mut self, count: usize) -> (SentBlocks, ReceivedBlocks) {
        let mut words = vec![0u64; 2 * count];
        self.prg.fill_words_from(1, self.dealt, &mut words);
        let received: Vec<Block> =
            words.chunks_exact(2).map(|w| Block::new(u128::from(w[0]) | u128::from(w[1]) << 64)).collect();
        let sent = received.iter().map(|&t| t ^ self.delta.times(t.low())).collect();
        let (key, first) = (HashKey(0x6964_6561_6C00 << 64), self.dealt);
        self.dealt += count as u64;
        (SentBlocks::new(self.delta, key, first, sent), ReceivedBlocks::new(key, first, received))
    }
}
