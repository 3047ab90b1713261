//! The cost of a gate before it runs: bytes per directed link and step kind, messages, rounds.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use covey_ring::{Ring, Word};
use covey_transport::Phase as StepKind;

use crate::api::{
    Comparison, Costs, Geometry, MatmulShape, Maximum, Options, SourcedMap, TableShape, Truncation, WeightKind,
};
use crate::cadence;
use crate::machine::Layout;
use crate::memory::Held;

/// One protocol primitive with everything its cost depends on. Counts are elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// [`crate::Extended::input`].
    Input {
        /// The party that knows the value.
        owner: usize,
        /// Elements.
        count: usize,
    },
    /// [`crate::Session::client_input`].
    ClientInput {
        /// Elements.
        count: usize,
    },
    /// [`crate::Extended::open`].
    Open {
        /// Elements.
        count: usize,
    },
    /// [`crate::Extended::open_bits`].
    OpenBits {
        /// Elements.
        count: usize,
        /// Bits an element.
        planes: usize,
    },
    /// [`crate::Session::reveal`].
    Reveal {
        /// Elements.
        count: usize,
    },
    /// [`crate::Session::check`].
    Check {
        /// The node it was at after the last one, and those entered since.
        layers: usize,
    },
    /// [`crate::Linear::open_operand`], and every operand of a product that has not been opened before.
    Opening {
        /// Elements.
        count: usize,
    },
    /// [`crate::Linear::prepare`].
    Prepare {
        /// The map.
        geometry: Geometry,
        /// Where the weight comes from.
        weight: WeightKind,
    },
    /// [`crate::Linear::linear`], and [`crate::NonLinear::linear_sum`] where that is a gate of its own.
    Linear {
        /// The map, of several the one whose pieces it is computed in.
        geometry: Geometry,
        /// Elements that other maps of a sum multiply.
        other_inputs: usize,
        /// Images, or samples of a dense layer.
        batch: usize,
        /// Where the weight comes from.
        weight: WeightKind,
        /// The shift that follows.
        truncate: Option<Truncation>,
        /// The ReLU that follows.
        relu: Option<Comparison>,
    },
    /// [`crate::Linear::matmul`].
    Matmul {
        /// Its dimensions.
        shape: MatmulShape,
        /// The shift that follows.
        truncate: Option<Truncation>,
    },
    /// [`crate::Linear::mul`].
    Product {
        /// Elements.
        count: usize,
        /// Whether the two operands are the same one.
        square: bool,
        /// The shift that follows.
        truncate: Option<Truncation>,
    },
    /// [`crate::NonLinear::truncate`].
    Truncate {
        /// Elements.
        count: usize,
        /// The shift.
        truncation: Truncation,
    },
    /// [`crate::NonLinear::div_exact`].
    DivExact {
        /// Elements.
        count: usize,
        /// What is divided by.
        divisor: u64,
        /// `|x| < 2^bound`.
        bound: u32,
    },
    /// [`crate::NonLinear::msb`].
    Msb {
        /// Elements.
        count: usize,
        /// What the comparison may rely on.
        comparison: Comparison,
    },
    /// [`crate::NonLinear::and`].
    And {
        /// Elements.
        count: usize,
        /// Planes.
        planes: usize,
    },
    /// [`crate::Extended::a2b`].
    A2b {
        /// Elements.
        count: usize,
    },
    /// [`crate::NonLinear::bit2a`].
    Bit2a {
        /// Elements.
        count: usize,
    },
    /// [`crate::NonLinear::select`].
    Select {
        /// Elements.
        count: usize,
    },
    /// [`crate::NonLinear::lookup`].
    Lookup {
        /// Elements of the index.
        count: usize,
        /// Bits of the index.
        index_bits: u32,
        /// Tables.
        tables: usize,
    },
    /// [`crate::NonLinear::table`], where it is a gate of its own.
    Table {
        /// Elements.
        count: usize,
        /// Its widths.
        shape: TableShape,
    },
    /// [`crate::NonLinear::relu`] and [`crate::NonLinear::truncate_relu`].
    Relu {
        /// Elements.
        count: usize,
        /// The shift before it.
        truncate: Option<Truncation>,
        /// What the comparison may rely on.
        comparison: Comparison,
    },
    /// [`crate::NonLinear::clip`] between two ends.
    Clip {
        /// Elements.
        count: usize,
        /// Lowest and highest result.
        ends: (i64, i64),
        /// What the comparisons may rely on, of x.
        comparison: Comparison,
    },
    /// [`crate::NonLinear::max`].
    Max {
        /// Elements of the result.
        count: usize,
        /// What the comparison may rely on.
        comparison: Comparison,
    },
    /// [`crate::NonLinear::max_within`], where it is in a narrower ring.
    MaxWithin {
        /// Elements of the result.
        count: usize,
        /// What the comparison may rely on.
        comparison: Comparison,
        /// Bits of that ring.
        bits: u32,
    },
    /// [`crate::NonLinear::largest`], where it is a gate of its own.
    Largest {
        /// Elements of the result.
        count: usize,
        /// Of what, and what follows.
        maximum: Maximum,
    },
    /// [`crate::NonLinear::widened`] of that.
    Widen {
        /// Elements.
        count: usize,
        /// Bits of that ring.
        bits: u32,
    },
}

impl Gate {
    /// Elements of a gate's result.
    pub(crate) fn elements(&self) -> usize {
        match *self {
            Gate::Check { .. } | Gate::Prepare { .. } => 0,
            Gate::Linear { geometry, batch, .. } => geometry.outputs(batch),
            Gate::Matmul { shape, .. } => shape.batch * shape.rows * shape.columns,
            Gate::Input { count, .. }
            | Gate::ClientInput { count }
            | Gate::Open { count }
            | Gate::Opening { count }
            | Gate::OpenBits { count, .. }
            | Gate::Reveal { count }
            | Gate::Product { count, .. }
            | Gate::Truncate { count, .. }
            | Gate::DivExact { count, .. }
            | Gate::Msb { count, .. }
            | Gate::And { count, .. }
            | Gate::A2b { count }
            | Gate::Bit2a { count }
            | Gate::Select { count }
            | Gate::Lookup { count, .. }
            | Gate::Table { count, .. }
            | Gate::Relu { count, .. }
            | Gate::Clip { count, .. }
            | Gate::Max { count, .. }
            | Gate::MaxWithin { count, .. }
            | Gate::Largest { count, .. }
            | Gate::Widen { count, .. } => count,
        }
    }
}

/// Payload bytes and messages of one directed link in one step kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Payload bytes.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
}

/// The node under which making correlated randomness is filed: it belongs to no gate.
pub const MATERIAL: u32 = u32::MAX - 3;

/// The node under which what preparing weights exchanges is filed: it happens once for a version of a weight, not in every run.
pub const WEIGHTS: u32 = u32::MAX - 4;

/// The node under which the check before outputs are opened is filed, where a protocol has one.
pub const CHECK: u32 = u32::MAX - 5;

/// How many correlated OTs gates use up. They are made ahead of the gates and many at once, so that what making them costs follows
/// from the sum over a run ([`crate::Costs::plan_material`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtCount {
    /// By the party that holds the correlation.
    pub by_sender: [u64; 2],
}

impl OtCount {
    /// The count of `copies` gates like this one.
    #[must_use]
    pub fn times(self, copies: u64) -> Self {
        OtCount { by_sender: self.by_sender.map(|count| count * copies) }
    }
}

impl AddAssign for OtCount {
    fn add_assign(&mut self, other: OtCount) {
        self.by_sender.iter_mut().zip(other.by_sender).for_each(|(mine, other)| *mine += other);
    }
}

/// What lattice encryption shows of the weights: by how much the noise of its results depends on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// Results that are sent encrypted.
    pub results: u64,
    /// The square of the statistical distance of one result's noise from noise that does not depend on the weights, at most, in units
    /// of 2 to the power [`Exposure::UNIT`].
    pub each: u128,
    /// The same of all of them together: squares add up (`covey_rlwe::Parameters::statistical_distance_bits`).
    pub total: u128,
}

impl Exposure {
    /// Squares of distances are in units of 2 to this power.
    pub const UNIT: i32 = -126;

    /// Of `results` with the same distance each, given as a negative logarithm to base 2.
    pub fn of(results: u64, bits: f64) -> Self {
        let each = (-2.0 * bits - f64::from(Self::UNIT)).exp2().ceil() as u128;
        Exposure { results, each, total: each.saturating_mul(results.into()) }
    }

    /// The negative logarithms to base 2 of the distance of one result and of all; none where there are no results.
    pub fn bits(&self) -> Option<[f64; 2]> {
        let bits = |square: u128| -((square.max(1) as f64).log2() + f64::from(Self::UNIT)) / 2.0;
        (self.results > 0).then(|| [bits(self.each), bits(self.total)])
    }
}

impl AddAssign for Exposure {
    fn add_assign(&mut self, other: Exposure) {
        self.results += other.results;
        self.each = self.each.max(other.each);
        self.total = self.total.saturating_add(other.total);
    }
}

/// What a gate, a node or a program exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// By (offline or online, from, to).
    pub links: BTreeMap<(StepKind, usize, usize), Traffic>,
    /// Online rounds one after the other.
    pub rounds: u64,
    /// Correlated randomness used up.
    pub ot_count: OtCount,
    /// Public keys of lattice encryption that a session sends once, before the first gate that needs them: a bit each.
    pub public_keys: u32,
    /// What lattice encryption shows of the weights.
    pub exposure: Exposure,
    /// What gates that run ahead leave for the online run.
    pub ahead: Ahead,
}

/// What gates leave that run ahead: a party keeps its results instead of the messages to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Bytes of these gates' messages to each party.
    pub received: [u64; 2],
    /// Bytes that each party keeps.
    pub kept: u64,
}

impl AddAssign for Ahead {
    fn add_assign(&mut self, other: Ahead) {
        self.received.iter_mut().zip(other.received).for_each(|(mine, other)| *mine += other);
        self.kept += other.kept;
    }
}

impl Cost {
    /// The cost of `copies` tiles of `layout`, side by side.
    pub fn of(layout: &Layout, copies: u64) -> Self {
        let ot_count = layout.ot_count().times(copies);
        let (rounds, public_keys) = (layout.rounds() as u64, layout.public_keys());
        let mut cost = Cost { rounds, ot_count, public_keys, ..Cost::default() };
        (0..copies).for_each(|_| cost.exposure += layout.exposure());
        for message in layout.messages().iter().filter(|_| copies > 0) {
            let traffic = cost.links.entry((message.step.kind(), message.from, message.to)).or_default();
            traffic.bytes += message.len as u64 * copies;
            traffic.messages += copies;
        }
        cost
    }

    /// The cost of `count` elements in tiles of `tile`, up to `window` of them in flight: whole tiles and a last partial one.
    pub fn tiled(count: usize, tile: usize, window: usize, layout: impl Fn(usize) -> Layout) -> Self {
        let (whole, rest) = (count / tile, count % tile);
        let mut cost = Cost::of(&layout(tile), whole as u64);
        let rounds = cost.rounds as usize;
        let mut last = rounds;
        if rest > 0 {
            let partial = Cost::of(&layout(rest), 1);
            last = partial.rounds as usize;
            cost += &partial;
        }
        cost.rounds = cadence::rounds(count.div_ceil(tile), window, rounds, last) as u64;
        cost
    }

    /// The same of `count` elements of a gate, under these options.
    pub(crate) fn of_gate(count: usize, options: &Options, layout: impl Fn(usize) -> Layout) -> Self {
        Cost::tiled(count, options.tile_size(), options.window, layout)
    }

    /// The same of two parties' gates that run ahead ([`crate::scheduler::Scheduler::ahead`]), of which each keeps so many bytes.
    pub(crate) fn ahead(self, kept: u64) -> Self {
        let mut cost = Cost { links: BTreeMap::new(), rounds: 0, ..self };
        cost.ahead.kept += kept;
        for ((_, from, to), traffic) in self.links {
            let sum = cost.links.entry((StepKind::Offline, from, to)).or_default();
            sum.bytes += traffic.bytes;
            sum.messages += traffic.messages;
            cost.ahead.received[to] += traffic.bytes;
        }
        cost
    }

    /// The cost of this `times` times, one after the other.
    pub(crate) fn repeated(&self, times: usize) -> Self {
        let mut cost = Cost::default();
        (0..times).for_each(|_| cost += self);
        cost
    }

    /// The cost of tiles of these kinds, such as lengths, one after the other, up to `window` of them in flight. All but perhaps the last
    /// take the same number of rounds.
    pub fn of_tiles<K: Copy + Ord>(
        kinds: impl IntoIterator<Item = K>,
        window: usize,
        layout: impl Fn(K) -> Layout,
    ) -> Self {
        let mut counts: BTreeMap<K, u64> = BTreeMap::new();
        let (mut tiles, mut ends) = (0, None);
        for kind in kinds {
            *counts.entry(kind).or_default() += 1;
            (tiles, ends) = (tiles + 1, Some((ends.map_or(kind, |(first, _)| first), kind)));
        }
        let mut cost = Cost::default();
        counts.iter().for_each(|(&kind, &copies)| cost += &Cost::of(&layout(kind), copies));
        let [first, last] = ends.map_or([0; 2], |(first, last)| [first, last].map(|kind| layout(kind).rounds()));
        cost.rounds = cadence::rounds(tiles, window, first, last) as u64;
        cost
    }

    /// Payload bytes on all links in `kind`.
    pub fn bytes(&self, kind: StepKind) -> u64 {
        self.links.iter().filter(|((k, ..), _)| *k == kind).map(|(_, t)| t.bytes).sum()
    }

    /// Payload bytes on all links in both step kinds.
    pub fn total_bytes(&self) -> u64 {
        self.links.values().map(|t| t.bytes).sum()
    }
}

/// Adds what happens afterwards: traffic, rounds and correlated OTs add, public keys are sent once.
impl AddAssign<&Cost> for Cost {
    fn add_assign(&mut self, other: &Cost) {
        for (link, traffic) in &other.links {
            let mine = self.links.entry(*link).or_default();
            mine.bytes += traffic.bytes;
            mine.messages += traffic.messages;
        }
        self.rounds += other.rounds;
        self.ot_count += other.ot_count;
        self.public_keys |= other.public_keys;
        self.exposure += other.exposure;
        self.ahead += other.ahead;
    }
}

/// [`Costs`] of a protocol as a value: what is planned with it is compiled once and not for every protocol.
#[derive(Clone, Copy)]
pub struct CostModel {
    /// [`Costs::NAME`].
    pub name: &'static str,
    /// Bytes of memory that a ring element takes.
    pub element_bytes: usize,
    /// [`Costs::FUSES_RELU`].
    pub fuses_relu: bool,
    /// [`Costs::JOINS_LINEAR`].
    pub joins_linear: bool,
    /// [`Costs::leading`].
    pub leading: fn(&[SourcedMap], usize) -> Option<usize>,
    /// [`Costs::opens_operands`].
    pub opens_operands: fn(&Options) -> bool,
    /// [`Costs::ROUNDS_PRODUCTS`].
    pub rounds_products: bool,
    /// [`Costs::fuses_clip`].
    pub fuses_clip: fn(Ring, &Options) -> bool,
    /// [`Costs::narrows`].
    pub narrows: fn(Comparison, Ring, &Options) -> Option<u32>,
    /// [`Costs::narrowing_pays`].
    pub narrowing_pays: fn(u32, usize, usize, Ring, &Options) -> bool,
    /// [`Costs::joins_maxima`].
    pub joins_maxima: fn(&Options) -> bool,
    /// [`Costs::joins_layers`].
    pub joins_layers: fn(&Options) -> bool,
    /// [`Costs::fuses_table`].
    pub fuses_table: fn(&TableShape, Ring, &Options) -> bool,
    /// [`Costs::plan`].
    pub plan: fn(&Gate, Ring, &Options) -> Cost,
    /// [`Costs::plan_parallel`].
    pub plan_parallel: fn(&[Gate], Ring, &Options) -> Cost,
    /// [`Costs::plan_material`].
    pub plan_material: fn(&Cost, Ring, &Options) -> Cost,
    /// [`Costs::stock_memory`].
    pub stock_memory: fn(u64, u64) -> Option<Vec<u64>>,
    /// [`Costs::memory`].
    pub memory: fn(&Held, Ring, &Options) -> Vec<u64>,
}

impl CostModel {
    /// The costs of protocol `P`.
    pub fn of<P: Costs>() -> Self {
        CostModel {
            name: P::NAME,
            element_bytes: P::Word::BYTES,
            fuses_relu: P::FUSES_RELU,
            joins_linear: P::JOINS_LINEAR,
            leading: P::leading,
            opens_operands: P::opens_operands,
            rounds_products: P::ROUNDS_PRODUCTS,
            fuses_clip: P::fuses_clip,
            narrows: P::narrows,
            narrowing_pays: P::narrowing_pays,
            joins_maxima: P::joins_maxima,
            joins_layers: P::joins_layers,
            fuses_table: P::fuses_table,
            plan: P::plan,
            plan_parallel: P::plan_parallel,
            plan_material: P::plan_material,
            stock_memory: P::stock_memory,
            memory: P::memory,
        }
    }
}
