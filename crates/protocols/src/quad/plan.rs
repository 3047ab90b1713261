//! What each gate costs: the layouts the machines run by, summed over tiles.

use covey_kernels::Chunk;
use covey_ring::{Ring, Word};

use super::bits::{AllBitsPlan, SignPlan, and_layout};
use super::share::Role;
use super::stream::Opening;
use super::{Quad, convert, folding, fused, input, lookup, memory, output, product, truncate, verdict};
use crate::api::{Costs, Geometry, Options, SourcedMap, WeightKind};
use crate::composed;
use crate::cost::{Cost, Gate};
use crate::linear_map::{Follows, ended, leading};
use crate::machine::Layout;
use crate::masked::ending::{Ended, Ending, Form, gates, relus, tiles};
use crate::masked::fused::Task;
use crate::masked::lookup::Sets;
use crate::masked::pieces::{PIECE, chunks, lens, piece_of};
use crate::memory::Held;
use crate::trio;

fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let tiled = |count: usize, layout: &dyn Fn(usize) -> Layout| Cost::of_gate(count, options, layout);
    match *gate {
        Gate::Input { owner, count } => tiled(count, &|len| input::input_layout(Role::of(owner), len, ring)),
        Gate::ClientInput { count } => tiled(count, &|len| input::client_input_layout(len, ring)),
        Gate::Open { count } => tiled(count, &|len| output::open_layout(len, ring)),
        // One gate a plane, one after the other.
        Gate::OpenBits { count, planes } => tiled(count, &output::open_plane_layout).repeated(planes),
        Gate::Reveal { count } => tiled(count, &|len| output::reveal_layout(len, ring)),
        Gate::Check { layers } => Cost::tiled(1, 1, 1, |_| verdict::layout(layers)),
        Gate::Opening { .. } | Gate::Prepare { .. } => Cost::default(),
        Gate::Linear { geometry, batch, weight, truncate, relu, .. } => {
            let lens = chunks(&geometry, batch).iter().map(Chunk::len).collect();
            products(&[(lens, (truncate, relu))], &[begins(&geometry, batch, weight)], ring, options)
        }
        Gate::Matmul { shape, truncate } => {
            let count = shape.batch * shape.rows * shape.columns;
            let begins = match folding::pays_for_product(&shape) {
                true => (Opening::Combined, folding::verified_by_product(&shape)),
                false => (Opening::ByElement, 0),
            };
            products(&[(lens(count, piece_of(&shape)), (truncate, None))], &[begins], ring, options)
        }
        Gate::Product { count, truncate, .. } => {
            products(&[(lens(count, PIECE), (truncate, None))], &[(Opening::ByElement, 0)], ring, options)
        }
        Gate::Truncate { count, truncation } => {
            let plan = truncate::CheckedTruncationPlan::new(
                trio::truncate::TruncationPlan::new(truncation, false, ring, options, count),
                false,
            );
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Msb { count, comparison } => {
            let (read, _) = comparison.read(ring.bits(), options);
            let plan =
                SignPlan::new(trio::comparison::ComparisonPlan::sign(read as usize, options, count), read as usize);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::And { count, planes } => tiled(count, &|len| and_layout(len, planes)),
        Gate::A2b { count } => {
            let plan = AllBitsPlan::new(trio::bits::AllBitsPlan::new(ring, options.adder));
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Bit2a { count } => tiled(count, &|len| convert::layout(len, ring, false)),
        Gate::Select { count } => tiled(count, &|len| convert::layout(len, ring, true)),
        Gate::Relu { count, truncate, comparison } if options.adder.fuses() => {
            let task = Task::new(false, truncate, comparison, ring, options);
            let plan = fused::CheckedReluPlan::new(trio::fused::FusedReluPlan::choose(task, options, count), false);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Lookup { count, index_bits, tables } => {
            tiled(count, &|len| lookup::layout(len, ring, Sets { index_bits }, tables))
        }
        Gate::DivExact { .. }
        | Gate::Relu { .. }
        | Gate::Clip { .. }
        | Gate::Max { .. }
        | Gate::MaxWithin { .. }
        | Gate::Largest { .. }
        | Gate::Widen { .. }
        | Gate::Table { .. } => composed::cost(gate, |gate| plan(gate, ring, options)),
    }
}

/// How a gate begins, and as how many combinations of each message.
fn begins(geometry: &Geometry, batch: usize, weight: WeightKind) -> (Opening, usize) {
    match weight {
        WeightKind::Public => (Opening::None, 0),
        WeightKind::Stored { .. } if folding::pays_for_map(geometry, batch) => {
            (Opening::Combined, folding::verified_by_map(geometry, batch))
        }
        _ => (Opening::ByElement, 0),
    }
}

type ProductEnding = Ending<fused::CheckedReluPlan, truncate::CheckedTruncationPlan>;

/// How a product of `count` elements ends. Comparisons that fuse take in the ReLU.
pub(super) fn ending(
    opening: Opening,
    (truncate, relu): Follows,
    ring: Ring,
    options: &Options,
    count: usize,
) -> ProductEnding {
    match (truncate, relu.filter(|_| options.adder.fuses())) {
        (truncate, Some(comparison)) => {
            let task = Task::new(opening.opens(), truncate, comparison, ring, options);
            let plan = trio::fused::FusedReluPlan::choose(task, options, count);
            Ending::Relu(fused::CheckedReluPlan::new(plan, opening.folded()))
        }
        (Some(truncation), None) => {
            let plan = trio::truncate::TruncationPlan::new(truncation, opening.opens(), ring, options, count);
            Ending::Shift(truncate::CheckedTruncationPlan::new(plan, opening.folded()))
        }
        (None, None) => Ending::Plain,
    }
}

fn layout(ending: &ProductEnding, opening: Opening, len: usize, ring: Ring) -> Layout {
    match ending {
        Ending::Relu(plan) => plan.layout(len),
        Ending::Shift(plan) => plan.layout(len),
        Ending::Plain => product::layout(len, ring, opening.folded()),
    }
}

/// What layers of one gate have alike.
pub(super) fn form_of(layer: &Gate, ring: Ring, options: &Options) -> Form {
    let (ended, (opening, _)) = (ended(layer), beginning(layer));
    let ending = ending(opening, ended.1, ring, options, layer.elements());
    let number = match &ending {
        Ending::Relu(_) => 0,
        Ending::Shift(_) => 1,
        Ending::Plain => 2,
    };
    Form::new(number, &ended, options, |len| layout(&ending, opening, len, ring))
}

/// How a layer's gate begins, as [`begins`].
fn beginning(layer: &Gate) -> (Opening, usize) {
    match layer {
        Gate::Linear { geometry, batch, weight, .. } => begins(geometry, *batch, *weight),
        _ => (Opening::ByElement, 0),
    }
}

/// Products computed in one gate, whose endings are of one form.
fn products(layers: &[Ended], begin: &[(Opening, usize)], ring: Ring, options: &Options) -> Cost {
    let of = |((lens, follows), (opening, _)): (&Ended, &(Opening, usize))| {
        ending(*opening, *follows, ring, options, lens.iter().sum())
    };
    let endings: Vec<_> = layers.iter().zip(begin).map(of).collect();
    let mut cost = match (endings.first(), begin.first()) {
        (Some(Ending::Plain), Some((Opening::None, _))) => Cost::default(),
        _ => Cost::of_tiles(tiles(layers, options.tile_size()), options.window, |(number, len)| {
            layout(&endings[number], begin[number].0, len, ring)
        }),
    };
    for ((_, (truncate, relu)), &(_, combined)) in layers.iter().zip(begin).filter(|(_, begin)| begin.0.folded()) {
        let fused = relu.filter(|_| options.adder.fuses());
        let opened = fused.map_or(ring, |relu| Task::new(true, *truncate, relu, ring, options).opened());
        cost += &Cost::tiled(combined, options.tile_size(), options.window, |len| folding::layout(len, opened));
    }
    if !options.adder.fuses() {
        cost += &relus(layers, |relu| plan(relu, ring, options));
    }
    cost
}

/// The cost of layers with secret weights: a gate for each form.
fn parallel(layers: &[Gate], ring: Ring, options: &Options) -> Cost {
    let forms: Vec<_> = layers.iter().map(|layer| form_of(layer, ring, options)).collect();
    let mut cost = Cost::default();
    for gate in gates(&forms, options) {
        let layers = gate.iter().map(|&number| &layers[number]);
        let (ended, begin): (Vec<Ended>, Vec<_>) = layers.map(|layer| (ended(layer), beginning(layer))).unzip();
        cost += &products(&ended, &begin, ring, options);
    }
    cost
}

impl<W: Word> Costs for Quad<W> {
    const NAME: &'static str = "quad";
    const FUSES_RELU: bool = true;
    const JOINS_LINEAR: bool = true;

    fn leading(maps: &[SourcedMap], batch: usize) -> Option<usize> {
        leading(maps).filter(|_| folding::pays_for_sum(maps, batch).is_some())
    }

    fn joins_layers(options: &Options) -> bool {
        options.network.is_far()
    }

    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan(gate, ring, options)
    }

    fn plan_parallel(layers: &[Gate], ring: Ring, options: &Options) -> Cost {
        parallel(layers, ring, options)
    }

    fn memory(held: &Held, _: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, options)
    }
}

#[cfg(test)]
mod tests {
    use covey_transport::Phase as StepKind;

    use super::*;
    use crate::api::{Comparison, Geometry, Rounding, Truncation};
    use crate::circuits::Adder;

    /// Bits an element on all links, offline and online, and rounds.
    fn bits(gate: &Gate, count: usize, adder: Adder, ring: Ring) -> (u64, u64, u64) {
        let options = Options { adder, ..Options::default() };
        let cost = plan(gate, ring, &options);
        let bits = |wanted: StepKind| {
            let links = cost.links.iter().filter(|((kind, ..), _)| *kind == wanted);
            links.map(|(_, traffic)| traffic.bytes).sum::<u64>() * 8 / count as u64
        };
        (bits(StepKind::Offline), bits(StepKind::Online), cost.rounds)
    }

    #[test]
    fn the_figures_of_the_design_note() {
        let ring = Ring::Pow2(32);
        let count = 1 << 14;
        let truncation = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
        let comparison = Comparison::new(31, false);
        let linear = Gate::Linear {
            other_inputs: 0,
            geometry: Geometry::Dense { inputs: 4, outputs: 64 },
            batch: count / 64,
            weight: WeightKind::Stored { bits: 10 },
            truncate: Some(truncation),
            relu: Some(comparison),
        };
        let fused = [Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds].map(|a| bits(&linear, count, a, ring));
        let relu = Gate::Relu { count, truncate: None, comparison };
        let relu = [Adder::FewestBytes, Adder::Balanced].map(|adder| bits(&relu, count, adder, ring));
        let product = Gate::Product { count, square: false, truncate: None };
        let shifted = Gate::Product { count, square: false, truncate: Some(truncation) };
        let others =
            [&product, &shifted, &Gate::Bit2a { count }, &Gate::Select { count }, &Gate::And { count, planes: 1 }]
                .map(|gate| bits(gate, count, Adder::FewestBytes, ring));
        let lookups =
            [1, 2].map(|tables| bits(&Gate::Lookup { count, index_bits: 7, tables }, count, Adder::FewestBytes, ring));
        assert_eq!(lookups, [(224, 288, 2), (320, 448, 2)]);
        assert_eq!(fused, [(289, 418, 7), (346, 474, 5), (531, 666, 4)]);
        assert_eq!(relu, [(239, 303, 5), (251, 316, 4)]);
        assert_eq!(others, [(64, 96, 1), (168, 271, 6), (64, 96, 1), (96, 128, 1), (2, 3, 1)]);
    }
}
