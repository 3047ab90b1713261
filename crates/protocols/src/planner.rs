//! The cost of a program before it runs: a protocol whose shares are shapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use covey_ring::{BitTensor, Ring};
use covey_transport::{Meter, Phase as StepKind};

use crate::api::{
    Comparison, Epilogue, EpilogueOf, Geometry, Layer, LayerOf, Options, ProtocolError, Result, Shaped, Term,
    WeightKind,
};
use crate::cost::{CHECK, Cost, CostModel, Gate, OtCount, WEIGHTS};
use crate::linear_map::gate_of;
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

    /// The cost so far, by the node numbers given to [`crate::Session::enter`].
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
        self.operands([x].into_iter()).pop()
    }

    /// Operands of several products at once, opened in one gate where the protocol does that apart.
    fn operands<'a>(&mut self, xs: impl Iterator<Item = &'a PlannedTensor>) -> Vec<PlannedTensor> {
        let opens = (self.model.opens_operands)(&self.options);
        let opened: Vec<_> = xs.filter(|x| opens && !x.opened).map(|x| self.form(&x.shape, true)).collect();
        if !opened.is_empty() {
            self.charge(Gate::Opening { count: opened.iter().map(PlannedTensor::count).sum() });
        }
        opened
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

    /// Layers with secret weights, in as many gates as they have forms.
    fn layers(&mut self, layers: &[LayerOf<Self>]) -> Result<Vec<PlannedTensor>> {
        let gate = |layer: &LayerOf<Self>| gate_of::<Self>((layer.map.weight.geometry, layer.map.weight.kind), layer);
        let gates = layers.iter().map(gate).collect::<Result<Vec<_>>>()?;
        let _operands = self.operands(layers.iter().map(|layer| layer.map.x));
        let mut results = Vec::with_capacity(layers.len());
        for &Layer { map: Term { x, weight, .. }, .. } in layers {
            let applied = Epilogue::<PlannedTensor, u64>::default().applied(&weight.geometry, x)?;
            results.push(self.tensor(&applied.shape));
        }
        self.add_up((self.model.plan_parallel)(&gates, self.ring, &self.options), &gates);
        Ok(results)
    }

    /// Adds up a gate. Its result is held by then.
    fn charge(&mut self, gate: Gate) {
        let cost = (self.model.plan)(&gate, self.ring, &self.options);
        self.add_up(cost, &[gate]);
    }

    /// Adds up the cost of gates that run at once.
    fn add_up(&mut self, cost: Cost, gates: &[Gate]) {
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
        drop(gates.iter().map(|gate| self.hold(Held::Gate(gate))).collect::<Vec<_>>());
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

mod gates;
#[cfg(test)]
mod tests;
