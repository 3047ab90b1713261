//! What each gate costs: the layouts the machines run by, summed over tiles.

use covey_kernels::Chunk;
use covey_ring::Ring;

use super::bits::{AllForm, SignForm, and_layout};
use super::share::Role;
use super::{convert, folding, fused, input, output, product, truncate, verdict};
use crate::api::{Comparison, Options, Truncation, WeightKind};
use crate::clip::Ends;
use crate::cost::{Cost, Gate};
use crate::machine::Layout;
use crate::masked::fused::Task;
use crate::masked::pieces::{PIECE, chunks, lens, piece_of, tile_lens};
use crate::trio;

pub(super) fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let tiled = |count: usize, layout: &dyn Fn(usize) -> Layout| {
        Cost::tiled(count, options.tile_size(), options.window, layout)
    };
    match *gate {
        Gate::Input { owner, count } => tiled(count, &|len| input::input_layout(Role::of(owner), len, ring)),
        Gate::ClientInput { count } => tiled(count, &|len| input::client_input_layout(len, ring)),
        Gate::Open { count } => tiled(count, &|len| output::open_layout(len, ring)),
        Gate::OpenBits { count, planes } => {
            // One gate a plane, one after the other.
            let plane = tiled(count, &output::open_plane_layout);
            let mut cost = Cost::default();
            (0..planes).for_each(|_| cost += &plane);
            cost
        }
        Gate::Reveal { count } => tiled(count, &|len| output::reveal_layout(len, ring)),
        Gate::Check { layers } => Cost::tiled(1, 1, 1, |_| verdict::layout(layers)),
        Gate::Prepare { .. } => Cost::default(),
        Gate::Linear { geometry, batch, weight, truncate, relu } => {
            let lens = chunks(&geometry, batch).iter().map(Chunk::len).collect();
            let begins = match weight {
                WeightKind::Public => Begins::Shared,
                WeightKind::Stored { .. } if folding::pays_for_map(&geometry, batch) => {
                    Begins::Combined(folding::settled_by_map(&geometry, batch))
                }
                _ => Begins::ByElement,
            };
            product(lens, begins, truncate, relu, ring, options)
        }
        Gate::Matmul { shape, truncate } => {
            let count = shape.batch * shape.rows * shape.columns;
            let begins = match folding::pays_for_product(&shape) {
                true => Begins::Combined(folding::settled_by_product(&shape)),
                false => Begins::ByElement,
            };
            product(lens(count, piece_of(&shape)), begins, truncate, None, ring, options)
        }
        Gate::Product { count, truncate, .. } => {
            product(lens(count, PIECE), Begins::ByElement, truncate, None, ring, options)
        }
        Gate::Truncate { count, truncation } => {
            let form = truncate::Form::new(trio::truncate::Form::new(truncation, false, ring, options, count), false);
            tiled(count, &|len| form.layout(len))
        }
        Gate::Msb { count, comparison } => {
            let (read, _) = comparison.read(ring.bits(), options);
            let form = SignForm::new(trio::comparison::Plan::sign(read as usize, options, count), read as usize);
            tiled(count, &|len| form.layout(len))
        }
        Gate::And { count, planes } => tiled(count, &|len| and_layout(len, planes)),
        Gate::A2b { count } => {
            let form = AllForm::new(trio::bits::AllForm::new(ring, options.adder));
            tiled(count, &|len| form.layout(len))
        }
        Gate::Bit2a { count } => tiled(count, &|len| convert::layout(len, ring, false)),
        Gate::Select { count } => tiled(count, &|len| convert::layout(len, ring, true)),
        // Refused by `div_exact` and by the session's check before any plan is asked for.
        Gate::DivExact { .. } => Cost::default(),
        Gate::Relu { count, truncate, comparison } if options.adder.fuses() => {
            let task = Task::new(false, truncate, comparison, ring, options);
            let form = fused::Form::new(trio::fused::Form::choose(task, options, count), false);
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

/// How a gate begins: with a sharing, or with what a product opens, checked by element, or as so many combinations of each message.
#[derive(Clone, Copy)]
enum Begins {
    Shared,
    ByElement,
    Combined(usize),
}

/// A product computed in pieces of these lengths, with what follows it.
fn product(
    lens: Vec<usize>,
    begins: Begins,
    truncate: Option<Truncation>,
    relu: Option<Comparison>,
    ring: Ring,
    options: &Options,
) -> Cost {
    let count = lens.iter().sum();
    let (public, folded) = (matches!(begins, Begins::Shared), matches!(begins, Begins::Combined(_)));
    let combined = |ring: Ring| match begins {
        Begins::Combined(len) => {
            Cost::tiled(len, options.tile_size(), options.window, |len| folding::layout(len, ring))
        }
        _ => Cost::default(),
    };
    let tiled = |layout: &dyn Fn(usize) -> Layout| {
        Cost::of_tiles(tile_lens(lens.clone(), options.tile_size()), options.window, layout)
    };
    if let Some(comparison) = relu.filter(|_| options.adder.fuses()) {
        let task = Task::new(!public, truncate, comparison, ring, options);
        let form = fused::Form::new(trio::fused::Form::choose(task, options, count), folded);
        let mut cost = tiled(&|len| form.layout(len));
        cost += &combined(task.opened());
        return cost;
    }
    let mut cost = match truncate {
        Some(truncation) => {
            let form = trio::truncate::Form::new(truncation, !public, ring, options, count);
            let form = truncate::Form::new(form, folded);
            let mut cost = tiled(&|len| form.layout(len));
            cost += &combined(ring);
            cost
        }
        None if public => Cost::default(),
        None => tiled(&|len| product::layout(len, ring)),
    };
    if let Some(comparison) = relu {
        cost += &plan(&Gate::Relu { count, truncate: None, comparison }, ring, options);
    }
    cost
}

#[cfg(test)]
mod tests {
    use covey_transport::Phase as StepKind;

    use super::*;
    use crate::api::{Geometry, Rounding};
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
        let comparison = Comparison { bound: 31, proved: false };
        let linear = Gate::Linear {
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
        assert_eq!(fused, [(289, 418, 7), (346, 474, 5), (531, 666, 4)]);
        assert_eq!(relu, [(239, 303, 5), (251, 316, 4)]);
        assert_eq!(others, [(64, 96, 1), (168, 271, 6), (64, 96, 1), (96, 128, 1), (2, 3, 1)]);
    }
}
