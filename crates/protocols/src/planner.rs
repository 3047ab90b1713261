//! The cost of a program before it runs: a protocol whose shares are shapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use covey_ring::{BitTensor, Ring, Tensor};
use covey_transport::{Meter, Phase as StepKind};

use crate::api::{
    Checked, Comparison, Epilogue, EpilogueOf, Extended, Geometry, Linear, Local, MatmulShape, Maximum, NonLinear,
    Options, Phase, Placement, ProtocolError, Result, Session, Shaped, Table, Term, TermOf, Truncation, WeightKind,
    WeightOf, WeightSource,
};
use crate::clip::{Clipped, Ends};
use crate::composed;
use crate::cost::{CHECK, Cost, CostModel, Gate, OtCount, WEIGHTS};
use crate::linear_map::applied_alike;
use crate::masked::lookup::Sets;
use crate::memory::{Dealt, Held, Ledger, Moments, Room, Token};

/// Runs any code written on [`Protocol`] without data and adds up what every gate it asks for costs, by node.
pub struct Planner {
    model: CostModel,
    ring: Ring,
    options: Options,
    node: u32,
    /// The node since the last check or since the run began, and those entered since.
    layers: usize,
    ledger: BTreeMap<u32, Cost>,
    memory: Ledger,
    moments: Moments,
    /// Correlated randomness used so far, and the memory its stock takes, by direction.
    used: OtCount,
    stock: [Option<Token>; 2],
}

/// What a waiting message takes beside its bytes, as transport counts it.
const MESSAGE: u64 = 128;

/// The shape of a share. Copies and other shapes of it share its elements.
#[derive(Clone)]
pub struct PlannedTensor {
    shape: Vec<usize>,
    _held: Arc<Token>,
    /// Whether products have nothing of it to open.
    opened: bool,
}

impl Shaped for PlannedTensor {
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

/// The size of shared bit planes.
#[derive(Clone)]
pub struct PlannedBits {
    len: usize,
    planes: usize,
    _held: Token,
}

/// A parameter as it rests: its shape, and the public bound of its elements, `|w| < 2^bits`.
pub struct PlannedParameter {
    shape: Vec<usize>,
    bits: u32,
}

impl Shaped for PlannedParameter {
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

/// What the cost of a product depends on.
pub struct PlannedWeight {
    geometry: Geometry,
    kind: WeightKind,
    _held: Token,
}

impl Planner {
    /// Bits of the ring that steps to a largest element are in, where that is not the session's.
    fn narrow_bits(&self, comparison: Comparison) -> Option<u32> {
        (self.model.narrows)(comparison, self.ring, &self.options)
    }

    /// An empty ledger for runs over `ring` with `options`, of the protocol with these costs.
    pub fn new(model: CostModel, ring: Ring, options: Options) -> Self {
        let (ledger, memory, moments) = (BTreeMap::new(), Ledger::default(), Moments::default());
        let (node, used, stock) = (Meter::NO_NODE, OtCount::default(), [None, None]);
        Planner { model, ring, options, node, layers: 1, ledger, memory, moments, used, stock }
    }

    /// The cost so far, by the node numbers given to [`Session::enter`].
    pub fn ledger(&self) -> &BTreeMap<u32, Cost> {
        &self.ledger
    }

    /// The memory that shares, weights and gates took at most, by party, the program that runs them apart. Of what dealers send ahead of
    /// its use, each party takes in up to `queue` bytes.
    pub fn peak_memory(&mut self, queue: u64) -> Vec<u64> {
        self.moments.gate(self.memory.take_peak(), Vec::new());
        // Layers of a run make a dealer wait where others send it anything. Checks do not: they come at the end.
        let layers = self.ledger.iter().filter(|(node, _)| ![WEIGHTS, CHECK].contains(*node));
        let links = layers.flat_map(|(_, cost)| cost.links.keys());
        let waits: BTreeSet<usize> = links.filter(|(kind, ..)| *kind == StepKind::Online).map(|&(.., to)| to).collect();
        self.moments.peak(queue, |role| !waits.contains(&role))
    }

    /// The memory that shares and weights take now, by party.
    pub fn held_memory(&self) -> Vec<u64> {
        self.memory.now()
    }

    /// The correlated randomness of all gates so far.
    pub fn ot_count(&self) -> OtCount {
        let mut ot_count = OtCount::default();
        self.ledger.values().for_each(|cost| ot_count += cost.ot_count);
        ot_count
    }

    /// What making it costs.
    pub fn material(&self) -> Cost {
        let mut gates = Cost::default();
        self.ledger.values().for_each(|cost| gates += cost);
        (self.model.plan_material)(&gates, self.ring, &self.options)
    }

    /// What the public keys cost that gates so far need.
    pub fn public_keys(&self) -> Cost {
        let mut gates = Cost::default();
        self.ledger.values().for_each(|cost| gates.public_keys |= cost.public_keys);
        (self.model.plan_material)(&gates, self.ring, &self.options)
    }

    /// A parameter of `shape` as its owner shared it, its elements `|w| < 2^bits`.
    pub fn stored(&self, shape: &[usize], bits: u32) -> PlannedParameter {
        PlannedParameter { shape: shape.to_vec(), bits }
    }

    fn hold(&self, held: Held) -> Token {
        let of_words = |elements: usize| (elements as u64).saturating_mul(self.model.element_bytes as u64);
        let block = match held {
            Held::Share(count) | Held::Opened(count) => of_words(count),
            Held::Weight { geometry, .. } => of_words(geometry.weights_len()),
            Held::Bits { len, planes } => (8 * BitTensor::words_per_plane(len) * planes) as u64,
            // Its inputs, where it copies them, are most of what a large one takes.
            Held::Gate(Gate::Linear { geometry, other_inputs, batch, .. }) => {
                of_words(geometry.inputs(*batch) + other_inputs)
            }
            Held::Gate(_) => 0,
        };
        let room = Room::of(block);
        self.memory.hold((self.model.memory)(&held, self.ring, &self.options), room)
    }

    /// A share of `shape`.
    fn tensor(&self, shape: &[usize]) -> PlannedTensor {
        self.form(shape, false)
    }

    /// A share of `shape`, opened for products or not.
    fn form(&self, shape: &[usize], opened: bool) -> PlannedTensor {
        let count = shape.iter().product();
        let held = self.hold(if opened { Held::Opened(count) } else { Held::Share(count) });
        PlannedTensor { shape: shape.to_vec(), _held: Arc::new(held), opened }
    }

    /// An operand of a product, opened where the protocol does that apart.
    fn operand(&mut self, x: &PlannedTensor) -> Option<PlannedTensor> {
        if x.opened || !(self.model.opens_operands)(&self.options) {
            return None;
        }
        let opened = self.form(&x.shape, true);
        self.charge(Gate::Opening { count: x.count() });
        Some(opened)
    }

    fn bits(&self, len: usize, planes: usize) -> PlannedBits {
        PlannedBits { len, planes, _held: self.hold(Held::Bits { len, planes }) }
    }

    /// A share of the shape of `x`, if that has `count` elements.
    fn like(&self, x: &PlannedTensor, count: usize) -> Result<PlannedTensor> {
        match x.count() == count {
            true => Ok(self.tensor(&x.shape)),
            false => Err(ProtocolError::Internal("the sizes of a planned operation")),
        }
    }

    /// The larger of two by `gate`: first there is the difference with x, then with what is selected of it.
    fn larger(&mut self, x: PlannedTensor, y: &PlannedTensor, gate: Gate) -> Result<PlannedTensor> {
        let difference = self.like(&x, y.count())?;
        drop(x);
        let larger = self.tensor(&difference.shape);
        self.charge(gate);
        Ok(larger)
    }

    /// A linear map and what follows it, or the sum of several of which this is one.
    fn map(
        &mut self,
        x: &PlannedTensor,
        weight: &PlannedWeight,
        epilogue: &EpilogueOf<Self>,
        other_inputs: usize,
    ) -> Result<PlannedTensor> {
        let applied = epilogue.applied(&weight.geometry, x)?;
        let (out, batch) = (self.tensor(&applied.shape), applied.batch);
        let Epilogue { truncate, relu, .. } = *epilogue;
        let &PlannedWeight { geometry, kind: weight, .. } = weight;
        let _x = if weight == WeightKind::Public { None } else { self.operand(x) };
        self.charge(Gate::Linear { geometry, other_inputs, batch, weight, truncate, relu });
        Ok(out)
    }

    /// Adds up a gate. Its result is held by then.
    fn charge(&mut self, gate: Gate) {
        let cost = (self.model.plan)(&gate, self.ring, &self.options);
        for (stock, (used, more)) in
            self.stock.iter_mut().zip(self.used.by_sender.into_iter().zip(cost.ot_count.by_sender))
        {
            if let Some(bytes) = (self.model.stock_memory)(used, more) {
                // What is left is moved over before more is made.
                drop(stock.take());
                *stock = Some(self.memory.hold(bytes, Room::Heap));
            }
        }
        self.used += cost.ot_count;
        drop(self.hold(Held::Gate(&gate)));
        let offline = cost.links.iter().filter(|((kind, ..), _)| *kind == StepKind::Offline);
        let dealt = offline.map(|(&(_, from, to), traffic)| (from, to, traffic.bytes + traffic.messages * MESSAGE));
        let dealt: Vec<Dealt> = dealt.collect();
        self.moments.gate(self.memory.take_peak(), dealt);
        if cost != Cost::default() || self.node != WEIGHTS {
            *self.ledger.entry(self.node).or_default() += &cost;
        }
    }
}

impl PlannedTensor {
    fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Session for Planner {
    type Word = u64;
    type Arith = PlannedTensor;
    type Bool = PlannedBits;
    type StoredShare = PlannedParameter;

    fn costs(&self) -> CostModel {
        self.model
    }

    fn ring(&self) -> Ring {
        self.ring
    }

    fn restore(&mut self, x: PlannedParameter) -> Result<PlannedTensor> {
        Ok(self.tensor(&x.shape))
    }

    fn enter(&mut self, node: u32, _name: &str) {
        self.node = node;
        self.layers += 1;
    }

    fn begin(&mut self, _phase: Phase, _inference: u64) -> Result<()> {
        // What was before has been checked.
        self.layers = 1;
        self.moments.begin(&self.memory.take_peak());
        Ok(())
    }

    fn stored(&self) -> usize {
        0
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<PlannedTensor> {
        let x = self.tensor(shape);
        self.charge(Gate::ClientInput { count: x.count() });
        Ok(x)
    }

    fn check(&mut self) -> Result<Checked> {
        let layers = std::mem::replace(&mut self.layers, 1);
        self.charge(Gate::Check { layers });
        Ok(Checked(()))
    }

    fn reveal(&mut self, x: &PlannedTensor, _checked: &Checked) -> Result<()> {
        self.charge(Gate::Reveal { count: x.count() });
        Ok(())
    }
}

impl Local for Planner {
    fn constant(&self, value: &Tensor<u64>) -> PlannedTensor {
        self.tensor(value.shape())
    }

    fn add(&mut self, x: &PlannedTensor, y: &PlannedTensor) -> Result<PlannedTensor> {
        self.like(x, y.count())
    }

    fn sub(&mut self, x: &PlannedTensor, y: &PlannedTensor) -> Result<PlannedTensor> {
        self.like(x, y.count())
    }

    fn add_public(&mut self, x: &PlannedTensor, c: &Tensor<u64>) -> Result<PlannedTensor> {
        self.like(x, c.len())
    }

    fn mul_public(&mut self, x: &PlannedTensor, c: &Tensor<u64>) -> Result<PlannedTensor> {
        self.like(x, c.len())
    }

    fn gather(&mut self, x: &PlannedTensor, indices: &[u32], shape: &[usize]) -> Result<PlannedTensor> {
        let out = self.form(shape, x.opened);
        match out.count() == indices.len() {
            true => Ok(out),
            false => Err(ProtocolError::Internal("the sizes of a planned operation")),
        }
    }

    fn concat(&mut self, parts: &[&PlannedTensor]) -> Result<PlannedTensor> {
        Ok(self.tensor(&[parts.iter().map(|part| part.count()).sum()]))
    }

    fn sum_last(&mut self, x: &PlannedTensor) -> Result<PlannedTensor> {
        match x.shape.split_last() {
            Some((_, shape)) => Ok(self.tensor(shape)),
            None => Err(ProtocolError::Internal("the shape of a sum")),
        }
    }

    fn reshape(&mut self, x: &PlannedTensor, shape: &[usize]) -> PlannedTensor {
        PlannedTensor { shape: shape.to_vec(), ..x.clone() }
    }

    fn xor(&mut self, x: &PlannedBits, _y: &PlannedBits) -> PlannedBits {
        x.clone()
    }

    fn not(&mut self, x: &PlannedBits) -> PlannedBits {
        x.clone()
    }

    fn components(&self, _x: &PlannedTensor) -> Vec<Tensor<u64>> {
        Vec::new()
    }

    fn share_of_components(&self, shape: &[usize], _components: Vec<Tensor<u64>>) -> Option<PlannedTensor> {
        Some(self.tensor(shape))
    }
}

impl Linear for Planner {
    type Weight = PlannedWeight;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, _placement: Placement) -> Result<PlannedWeight> {
        let mut opened = None;
        let kind = match source {
            WeightSource::Shared(_) => WeightKind::Shared,
            WeightSource::Computed(weight) => {
                opened = self.operand(weight);
                WeightKind::Computed
            }
            WeightSource::Stored(stored) => WeightKind::Stored { bits: stored.bits },
            WeightSource::Public(_) => WeightKind::Public,
        };
        let node = self.node;
        self.node = if kind == WeightKind::Computed { node } else { WEIGHTS };
        self.charge(Gate::Prepare { geometry, weight: kind });
        self.node = node;
        let held = self.hold(Held::Weight { geometry: &geometry, kind });
        drop(opened);
        Ok(PlannedWeight { geometry, kind, _held: held })
    }

    fn open_operand(&mut self, x: &PlannedTensor) -> Result<Option<PlannedTensor>> {
        Ok(self.operand(x))
    }

    fn forget_opening(&self, x: &PlannedTensor) -> PlannedTensor {
        if x.opened { self.tensor(&x.shape) } else { x.clone() }
    }

    fn linear(
        &mut self,
        x: &PlannedTensor,
        weight: &PlannedWeight,
        epilogue: &EpilogueOf<Self>,
    ) -> Result<PlannedTensor> {
        self.map(x, weight, epilogue, 0)
    }

    fn matmul(
        &mut self,
        x: &PlannedTensor,
        y: &PlannedTensor,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<PlannedTensor> {
        let _operands = [self.operand(x), self.operand(y)];
        let out = self.tensor(&[shape.batch, shape.rows, shape.columns]);
        self.charge(Gate::Matmul { shape, truncate });
        Ok(out)
    }

    fn mul(&mut self, x: &PlannedTensor, y: &PlannedTensor, truncate: Option<Truncation>) -> Result<PlannedTensor> {
        let square = std::ptr::eq(x, y);
        let _operands = [self.operand(x), if square { None } else { self.operand(y) }];
        let out = self.like(x, y.count())?;
        self.charge(Gate::Product { count: x.count(), square, truncate });
        Ok(out)
    }
}

impl NonLinear for Planner {
    fn linear_sum(
        &mut self,
        terms: &[TermOf<Self>],
        truncation: Truncation,
        relu: Option<Comparison>,
    ) -> Result<PlannedTensor> {
        let maps: Vec<_> = terms.iter().map(|term| (term.weight.geometry, term.weight.kind)).collect();
        let batch = applied_alike(terms.iter().map(|term| (term.weight.geometry, (term.x, term.bias))))?.batch;
        let Some(leading) = (self.model.leading)(&maps, batch) else {
            return composed::linear_sum(self, terms, truncation, relu);
        };
        let Term { x, weight, bias } = &terms[leading];
        let epilogue = Epilogue { bias: *bias, truncate: Some(truncation), residual: None, relu };
        let other_inputs = terms.iter().map(|term| term.x.count()).sum::<usize>() - x.count();
        self.map(x, weight, &epilogue, other_inputs)
    }

    fn mul_to_nearest(
        &mut self,
        x: &PlannedTensor,
        y: &PlannedTensor,
        truncation: Truncation,
    ) -> Result<PlannedTensor> {
        match self.model.rounds_products {
            true => self.mul(x, y, Some(truncation)),
            false => composed::mul_to_nearest(self, x, y, truncation),
        }
    }

    fn truncate(&mut self, x: &PlannedTensor, truncation: Truncation) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::Truncate { count: x.count(), truncation });
        Ok(out)
    }

    fn div_exact(&mut self, x: &PlannedTensor, divisor: u64, bound: u32) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::DivExact { count: x.count(), divisor, bound });
        Ok(out)
    }

    fn msb(&mut self, x: &PlannedTensor, comparison: Comparison) -> Result<PlannedBits> {
        self.charge(Gate::Msb { count: x.count(), comparison });
        Ok(self.bits(x.count(), 1))
    }

    fn and(&mut self, x: &PlannedBits, _y: &PlannedBits) -> Result<PlannedBits> {
        let out = x.clone();
        self.charge(Gate::And { count: x.len, planes: x.planes });
        Ok(out)
    }

    fn bit2a(&mut self, x: &PlannedBits, shape: &[usize]) -> Result<PlannedTensor> {
        self.charge(Gate::Bit2a { count: x.len });
        self.like(&self.tensor(shape), x.len)
    }

    fn select(&mut self, b: &PlannedBits, x: &PlannedTensor) -> Result<PlannedTensor> {
        self.charge(Gate::Select { count: x.count() });
        self.like(x, b.len)
    }

    fn lookup(&mut self, x: &PlannedTensor, tables: &[Vec<u64>]) -> Result<Vec<PlannedTensor>> {
        let index_bits = Sets::of(tables)?.index_bits;
        let out = tables.iter().map(|_| self.tensor(&x.shape)).collect();
        self.charge(Gate::Lookup { count: x.count(), index_bits, tables: tables.len() });
        Ok(out)
    }

    fn relu(&mut self, x: &PlannedTensor, comparison: Comparison) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::Relu { count: x.count(), truncate: None, comparison });
        Ok(out)
    }

    fn truncate_relu(
        &mut self,
        x: &PlannedTensor,
        truncation: Truncation,
        comparison: Comparison,
    ) -> Result<PlannedTensor> {
        let out = self.tensor(&x.shape);
        self.charge(Gate::Relu { count: x.count(), truncate: Some(truncation), comparison });
        Ok(out)
    }

    fn clip(&mut self, x: &PlannedTensor, ends: Ends, comparison: Comparison) -> Result<PlannedTensor> {
        match ends {
            Ends { low: Some(low), high: Some(high) } if (self.model.fuses_clip)(self.ring, &self.options) => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Clip { count: x.count(), ends: (low, high), comparison });
                Ok(out)
            }
            _ => composed::clip(self, x, ends, comparison),
        }
    }

    fn table(&mut self, x: &PlannedTensor, table: &Table) -> Result<PlannedTensor> {
        let shape = table.clone().simplified().shape();
        match (self.model.fuses_table)(&shape, self.ring, &self.options) {
            true => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Table { count: x.count(), shape });
                Ok(out)
            }
            false => composed::table(self, x, table),
        }
    }

    fn clip_table(
        &mut self,
        x: &PlannedTensor,
        clipped: Clipped,
        comparison: Comparison,
        table: &Table,
    ) -> Result<PlannedTensor> {
        let windowed = table.windowed(clipped, comparison, self.ring).map(|(_, shape)| shape);
        match windowed.filter(|shape| (self.model.fuses_table)(shape, self.ring, &self.options)) {
            Some(shape) => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Table { count: x.count(), shape });
                Ok(out)
            }
            None => composed::clip_table(self, x, clipped, comparison, table),
        }
    }

    fn max(
        &mut self,
        x: PlannedTensor,
        y: &PlannedTensor,
        comparison: Comparison,
    ) -> Result<(PlannedTensor, PlannedBits)> {
        let count = x.count();
        Ok((self.larger(x, y, Gate::Max { count, comparison })?, self.bits(count, 1)))
    }

    fn largest(&mut self, values: &[PlannedTensor], maximum: Maximum) -> Result<PlannedTensor> {
        if !(self.model.joins_maxima)(&self.options) {
            return composed::largest(self, values, maximum);
        }
        let out = self.tensor(&composed::last_of(values, maximum)?.shape);
        self.charge(Gate::Largest { count: out.count(), maximum });
        Ok(out)
    }

    fn time_of(&self, gates: &[Gate]) -> Option<u128> {
        (self.model.joins_maxima)(&self.options).then(|| self.model.time_of(gates, self.ring, &self.options))
    }

    fn narrows_maxima(&self, selected: usize, results: usize, comparison: Comparison) -> bool {
        let pays = |bits| (self.model.narrowing_pays)(bits, selected, results, self.ring, &self.options);
        self.narrow_bits(comparison).is_some_and(pays)
    }

    fn max_within(&mut self, x: PlannedTensor, y: &PlannedTensor, comparison: Comparison) -> Result<PlannedTensor> {
        let count = x.count();
        let gate = match self.narrow_bits(comparison) {
            Some(bits) => Gate::MaxWithin { count, comparison, bits },
            None => Gate::Max { count, comparison },
        };
        self.larger(x, y, gate)
    }

    fn widened(&mut self, x: PlannedTensor, comparison: Comparison) -> Result<PlannedTensor> {
        match self.narrow_bits(comparison) {
            Some(bits) => {
                let out = self.tensor(&x.shape);
                self.charge(Gate::Widen { count: x.count(), bits });
                Ok(out)
            }
            None => Ok(x),
        }
    }
}

impl Extended for Planner {
    fn input(&mut self, owner: usize, shape: &[usize], _value: Option<&Tensor<u64>>) -> Result<PlannedTensor> {
        let x = self.tensor(shape);
        self.charge(Gate::Input { owner, count: x.count() });
        Ok(x)
    }

    fn open(&mut self, x: &PlannedTensor, _checked: &Checked) -> Result<Tensor<u64>> {
        self.charge(Gate::Open { count: x.count() });
        Ok(Tensor::zeros(x.shape.clone()))
    }

    fn open_bits(&mut self, x: &PlannedBits, _checked: &Checked) -> Result<BitTensor> {
        self.charge(Gate::OpenBits { count: x.len, planes: x.planes });
        Ok(BitTensor::zeros(x.len, x.planes))
    }

    fn a2b(&mut self, x: &PlannedTensor) -> Result<PlannedBits> {
        self.charge(Gate::A2b { count: x.count() });
        Ok(self.bits(x.count(), self.ring.bits() as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trio::Trio;

    fn planner() -> Planner {
        Planner::new(CostModel::of::<Trio<u32>>(), Ring::Pow2(32), Options::default())
    }

    /// What gates make is held beside what they read; other shapes of a share hold nothing more.
    #[test]
    fn results_of_gates_are_counted_and_other_shapes_are_not() {
        let comparison = Comparison::new(20, true);
        let truncation = Truncation { bits: 4, rounding: crate::api::Rounding::Exact, bound: 20 };
        let one = {
            let planner = planner();
            let _x = planner.tensor(&[4096]);
            planner.held_memory()
        };
        type Gate = fn(&mut Planner, &PlannedTensor, Comparison, Truncation) -> Result<PlannedTensor>;
        let gates: [Gate; 4] = [
            |p, x, comparison, _| p.relu(x, comparison),
            |p, x, _, truncation| p.truncate(x, truncation),
            |p, x, comparison, truncation| p.truncate_relu(x, truncation, comparison),
            |p, x, _, _| p.add(x, x),
        ];
        for gate in gates {
            let mut planner = planner();
            let x = planner.tensor(&[4096]);
            let _y = gate(&mut planner, &x, comparison, truncation).unwrap();
            let both: Vec<u64> = one.iter().map(|bytes| 2 * bytes).collect();
            assert_eq!(planner.held_memory(), both);
            let _flat = planner.reshape(&x, &[64, 64]);
            assert_eq!(planner.held_memory(), both);
        }
    }

    /// A maximum frees x, and holds the difference until its result is there.
    #[test]
    fn a_maximum_holds_its_difference_and_not_both_operands() {
        let mut planner = planner();
        let (count, comparison) = (4096, Comparison::new(20, true));
        let maximum = Gate::Max { count, comparison };
        let bytes = |planner: &Planner, held| (planner.model.memory)(&held, planner.ring, &planner.options);
        let (x, y) = (planner.tensor(&[count]), planner.tensor(&[count]));
        let (_larger, _less) = planner.max(x, &y, comparison).unwrap();
        let share = bytes(&planner, Held::Share(count));
        let gate = bytes(&planner, Held::Gate(&maximum));
        let less = bytes(&planner, Held::Bits { len: count, planes: 1 });
        let each = |of: &dyn Fn(usize) -> u64| (0..share.len()).map(of).collect::<Vec<u64>>();
        assert_eq!(planner.held_memory(), each(&|party| 2 * share[party] + less[party]));
        assert_eq!(planner.peak_memory(0), each(&|party| 3 * share[party] + gate[party]));
    }
}
