//! What each gate costs: the layouts the machines run by, summed over tiles.

use covey_kernels::Chunk;
use covey_ring::{Ring, Word};

use super::bits::{AllBitsPlan, And, sign_layout};
use super::comparison::{ComparisonPlan, nanoseconds};
use super::consistency;
use super::fused;
use super::largest::LargestPlan;
use super::reduced::ShiftPlan;
use super::share::Role;
use super::{Trio, convert, io, lookup, memory, product, table, widen};
use crate::api::{Comparison, Costs, Options, SourcedMap, TableShape, WeightKind};
use crate::circuits::Adder;
use crate::composed;
use crate::cost::{Cost, Gate};
use crate::linear_map::{Follows, ended, leading};
use crate::machine::Layout;
use crate::masked::ending::{Ended, Ending, Form, gates, relus, tiles};
use crate::masked::fused::Task;
use crate::masked::lookup::Sets;
use crate::masked::pieces::{PIECE, chunks, lens, piece_of};
use crate::memory::Held;

fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let tiled = |count: usize, layout: &dyn Fn(usize) -> Layout| Cost::of_gate(count, options, layout);
    match *gate {
        Gate::Input { owner, count } => tiled(count, &|len| io::input_layout(Role::of(owner), len, ring)),
        Gate::ClientInput { count } => {
            let mut cost = tiled(count, &|len| io::client_input_layout(len, ring));
            cost += &consistency::input_cost();
            cost
        }
        Gate::Open { count } => tiled(count, &|len| io::open_layout(len, ring)),
        // One gate a plane, one after the other.
        Gate::OpenBits { count, planes } => tiled(count, &io::open_plane_layout).repeated(planes),
        Gate::Reveal { count } => tiled(count, &|len| io::reveal_layout(len, ring)),
        Gate::Check { .. } | Gate::Opening { .. } | Gate::Prepare { .. } => Cost::default(),
        Gate::Linear { geometry, batch, weight, truncate, relu, .. } => {
            let public = weight == WeightKind::Public;
            let lens = chunks(&geometry, batch).iter().map(Chunk::len).collect();
            products(&[(lens, (truncate, relu))], public, ring, options)
        }
        Gate::Matmul { shape, truncate } => {
            let count = shape.batch * shape.rows * shape.columns;
            products(&[(lens(count, piece_of(&shape)), (truncate, None))], false, ring, options)
        }
        Gate::Product { count, truncate, .. } => {
            products(&[(lens(count, PIECE), (truncate, None))], false, ring, options)
        }
        Gate::Truncate { count, truncation } => {
            let plan = ShiftPlan::choose(truncation, false, ring, options, count);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Msb { count, comparison } => {
            let (read, _) = comparison.read(ring.bits(), options);
            let circuit = ComparisonPlan::sign(read as usize, options, count);
            tiled(count, &|len| sign_layout(&circuit, len))
        }
        Gate::And { count, planes } => tiled(count, &|len| And::layout(len, planes)),
        Gate::A2b { count } => {
            let plan = AllBitsPlan::new(ring, options.adder);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Bit2a { count } => tiled(count, &|len| convert::layout(len, ring, false)),
        Gate::Select { count } => tiled(count, &|len| convert::layout(len, ring, true)),
        Gate::Relu { count, truncate, comparison } if options.adder.fuses() => {
            let plan =
                fused::FusedReluPlan::choose(Task::new(false, truncate, comparison, ring, options), options, count);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Table { count, shape } => {
            let plan = table::TablePlan::new(shape, ring, options, count);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Lookup { count, index_bits, tables } => {
            tiled(count, &|len| lookup::layout(len, ring, Sets { index_bits }, tables))
        }
        Gate::MaxWithin { count, comparison, bits } => {
            let mut cost = plan(&Gate::Msb { count, comparison }, ring, options);
            cost += &tiled(count, &|len| convert::layout(len, Ring::Pow2(bits), true));
            cost
        }
        Gate::Largest { count, maximum } => {
            let plan = LargestPlan::choose(&maximum, ring, options, count);
            tiled(count, &|len| plan.layout(len))
        }
        Gate::Widen { count, bits } => tiled(count, &|len| widen::layout(len, ring, bits)),
        Gate::DivExact { .. } | Gate::Relu { .. } | Gate::Clip { .. } | Gate::Max { .. } => {
            composed::cost(gate, |gate| plan(gate, ring, options))
        }
    }
}

/// How a product of `count` elements ends: of a sharing, or with what it opens. Comparisons that fuse take in the ReLU.
pub(super) fn ending(
    opens: bool,
    (truncate, relu): Follows,
    ring: Ring,
    options: &Options,
    count: usize,
) -> Ending<fused::FusedReluPlan, ShiftPlan> {
    match (truncate, relu.filter(|_| options.adder.fuses())) {
        (truncate, Some(comparison)) => {
            let task = Task::new(opens, truncate, comparison, ring, options);
            Ending::Relu(fused::FusedReluPlan::choose(task, options, count))
        }
        (Some(truncation), None) => Ending::Shift(ShiftPlan::choose(truncation, opens, ring, options, count)),
        (None, None) => Ending::Plain,
    }
}

fn layout(ending: &Ending<fused::FusedReluPlan, ShiftPlan>, len: usize, ring: Ring) -> Layout {
    match ending {
        Ending::Relu(plan) => plan.layout(len),
        Ending::Shift(plan) => plan.layout(len),
        Ending::Plain => product::layout(len, ring),
    }
}

/// What layers of one gate have alike.
pub(super) fn form_of(layer: &Gate, ring: Ring, options: &Options) -> Form {
    let ended = ended(layer);
    let ending = ending(true, ended.1, ring, options, layer.elements());
    let number = match &ending {
        Ending::Relu(_) => 0,
        Ending::Shift(ShiftPlan::Full(_)) => 1,
        Ending::Shift(ShiftPlan::Reduced(_)) => 2,
        Ending::Plain => 3,
    };
    Form::new(number, &ended, options, |len| layout(&ending, len, ring))
}

/// Products computed in one gate, whose endings are of one form.
fn products(layers: &[Ended], public: bool, ring: Ring, options: &Options) -> Cost {
    let of = |(lens, follows): &Ended| ending(!public, *follows, ring, options, lens.iter().sum());
    let endings: Vec<_> = layers.iter().map(of).collect();
    let mut cost = match endings.first() {
        Some(Ending::Plain) if public => Cost::default(),
        _ => Cost::of_tiles(tiles(layers, options.tile_size()), options.window, |(number, len)| {
            layout(&endings[number], len, ring)
        }),
    };
    if !options.adder.fuses() {
        cost += &relus(layers, |relu| plan(relu, ring, options));
    }
    cost
}

impl<W: Word> Costs for Trio<W> {
    const NAME: &'static str = "trio";
    const FUSES_RELU: bool = true;
    const JOINS_LINEAR: bool = true;
    const ROUNDS_PRODUCTS: bool = true;

    fn leading(maps: &[SourcedMap], _batch: usize) -> Option<usize> {
        leading(maps)
    }

    fn narrows(comparison: Comparison, ring: Ring, options: &Options) -> Option<u32> {
        // Of fewest rounds it would take one more; and of approximate comparisons no bound is certain.
        let may = options.adder.fuses() && options.adder != Adder::FewestRounds && options.key_bits.is_none();
        let bits = comparison.certain.max(1) + 1;
        (may && bits < ring.bits()).then_some(bits)
    }

    fn narrowing_pays(bits: u32, selected: usize, results: usize, ring: Ring, options: &Options) -> bool {
        // Selections take 2k bits offline and online instead of 2l; widening takes 2(l - k).
        let spared = 2 * (ring.bits() - bits) as usize;
        let time = |rounds, count| nanoseconds(options, rounds, (spared, spared), count);
        options.adder != Adder::Auto || time(1, results) < time(0, selected)
    }

    fn joins_maxima(options: &Options) -> bool {
        // Nearby, computing takes longer than the rounds that it spares; and of approximate comparisons none is sure to be consistent.
        options.adder == Adder::Auto && options.network.is_far() && options.key_bits.is_none()
    }

    fn fuses_table(shape: &TableShape, ring: Ring, options: &Options) -> bool {
        options.adder.fuses() && table::fits(shape, ring, W::BITS)
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
            let layers: Vec<Ended> = gate.iter().map(|&number| ended(&layers[number])).collect();
            cost += &products(&layers, false, ring, options);
        }
        cost
    }

    fn memory(held: &Held, _: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, options)
    }
}
