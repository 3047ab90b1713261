//! The protocol interface: whole tensors in, whole tensors out. `docs/protocol-trait.md` tells who holds, sends and
//! preprocesses what in each protocol family.

use std::ops::RangeInclusive;

use covey_kernels::conv::ConvGeometry;
use covey_ring::{BitTensor, Ring, Tensor, Word};
use covey_transport::TransportError;

use crate::clip::Ends;
use crate::cost::{Cost, Demand, Gate};
use crate::memory::Held;

/// How a right shift rounds. The program says it; no protocol changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Floor, always.
    Exact,
    /// Floor or one more in the last place; never a large error.
    Ulp,
    /// Floor or one more in the last place, and off by 2^(l-bits) with probability |v| / 2^l.
    Probabilistic,
}

/// A right shift of values `|v| < 2^bound` by `bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Truncation {
    /// Bits shifted out, at least 1.
    pub bits: u32,
    /// Rounding.
    pub rounding: Rounding,
    /// `|v| < 2^bound` before the shift; at most l - 2 for honest-majority protocols.
    pub bound: u32,
}

/// What a comparison may rely on: `|x| < 2^bound`. Protocols shorten their circuits only for *proved* bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// `|x| < 2^bound`, at most l - 1.
    pub bound: u32,
    /// Whether the bound follows from the input's declared range alone, so that no input the client accepts breaks it.
    pub proved: bool,
}

/// The linear map a weight stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// x `[N,C,H,W]`, weight `[O,C/groups,KH,KW]`, output `[N,O,OH,OW]`.
    Conv2d(ConvGeometry),
    /// x `[..,inputs]`, weight `[inputs,outputs]`, output `[..,outputs]`.
    Dense {
        /// Features in.
        inputs: usize,
        /// Features out.
        outputs: usize,
    },
}

/// Dimensions of a batched product of two secrets: x `[batch,rows,inner]`, y `[batch,inner,columns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulShape {
    /// Independent products.
    pub batch: usize,
    /// Rows of x.
    pub rows: usize,
    /// Columns of x and rows of y.
    pub inner: usize,
    /// Columns of y.
    pub columns: usize,
}

/// Where a weight's panels live and its products run. Protocols pass it to kernels and never look inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// Main memory.
    #[default]
    Cpu,
}

/// Where a weight comes from.
pub enum WeightSource<'a, P: Protocol + ?Sized> {
    /// Secret-shared among the parties, computed in this session.
    Shared(&'a P::Arith),
    /// Secret-shared by its owner ahead of the session.
    Stored(P::Stored),
    /// Known to every party.
    Public(&'a Tensor<P::Word>),
}

/// What the cost of a product depends on in a weight, beside its geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightKind {
    /// Secret-shared among the parties, computed in this session.
    Shared,
    /// Secret-shared by its owner ahead of the session, its elements `|w| < 2^bits`, which is public.
    Stored {
        /// Of the program's bound.
        bits: u32,
    },
    /// Known to every party.
    Public,
}

/// A bias added to a product before its truncation, one element per output channel, at the product's scale.
pub enum Bias<'a, P: Protocol + ?Sized> {
    /// Secret-shared among the parties.
    Shared(&'a P::Arith),
    /// Known to every party.
    Public(&'a Tensor<P::Word>),
}

/// What follows a linear map, in this order. Protocols fuse as much of it as they can; the meaning does not change.
pub struct Epilogue<'a, P: Protocol + ?Sized> {
    /// Added first.
    pub bias: Option<Bias<'a, P>>,
    /// Then shifted.
    pub truncate: Option<Truncation>,
    /// Then this is added, element by element: a share of the output's shape, at the scale after the shift. Only beside a
    /// shift, and where the sum's bound leaves room for shifting it back (`truncate.bound` bounds the sum at the
    /// product's scale, too).
    pub residual: Option<&'a P::Arith>,
    /// Then clamped below at 0.
    pub relu: Option<Comparison>,
}

impl<P: Protocol + ?Sized> Default for Epilogue<'_, P> {
    fn default() -> Self {
        Epilogue { bias: None, truncate: None, residual: None, relu: None }
    }
}

/// Which half of a run the protocol is in. It never changes the randomness or the messages, only which are exchanged now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Offline and online interleaved.
    #[default]
    Joint,
    /// Offline messages only; they fill the store.
    Preprocess,
    /// Online messages only; offline material comes from the store.
    Online,
}

impl Comparison {
    /// Bits below the sign that a comparison in a ring of `bits` bits reads, and how many below those it leaves out.
    pub(crate) fn read(self, bits: u32, options: &Options) -> (u32, u32) {
        let bounded = if self.proved || options.key_bits.is_some() { self.bound } else { bits - 1 };
        let below = bounded.clamp(1, bits - 1);
        match options.key_bits {
            // A borrow that is left out may carry the largest values past their bound, so the bit above it is read too. In a ring that has
            // none, the ends of the range would be taken for each other: there all bits are read.
            Some(key) if key <= below && below < bits - 1 => {
                let read = key.max(2) - 1;
                (read, below + 1 - read)
            }
            _ => (below, 0),
        }
    }
}

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
    /// computed: more would only leave the caches. Far away, the four million elements of the largest layers of common
    /// networks at once, so that every gate takes its rounds once.
    pub fn window(&self) -> usize {
        if self.latency_us <= 1000 { 16 } else { 256 }
    }

    /// Estimated time of a gate of three parties over `count` elements: its rounds, and its bits an element through the
    /// busiest interface, that of the dealer or of an online party, who receives half of the deals.
    pub fn nanoseconds(&self, rounds: usize, offline: usize, online: usize, count: usize) -> u128 {
        let busiest = offline.max((offline + online) / 2) as u128 * count as u128;
        let latency = rounds as u128 * u128::from(self.latency_us) * 1000;
        latency + busiest * 1_000_000_000 / u128::from(self.bits_per_second.max(1))
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

/// Choices made at run time by the initiator of a session and bound in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// How comparisons are done.
    pub adder: crate::circuits::Adder,
    /// What [`crate::circuits::Adder::Auto`] chooses for.
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
        Options { adder, network, tile, window, key_bits: None, parties, lanes: 1, pipelines: Pipelines::default() }
    }
}

impl Options {
    /// Elements of a tile: a multiple of 64, so that tiles start at whole words of bit planes.
    pub(crate) fn tile_size(&self) -> usize {
        (self.tile / 64).max(1) * 64
    }
}

/// Proof that every check of the messages so far has passed. Semi-honest protocols hand it out at once.
#[derive(Debug)]
pub struct Checked(pub(crate) ());

/// Why a protocol operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A peer failed or the link to it did.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The clear protocol met an integer outside its bound.
    #[error(
        "node '{node}': the value {value} passes its bound of {bits} bits: the input is outside what the program was \
         compiled for; compile with a wider --input-range, more --calibration data or a larger ring"
    )]
    BoundViolated {
        /// The node that computed it.
        node: String,
        /// The integer, before reduction into the ring.
        value: i128,
        /// `|value| < 2^bits` was promised.
        bits: u32,
    },
    /// The protocol has no such operation.
    #[error("node '{node}': {protocol} does not support {what}")]
    Unsupported {
        /// The node that asked.
        node: String,
        /// The protocol.
        protocol: &'static str,
        /// The operation, with the way out.
        what: String,
    },
    /// Preprocessed material is missing.
    #[error("no preprocessed material is left for this inference: preprocess more, or run with phase joint")]
    StoreEmpty,
    /// A run number was used before: its randomness must not mask a second set of values.
    #[error("run {run} has been used: number runs upwards, and take each preprocessed one once")]
    RunUsed {
        /// The number.
        run: u64,
    },
    /// A party did not keep to the protocol. What differs, and where; nothing was opened.
    #[error("{0}; nothing is output")]
    CheckFailed(String),
    /// The client did not keep to the protocol; nothing was opened.
    #[error("the client sent {0} different values of its input; nothing is output")]
    ClientDiffers(&'static str),
    /// Correlated randomness could not be made or read.
    #[error("{0}")]
    Material(String),
    /// A layout and the code that should follow it disagree: a defect in Covey.
    #[error("internal error in {0}: please report it")]
    Internal(&'static str),
}

impl ProtocolError {
    /// The same error under the name of the node that met it, where the protocol left the name open.
    #[must_use]
    pub fn at(mut self, name: &str) -> Self {
        if let ProtocolError::BoundViolated { node, .. } | ProtocolError::Unsupported { node, .. } = &mut self
            && node.is_empty()
        {
            *node = name.to_string();
        }
        self
    }
}

/// Result of a protocol operation.
pub type Result<T> = std::result::Result<T, ProtocolError>;

/// A secure computation over whole tensors, seen from one party.
///
/// Every party calls the same methods in the same order with the same shapes. Shapes and options are public; nothing
/// else about a share is. Values are ring elements, read as two's complement; scales are the caller's business.
pub trait Protocol: Send {
    /// Storage of ring elements.
    type Word: Word;
    /// This party's part of a secret tensor of ring elements.
    type Arith: Clone + Send + Sync;
    /// This party's part of secret bit planes.
    type Bool: Clone + Send + Sync;
    /// This party's part of a secret parameter as its owner shared it: the form in which it rests between sessions. What
    /// can be drawn from a seed is not in it.
    type Stored: Send;
    /// This party's prepared form of one version of a weight.
    type Weight: Send + Sync;

    /// Name in messages and on the command line.
    const NAME: &'static str;
    /// Whether [`Protocol::linear`] does a ReLU in its epilogue for less than a separate [`Protocol::relu`]; schedules then
    /// put it there.
    const FUSES_RELU: bool = false;

    /// The ring of every arithmetic share.
    fn ring(&self) -> Ring;
    /// The shape of a share.
    fn shape(x: &Self::Arith) -> &[usize];
    /// The shape of a stored parameter.
    fn stored_shape(x: &Self::Stored) -> &[usize];
    /// The share that a stored parameter stands for.
    fn restore(&mut self, x: Self::Stored) -> Result<Self::Arith>;
    /// Takes note of a public parameter that gates will use as it is, other than as a weight ([`Protocol::prepare`] takes note of those).
    /// A protocol in which one party may cheat compares it among all parties in the next [`Protocol::check`]; others leave that to whoever
    /// opens the session.
    fn note_public(&mut self, value: &Tensor<Self::Word>) {
        let _ = value;
    }
    /// Names the program node that what follows belongs to, for errors, randomness and the meter.
    fn enter(&mut self, node: u32, name: &str);
    /// Starts run number `inference` in `phase`. `Joint` and `Preprocess` take numbers above all earlier ones, `Online` one
    /// that was preprocessed and not used since; another is refused, as its randomness would mask a second set of values.
    /// Protocols without preprocessing ignore the phase, except that a preprocessing run reveals nothing.
    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()>;
    /// Inferences with preprocessed material left.
    fn stored(&self) -> usize;

    // Input and output.

    /// A secret known to party `owner`, who passes `value`; the others pass `None`.
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<Self::Word>>) -> Result<Self::Arith>;
    /// A secret of the session's client, who runs the protocol's client half.
    fn client_input(&mut self, shape: &[usize]) -> Result<Self::Arith>;
    /// Finishes every pending check of what was received so far.
    fn check(&mut self) -> Result<Checked>;
    /// The value, to every party.
    fn open(&mut self, x: &Self::Arith, checked: &Checked) -> Result<Tensor<Self::Word>>;
    /// The bits, to every party.
    fn open_bits(&mut self, x: &Self::Bool, checked: &Checked) -> Result<BitTensor>;
    /// The value, to the session's client only, re-randomised.
    fn reveal(&mut self, x: &Self::Arith, checked: &Checked) -> Result<()>;

    // Local operations.

    /// A public tensor as a share.
    fn constant(&self, value: &Tensor<Self::Word>) -> Self::Arith;
    /// x + y, equal shapes.
    fn add(&mut self, x: &Self::Arith, y: &Self::Arith) -> Result<Self::Arith>;
    /// x - y, equal shapes.
    fn sub(&mut self, x: &Self::Arith, y: &Self::Arith) -> Result<Self::Arith>;
    /// x + c, equal shapes.
    fn add_public(&mut self, x: &Self::Arith, c: &Tensor<Self::Word>) -> Result<Self::Arith>;
    /// x · c element by element, equal shapes.
    fn mul_public(&mut self, x: &Self::Arith, c: &Tensor<Self::Word>) -> Result<Self::Arith>;
    /// Output element i is `x[indices[i]]`, or the public 0 where the index is [`ZERO`].
    fn gather(&mut self, x: &Self::Arith, indices: &[u32], shape: &[usize]) -> Result<Self::Arith>;
    /// The tensors one after the other, flat.
    fn concat(&mut self, parts: &[&Self::Arith]) -> Result<Self::Arith>;
    /// Sums over the last dimension.
    fn sum_last(&mut self, x: &Self::Arith) -> Result<Self::Arith>;
    /// The same elements under another shape.
    fn reshape(&mut self, x: &Self::Arith, shape: &[usize]) -> Self::Arith;
    /// x ⊕ y, equal sizes.
    fn xor(&mut self, x: &Self::Bool, y: &Self::Bool) -> Self::Bool;
    /// ¬x.
    fn not(&mut self, x: &Self::Bool) -> Self::Bool;

    // Linear maps.

    /// This party's working form of a weight. Cheap and repeatable: training prepares a new version each step.
    fn prepare(&mut self, source: WeightSource<Self>, geometry: Geometry, placement: Placement)
    -> Result<Self::Weight>;
    /// The same for value number `value` of the program: where masks of weights outlive a session, the number says which is whose.
    fn prepare_value(
        &mut self,
        value: u32,
        source: WeightSource<Self>,
        geometry: Geometry,
        placement: Placement,
    ) -> Result<Self::Weight> {
        let _ = value;
        self.prepare(source, geometry, placement)
    }
    /// The linear map of `weight` on x, then the epilogue.
    fn linear(&mut self, x: &Self::Arith, weight: &Self::Weight, epilogue: &Epilogue<Self>) -> Result<Self::Arith>;
    /// The batched product of two secrets, then the truncation. Both are read in the order of `shape`'s dimensions, whatever
    /// their own shape.
    fn matmul(
        &mut self,
        x: &Self::Arith,
        y: &Self::Arith,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<Self::Arith>;
    /// x · y element by element, equal shapes, then the truncation.
    fn mul(&mut self, x: &Self::Arith, y: &Self::Arith, truncate: Option<Truncation>) -> Result<Self::Arith>;

    // Non-linear primitives.

    /// floor(x / 2^bits), as rounded by `truncation`.
    fn truncate(&mut self, x: &Self::Arith, truncation: Truncation) -> Result<Self::Arith>;
    /// floor(x / divisor) for `|x| < 2^bound`, exactly.
    fn div_exact(&mut self, x: &Self::Arith, divisor: u64, bound: u32) -> Result<Self::Arith> {
        let _ = (x, bound);
        Err(ProtocolError::Unsupported {
            node: String::new(),
            protocol: Self::NAME,
            what: format!("division by {divisor}; compile with --division mul-shift"),
        })
    }
    /// One plane: 1 where x < 0.
    fn msb(&mut self, x: &Self::Arith, comparison: Comparison) -> Result<Self::Bool>;
    /// x ∧ y, equal sizes.
    fn and(&mut self, x: &Self::Bool, y: &Self::Bool) -> Result<Self::Bool>;
    /// All l bits of x, plane i being bit i.
    fn a2b(&mut self, x: &Self::Arith) -> Result<Self::Bool>;
    /// One plane as 0/1 ring elements of `shape`.
    fn bit2a(&mut self, x: &Self::Bool, shape: &[usize]) -> Result<Self::Arith>;
    /// b · x, b one plane over the elements of x.
    fn select(&mut self, b: &Self::Bool, x: &Self::Arith) -> Result<Self::Arith>;

    // Cost.

    /// Bytes per directed link and step kind, messages and rounds of `gate`: a pure function of its size, the ring and the
    /// options, equal to what the meter counts.
    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost
    where
        Self: Sized;

    /// What making the correlated randomness that a run's gates ask for costs, before or in it: a pure function of the sum of
    /// their demands, as its extensions make many at once.
    fn plan_material(_demand: &Demand, _ring: Ring, _options: &Options) -> Cost
    where
        Self: Sized,
    {
        Cost::default()
    }

    /// Bytes of memory that something takes at each party, in role order; a little too much rather than too little.
    fn memory(held: &Held, ring: Ring, options: &Options) -> Vec<u64>
    where
        Self: Sized;

    /// Bytes of each party's memory, in role order, that a stock of correlated randomness takes, of one direction ([`Demand`]),
    /// where a gate wants `more` of it after earlier ones had `used`. `None` where it asks for no more than is there.
    fn stock_memory(_used: u64, _more: u64) -> Option<Vec<u64>>
    where
        Self: Sized,
    {
        None
    }

    // Composed from the above; a protocol overrides what it does better, and says the same in `plan`.

    /// max(x, 0).
    fn relu(&mut self, x: &Self::Arith, comparison: Comparison) -> Result<Self::Arith> {
        let negative = self.msb(x, comparison)?;
        let positive = self.not(&negative);
        self.select(&positive, x)
    }

    /// max(floor(x / 2^bits), 0): a shift and a ReLU at once; `comparison` bounds what was shifted.
    fn truncate_relu(
        &mut self,
        x: &Self::Arith,
        truncation: Truncation,
        comparison: Comparison,
    ) -> Result<Self::Arith> {
        let shifted = self.truncate(x, truncation)?;
        self.relu(&shifted, comparison)
    }

    /// Whether [`Protocol::clip`] between two ends is a gate of its own, [`Gate::Clip`], rather than composed of rectifiers.
    fn fuses_clip(_ring: Ring, _options: &Options) -> bool
    where
        Self: Sized,
    {
        false
    }

    /// min(max(x, low), high); `comparison` bounds x.
    fn clip(&mut self, x: &Self::Arith, ends: Ends, comparison: Comparison) -> Result<Self::Arith> {
        crate::clip::composed(self, x, ends, comparison)
    }

    /// max(x, y), and the plane that is 1 where x < y; `comparison` bounds x - y.
    fn max(&mut self, x: &Self::Arith, y: &Self::Arith, comparison: Comparison) -> Result<(Self::Arith, Self::Bool)> {
        let difference = self.sub(x, y)?;
        let less = self.msb(&difference, comparison)?;
        let not_less = self.not(&less);
        let gain = self.select(&not_less, &difference)?;
        Ok((self.add(y, &gain)?, less))
    }
}

/// The index in [`Protocol::gather`] that stands for the public value 0.
pub const ZERO: u32 = u32::MAX;
