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
use crate::linear_map::Follows;
use crate::machine::Layout;
use crate::masked::fused::Task;
use crate::masked::pieces::{PIECE, chunks, lens, piece_of, tile_lens};
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
            let public = weight == WeightKind::Public;
            let lens = chunks(&geometry, batch).iter().map(Chunk::len).collect();
            let inputs = geometry.inputs(batch);
            let mut cost = match weight {
                _ if public || apart => Cost::default(),
                WeightKind::Computed => opening(inputs),
                _ => again::plan(geometry.weights_len(), inputs, ring, options),
            };
            cost += &finished(lens, public, (truncate, relu), ring, options);
            cost
        }
        Gate::Matmul { shape, truncate } => {
            let mut cost = Cost::default();
            if !apart {
                cost += &opening(shape.batch * shape.rows * shape.inner);
                cost += &opening(shape.batch * shape.inner * shape.columns);
            }
            let count = shape.batch * shape.rows * shape.columns;
            cost += &finished(lens(count, piece_of(&shape)), false, (truncate, None), ring, options);
            cost
        }
        Gate::Product { count, square, truncate } => {
            let mut cost = match (apart, square) {
                (true, _) => Cost::default(),
                (false, square) => opening(count).repeated(if square { 1 } else { 2 }),
            };
            cost += &finished(lens(count, PIECE), false, (truncate, None), ring, options);
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

/// What follows a product computed in pieces of these lengths.
fn finished(lens: Vec<usize>, public: bool, (truncate, relu): Follows, ring: Ring, options: &Options) -> Cost {
    let (table, count) = (table_of(options), lens.iter().sum());
    let tiled = |layout: &dyn Fn(usize) -> Layout| {
        Cost::of_tiles(tile_lens(lens.clone(), options.tile_size()), options.window, layout)
    };
    match (truncate, relu) {
        (truncate, Some(relu)) => {
            let plan = FusedReluPlan::choose(Task::new(true, truncate, relu, ring, options), options, count);
            tiled(&|len| plan.layout(len))
        }
        (Some(truncation), None) => {
            let plan = truncate::TruncationPlan::new(truncation, ring, options, count);
            tiled(&|len| plan.layout(len))
        }
        (None, None) if public => Cost::default(),
        (None, None) => tiled(&|len| product::layout(table, len, ring)),
    }
}

impl<W: Word> Costs for Beaver<W> {
    const NAME: &'static str = "beaver";
    const FUSES_RELU: bool = true;

    fn opens_operands(options: &Options) -> bool {
        options.pipelines.inter_linear
    }

    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan(gate, ring, options)
    }

    fn memory(held: &Held, ring: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, ring, options)
    }
}
