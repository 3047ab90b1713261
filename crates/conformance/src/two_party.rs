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

/// Two parties over words of type `W`, their OTs dealt.
pub struct TwoPartyHarness<W>(PhantomData<W>);

impl<W: Word> Harness for TwoPartyHarness<W> {
    type Protocol = TwoParty<W>;
    type Client = TwoPartyClient<W>;
    /// The value, at P0.
    type Dealt = Option<Tensor<W>>;
    const PARTIES: usize = 2;

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>> {
        let stock = Box::new(DealtStock::new(endpoint.me()));
        let keys = keys(endpoint.me());
        TwoParty::new(endpoint, keys, stock, ring, options, 0)
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

/// Two parties over words of type `W` as they run among servers: base OTs and silent extension.
pub struct ExtendedHarness<W>(PhantomData<W>);

impl<W: Word> Harness for ExtendedHarness<W> {
    type Protocol = TwoParty<W>;
    type Client = TwoPartyClient<W>;
    type Dealt = Option<Tensor<W>>;
    const PARTIES: usize = 2;

    fn party(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>> {
        let keys = keys(endpoint.me());
        TwoParty::start(endpoint, keys, ring, options)
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> TwoPartyClient<W> {
        TwoPartyClient::new(endpoint, ring, options)
    }

    fn deal(value: &Tensor<W>, number: u64, ring: Ring) -> Vec<Option<Tensor<W>>> {
        TwoPartyHarness::deal(value, number, ring)
    }

    fn load(dealt: Option<Tensor<W>>, me: usize, shape: &[usize], bits: u32) -> Option<Stored<W>> {
        TwoPartyHarness::load(dealt, me, shape, bits)
    }
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
        DealtStock { me, dealers, sent: run(), received: run(), delta }
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
