//! What each gate costs: the layouts the machines run by, summed over tiles.

use covey_kernels::Chunk;
use covey_ring::Ring;

use super::bits::{AllForm, And, sign_layout};
use super::comparison::Plan;
use super::consistency;
use super::fused;
use super::share::Role;
use super::{convert, io, product, truncate};
use crate::api::{Comparison, Options, Truncation, WeightKind};
use crate::clip::Ends;
use crate::cost::{Cost, Gate};
use crate::machine::Layout;
use crate::masked::fused::Task;
use crate::masked::pieces::{PIECE, chunks, lens, piece_of, tile_lens};

pub(super) fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let tiled = |count: usize, layout: &dyn Fn(usize) -> Layout| {
        Cost::tiled(count, options.tile_size(), options.window, layout)
    };
    match *gate {
        Gate::Input { owner, count } => tiled(count, &|len| io::input_layout(Role::of(owner), len, ring)),
        Gate::ClientInput { count } => {
            let mut cost = tiled(count, &|len| io::client_input_layout(len, ring));
            cost += &consistency::input_cost();
            cost
        }
        Gate::Open { count } => tiled(count, &|len| io::open_layout(len, ring)),
        Gate::OpenBits { count, planes } => {
            // One gate a plane, one after the other.
            let plane = tiled(count, &io::open_plane_layout);
            let mut cost = Cost::default();
            (0..planes).for_each(|_| cost += &plane);
            cost
        }
        Gate::Reveal { count } => tiled(count, &|len| io::reveal_layout(len, ring)),
        Gate::Check { .. } | Gate::Prepare { .. } => Cost::default(),
        Gate::Linear { geometry, batch, weight, truncate, relu } => {
            let public = weight == WeightKind::Public;
            let lens = chunks(&geometry, batch).iter().map(Chunk::len).collect();
            product(lens, public, truncate, relu, ring, options)
        }
        Gate::Matmul { shape, truncate } => {
            let count = shape.batch * shape.rows * shape.columns;
            product(lens(count, piece_of(&shape)), false, truncate, None, ring, options)
        }
        Gate::Product { count, truncate, .. } => product(lens(count, PIECE), false, truncate, None, ring, options),
        Gate::Truncate { count, truncation } => {
            let form = truncate::Form::new(truncation, false, ring, options, count);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Msb { count, comparison } => {
            let (read, _) = comparison.read(ring.bits(), options);
            let circuit = Plan::sign(read as usize, options, count);
            tiled(count, &|len| sign_layout(&circuit, len))
        }
        Gate::And { count, planes } => tiled(count, &|len| And::layout(len, planes)),
        Gate::A2b { count } => {
            let form = AllForm::new(ring, options.adder);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Bit2a { count } => tiled(count, &|len| convert::layout(len, ring, false)),
        Gate::Select { count } => tiled(count, &|len| convert::layout(len, ring, true)),
        // Refused by `div_exact` and by the session's check before any plan is asked for.
        Gate::DivExact { .. } => Cost::default(),
        Gate::Relu { count, truncate, comparison } if options.adder.fuses() => {
            let form = fused::Form::choose(Task::new(false, truncate, comparison, ring, options), options, count);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Relu { count, truncate: Some(truncation), comparison } => {
            let mut cost = plan(&Gate::Truncate { count, truncation }, ring, options);
            cost += &plan(&Gate::Relu { count, truncate: None, comparison }, ring, options);
            cost
        }
        // Composed of rectifiers, both at once.
        Gate::Clip { count, ends: (low, high), comparison } => {
            let comparison = comparison.of_differences(Ends { low: Some(low), high: Some(high) });
            plan(&Gate::Relu { count: 2 * count, truncate: None, comparison }, ring, options)
        }
        Gate::Relu { count, truncate: None, comparison } | Gate::Max { count, comparison } => {
            let mut cost = plan(&Gate::Msb { count, comparison }, ring, options);
            cost += &plan(&Gate::Select { count }, ring, options);
            cost
        }
    }
}

/// A product computed in pieces of these lengths, with what follows it.
fn product(
    lens: Vec<usize>,
    public: bool,
    truncate: Option<Truncation>,
    relu: Option<Comparison>,
    ring: Ring,
    options: &Options,
) -> Cost {
    let count = lens.iter().sum();
    let tiled = |layout: &dyn Fn(usize) -> Layout| {
        Cost::of_tiles(tile_lens(lens.clone(), options.tile_size()), options.window, layout)
    };
    if let Some(comparison) = relu.filter(|_| options.adder.fuses()) {
        let form = fused::Form::choose(Task::new(!public, truncate, comparison, ring, options), options, count);
        return tiled(&|len| form.layout(len));
    }
    let mut cost = match truncate {
        Some(truncation) => {
            let form = truncate::Form::new(truncation, !public, ring, options, count);
            tiled(&|len| form.layout(len))
        }
        None if public => Cost::default(),
        None => tiled(&|len| product::layout(len, ring)),
    };
    if let Some(comparison) = relu {
        cost += &plan(&Gate::Relu { count, truncate: None, comparison }, ring, options);
    }
    cost
}
