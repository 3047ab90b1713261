//! Choices of a session, and what the network is like.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// What the links between parties are like, for choosing among forms of a gate. It changes no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetworkProfile {
    /// One way, in microseconds.
    pub latency_us: u32,
    /// Of a party's network interface, in each direction.
    pub bits_per_second: u64,
}

impl Default for NetworkProfile {
    /// A local network: 10 Gbit/s, 0.1 ms one way.
    fn default() -> Self {
        NetworkProfile { latency_us: 100, bits_per_second: 10_000_000_000 }
    }
}

impl NetworkProfile {
    /// Tiles in flight that suit the network. Nearby, just enough of them that a tile's messages travel while others are
    /// computed: more would only leave the caches of one thread. Far away, the four million elements of the largest layers of common
    /// networks at once, so that every gate takes its rounds once.
    pub fn window(&self) -> usize {
        if self.is_far() { 256 } else { 16 }
    }

    /// Whether the parties are so far apart that gates wait longer than they compute.
    pub fn is_far(&self) -> bool {
        self.latency_us > 1000
    }

    /// How much of what a dealer sends counts when a gate's time is estimated. Far away the dealer's interface is free for what it deals for
    /// later gates, while the parties wait for the messages of their rounds: half of it delays nobody. Nearby all of it counts.
    pub(crate) fn delaying(&self, dealt: usize) -> usize {
        if self.is_far() { dealt / 2 } else { dealt }
    }
}

/// Which of MPC-Pipe's pipelines within one inference are on. They change when messages travel, and no result. The third, several
/// inferences at a time, is [`Options::lanes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pipelines {
    /// Weights are opened once, when they are prepared. Off: their openings travel again in every run, in front of the layer that
    /// multiplies by them, which is what protocols do that draw a product's masks anew each time. Only Beaver opens weights.
    pub inter_linear: bool,
    /// What a tile sends goes out while the next one is computed. Off: each round of a gate is computed in whole, then sent, then
    /// received in whole.
    pub inner_layer: bool,
}

impl Default for Pipelines {
    fn default() -> Self {
        Pipelines { inter_linear: true, inner_layer: true }
    }
}

/// How two parties multiply the model owner's weights by the data owner's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinearMethod {
    /// For each layer the faster one on the network in the options.
    #[default]
    Auto,
    /// Correlated oblivious transfers, one for every bit of a weight.
    Ot,
    /// Lattice encryption.
    Lattice,
}

/// A name that no method has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("linear layers by '{0}' are unknown: use auto, ot or lattice")]
pub struct UnknownLinearMethod(pub String);

impl FromStr for LinearMethod {
    type Err = UnknownLinearMethod;

    fn from_str(name: &str) -> Result<Self, UnknownLinearMethod> {
        let known = LinearMethod::ALL.into_iter().find(|method| method.name() == name);
        known.ok_or_else(|| UnknownLinearMethod(name.to_string()))
    }
}

impl LinearMethod {
    /// All of them.
    pub const ALL: [LinearMethod; 3] = [LinearMethod::Auto, LinearMethod::Ot, LinearMethod::Lattice];

    /// Name in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LinearMethod::Auto => "auto",
            LinearMethod::Ot => "ot",
            LinearMethod::Lattice => "lattice",
        }
    }
}

/// Which parties have which roles on the lanes of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Roles {
    /// The listed ones on every lane.
    #[default]
    Fixed,
    /// On each lane one role further than on the lane before, so that all parties send and compute alike.
    Turned,
}

/// A name that no such choice has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("roles cannot be '{0}': use fixed or turned")]
pub struct UnknownRoles(pub String);

impl FromStr for Roles {
    type Err = UnknownRoles;

    fn from_str(name: &str) -> Result<Self, UnknownRoles> {
        let known = Roles::ALL.into_iter().find(|roles| roles.name() == name);
        known.ok_or_else(|| UnknownRoles(name.to_string()))
    }
}

impl Roles {
    /// All of them.
    pub const ALL: [Roles; 2] = [Roles::Fixed, Roles::Turned];

    /// Name in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Roles::Fixed => "fixed",
            Roles::Turned => "turned",
        }
    }
}

/// Choices made at run time by the initiator of a session and bound in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// How comparisons are done.
    pub adder: crate::circuits::Adder,
    /// How two parties multiply by weights; other protocols ignore it.
    pub linear: LinearMethod,
    /// Two parties' layers by lattice encryption multiply a random mask while preprocessing. Online, P1 sends how far its share is off the
    /// mask: one ring element an input. Otherwise these layers are computed online, and their preprocessing is a public key.
    pub preprocess_linear: bool,
    /// What [`crate::circuits::Adder::Auto`] and [`LinearMethod::Auto`] choose for.
    pub network: NetworkProfile,
    /// Elements per tile of an element-wise gate.
    pub tile: usize,
    /// Tiles of one gate in flight.
    pub window: usize,
    /// Approximate comparisons: how many bits each reads, from the first that is always the sign down, a calibrated bound
    /// counting as a proved one. A value nearer to 0 than 2^(bound + 2 - bits) may be taken for either sign. Exact if `None`, and
    /// where the ring has no bit above the bound.
    pub key_bits: Option<u32>,
    /// Computing parties, of [`PARTIES`], where the protocol takes any number; the dealer is not counted. Other protocols ignore it.
    pub parties: usize,
    /// Inferences of a session under way at a time, of [`LANES`].
    pub lanes: usize,
    /// Who has which role on which lane.
    pub roles: Roles,
    /// Overlap within one inference.
    pub pipelines: Pipelines,
}

/// How many inferences of a session can be under way at a time.
pub const LANES: RangeInclusive<usize> = 1..=8;

/// How many computing parties there can be where a protocol takes any number.
pub const PARTIES: RangeInclusive<usize> = 2..=8;

impl Default for Options {
    fn default() -> Self {
        // 2^14 elements of 32 bits are 64 KiB a tensor and as much for its 32 bit planes: the working set of a tile's round
        // stays in a core's second-level cache.
        let network = NetworkProfile::default();
        let (adder, parties) = (Default::default(), *PARTIES.start());
        let (tile, window) = (1 << 14, network.window());
        let (linear, preprocess_linear, pipelines) = Default::default();
        let (key_bits, lanes, roles) = (None, 1, Roles::Fixed);
        Options { adder, linear, preprocess_linear, network, tile, window, key_bits, parties, lanes, roles, pipelines }
    }
}

impl Options {
    /// Role assignments that the lanes have in turn, of `most` that the protocol has.
    pub fn assignments(&self, most: usize) -> usize {
        match self.roles {
            Roles::Fixed => 1,
            Roles::Turned => self.lanes.min(most).max(1),
        }
    }

    /// These choices where the network is another, with as many tiles in flight as suit it unless another number was chosen.
    pub fn for_network(self, network: NetworkProfile) -> Options {
        let usual = self.window == self.network.window();
        Options { network, window: if usual { network.window() } else { self.window }, ..self }
    }

    /// Elements of a tile: a multiple of 64, so that tiles start at whole words of bit planes.
    pub(crate) fn tile_size(&self) -> usize {
        (self.tile / 64).max(1) * 64
    }
}
