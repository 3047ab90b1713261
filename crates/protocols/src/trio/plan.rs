//! What each gate costs: the layouts the machines run by, summed over tiles.

use covey_ring::Ring;

use super::bits::{And, DifferenceForm};
use super::share::Role;
use super::{convert, io, product, truncate};
use crate::api::{Comparison, Options};
use crate::cost::{Cost, Gate};
use crate::machine::Layout;

/// Elements of a tile: a multiple of 64, so that tiles start at whole words of bit planes.
pub(super) fn tile_size(options: &Options) -> usize {
    (options.tile / 64).max(1) * 64
}

/// Bits below the one that is the sign: all of them, or those of a proved bound.
pub(super) fn compared_bits(comparison: Comparison, ring: Ring) -> u32 {
    if comparison.proved { comparison.bound.clamp(1, ring.bits() - 1) } else { ring.bits() - 1 }
}

pub(super) fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let tiled =
        |count: usize, layout: &dyn Fn(usize) -> Layout| Cost::tiled(count, tile_size(options), options.window, layout);
    match *gate {
        Gate::Input { owner, count } => tiled(count, &|len| io::input_layout(Role::of(owner), len, ring)),
        Gate::ClientInput { count } => tiled(count, &|len| io::client_input_layout(len, ring)),
        Gate::Open { count } => tiled(count, &|len| io::open_layout(len, ring)),
        Gate::OpenBits { count, planes } => {
            // One gate a plane, one after the other.
            let plane = tiled(count, &io::open_plane_layout);
            let mut cost = Cost::default();
            (0..planes).for_each(|_| cost += &plane);
            cost
        }
        Gate::Reveal { count } => tiled(count, &|len| io::reveal_layout(len, ring)),
        Gate::Product { count, public, truncate, relu } => {
            let mut cost = match truncate {
                Some(truncation) => {
                    let form = truncate::Form::new(truncation, !public, ring, options.adder);
                    tiled(count, &|len| form.layout(len))
                }
                None if public => Cost::default(),
                None => tiled(count, &|len| product::layout(len, ring)),
            };
            if let Some(comparison) = relu {
                cost += &plan(&Gate::Relu { count, comparison }, ring, options);
            }
            cost
        }
        Gate::Truncate { count, truncation } => {
            let form = truncate::Form::new(truncation, false, ring, options.adder);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Msb { count, comparison } => {
            let form = DifferenceForm::sign(compared_bits(comparison, ring), options.adder);
            tiled(count, &|len| form.layout(len))
        }
        Gate::And { count, planes } => tiled(count, &|len| And::layout(len, planes)),
        Gate::A2b { count } => {
            let form = DifferenceForm::all(ring, options.adder);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Bit2a { count } => tiled(count, &|len| convert::layout(len, ring, false)),
        Gate::Select { count } => tiled(count, &|len| convert::layout(len, ring, true)),
        // Refused by `div_exact` and by the session's check before any plan is asked for.
        Gate::DivExact { .. } => Cost::default(),
        Gate::Relu { count, comparison } | Gate::Max { count, comparison } => {
            let mut cost = plan(&Gate::Msb { count, comparison }, ring, options);
            cost += &plan(&Gate::Select { count }, ring, options);
            cost
        }
    }
}
