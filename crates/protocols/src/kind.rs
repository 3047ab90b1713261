//! The protocols by name, and each among servers as a value.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use crate::any_party::{AnyParty, AnyStoredShare, Erased};
use crate::api::{Costs, Options, PARTIES, Result, Rounding, Truncation};
use crate::beaver::Beaver;
use crate::clear::Clear;
use crate::cost::CostModel;
use crate::quad::Quad;
use crate::randomness::SessionKeys;
use crate::served::{ClientHalf, Part, Served, Sharing};
use crate::trio::Trio;
use crate::two_party::TwoParty;

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtocolKind {
    /// Plain integers in one process: the specification.
    Clear,
    /// Three parties, semi-honest, one corrupted.
    Trio,
    /// Four parties, one malicious, with abort.
    Quad,
    /// Two parties, semi-honest, no dealer.
    TwoParty,
    /// Any number of parties and a dealer, semi-honest, all but one party corrupted.
    Beaver,
}

impl ProtocolKind {
    /// All of them.
    pub const ALL: [ProtocolKind; 5] =
        [ProtocolKind::Clear, ProtocolKind::Trio, ProtocolKind::Quad, ProtocolKind::TwoParty, ProtocolKind::Beaver];

    /// Name on the command line and in the handshake.
    pub fn name(self) -> &'static str {
        self.properties().map_or(Clear::NAME, |properties| properties.costs.name)
    }

    /// Gives what holds in every ring. `None` if the protocol runs in one process.
    #[inline(never)]
    fn properties(self) -> Option<Properties> {
        match self {
            ProtocolKind::Clear => None,
            ProtocolKind::Trio => Some(Properties::of::<Trio<u32>>()),
            ProtocolKind::Quad => Some(Properties::of::<Quad<u32>>()),
            ProtocolKind::TwoParty => Some(Properties::of::<TwoParty<u32>>()),
            ProtocolKind::Beaver => Some(Properties::of::<Beaver<u32>>()),
        }
    }

    /// Gives the protocol as a value, over the words that hold elements of `ring`. `None` if it does not compute in that ring or runs
    /// in one process.
    // Inlined elsewhere, it would have all gates compiled there again.
    #[inline(never)]
    pub fn served(self, ring: Ring) -> Option<ServedWords> {
        let narrow = |protocol| Some(ServedWords::Narrow(protocol));
        let wide = |protocol| Some(ServedWords::Wide(protocol));
        match (self, ring) {
            (ProtocolKind::Trio, Ring::Pow2(32)) => narrow(Of::<Trio<u32>>::VALUE),
            (ProtocolKind::Trio, Ring::Pow2(64)) => wide(Of::<Trio<u64>>::VALUE),
            (ProtocolKind::Quad, Ring::Pow2(32)) => narrow(Of::<Quad<u32>>::VALUE),
            (ProtocolKind::Quad, Ring::Pow2(64)) => wide(Of::<Quad<u64>>::VALUE),
            (ProtocolKind::Beaver, Ring::Pow2(32)) => narrow(Of::<Beaver<u32>>::VALUE),
            (ProtocolKind::Beaver, Ring::Pow2(64)) => wide(Of::<Beaver<u64>>::VALUE),
            (ProtocolKind::TwoParty, ring) => match ring.bits() {
                16..=32 => narrow(Of::<TwoParty<u32>>::VALUE),
                33..=64 => wide(Of::<TwoParty<u64>>::VALUE),
                _ => None,
            },
            _ => None,
        }
    }

    /// Names the rings that it computes in, as an option of `compile`.
    pub fn rings(self) -> &'static str {
        match self {
            ProtocolKind::TwoParty => "16 to 64",
            _ => "32 or --ring 64",
        }
    }

    /// Those that run among servers.
    pub fn all_served() -> impl Iterator<Item = ProtocolKind> {
        ProtocolKind::ALL.into_iter().filter(|kind| *kind != ProtocolKind::Clear)
    }

    /// How weights are shared among servers, of which `parties` compute where the protocol takes any number; `None` for what runs in
    /// one process.
    pub fn sharing(self, parties: usize) -> Option<Sharing> {
        Some((self.properties()?.sharing)(parties))
    }

    /// Who shares each key of `role`, of so many ([`Served::key_holders`]).
    pub fn key_holders(self, role: usize, roles: usize) -> Vec<Option<Vec<usize>>> {
        self.properties().map_or_else(Vec::new, |properties| (properties.key_holders)(role, roles))
    }

    /// Role assignments that the lanes of a session may have ([`Served::ASSIGNMENTS`]).
    pub fn assignments(self) -> usize {
        self.properties().map_or(1, |properties| properties.assignments)
    }

    /// Whether comparisons may read fewer bits than they need ([`Served::ADMITS_KEY_BITS`]).
    pub fn admits_key_bits(self) -> bool {
        self.properties().is_some_and(|properties| properties.admits_key_bits)
    }

    /// Roles: of the computing parties, and the dealer's where there is one.
    pub fn roles(self, parties: usize) -> usize {
        self.sharing(parties).map_or(1, |sharing| sharing.roles.len())
    }

    /// [`Options::parties`] and how weights are shared where `listed` roles are listed: all of them, or those alone
    /// that are not open to clients. `None` for a number that the protocol does not take.
    pub fn listed(self, listed: usize) -> Option<(usize, Sharing)> {
        PARTIES
            .filter_map(|parties| Some((parties, self.sharing(parties)?)))
            .find(|(_, sharing)| listed == sharing.roles.len() || listed == sharing.pinned())
    }

    /// Whether a dealer takes part beside the computing parties.
    pub fn has_dealer(self) -> bool {
        self.sharing(*PARTIES.start()).is_some_and(|sharing| sharing.roles.contains(&Part::Dealer))
    }

    /// How many parties it takes, in words.
    pub fn takes(self) -> String {
        let dealer = if self.has_dealer() { " and a dealer" } else { "" };
        match (self.roles(*PARTIES.start()), self.roles(*PARTIES.end())) {
            (least, most) if least == most => format!("{least}{dealer}"),
            _ => format!("{} to {}{dealer}", PARTIES.start(), PARTIES.end()),
        }
    }
}

impl fmt::Display for ProtocolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A protocol nobody has heard of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protocol '{0}' is not known: use clear, trio, quad, two-party or beaver")]
pub struct UnknownProtocol(pub String);

impl FromStr for ProtocolKind {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        let known = ProtocolKind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| UnknownProtocol(name.to_string()))
    }
}

/// What holds of a served protocol, whatever the words of its ring: [`Served`] as a value.
#[derive(Clone, Copy)]
pub struct Properties {
    /// [`Costs`].
    pub costs: CostModel,
    /// [`Served::sharing`].
    pub sharing: fn(usize) -> Sharing,
    /// [`Served::key_holders`].
    pub key_holders: fn(usize, usize) -> Vec<Option<Vec<usize>>>,
    /// [`Served::admits_rounding`].
    pub admits_rounding: fn(Rounding) -> bool,
    /// [`Served::admits_shift`].
    pub admits_shift: fn(Ring, Truncation) -> bool,
    /// [`Served::admits_division`].
    pub admits_division: fn(Ring, u64, u32) -> bool,
    /// [`Served::ADMITS_KEY_BITS`].
    pub admits_key_bits: bool,
    /// [`Served::STOCKED`].
    pub stocked: bool,
    /// [`Served::PREPARES_TOGETHER`].
    pub prepares_together: bool,
    /// [`Served::keeps_runs`].
    pub keeps_runs: fn(&Options) -> bool,
    /// [`Served::DRAWS_LASTING`].
    pub draws_lasting: bool,
    /// [`Served::ASSIGNMENTS`].
    pub assignments: usize,
}

impl Properties {
    fn of<P: Served>() -> Self {
        Properties {
            costs: CostModel::of::<P>(),
            sharing: P::sharing,
            key_holders: P::key_holders,
            admits_rounding: P::admits_rounding,
            admits_shift: P::admits_shift,
            admits_division: P::admits_division,
            admits_key_bits: P::ADMITS_KEY_BITS,
            stocked: P::STOCKED,
            prepares_together: P::PREPARES_TOGETHER,
            keeps_runs: P::keeps_runs,
            draws_lasting: P::DRAWS_LASTING,
            assignments: P::ASSIGNMENTS,
        }
    }
}

/// A served protocol over the words of a ring.
pub enum ServedWords {
    /// Of 32 bits.
    Narrow(&'static dyn ServedProtocol<u32>),
    /// Of 64 bits.
    Wide(&'static dyn ServedProtocol<u64>),
}

impl ServedWords {
    /// What holds of it.
    pub fn properties(&self) -> Properties {
        match self {
            ServedWords::Narrow(protocol) => protocol.properties(),
            ServedWords::Wide(protocol) => protocol.properties(),
        }
    }
}

/// A served protocol over words `W` as a value: what uses it is compiled once a word and not for every protocol.
pub trait ServedProtocol<W: Word>: Sync {
    /// What holds of it.
    fn properties(&self) -> Properties;

    /// [`Served::start`].
    ///
    /// # Errors
    /// As there.
    fn start(
        &self,
        endpoint: Box<dyn Endpoint>,
        keys: SessionKeys,
        ring: Ring,
        options: Options,
        lane: u32,
    ) -> Result<Box<AnyParty<W>>>;

    /// [`Served::client`].
    fn client(&self, endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Box<dyn ClientHalf<W>>;

    /// [`Served::share_parameter`].
    fn share_parameter(&self, value: &[W], seeds: &[&[u8; 32]], tensor: u64, ring: Ring) -> Vec<Arc<[W]>>;

    /// [`Served::load`] for a role with the seeds that it was given.
    fn loader(&self, role: usize, seeds: &[&[u8; 32]]) -> Box<Loader<W>>;

    /// [`Served::turned`].
    fn turned(&self, role: usize, turn: usize, components: Vec<Tensor<W>>) -> Option<Vec<Tensor<W>>>;

    /// [`Served::stored_components`].
    fn stored_components(&self, role: usize, stored: AnyStoredShare) -> Vec<Tensor<W>>;
}

/// [`Served::load`] of one role: shape and bits, number and words of a parameter.
pub type Loader<W> = dyn Fn((&[usize], u32), u64, Option<Vec<W>>) -> Option<AnyStoredShare>;

/// Protocol `P` as a value.
struct Of<P>(PhantomData<fn() -> P>);

impl<P: Served> Of<P> {
    const VALUE: &'static dyn ServedProtocol<P::Word> = &Of::<P>(PhantomData);
}

impl<P: Served> ServedProtocol<P::Word> for Of<P> {
    fn properties(&self) -> Properties {
        Properties::of::<P>()
    }

    fn start(
        &self,
        endpoint: Box<dyn Endpoint>,
        keys: SessionKeys,
        ring: Ring,
        options: Options,
        lane: u32,
    ) -> Result<Box<AnyParty<P::Word>>> {
        Ok(Box::new(Erased(P::start(endpoint, keys, ring, options, lane)?)))
    }

    fn client(&self, endpoint: Box<dyn Endpoint>, ring: Ring, options: Options) -> Box<dyn ClientHalf<P::Word>> {
        Box::new(P::client(endpoint, ring, options))
    }

    fn share_parameter(&self, value: &[P::Word], seeds: &[&[u8; 32]], tensor: u64, ring: Ring) -> Vec<Arc<[P::Word]>> {
        P::share_parameter(value, seeds, tensor, ring)
    }

    fn loader(&self, role: usize, seeds: &[&[u8; 32]]) -> Box<Loader<P::Word>> {
        let seeds = P::open_seeds(role, seeds);
        Box::new(move |shape, tensor, words| P::load(role, shape, &seeds, tensor, words).map(AnyStoredShare::new))
    }

    fn turned(&self, role: usize, turn: usize, components: Vec<Tensor<P::Word>>) -> Option<Vec<Tensor<P::Word>>> {
        if turn == 0 { Some(components) } else { P::turned(role, turn, components) }
    }

    fn stored_components(&self, role: usize, stored: AnyStoredShare) -> Vec<Tensor<P::Word>> {
        P::stored_components(role, stored.into_known())
    }
}
