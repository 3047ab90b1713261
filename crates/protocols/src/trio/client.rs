//! The client's half: sharing inputs, receiving results, and sharing weights ahead of any session.

use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use super::io::{self, expand};
use super::share::{Arith, Role};
use super::{PEERS, plan};
use crate::api::{Options, Result};
use crate::scheduler::Scheduler;

/// The data owner's end of a session: it calls `send` and `receive` where the parties call `client_input` and `reveal`.
pub struct TrioClient<W> {
    ring: Ring,
    tile: usize,
    scheduler: Scheduler,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> TrioClient<W> {
    /// The client on `endpoint`, with the session's ring and options.
    pub fn new(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Self {
        let scheduler = Scheduler::new(endpoint, PEERS, options.window);
        TrioClient { ring, tile: plan::tile_size(&options), scheduler, word: std::marker::PhantomData }
    }

    /// Files what follows under `node` in the meter.
    pub fn enter(&mut self, node: u32) {
        self.scheduler.enter(node);
    }

    /// Shares `value` with the parties.
    pub fn send(&mut self, value: &Tensor<W>) -> Result<()> {
        let ring = self.ring;
        let tiles = value.data().chunks(self.tile).map(|tile| io::ClientInput::client(ring, tile.to_vec()));
        self.scheduler.run(tiles).map(|_| ())
    }

    /// Receives what the parties reveal.
    pub fn receive(&mut self, shape: &[usize]) -> Result<Tensor<W>> {
        let (ring, tile, len) = (self.ring, self.tile, shape.iter().product::<usize>());
        let tiles = (0..len.div_ceil(tile)).map(|index| io::Reveal::client(ring, tile.min(len - index * tile)));
        let parts = self.scheduler.run(tiles)?;
        Ok(Tensor::new(shape, parts.concat()))
    }
}

/// What one party receives of a client's shared tensor that outlives sessions: P0 and P1 the seed of l1, P0 and P2 the seed
/// of l2, P1 and P2 the masked value C. Not `Debug`.
pub struct ClientParameter<'a, W> {
    /// Seed of l1, for P0 and P1.
    pub seed_01: Option<&'a [u8; 32]>,
    /// Seed of l2, for P0 and P2.
    pub seed_02: Option<&'a [u8; 32]>,
    /// C, for P1 and P2.
    pub masked: Option<&'a [W]>,
    /// The tensor's number under its seeds, used once.
    pub tensor: u64,
}

impl<W: Word> ClientParameter<'_, W> {
    /// The share of `role`, or `None` if what the role needs is missing or has another size.
    pub fn share(&self, role: Role, shape: &[usize]) -> Option<Arith<W>> {
        let len = shape.iter().product();
        let l1 = || self.seed_01.map(|seed| expand::<W>(seed, self.tensor, len));
        let l2 = || self.seed_02.map(|seed| expand::<W>(seed, self.tensor, len));
        if role == Role::P0 {
            return Some(Arith::new(shape, l1()?, l2()?));
        }
        let mask = if role == Role::P1 { l1()? } else { l2()? };
        let masked = self.masked.filter(|masked| masked.len() == len)?;
        let first = masked.iter().zip(&mask).map(|(&c, &mask)| c.sub(mask)).collect();
        Some(Arith::new(shape, first, mask))
    }
}

/// C = x + l1 + l2 of a tensor shared under two seeds.
pub fn mask_parameter<W: Word>(value: &[W], seed_01: &[u8; 32], seed_02: &[u8; 32], tensor: u64, ring: Ring) -> Vec<W> {
    let (l1, l2) = (expand::<W>(seed_01, tensor, value.len()), expand::<W>(seed_02, tensor, value.len()));
    value.iter().zip(l1.iter().zip(&l2)).map(|(&x, (&l1, &l2))| ring.reduce(x.add(l1).add(l2))).collect()
}
