//! Two parties under test. Their OTs come from a dealer, or from the extension they would use.

use std::marker::PhantomData;

use covey_kernels::{Prg, constant_time};
use covey_ot::ideal::Dealer;
use covey_ot::{Block, HashKey, Received, ReceivedBlocks, Sent, SentBlocks};
use covey_protocols::Options;
use covey_protocols::api::Result;
use covey_protocols::cost::OtCount;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Served;
use covey_protocols::two_party::{Stock, StoredShare, TwoParty, TwoPartyClient};
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::harness::Harness;
use crate::secrets;

/// Where the parties' OTs come from.
pub trait Source: 'static {
    /// The party of `endpoint`.
    fn party<W: Word>(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>>;
}

/// From a dealer.
pub struct Dealt;

impl Source for Dealt {
    fn party<W: Word>(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Result<TwoParty<W>> {
        let (keys, stock) = (keys(endpoint.me()), DealtStock::new(endpoint.me()));
        with_stock(endpoint, keys, stock, ring, options)
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

    fn expect(protocol: &mut TwoParty<W>, ots: impl FnOnce() -> OtCount) {
        protocol.expect(ots());
    }

    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> TwoPartyClient<W> {
        TwoPartyClient::new(endpoint, ring, options)
    }

    fn deal(value: &Tensor<W>, _: u64, _: Ring) -> Vec<Option<Tensor<W>>> {
        vec![Some(value.clone()), None]
    }

    fn load(value: Option<Tensor<W>>, _: usize, shape: &[usize], bits: u32) -> Option<StoredShare<W>> {
        Some(value.map_or_else(|| StoredShare::absent(shape, bits), |value| StoredShare::owned(value, bits)))
    }
}

/// The party of `endpoint` that takes its OTs from `stock`.
pub fn with_stock<W: Word>(
    endpoint: Box<dyn Endpoint>,
    keys: SessionKeys,
    stock: DealtStock,
    ring: Ring,
    options: Options,
) -> Result<TwoParty<W>> {
    TwoParty::new(endpoint, keys, Box::new(stock), ring, options, 0)
}

/// Keys of party `me`: the same wherever a key has the same holders.
pub fn keys(me: usize) -> SessionKeys {
    let key = |holders: Vec<usize>| {
        let holders: Vec<u8> = holders.into_iter().map(|holder| holder as u8).collect();
        secrets::key(blake3::derive_key("covey conformance 2026 session keys", &holders))
    };
    SessionKeys::new(TwoParty::<u32>::key_holders(me, 2).into_iter().map(|holders| holders.map(key)).collect())
}

/// A stock that a dealer fills: both parties' dealers, of the same seeds, deal the same OTs.
pub struct DealtStock {
    me: usize,
    /// By the party that holds the correlation.
    dealers: [Deal; 2],
    sent: Run,
    received: Run,
    delta: Block,
    /// One OT that the parties hold differently: by the party that holds the correlation, and its number.
    flaw: Option<(usize, u64)>,
    /// So many tiles take OTs that the next ones take again.
    repeated: Option<Repeated>,
}

/// OTs that are taken twice.
struct Repeated {
    tiles: usize,
    /// What was used up before the first of them.
    start: Option<[usize; 2]>,
}

/// Who deals.
enum Deal {
    Ideal(Box<Dealer>),
    Halves(Box<Halves>),
}

impl Deal {
    fn deal(&mut self, count: usize) -> (SentBlocks, ReceivedBlocks) {
        match self {
            Deal::Ideal(dealer) => dealer.deal(count),
            Deal::Halves(halves) => halves.deal(count),
        }
    }
}

/// OTs of which the party that `held` names has the same part whatever the salt; the other's is fresh for each salt. The sender has
/// blocks s and a correlation d, the receiver s or s ^ d, by its choice.
struct Halves {
    /// The blocks of who holds the fixed part.
    blocks: Prg,
    /// Whether that is the receiver.
    receives: bool,
    choices: Prg,
    delta: Block,
    dealt: u64,
}

impl Halves {
    fn new(sender: usize, held: Option<usize>, salt: u64) -> Self {
        let prg = |what: &[u8], salt: u64| {
            let material = [what, &[sender as u8], &salt.to_le_bytes()].concat();
            let key = blake3::derive_key("covey conformance 2026 halves of OTs", &material);
            Prg::new(key.first_chunk().expect("16 of 32 bytes"))
        };
        let of = |holder: usize| if held == Some(holder) { 0 } else { salt };
        let receives = held == Some(1 - sender);
        let mut delta = [0; 16];
        prg(b"delta", of(sender)).fill(0, 0, &mut delta);
        delta[0] |= 1;
        let blocks = prg(b"blocks", if held.is_some() { 0 } else { salt });
        Halves { blocks, receives, choices: prg(b"choices", salt), delta: Block::from_bytes(delta), dealt: 0 }
    }

    fn deal(&mut self, count: usize) -> (SentBlocks, ReceivedBlocks) {
        let (mut words, mut choices) = (vec![0u64; 2 * count], vec![0u64; 2 * count]);
        self.blocks.fill_words_from(0, self.dealt, &mut words);
        self.choices.fill_words_from(0, self.dealt, &mut choices);
        let held = words.chunks_exact(2).zip(choices.chunks_exact(2));
        let (sent, received) = held
            .map(|(words, choice)| {
                let block = u128::from(words[0]) | u128::from(words[1]) << 64;
                if self.receives {
                    let received = Block::new(block);
                    return (received ^ self.delta.times(received.low()), received);
                }
                // The sender's blocks end in 0, the correlation in 1, so that a received block ends in the choice.
                let sent = Block::new(block & !1);
                (sent, sent ^ self.delta.times(choice[0]))
            })
            .unzip();
        let (key, first) = (HashKey(0x6865_6C64 << 64), self.dealt);
        self.dealt += count as u64;
        (SentBlocks::new(self.delta, key, first, sent), ReceivedBlocks::new(key, first, received))
    }
}

/// OTs of one direction, and how many of them have been taken.
struct Run {
    key: HashKey,
    first: u64,
    blocks: Vec<Block>,
    taken: usize,
}

impl Run {
    fn left(&self) -> u64 {
        (self.blocks.len() - self.taken) as u64
    }

    /// Gives up what was taken and adds `more`.
    fn extend(&mut self, more: &[Block]) {
        self.blocks.drain(..self.taken);
        self.first += self.taken as u64;
        self.taken = 0;
        self.blocks.extend_from_slice(more);
    }
}

impl DealtStock {
    /// An empty one of party `me`.
    pub fn new(me: usize) -> Self {
        Self::of(me, [1, 2].map(|seed| Deal::Ideal(Box::new(Dealer::new(seed)))))
    }

    /// An empty one of party `me`: whatever `salt`, `held` holds the same part of the same OTs.
    pub fn halved(me: usize, held: Option<usize>, salt: u64) -> Self {
        Self::of(me, [0, 1].map(|sender| Deal::Halves(Box::new(Halves::new(sender, held, salt)))))
    }

    fn of(me: usize, mut dealers: [Deal; 2]) -> Self {
        let none = dealers[me].deal(0).0;
        let (delta, key) = (none.view().delta, none.view().key);
        constant_time::secret(&[delta]);
        let run = || Run { key, first: 0, blocks: Vec::new(), taken: 0 };
        DealtStock { me, dealers, sent: run(), received: run(), delta, flaw: None, repeated: None }
    }

    /// The same, but that this party's block of OT number `at` of direction `sender` has one bit flipped.
    #[must_use]
    pub fn flawed(self, sender: usize, at: u64) -> Self {
        DealtStock { flaw: Some((sender, at)), ..self }
    }

    /// The same, but that what the first `tiles` tiles take is there for the next ones again.
    #[must_use]
    pub fn repeating(self, tiles: usize) -> Self {
        DealtStock { repeated: Some(Repeated { tiles, start: None }), ..self }
    }
}

impl Stock for DealtStock {
    fn left(&self) -> OtCount {
        let mut transfers = [self.received.left(); 2];
        transfers[self.me] = self.sent.left();
        OtCount { by_sender: transfers }
    }

    fn fill(&mut self, wanted: OtCount, _: &mut dyn Endpoint) -> Result<()> {
        let missing = |sender: usize, left: u64| wanted.by_sender[sender].saturating_sub(left) as usize;
        let sent = self.dealers[self.me].deal(missing(self.me, self.sent.left())).0;
        constant_time::secret(sent.view().blocks);
        self.sent.extend(sent.view().blocks);
        let received = self.dealers[1 - self.me].deal(missing(1 - self.me, self.received.left())).1;
        constant_time::secret(received.view().blocks);
        self.received.extend(received.view().blocks);
        if let Some((sender, at)) = self.flaw {
            let run = if sender == self.me { &mut self.sent } else { &mut self.received };
            let index = at.checked_sub(run.first).map(|index| index as usize);
            if let Some(block) = index.and_then(|index| run.blocks.get_mut(index)) {
                *block ^= Block::new(1 << 77);
                self.flaw = None;
            }
        }
        Ok(())
    }

    fn take(&mut self, sent: usize, received: usize) -> Result<(Sent<'_>, Received<'_>)> {
        let DealtStock { sent: s, received: r, delta, repeated, .. } = self;
        let (from, start) = (s.taken, r.taken);
        s.taken += sent;
        r.taken += received;
        if let Some(again) = repeated {
            let before = *again.start.get_or_insert([from, start]);
            again.tiles -= 1;
            if again.tiles == 0 {
                [s.taken, r.taken] = before;
                *repeated = None;
            }
        }
        let sent =
            Sent { delta: *delta, key: s.key, first: s.first + from as u64, blocks: &s.blocks[from..from + sent] };
        let received =
            Received { key: r.key, first: r.first + start as u64, blocks: &r.blocks[start..start + received] };
        Ok((sent, received))
    }
}
