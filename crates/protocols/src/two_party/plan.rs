//! What each gate costs: the layouts its tiles run by, summed; and the choices among forms of a gate.

use std::collections::BTreeMap;
use std::sync::Arc;

use covey_ring::{Ring, Word};

use super::comparison::{Shape, WIDEST};
use super::lookup::{self, Tables};
use super::program::GateProgram;
use super::{TwoParty, division, gates, io, lattice, linear, memory, odd, product, stock};
use crate::api::{Comparison, Costs, Options, Truncation, WeightKind};
use crate::cadence;
use crate::circuits::{Adder, CarryCircuit};
use crate::clip::Ends;
use crate::composed;
use crate::cost::{Cost, Gate};
use crate::machine::Layout;
use crate::memory::Held;

/// OTs, of each direction, that the tiles of one run of the scheduler take at most: what has to be in memory at once, 256 MiB.
pub(super) const RUN: usize = 1 << 24;
/// OTs of each direction that a tile takes at most: about what fits a core's cache while they are hashed.
const TILE: usize = 1 << 17;
/// A correlated OT in bits sent, in hundredths: what the extension amortises to.
pub(super) const OT_BITS: u64 = 45;

/// A gate's program, tile by tile: always the same, or, where one party's part is the heavier, with the parts swapped in every
/// other tile, so that both directions carry the same.
pub(super) struct Turns<W> {
    programs: [Arc<GateProgram<W>>; 2],
    swaps: bool,
}

impl<W> From<Arc<GateProgram<W>>> for Turns<W> {
    fn from(program: Arc<GateProgram<W>>) -> Self {
        Turns { programs: [program.clone(), program], swaps: false }
    }
}

impl<W: Word> Turns<W> {
    /// The programs in which P0 and P1 have the heavier part.
    fn swapped(program: impl Fn(usize) -> Arc<GateProgram<W>>) -> Self {
        Turns { programs: [0, 1].map(program), swaps: true }
    }

    /// The program of a tile.
    pub fn of(&self, tile: usize) -> &Arc<GateProgram<W>> {
        &self.programs[tile % 2]
    }

    /// Elements of a tile, of `count` in all.
    pub fn tile(&self, count: usize, options: &Options) -> usize {
        let most = self.programs.iter().flat_map(|program| program.correlated_ots).max().unwrap_or(0).max(1);
        let tile = options.tile_size().min((TILE / most / 64).max(1) * 64);
        // Two tiles at least, that there is something to swap.
        if self.swaps { tile.min(count.div_ceil(128).max(1) * 64) } else { tile }
    }

    /// Rounds.
    fn rounds(&self) -> usize {
        self.programs[0].rounds
    }

    /// Bits that each party sends for two elements, one of either program.
    fn bits(&self) -> [usize; 2] {
        let [even, odd] = self.programs.each_ref().map(|program| program.bits());
        [even[0] + odd[0], even[1] + odd[1]]
    }

    /// OTs of two such elements.
    fn correlated_ots(&self) -> [usize; 2] {
        let [even, odd] = self.programs.each_ref().map(|program| program.correlated_ots);
        [even[0] + odd[0], even[1] + odd[1]]
    }
}

/// How many tiles, one after the other, each run of the scheduler takes.
pub(super) fn runs(tiles: impl IntoIterator<Item = [usize; 2]>) -> Vec<usize> {
    let (mut runs, mut taken) = (vec![0], [0usize; 2]);
    for tile in tiles {
        let with = [0, 1].map(|sender| taken[sender] + tile[sender]);
        let last = runs.len() - 1;
        if runs[last] > 0 && with.iter().any(|&count| count > RUN) {
            runs.push(1);
            taken = tile;
        } else {
            runs[last] += 1;
            taken = with;
        }
    }
    runs
}

/// The cost of tiles one after the other, up to `window` of them in flight.
pub(super) fn of_tiles<S: Copy + Ord>(tiles: &[S], window: usize, layout: impl Fn(&S) -> Layout) -> Cost {
    let mut layouts = BTreeMap::new();
    for tile in tiles {
        layouts.entry(*tile).or_insert_with(|| (layout(tile), 0u64)).1 += 1;
    }
    let mut cost = Cost::default();
    layouts.values().for_each(|(layout, copies)| cost += &Cost::of(layout, *copies));
    let correlated_ots = |tile: &S| layouts[tile].0.ot_count().by_sender.map(|count| count as usize);
    let mut start = 0;
    cost.rounds = 0;
    for run in runs(tiles.iter().map(correlated_ots)) {
        if let [first, ..] = &tiles[start..start + run] {
            let rounds = |tile: &S| layouts[tile].0.rounds();
            cost.rounds += cadence::rounds(run, window, rounds(first), rounds(&tiles[start + run - 1])) as u64;
        }
        start += run;
    }
    cost
}

/// The lengths of the tiles of `count` elements.
pub(super) fn tile_lens(count: usize, tile: usize) -> Vec<usize> {
    (0..count).step_by(tile).map(|start| tile.min(count - start)).collect()
}

pub(super) fn of_program<W: Word>(turns: &Turns<W>, count: usize, options: &Options) -> Cost {
    let lens = tile_lens(count, turns.tile(count, options));
    let tiles: Vec<(usize, usize)> = lens.into_iter().enumerate().map(|(tile, len)| (len, tile % 2)).collect();
    of_tiles(&tiles, options.window, |&(len, tile)| turns.of(tile).layout(len))
}

/// Nanoseconds on the network: rounds, and bits through the busier direction, correlated OTs included.
fn nanoseconds<W: Word>(turns: &Turns<W>, options: &Options, count: usize) -> u128 {
    let [there, back] = turns.bits().map(|bits| bits as u64 * 100);
    // An extension sends its messages from one side; which, depends on the direction.
    let [first, second] = turns.correlated_ots().map(|count| count as u64 * OT_BITS);
    let busiest = u128::from((there + first).max(back + second)) * count as u128;
    let latency = turns.rounds() as u128 * u128::from(options.network.latency_us) * 1000;
    latency + busiest * 5_000_000 / u128::from(options.network.bits_per_second.max(1))
}

/// Bits sent in both directions for two elements, correlated OTs included, in hundredths.
fn bits<W: Word>(turns: &Turns<W>) -> u64 {
    let sent: usize = turns.bits().iter().sum();
    let correlated_ots: usize = turns.correlated_ots().iter().sum();
    sent as u64 * 100 + correlated_ots as u64 * OT_BITS
}

/// The program of a gate with a comparison in it, over `count` elements: digits as the options say, or the fastest on their
/// network.
pub(super) fn choose<W: Word, T: Into<Turns<W>>>(
    options: &Options,
    count: usize,
    program: impl Fn(Shape) -> T,
) -> Turns<W> {
    let tree = |radix| program(Shape { radix, ripples: false }).into();
    match options.adder {
        Adder::Auto | Adder::FewestBytes | Adder::FewestRounds => best(options, count, tree(1), (2..=WIDEST).map(tree)),
        Adder::Balanced => tree(3),
        Adder::Digits => tree(WIDEST),
        Adder::LogDepth => tree(1),
        Adder::Ripple => program(Shape { radix: 1, ripples: true }).into(),
    }
}

/// Of forms of a gate over `count` elements the one that the options ask for, that of fewest bits where they say nothing of it; the
/// first of equals.
fn best<W: Word>(options: &Options, count: usize, first: Turns<W>, others: impl Iterator<Item = Turns<W>>) -> Turns<W> {
    let badness = |turns: &Turns<W>| match options.adder {
        Adder::Auto => (nanoseconds(turns, options, count), bits(turns)),
        Adder::FewestRounds => (turns.rounds() as u128, bits(turns)),
        _ => (0, bits(turns)),
    };
    let start = (badness(&first), first);
    let less = |best: (_, Turns<W>), next: Turns<W>| {
        let found = badness(&next);
        if found < best.0 { (found, next) } else { best }
    };
    others.fold(start, less).1
}

/// The circuit of all carries.
pub(super) fn prefix(l: u32, adder: Adder) -> CarryCircuit {
    CarryCircuit::carries(l as usize - 1, adder)
}

/// The programs of the gates, for either kind of ring.
pub(super) mod programs {
    use super::{Comparison, Ends, Options, Ring, Tables, Truncation, Turns, Word};
    use super::{best, choose, division, gates, lookup, odd, prefix};

    fn read(comparison: Comparison, bits: u32, options: &Options) -> gates::Read {
        let (bits, skipped) = comparison.read(bits, options);
        gates::Read { bits, skipped }
    }

    pub fn msb<W: Word>(ring: Ring, comparison: Comparison, options: &Options, count: usize) -> Turns<W> {
        match ring {
            Ring::Pow2(l) => choose(options, count, |shape| gates::msb(read(comparison, l, options), shape)),
            Ring::Odd(n) => choose(options, count, |shape| Turns::swapped(|holder| odd::msb(n, shape, holder))),
        }
    }

    pub fn relu<W: Word>(ring: Ring, comparison: Comparison, options: &Options, count: usize) -> Turns<W> {
        match ring {
            Ring::Pow2(l) => choose(options, count, |shape| gates::relu(l, read(comparison, l, options), shape)),
            Ring::Odd(n) => choose(options, count, |shape| Turns::swapped(|holder| odd::relu(n, shape, holder))),
        }
    }

    pub fn clip<W: Word>(
        l: u32,
        ends: (i64, i64),
        comparison: Comparison,
        options: &Options,
        count: usize,
    ) -> Turns<W> {
        let differences = comparison.of_differences(Ends { low: Some(ends.0), high: Some(ends.1) });
        let read = read(differences, l, options);
        choose(options, count, |shape| Turns::swapped(|holder| gates::clip(l, read, ends, shape, holder)))
    }

    pub fn truncate<W: Word>(ring: Ring, truncation: Truncation, options: &Options, count: usize) -> Turns<W> {
        match ring {
            Ring::Pow2(l) => choose(options, count, |shape| gates::truncate(l, truncation, shape)),
            Ring::Odd(_) => divide(ring, 1 << truncation.bits, truncation.bound, options, count),
        }
    }

    pub fn truncate_relu<W: Word>(
        l: u32,
        truncation: Truncation,
        comparison: Comparison,
        options: &Options,
        count: usize,
    ) -> Turns<W> {
        // Of values of any size, no bits are left out: there is no room to raise them.
        let all = Options { key_bits: None, ..*options };
        let options = if truncation.bound > l - 2 { &all } else { options };
        let read = read(comparison, l - truncation.bits, options);
        choose(options, count, |shape| gates::truncate_relu(l, truncation, read, shape))
    }

    pub fn divide<W: Word>(ring: Ring, divisor: u64, bound: u32, options: &Options, count: usize) -> Turns<W> {
        choose(options, count, |shape| Turns::swapped(|holder| division::floor(ring, divisor, bound, shape, holder)))
    }

    /// What a longer vector costs is the same for any tables, what selections cost grows with their number and the ring.
    pub fn lookup<W: Word>(l: u32, tables: &Tables<W>, options: &Options, count: usize) -> Turns<W> {
        let form = |top| lookup::lookup(l, tables, top).into();
        best(options, count, form(0), (1..tables.index_bits.min(lookup::MOST_TOP + 1)).map(form))
    }

    pub fn a2b<W: Word>(l: u32, options: &Options) -> Turns<W> {
        gates::a2b(l, &prefix(l, options.adder)).into()
    }
}

impl<W: Word> Costs for TwoParty<W> {
    const NAME: &'static str = "two-party";
    const FUSES_RELU: bool = true;

    /// Where comparisons leave bits out, one end's mistake must not meet the other's; over Z_n nothing is gained.
    fn fuses_clip(ring: Ring, options: &Options) -> bool {
        matches!(ring, Ring::Pow2(_)) && options.key_bits.is_none()
    }

    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan::<W>(gate, ring, options)
    }

    fn plan_material(gates: &Cost, _: Ring, _: &Options) -> Cost {
        let mut cost = stock::cost(&gates.ot_count);
        cost += &lattice::keys_cost(gates.public_keys);
        cost
    }

    fn stock_memory(used: u64, more: u64) -> Option<Vec<u64>> {
        stock::memory(used, more, RUN as u64).map(|bytes| vec![bytes; 2])
    }

    fn memory(held: &Held, ring: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, ring, options)
    }
}

pub(super) fn plan<W: Word>(gate: &Gate, ring: Ring, options: &Options) -> Cost {
    let tiled = |count: usize, layout: &dyn Fn(usize) -> Layout| {
        of_tiles(&tile_lens(count, options.tile_size()), options.window, |&len| layout(len))
    };
    let program = |turns: Turns<W>, count: usize| of_program(&turns, count, options);
    let then = |mut cost: Cost, count: usize, truncate: Option<Truncation>, relu: Option<Comparison>| {
        let next = match (truncate, relu) {
            (truncate, Some(comparison)) => Gate::Relu { count, truncate, comparison },
            (Some(truncation), None) => Gate::Truncate { count, truncation },
            (None, None) => return cost,
        };
        cost += &plan::<W>(&next, ring, options);
        cost
    };
    match *gate {
        Gate::Input { .. } => Cost::default(),
        Gate::ClientInput { count } => tiled(count, &|len| io::client_input_layout(len, ring)),
        Gate::Open { count } => tiled(count, &|len| io::open_layout(len, ring)),
        Gate::OpenBits { count, planes } => tiled(count, &|len| io::open_planes_layout(len, planes)),
        Gate::Reveal { count } => tiled(count, &|len| io::reveal_layout(len, ring)),
        Gate::Check { .. } | Gate::Opening { .. } | Gate::Prepare { .. } => Cost::default(),
        Gate::Linear { geometry, batch, weight, truncate, relu, .. } => {
            let by_lattice = lattice::chosen(&geometry, batch, weight, ring, options);
            let product = match (weight, by_lattice) {
                (WeightKind::Public, _) => Cost::default(),
                (_, Some(lattice)) => lattice.cost([geometry.inputs(batch), geometry.outputs(batch)], options),
                (kind, None) => match lattice::Products::of_layer(&geometry, batch, kind, ring, options) {
                    Some(products) => products.cost(options),
                    None => product::cost(linear::shape(&geometry, batch, kind, ring), options),
                },
            };
            then(product, geometry.outputs(batch), truncate, relu)
        }
        Gate::Matmul { shape, truncate } => {
            let product = match lattice::Products::chosen(&shape, ring, options) {
                Some(products) => products.cost(options),
                None => product::cost(linear::matmul_shape(&shape, ring), options),
            };
            then(product, shape.batch * shape.rows * shape.columns, truncate, None)
        }
        Gate::Product { count, truncate, .. } => then(program(gates::mul(ring).into(), count), count, truncate, None),
        Gate::Truncate { count, truncation } => program(programs::truncate(ring, truncation, options, count), count),
        Gate::DivExact { count, divisor, bound } => {
            program(programs::divide(ring, divisor, bound, options, count), count)
        }
        Gate::Msb { count, comparison } => program(programs::msb(ring, comparison, options, count), count),
        Gate::And { count, planes } => program(gates::and(planes).into(), count),
        Gate::A2b { count } => match ring {
            Ring::Pow2(l) => program(programs::a2b(l, options), count),
            // Refused by `a2b`.
            Ring::Odd(_) => Cost::default(),
        },
        Gate::Bit2a { count } => program(gates::bit2a(ring).into(), count),
        Gate::Select { count } => program(gates::select(ring).into(), count),
        Gate::Relu { count, truncate: None, comparison } => {
            program(programs::relu(ring, comparison, options, count), count)
        }
        Gate::Relu { count, truncate: Some(truncation), comparison } => match ring {
            Ring::Pow2(l) => program(programs::truncate_relu(l, truncation, comparison, options, count), count),
            Ring::Odd(_) => composed::cost(gate, |gate| plan::<W>(gate, ring, options)),
        },
        Gate::Clip { count, ends, comparison } => match ring {
            Ring::Pow2(l) => program(programs::clip(l, ends, comparison, options, count), count),
            // Composed by `clip`.
            Ring::Odd(_) => Cost::default(),
        },
        Gate::Lookup { count, index_bits, tables } => match ring {
            Ring::Pow2(l) if tables > 0 => {
                program(programs::lookup(l, &Tables::sized(index_bits, tables), options, count), count)
            }
            // No tables, no results; refused by `lookup`.
            _ => Cost::default(),
        },
        Gate::Max { .. } | Gate::MaxWithin { .. } | Gate::Largest { .. } | Gate::Widen { .. } | Gate::Table { .. } => {
            composed::cost(gate, |gate| plan::<W>(gate, ring, options))
        }
    }
}
