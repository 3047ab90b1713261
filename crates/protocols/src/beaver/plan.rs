//! What each gate costs: the layouts the machines run by, summed over tiles.

use covey_kernels::Chunk;
use covey_ring::{Ring, Word};

use super::fused::{FusedReluPlan, SignPlan};
use super::site::table_of;
use super::{Beaver, again, bits, convert, io, lookup, memory, open, product, truncate};
use crate::api::{Costs, Options, WeightKind};
use crate::circuits::{Adder, CarryCircuit};
use crate::composed;
use crate::cost::{Cost, Gate};
use crate::linear_map::{Follows, ended};
use crate::machine::Layout;
use crate::masked::ending::{Ended, Ending, Form, gates, tiles};
use crate::masked::fused::Task;
use crate::masked::pieces::{PIECE, chunks, lens, piece_of};
use crate::memory::Held;

fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let table = table_of(options);
    let tiled = |count: usize, layout: &dyn Fn(usize) -> Layout| Cost::of_gate(count, options, layout);
    let opening = |count: usize| tiled(count, &|len| open::layout(table, len, ring));
    // Operands are gates of their own then.
    let apart = Beaver::<u64>::opens_operands(options);
    match *gate {
        Gate::Input { .. } => Cost::default(),
        Gate::ClientInput { count } => tiled(count, &|len| io::client_input_layout(table, len, ring)),
        Gate::Open { count } => opening(count),
        Gate::OpenBits { count, planes } => tiled(count, &|len| io::open_planes_layout(table, len, planes)),
        Gate::Reveal { count } => tiled(count, &|len| io::reveal_layout(table, len, ring)),
        Gate::Check { .. } => Cost::default(),
        Gate::Opening { count } => opening(count),
        Gate::Prepare { geometry, weight } => match weight {
            WeightKind::Public => Cost::default(),
            WeightKind::Computed if apart => Cost::default(),
            _ => opening(geometry.weights_len()),
        },
        Gate::Linear { geometry, batch, weight, truncate, relu, .. } => {
            let lens = chunks(&geometry, batch).iter().map(Chunk::len).collect();
            let mut cost = operand(gate, ring, options);
            cost += &finished(&[(lens, (truncate, relu))], weight == WeightKind::Public, ring, options);
            cost
        }
        Gate::Matmul { shape, truncate } => {
            let mut cost = Cost::default();
            if !apart {
                cost += &opening(shape.batch * shape.rows * shape.inner);
                cost += &opening(shape.batch * shape.inner * shape.columns);
            }
            let count = shape.batch * shape.rows * shape.columns;
            cost += &finished(&[(lens(count, piece_of(&shape)), (truncate, None))], false, ring, options);
            cost
        }
        Gate::Product { count, square, truncate } => {
            let mut cost = match (apart, square) {
                (true, _) => Cost::default(),
                (false, square) => opening(count).repeated(if square { 1 } else { 2 }),
            };
            cost += &finished(&[(lens(count, PIECE), (truncate, None))], false, ring, options);
            cost
        }
        Gate::Truncate { count, truncation } => {
            let plan = truncate::TruncationPlan::new(truncation, ring, options, count);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Msb { count, comparison } => {
            let plan = SignPlan::new(comparison.read(ring.bits(), options), options, count);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::And { count, planes } => tiled(count, &|len| bits::And::layout(table, len, planes)),
        Gate::A2b { count } => {
            let mut cost = tiled(count, &|len| bits::layout(table, len, ring));
            for level in CarryCircuit::carries(ring.bits() as usize - 1, Adder::LogDepth).levels {
                let planes = level.iter().map(|combine| 1 + usize::from(combine.propagate)).sum();
                cost += &tiled(count, &|len| bits::And::layout(table, len, planes));
            }
            cost
        }
        Gate::Bit2a { count } => tiled(count, &|len| convert::layout(table, len, ring, false)),
        Gate::Select { count } => tiled(count, &|len| convert::layout(table, len, ring, true)),
        Gate::Relu { count, truncate, comparison } => {
            let plan = FusedReluPlan::choose(Task::new(true, truncate, comparison, ring, options), options, count);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Lookup { count, index_bits, tables } => lookup::cost(count, (index_bits, tables), ring, options),
        Gate::Max { count, comparison } => plan(&Gate::Relu { count, truncate: None, comparison }, ring, options),
        Gate::DivExact { .. }
        | Gate::MaxWithin { .. }
        | Gate::Largest { .. }
        | Gate::Widen { .. }
        | Gate::Clip { .. }
        | Gate::Table { .. } => composed::cost(gate, |gate| plan(gate, ring, options)),
    }
}

/// What a linear layer opens before it multiplies.
fn operand(layer: &Gate, ring: Ring, options: &Options) -> Cost {
    let Gate::Linear { geometry, batch, weight, .. } = layer else { return Cost::default() };
    let inputs = geometry.inputs(*batch);
    match weight {
        // Operands are gates of their own.
        _ if *weight == WeightKind::Public || Beaver::<u64>::opens_operands(options) => Cost::default(),
        WeightKind::Computed => Cost::of_gate(inputs, options, |len| open::layout(table_of(options), len, ring)),
        _ => again::plan(geometry.weights_len(), inputs, ring, options),
    }
}

/// How a product of `count` elements ends.
pub(super) fn ending(
    (truncate, relu): Follows,
    ring: Ring,
    options: &Options,
    count: usize,
) -> Ending<FusedReluPlan, truncate::TruncationPlan> {
    match (truncate, relu) {
        (truncate, Some(relu)) => {
            Ending::Relu(FusedReluPlan::choose(Task::new(true, truncate, relu, ring, options), options, count))
        }
        (Some(truncation), None) => Ending::Shift(truncate::TruncationPlan::new(truncation, ring, options, count)),
        (None, None) => Ending::Plain,
    }
}

fn layout(
    ending: &Ending<FusedReluPlan, truncate::TruncationPlan>,
    len: usize,
    ring: Ring,
    options: &Options,
) -> Layout {
    match ending {
        Ending::Relu(plan) => plan.layout(len),
        Ending::Shift(plan) => plan.layout(len),
        Ending::Plain => product::layout(table_of(options), len, ring),
    }
}

/// What layers of one gate have alike.
pub(super) fn form_of(layer: &Gate, ring: Ring, options: &Options) -> Form {
    let ended = ended(layer);
    let ending = ending(ended.1, ring, options, layer.elements());
    let number = match &ending {
        Ending::Relu(_) => 0,
        Ending::Shift(_) => 1,
        Ending::Plain => 2,
    };
    Form::new(number, &ended, options, |len| layout(&ending, len, ring, options))
}

/// What follows products in one gate, whose endings are of one form.
fn finished(layers: &[Ended], public: bool, ring: Ring, options: &Options) -> Cost {
    let of = |(lens, follows): &Ended| ending(*follows, ring, options, lens.iter().sum());
    let endings: Vec<_> = layers.iter().map(of).collect();
    match endings.first() {
        Some(Ending::Plain) if public => Cost::default(),
        _ => Cost::of_tiles(tiles(layers, options.tile_size()), options.window, |(number, len)| {
            layout(&endings[number], len, ring, options)
        }),
    }
}

impl<W: Word> Costs for Beaver<W> {
    const NAME: &'static str = "beaver";
    const FUSES_RELU: bool = true;

    fn opens_operands(options: &Options) -> bool {
        options.pipelines.inter_linear
    }

    fn joins_layers(options: &Options) -> bool {
        options.network.is_far()
    }

    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan(gate, ring, options)
    }

    fn plan_parallel(layers: &[Gate], ring: Ring, options: &Options) -> Cost {
        let forms: Vec<Form> = layers.iter().map(|layer| form_of(layer, ring, options)).collect();
        let mut cost = Cost::default();
        for gate in gates(&forms, options) {
            gate.iter().for_each(|&number| cost += &operand(&layers[number], ring, options));
            let layers: Vec<Ended> = gate.iter().map(|&number| ended(&layers[number])).collect();
            cost += &finished(&layers, false, ring, options);
        }
        cost
    }

    fn memory(held: &Held, ring: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, ring, options)
    }
}
