//! What a protocol adds to [`Protocol`] to run among servers: how a party starts, the client's half, and how weights that a
//! model owner shared ahead of sessions are handed out and taken up again.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use covey_ot::stock::Reserved;
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;
use zeroize::Zeroizing;

use crate::api::{Costs, Options, Protocol, Result, Rounding, Truncation};
use crate::cost::OtCount;
use crate::randomness::{DrawKeys, SessionKeys};
use crate::scheduler::Scheduler;
use crate::store::Material;

/// A protocol among servers.
pub trait Served: Protocol + Costs + ClientGates<Self::Word> + Sized + 'static {
    /// The seeds a role was given, ready to draw from.
    type Seeds;

    /// What a model owner sends to whom; `parties` is [`Options::parties`].
    fn sharing(parties: usize) -> Sharing;

    /// Who shares the key in each slot of the [`SessionKeys`] of `role`, of so many: roles in ascending order, `role` among them; `None`
    /// for a slot without a key. By default a key with each other role, in the slot of its number.
    fn key_holders(role: usize, roles: usize) -> Vec<Option<Vec<usize>>> {
        (0..roles).map(|other| (other != role).then(|| vec![role.min(other), role.max(other)])).collect()
    }

    /// Whether shifts can be rounded like that.
    fn admits_rounding(_: Rounding) -> bool {
        true
    }

    /// Whether values can be shifted like that in `ring`.
    fn admits_shift(ring: Ring, truncation: Truncation) -> bool {
        truncation.fits_masked(ring)
    }

    /// Whether comparisons may read fewer bits than they need ([`Options::key_bits`]): their results then depend on masks.
    const ADMITS_KEY_BITS: bool = true;

    /// Whether values `|x| < 2^bound` of `ring` can be divided exactly by `divisor`.
    fn admits_division(_ring: Ring, _divisor: u64, _bound: u32) -> bool {
        false
    }

    /// A party on `endpoint`, with the keys it shares with the others, for the runs of lane number `lane`. No two of a session have the
    /// same number: what they draw from the keys differs by it.
    fn start(endpoint: Box<dyn Endpoint>, keys: SessionKeys, ring: Ring, options: Options, lane: u32) -> Result<Self>;

    /// Whether the protocol uses correlated OTs that were made ahead of a session.
    const STOCKED: bool = false;

    /// Role assignments that the lanes of a session may have: in number `turn`, party p has role (p + turn) modulo so many, the number of
    /// parties. 1 where roles stay.
    const ASSIGNMENTS: usize = 1;

    /// The components that the party of `role` has of a value, where it has role (role + turn) modulo [`Served::ASSIGNMENTS`], from those
    /// that it has here. A party alone does that: each lacks one addend of the value, and the roles differ in which. `None` for another
    /// number of components than a share has.
    fn turned(role: usize, turn: usize, components: Vec<Tensor<Self::Word>>) -> Option<Vec<Tensor<Self::Word>>> {
        let _ = role;
        (turn == 0).then_some(components)
    }

    /// The components of a stored share of `role`, where [`Served::ASSIGNMENTS`] is more than 1.
    fn stored_components(role: usize, stored: Self::StoredShare) -> Vec<Tensor<Self::Word>> {
        let _ = (role, stored);
        Vec::new()
    }

    /// Whether the parties exchange messages to prepare weights. What they prepared in a session then serves a later one only where
    /// all of them still have it.
    const PREPARES_TOGETHER: bool = false;

    /// Says how many correlated OTs the runs of the next request take, so that few are made where few are taken. Both parties say the same.
    fn expect(&mut self, ots: OtCount) {
        let _ = ots;
    }

    /// Gives this party such OTs, for the runs of these numbers: as many as their plan asks for, which they then take from there and
    /// nowhere else. Both parties are given the two sides of the same ones.
    fn supply(&mut self, runs: Range<u64>, ots: Reserved) {
        let _ = (runs, ots);
    }

    /// Whether what preprocessing makes for the runs of a session with these options can be kept for later sessions.
    fn keeps_runs(_: &Options) -> bool {
        false
    }

    /// Whether such runs also draw from [`SessionKeys::lasting`], which all runs of a batch then have in common.
    const DRAWS_LASTING: bool = false;

    /// Set once weights that this party prepared may serve no further session: a party cheated at a check whose keys last as long as
    /// they do.
    fn weights_spent(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// The party's runs, where [`Served::keeps_runs`].
    fn kept_runs(&mut self) -> Option<&mut dyn KeptRuns> {
        None
    }

    /// [`KeptRuns::take_run`].
    fn take_run(&mut self, run: u64) -> Option<Material> {
        self.kept_runs()?.take_run(run)
    }

    /// [`KeptRuns::supply_run`].
    fn supply_run(&mut self, run: u64, stored: StoredRun) {
        if let Some(runs) = self.kept_runs() {
            runs.supply_run(run, stored);
        }
    }

    /// Where parties prepare weights together: what this one draws the masks of weights from, to be kept for later sessions.
    fn weight_masks(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::default()
    }

    /// Prepares weights under the masks of an earlier session, before any is prepared: the same version of the same weights, as a mask serves
    /// one value. False for what is none of this role's.
    fn restore_weight_masks(&mut self, masks: &[u8]) -> bool {
        masks.is_empty()
    }

    /// The client on `endpoint`.
    fn client(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Client<Self> {
        Client::new(endpoint, ring, options)
    }

    /// Model owner: the words of secret parameter number `tensor` for each role that [`Sharing`] names, in role order, under
    /// the seeds drawn for this sharing.
    fn share_parameter(value: &[Self::Word], seeds: &[&[u8; 32]], tensor: u64, ring: Ring) -> Vec<Arc<[Self::Word]>>;

    /// Party: the seeds that `role` was given, in the order of [`Sharing`].
    fn open_seeds(role: usize, seeds: &[&[u8; 32]]) -> Self::Seeds;

    /// Party: secret parameter number `tensor` as `role` holds it, with the words it was given, if any; its elements are
    /// `|w| < 2^bits`. `None` where that does not fit the role or the shape.
    fn load(
        role: usize,
        shape: (&[usize], u32),
        seeds: &Self::Seeds,
        tensor: u64,
        words: Option<Vec<Self::Word>>,
    ) -> Option<Self::StoredShare>;
}

/// Runs whose offline material can be kept for a later session.
pub trait KeptRuns {
    /// Says that the runs to come are preprocessed for later sessions. What those take from elsewhere is not made.
    fn keep_runs(&mut self) {}

    /// Takes out what a preprocessing run was dealt, to be kept for a later session.
    fn take_run(&mut self, run: u64) -> Option<Material>;

    /// Makes run `run` of this session, begun in phase online, use up a stored run. All parties are given the parts of
    /// the same one.
    fn supply_run(&mut self, run: u64, stored: StoredRun);
}

/// Offline material of one run, for a run of a later session.
pub struct StoredRun {
    /// The keys that it drew from, its own alone.
    pub keys: DrawKeys,
    /// Keys that it has in common with all runs of its batch, where the protocol draws from such ([`Served::DRAWS_LASTING`]).
    pub lasting: Option<DrawKeys>,
    /// What preprocessing left of it.
    pub material: Material,
}

/// What a model owner sends of its weights: once for all of them seeds, and for each secret parameter words or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Seeds drawn for one sharing.
    pub seeds: usize,
    /// What each role is sent, in role order. Those that are [`Part::Public`] come last.
    pub roles: Vec<Part>,
}

impl Sharing {
    /// Roles that nobody but a pinned party can have. They come first.
    pub fn pinned(&self) -> usize {
        self.roles.iter().filter(|part| **part != Part::Public).count()
    }
}

/// One role's part of [`Sharing`]. Public parameters are no part of it: every role is sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Something secret.
    Secret {
        /// Numbers of the seeds it is sent.
        seeds: Vec<usize>,
        /// Whether it is sent words of secret parameters.
        words: bool,
    },
    /// Nothing secret: anyone who may infer can take the role.
    Public,
    /// Nothing: the role deals correlated randomness and holds no shares. The protocol is secure only as long as whoever has it pools
    /// nothing with a party, so it is nobody but the one that all have pinned as their dealer.
    Dealer,
}

impl Part {
    /// Numbers of the seeds it is sent.
    pub fn seeds(&self) -> &[usize] {
        match self {
            Part::Secret { seeds, .. } => seeds,
            Part::Public | Part::Dealer => &[],
        }
    }

    /// Whether it is sent words of secret parameters.
    pub fn words(&self) -> bool {
        matches!(self, Part::Secret { words: true, .. })
    }
}

/// A protocol's gates as its client runs them.
pub trait ClientGates<W: Word> {
    /// Parties, the dealer where there is one, and the client.
    fn peers(options: &Options) -> usize;

    /// Shares values with the parties, a tile after the other.
    ///
    /// # Errors
    /// If a peer fails.
    fn share(scheduler: &mut Scheduler, ring: Ring, tiles: impl ExactSizeIterator<Item = Vec<W>>) -> Result<()>;

    /// Receives what the parties reveal in tiles of these lengths.
    ///
    /// # Errors
    /// If a peer fails.
    fn receive(
        scheduler: &mut Scheduler,
        ring: Ring,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<Vec<W>>>;
}

/// The client's half of protocol `P`.
pub struct Client<P> {
    ring: Ring,
    tile: usize,
    scheduler: Scheduler,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol + ClientGates<P::Word>> Client<P> {
    /// The client on `endpoint`, with the session's ring and options.
    pub fn new(endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Self {
        let scheduler = Scheduler::new(endpoint, P::peers(&options), options.window);
        Client { ring, tile: options.tile_size(), scheduler, protocol: PhantomData }
    }
}

impl<P: Protocol + ClientGates<P::Word>> ClientHalf<P::Word> for Client<P> {
    fn enter(&mut self, node: u32) {
        self.scheduler.enter(node);
    }

    fn send(&mut self, value: &Tensor<P::Word>) -> Result<()> {
        P::share(&mut self.scheduler, self.ring, value.data().chunks(self.tile).map(<[P::Word]>::to_vec))
    }

    fn receive(&mut self, shape: &[usize]) -> Result<Tensor<P::Word>> {
        let (tile, len) = (self.tile, shape.iter().product::<usize>());
        let lens = (0..len.div_ceil(tile)).map(|index| tile.min(len - index * tile));
        Ok(Tensor::new(shape, P::receive(&mut self.scheduler, self.ring, lens)?.concat()))
    }
}

/// The data owner's end of a session: it calls `send` and `receive` where the parties call `client_input` and `reveal`.
pub trait ClientHalf<W: Word>: Send {
    /// Files what follows under `node` in the meter.
    fn enter(&mut self, node: u32);
    /// Shares `value` with the parties.
    fn send(&mut self, value: &Tensor<W>) -> Result<()>;
    /// Receives what the parties reveal.
    fn receive(&mut self, shape: &[usize]) -> Result<Tensor<W>>;
}
