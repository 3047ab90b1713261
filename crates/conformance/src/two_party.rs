//! Two parties under test. Their OTs come from a dealer, or from the extension they would use.

use std::marker::PhantomData;

use covey_ot::ideal::Dealer;
use covey_ot::{HashKey, Received, Sent};
use covey_protocols::Options;
use covey_protocols::api::Result;
use covey_protocols::cost::Demand;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Served;
use covey_protocols::two_party::{Stock, Stored, TwoParty, TwoPartyClient};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::harness::Harness;

/// Where the parties' OTs come from.
pub trait Source: 'static {
    /// The party of `endpoint`.
    fn party<W: Word>(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>>;
}

/// From a dealer.
pub struct Dealt;

impl Source for Dealt {
    fn party<W: Word>(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>> {
        let stock = DealtStock::new(endpoint.me());
        with_stock(endpoint, stock, ring, options)
    }
}

/// From base OTs and silent extension, as among servers.
pub struct Extended;

impl Source for Extended {
    fn party<W: Word>(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>> {
        let keys = keys(endpoint.me());
        TwoParty::start(endpoint, keys, ring, options, 0)
    }
}

/// Two parties over words of type `W`.
pub struct TwoPartyHarness<W, S = Dealt>(PhantomData<(W, S)>);

impl<W: Word, S: Source> Harness for TwoPartyHarness<W, S> {
    type Protocol = TwoParty<W>;
    type Client = TwoPartyClient<W>;
    /// The value, at P0.
    type Dealt = Option<Tensor<W>>;
    const PARTIES: usize = 2;

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>> {
        S::party(endpoint, ring, options)
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> TwoPartyClient<W> {
        TwoPartyClient::new(endpoint, ring, options)
    }

    fn deal(value: &Tensor<W>, _: u64, _: Ring) -> Vec<Option<Tensor<W>>> {
        vec![Some(value.clone()), None]
    }

    fn load(value: Option<Tensor<W>>, _: usize, shape: &[usize], bits: u32) -> Option<Stored<W>> {
        Some(value.map_or_else(|| Stored::absent(shape, bits), |value| Stored::owned(value, bits)))
    }
}

/// The party of `endpoint` that takes its OTs from `stock`.
pub fn with_stock<W: Word>(
    endpoint: Box<dyn Endpoint>,
    stock: DealtStock,
    ring: Ring,
    options: Options,
) -> Result<TwoParty<W>> {
    let keys = keys(endpoint.me());
    TwoParty::new(endpoint, keys, Box::new(stock), ring, options, 0)
}

fn keys(me: usize) -> SessionKeys {
    let mut keys = vec![Some(blake3::derive_key("covey conformance 2026 session keys", &[0, 1])); 2];
    keys[me] = None;
    SessionKeys::new(keys)
}

/// A stock that a dealer fills: both parties' dealers, of the same seeds, deal the same OTs.
pub struct DealtStock {
    me: usize,
    /// By the party that holds the correlation.
    dealers: [Dealer; 2],
    sent: Run,
    received: Run,
    delta: covey_ot::Block,
    /// One OT that the parties hold differently: by the party that holds the correlation, and its number.
    flaw: Option<(usize, u64)>,
}

/// OTs of one direction, and how many of them have been taken.
struct Run {
    key: HashKey,
    first: u64,
    blocks: Vec<covey_ot::Block>,
    taken: usize,
}

impl Run {
    fn left(&self) -> u64 {
        (self.blocks.len() - self.taken) as u64
    }

    /// Gives up what was taken and adds `more`.
    fn extend(&mut self, more: &[covey_ot::Block]) {
        self.blocks.drain(..self.taken);
        self.first += self.taken as u64;
        self.taken = 0;
        self.blocks.extend_from_slice(more);
    }
}

impl DealtStock {
    /// An empty one of party `me`.
    pub fn new(me: usize) -> Self {
        let mut dealers = [1, 2].map(Dealer::new);
        let none = dealers[me].deal(0).0;
        let (delta, key) = (none.view().delta, none.view().key);
        let run = || Run { key, first: 0, blocks: Vec::new(), taken: 0 };
        DealtStock { me, dealers, sent: run(), received: run(), delta, flaw: None }
    }

    /// The same, but that this party's block of OT number `at` of direction `sender` has one bit flipped.
    #[must_use]
    pub fn flawed(self, sender: usize, at: u64) -> Self {
        DealtStock { flaw: Some((sender, at)), ..self }
    }
}

impl Stock for DealtStock {
    fn left(&self) -> Demand {
        let mut transfers = [self.received.left(); 2];
        transfers[self.me] = self.sent.left();
        Demand { transfers }
    }

    fn fill(&mut self, wanted: Demand, _: &mut dyn Endpoint) -> Result<()> {
        let missing = |sender: usize, left: u64| wanted.transfers[sender].saturating_sub(left) as usize;
        let sent = self.dealers[self.me].deal(missing(self.me, self.sent.left())).0;
        self.sent.extend(sent.view().blocks);
        let received = self.dealers[1 - self.me].deal(missing(1 - self.me, self.received.left())).1;
        self.received.extend(received.view().blocks);
        if let Some((sender, at)) = self.flaw {
            let run = if sender == self.me { &mut self.sent } else { &mut self.received };
            let index = at.checked_sub(run.first).map(|index| index as usize);
            if let Some(block) = index.and_then(|index| run.blocks.get_mut(index)) {
                *block ^= covey_ot::Block::new(1 << 77);
                self.flaw = None;
            }
        }
        Ok(())
    }

    fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)> {
        let DealtStock { sent: s, received: r, delta, .. } = self;
        let (from, start) = (s.taken, r.taken);
        s.taken += sent;
        r.taken += received;
        let sent =
            Sent { delta: *delta, key: s.key, first: s.first + from as u64, blocks: &s.blocks[from..from + sent] };
        let received =
            Received { key: r.key, first: r.first + start as u64, blocks: &r.blocks[start..start + received] };
        Ok((sent, received))
    }
}
