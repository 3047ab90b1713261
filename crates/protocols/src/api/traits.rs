//! The traits.

use covey_ring::{BitTensor, Ring, Tensor, Word};

use super::{
    Checked, Comparison, EpilogueOf, Geometry, LayerOf, MatmulShape, Maximum, Options, Phase, Placement, ProtocolError,
    Result, SourcedMap, Table, TableShape, TermOf, Truncation, WeightOf,
};
use crate::clip::{Clipped, Ends};
use crate::composed;
use crate::cost::{Cost, CostModel, Gate};
use crate::memory::Held;

/// A secure computation over whole tensors, seen from one party: all that layers and the executor need.
///
/// Every party calls the same methods in the same order with the same shapes. Shapes and options are public; nothing
/// else about a share is. Values are ring elements, read as two's complement; scales are the caller's business.
pub trait Protocol: NonLinear {}

impl<P: NonLinear + ?Sized> Protocol for P {}

/// What has a public shape.
pub trait Shaped {
    /// Dimensions, outermost first.
    fn shape(&self) -> &[usize];
}

/// Shares, runs, and what the session's client sends and receives.
pub trait Session: Send {
    /// Storage of ring elements.
    type Word: Word;
    /// This party's part of a secret tensor of ring elements.
    type Arith: Shaped + Clone + Send + Sync;
    /// This party's part of secret bit planes.
    type Bool: Clone + Send + Sync;
    /// This party's part of a secret parameter as its owner shared it: the form in which it rests between sessions. What
    /// can be drawn from a seed is not in it.
    type StoredShare: Shaped + Send;

    /// The protocol's name and what its gates cost.
    fn costs(&self) -> CostModel;
    /// The ring of every arithmetic share.
    fn ring(&self) -> Ring;
    /// The share that a stored parameter stands for.
    fn restore(&mut self, x: Self::StoredShare) -> Result<Self::Arith>;
    /// Takes note of a public parameter that gates will use as it is, other than as a weight ([`Linear::prepare`] takes note of those).
    /// A protocol in which one party may cheat compares it among all parties in the next [`Session::check`]; others leave that to whoever
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
    /// A secret of the session's client, who runs the protocol's client half.
    fn client_input(&mut self, shape: &[usize]) -> Result<Self::Arith>;
    /// Finishes every pending check of what was received so far.
    fn check(&mut self) -> Result<Checked>;
    /// The value, to the session's client only, re-randomised.
    fn reveal(&mut self, x: &Self::Arith, checked: &Checked) -> Result<()>;
}

/// What a party does with its shares alone.
pub trait Local: Session {
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
    /// This party's part of `x`, component by component, as it can rest between sessions: nothing where this role holds no shares.
    fn components(&self, x: &Self::Arith) -> Vec<Tensor<Self::Word>>;
    /// The share of these components; `None` where they are not this role's of `shape`.
    fn share_of_components(&self, shape: &[usize], components: Vec<Tensor<Self::Word>>) -> Option<Self::Arith>;
}

/// Products.
pub trait Linear: Local {
    /// This party's prepared form of one version of a weight.
    type Weight: Send + Sync;

    /// This party's working form of a weight. Cheap and repeatable: training prepares a new version each step.
    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, placement: Placement) -> Result<Self::Weight>;
    /// The same for value number `value` of the program: where masks of weights outlive a session, the number says which is whose.
    fn prepare_value(
        &mut self,
        value: u32,
        source: WeightOf<Self>,
        geometry: Geometry,
        placement: Placement,
    ) -> Result<Self::Weight> {
        let _ = value;
        self.prepare(source, geometry, placement)
    }
    /// The same value in a form of which later products open nothing more, where products of this protocol open their operands and x is in
    /// no such form yet. Gathers and other shapes of it keep the form.
    fn open_operand(&mut self, x: &Self::Arith) -> Result<Option<Self::Arith>> {
        let _ = x;
        Ok(None)
    }
    /// x without what products know of it: between runs every value is a plain share.
    fn forget_opening(&self, x: &Self::Arith) -> Self::Arith {
        x.clone()
    }
    /// Whether a GPU computes this party's part of the map of `weight` in the run that began last.
    fn on_gpu(&self, weight: &Self::Weight) -> bool {
        let _ = weight;
        false
    }
    /// The linear map of `weight` on x, then the epilogue.
    fn linear(&mut self, x: &Self::Arith, weight: &Self::Weight, epilogue: &EpilogueOf<Self>) -> Result<Self::Arith>;
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
}

/// Shifts, comparisons and selections.
pub trait NonLinear: Linear {
    /// floor(x / 2^bits), as rounded by `truncation`.
    fn truncate(&mut self, x: &Self::Arith, truncation: Truncation) -> Result<Self::Arith>;
    /// floor(x / divisor) for `|x| < 2^bound`, exactly.
    fn div_exact(&mut self, x: &Self::Arith, divisor: u64, bound: u32) -> Result<Self::Arith> {
        let _ = (x, bound);
        Err(ProtocolError::Unsupported {
            node: String::new(),
            protocol: self.costs().name,
            what: format!("division by {divisor}; compile with --division mul-shift"),
        })
    }
    /// One plane: 1 where x < 0.
    fn msb(&mut self, x: &Self::Arith, comparison: Comparison) -> Result<Self::Bool>;
    /// x ∧ y, equal sizes.
    fn and(&mut self, x: &Self::Bool, y: &Self::Bool) -> Result<Self::Bool>;
    /// One plane as 0/1 ring elements of `shape`.
    fn bit2a(&mut self, x: &Self::Bool, shape: &[usize]) -> Result<Self::Arith>;
    /// b · x, b one plane over the elements of x.
    fn select(&mut self, b: &Self::Bool, x: &Self::Arith) -> Result<Self::Arith>;
    /// Public tables at a secret index: element e of result j is `tables[j][x_e]`. Each table has 2^k entries, 1 <= k <=
    /// [`Table::MOST_INDEX_BITS`] and k below the ring's bits, and `0 <= x < 2^k`; a result for another x is arbitrary.
    fn lookup(&mut self, x: &Self::Arith, tables: &[Vec<Self::Word>]) -> Result<Vec<Self::Arith>>;

    // Composed from the above; a protocol overrides what it does better, and says the same in `plan`.

    /// The sum of several linear maps of one output shape, then the shift, then the ReLU.
    fn linear_sum(
        &mut self,
        terms: &[TermOf<Self>],
        truncation: Truncation,
        relu: Option<Comparison>,
    ) -> Result<Self::Arith> {
        composed::linear_sum(self, terms, truncation, relu)
    }

    /// Several linear maps, each with a shift and perhaps a ReLU behind it. A protocol may compute in one gate those whose gates are of one
    /// form and take the same number of rounds.
    fn parallel_layers(&mut self, layers: &[LayerOf<Self>]) -> Result<Vec<Self::Arith>> {
        composed::one_by_one(self, layers)
    }

    /// Whether [`NonLinear::parallel_layers`] saves time where weights are secret: schedules then put layers together that do not depend on
    /// each other.
    fn joins_layers(&self) -> bool {
        false
    }

    /// floor(x · y / 2^bits + 1/2) by an exact shift; its bound is that of the product and half of 2^bits.
    fn mul_to_nearest(&mut self, x: &Self::Arith, y: &Self::Arith, truncation: Truncation) -> Result<Self::Arith> {
        composed::mul_to_nearest(self, x, y, truncation)
    }

    /// max(x, 0).
    fn relu(&mut self, x: &Self::Arith, comparison: Comparison) -> Result<Self::Arith> {
        composed::relu(self, x, comparison)
    }

    /// max(floor(x / 2^bits), 0): a shift and a ReLU at once; `comparison` bounds what was shifted.
    fn truncate_relu(
        &mut self,
        x: &Self::Arith,
        truncation: Truncation,
        comparison: Comparison,
    ) -> Result<Self::Arith> {
        composed::truncate_relu(self, x, truncation, comparison)
    }

    /// min(max(x, low), high); `comparison` bounds x.
    fn clip(&mut self, x: &Self::Arith, ends: Ends, comparison: Comparison) -> Result<Self::Arith> {
        composed::clip(self, x, ends, comparison)
    }

    /// max(x, y), and the plane that is 1 where x < y; `comparison` bounds x - y. It takes x, so that its memory is free for what follows.
    fn max(&mut self, x: Self::Arith, y: &Self::Arith, comparison: Comparison) -> Result<(Self::Arith, Self::Bool)> {
        composed::max(self, x, y, comparison)
    }

    /// Whether [`NonLinear::max_within`] and [`NonLinear::widened`] do better than maxima alone, for `selected` elements of all steps and
    /// `results` in the end.
    fn narrows_maxima(&self, selected: usize, results: usize, comparison: Comparison) -> bool {
        let _ = (selected, results, comparison);
        false
    }

    /// max(x, y) as a step to the largest of several elements, all of which `comparison` bounds. Before it is used otherwise than in
    /// such steps, [`NonLinear::widened`] has to make a value of it.
    fn max_within(&mut self, x: Self::Arith, y: &Self::Arith, comparison: Comparison) -> Result<Self::Arith> {
        Ok(self.max(x, y, comparison)?.0)
    }

    /// The value of what [`NonLinear::max_within`] gave.
    fn widened(&mut self, x: Self::Arith, comparison: Comparison) -> Result<Self::Arith> {
        let _ = comparison;
        Ok(x)
    }

    /// The largest of values of equal shape, and what follows it.
    fn largest(&mut self, values: &[Self::Arith], maximum: Maximum) -> Result<Self::Arith> {
        composed::largest(self, values, maximum)
    }

    /// The estimated time of gates one after the other, in nanoseconds, where [`NonLinear::largest`] is a gate of its own and may be the
    /// faster form: a pure function of the gates and the options. Elsewhere two values at a time are compared.
    fn time_of(&self, gates: &[Gate]) -> Option<u128> {
        let _ = gates;
        None
    }

    /// A piecewise linear function of x, which lies in its domain.
    fn table(&mut self, x: &Self::Arith, table: &Table) -> Result<Self::Arith> {
        composed::table(self, x, table)
    }

    /// The same of what x is clipped to first, which lies in its domain; `comparison` bounds x.
    fn clip_table(
        &mut self,
        x: &Self::Arith,
        clipped: Clipped,
        comparison: Comparison,
        table: &Table,
    ) -> Result<Self::Arith> {
        composed::clip_table(self, x, clipped, comparison, table)
    }
}

/// What gates cost, as pure functions of sizes, ring and options.
pub trait Costs: Session {
    /// Name in messages and on the command line.
    const NAME: &'static str;

    /// Whether [`Linear::linear`] does a ReLU in its epilogue for less than a separate [`NonLinear::relu`]; schedules then
    /// put it there.
    const FUSES_RELU: bool = false;

    /// Whether [`NonLinear::linear_sum`] is ever the gate of [`Linear::linear`] with its shift and ReLU, rather than composed.
    const JOINS_LINEAR: bool = false;

    /// Whether [`NonLinear::mul_to_nearest`] is the gate of [`Linear::mul`] with its shift, rather than composed.
    const ROUNDS_PRODUCTS: bool = false;

    /// Of these maps of `batch` images or rows, the one whose pieces the gate of their sum is computed in; none where it is composed.
    fn leading(_maps: &[SourcedMap], _batch: usize) -> Option<usize> {
        None
    }

    /// Whether products open their operands apart ([`Gate::Opening`]), so that one opening serves all products of a value.
    fn opens_operands(_options: &Options) -> bool {
        false
    }

    /// Whether [`NonLinear::clip`] between two ends is a gate of its own, [`Gate::Clip`], rather than composed of rectifiers.
    fn fuses_clip(_ring: Ring, _options: &Options) -> bool {
        false
    }

    /// Bits of the ring that [`NonLinear::max_within`] computes in, where that is not the session's.
    fn narrows(_comparison: Comparison, _ring: Ring, _options: &Options) -> Option<u32> {
        None
    }

    /// Whether that pays for the round of [`NonLinear::widened`] where it computes in `bits` bits, by the counts of
    /// [`NonLinear::narrows_maxima`].
    fn narrowing_pays(_bits: u32, _selected: usize, _results: usize, _ring: Ring, _options: &Options) -> bool {
        true
    }

    /// Whether [`NonLinear::largest`] is a gate of its own, [`Gate::Largest`], rather than composed.
    fn joins_maxima(_options: &Options) -> bool {
        false
    }

    /// [`NonLinear::joins_layers`].
    fn joins_layers(_options: &Options) -> bool {
        false
    }

    /// Whether [`NonLinear::table`] is a gate of its own for a table of these widths, [`Gate::Table`], rather than composed.
    fn fuses_table(_shape: &TableShape, _ring: Ring, _options: &Options) -> bool {
        false
    }

    /// Bytes per directed link and step kind, messages and rounds of `gate`: a pure function of its size, the ring and the
    /// options, equal to what the meter counts.
    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost;

    /// The same of [`NonLinear::parallel_layers`], whose layers are these [`Gate::Linear`].
    fn plan_parallel(layers: &[Gate], ring: Ring, options: &Options) -> Cost {
        let mut cost = Cost::default();
        layers.iter().for_each(|layer| cost += &Self::plan(layer, ring, options));
        cost
    }

    /// What making the correlated randomness that a run's gates ask for costs, before or in it: a pure function of the sum of
    /// their correlated OTs, as its extensions make many at once, and of the public keys that they need.
    fn plan_material(_gates: &Cost, _ring: Ring, _options: &Options) -> Cost {
        Cost::default()
    }

    /// Bytes of memory that something takes at each party, in role order; a little too much rather than too little.
    fn memory(held: &Held, ring: Ring, options: &Options) -> Vec<u64>;

    /// Bytes of each party's memory, in role order, that a stock of correlated randomness takes, of one direction ([`crate::cost::OtCount`]),
    /// where a gate wants `more` of it after earlier ones had `used`. `None` where it asks for no more than is there.
    fn stock_memory(_used: u64, _more: u64) -> Option<Vec<u64>> {
        None
    }
}

/// What no layer of a program asks for: values that parties give and open among themselves, and all bits of a value.
pub trait Extended: Session {
    /// A secret known to party `owner`, who passes `value`; the others pass `None`.
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<Self::Word>>) -> Result<Self::Arith>;
    /// The value, to every party.
    fn open(&mut self, x: &Self::Arith, checked: &Checked) -> Result<Tensor<Self::Word>>;
    /// The bits, to every party.
    fn open_bits(&mut self, x: &Self::Bool, checked: &Checked) -> Result<BitTensor>;
    /// All l bits of x, plane i being bit i.
    fn a2b(&mut self, x: &Self::Arith) -> Result<Self::Bool>;
}
