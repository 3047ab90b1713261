//! What each gate costs: the layouts the machines run by, summed over tiles.

use covey_kernels::Chunk;
use covey_ring::Ring;

use super::fused::{Form, SignForm};
use super::site::table_of;
use super::{again, bits, convert, io, open, product, truncate};
use crate::api::{Comparison, Options, Truncation, WeightKind};
use crate::circuits::{Adder, CarryCircuit};
use crate::clip::Ends;
use crate::cost::{Cost, Gate};
use crate::machine::Layout;
use crate::masked::fused::Task;
use crate::masked::pieces::{PIECE, chunks, lens, piece_of, tile_lens};

pub(super) fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let table = table_of(options);
    let tiled = |count: usize, layout: &dyn Fn(usize) -> Layout| {
        Cost::tiled(count, options.tile_size(), options.window, layout)
    };
    let opening = |count: usize| tiled(count, &|len| open::layout(table, len, ring));
    match *gate {
        Gate::Input { .. } => Cost::default(),
        Gate::ClientInput { count } => tiled(count, &|len| io::client_input_layout(table, len, ring)),
        Gate::Open { count } => opening(count),
        Gate::OpenBits { count, planes } => tiled(count, &|len| io::open_planes_layout(table, len, planes)),
        Gate::Reveal { count } => tiled(count, &|len| io::reveal_layout(table, len, ring)),
        Gate::Check { .. } => Cost::default(),
        Gate::Prepare { geometry, weight } => match weight {
            WeightKind::Public => Cost::default(),
            _ => opening(geometry.weights_len()),
        },
        Gate::Linear { geometry, batch, weight, truncate, relu } => {
            let public = weight == WeightKind::Public;
            let lens = chunks(&geometry, batch).iter().map(Chunk::len).collect();
            let inputs = geometry.inputs(batch);
            let mut cost = match (public, options.pipelines.inter_linear) {
                (true, _) => Cost::default(),
                (false, true) => opening(inputs),
                (false, false) => again::plan(geometry.weights_len(), inputs, ring, options),
            };
            cost += &finished(lens, public, truncate, relu, ring, options);
            cost
        }
        Gate::Matmul { shape, truncate } => {
            let mut cost = opening(shape.batch * shape.rows * shape.inner);
            cost += &opening(shape.batch * shape.inner * shape.columns);
            let count = shape.batch * shape.rows * shape.columns;
            cost += &finished(lens(count, piece_of(&shape)), false, truncate, None, ring, options);
            cost
        }
        Gate::Product { count, square, truncate } => {
            let mut cost = opening(count);
            if !square {
                cost += &opening(count);
            }
            cost += &finished(lens(count, PIECE), false, truncate, None, ring, options);
            cost
        }
        Gate::Truncate { count, truncation } => {
            let form = truncate::Form::new(truncation, ring, options, count);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Msb { count, comparison } => {
            let form = SignForm::new(comparison.read(ring.bits(), options), options, count);
            tiled(count, &|len| form.layout(len))
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
        // Refused by `div_exact` and by the session's check before any plan is asked for.
        Gate::DivExact { .. } => Cost::default(),
        Gate::Relu { count, truncate, comparison } => {
            let form = Form::choose(Task::new(true, truncate, comparison, ring, options), options, count);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Max { count, comparison } => plan(&Gate::Relu { count, truncate: None, comparison }, ring, options),
        // Composed of rectifiers, both at once.
        Gate::Clip { count, ends: (low, high), comparison } => {
            let comparison = comparison.of_differences(Ends { low: Some(low), high: Some(high) });
            plan(&Gate::Relu { count: 2 * count, truncate: None, comparison }, ring, options)
        }
    }
}

/// What follows a product computed in pieces of these lengths.
fn finished(
    lens: Vec<usize>,
    public: bool,
    truncate: Option<Truncation>,
    relu: Option<Comparison>,
    ring: Ring,
    options: &Options,
) -> Cost {
    let (table, count) = (table_of(options), lens.iter().sum());
    let tiled = |layout: &dyn Fn(usize) -> Layout| {
        Cost::of_tiles(tile_lens(lens.clone(), options.tile_size()), options.window, layout)
    };
    match (truncate, relu) {
        (truncate, Some(relu)) => {
            let form = Form::choose(Task::new(true, truncate, relu, ring, options), options, count);
            tiled(&|len| form.layout(len))
        }
        (Some(truncation), None) => {
            let form = truncate::Form::new(truncation, ring, options, count);
            tiled(&|len| form.layout(len))
        }
        (None, None) if public => Cost::default(),
        (None, None) => tiled(&|len| product::layout(table, len, ring)),
    }
}
