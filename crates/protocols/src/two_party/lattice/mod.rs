//! Products of P0's weights with P1's share by lattice encryption (`covey-rlwe`): P1 sends its share encrypted, P0 answers with the
//! products less a mask, which is its own share. Chosen for each layer from public numbers alone, so that both parties choose alike.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use covey_kernels::threads;
use covey_ring::{Ring, wire};
use covey_rlwe::packing::{Map, Packing, Price, Tile};
use covey_rlwe::{EncodedWeights, GaloisKey, LEVELS, Merger, ParameterSet, Parameters, WeightBound};
use covey_transport::Phase as StepKind;

use super::{linear, plan, product};
use crate::api::{Geometry, LinearMethod, NetworkProfile, Options, WeightKind};
use crate::circuits::Adder;
use crate::cost::{Cost, Exposure, Traffic};
use crate::machine::{Layout, Step};

mod exchange;
mod masks;
mod products;

pub(super) use exchange::Keys;
pub(super) use products::Products;

/// Bytes that the transforms of a layer's weights may take: those that several tiles have in common are kept.
const TRANSFORMS: usize = 1 << 27;

/// Layers whose choices are kept; they are made anew when there are more.
const KEPT: usize = 1024;
/// Tiles of a choice that is kept at most: a choice of more takes less time than its tiles.
const KEPT_TILES: usize = 1 << 12;
/// Bytes of the tiles in flight in one direction, unless one tile has more. P1 sends for all of them before it receives, and P0 answers
/// meanwhile: links have to hold what neither takes in.
const IN_FLIGHT: usize = 1 << 27;

/// The negative logarithm to base 2 of the statistical distance that all results of a map may have, where a set reaches it. A few bits more
/// would take wide layers to the next degree, at half as many bytes again.
const LEAST_HIDING: i32 = 37;

/// Bytes of the longest message that goes through a link.
const MESSAGE: usize = 1 << 30;

/// How one linear map is computed.
pub(super) struct Lattice {
    /// Of the set among [`ParameterSet::all`].
    set: u32,
    parameters: Parameters,
    packing: Packing,
    /// What messages and work take on the network in the options.
    nanoseconds: u128,
}

/// What a choice depends on.
type Layer = (Geometry, usize, u32, Ring, u64);

/// The network for which layers are chosen: that in the options, or where only bytes count a slow one.
fn rate(options: &Options) -> NetworkProfile {
    match options.adder {
        Adder::FewestBytes => NetworkProfile { bits_per_second: 1_000_000, ..options.network },
        _ => options.network,
    }
}

/// Whether a way of so many nanoseconds takes less time than OTs for the same products.
fn is_faster(nanoseconds: u128, shape: product::Shape, options: &Options) -> bool {
    let network = rate(options);
    // A round trip more: the one that OTs take is in both.
    nanoseconds + u128::from(network.latency_us) * 2_000 < product::time(shape, &Options { network, ..*options })
}

/// The lattice's way for a map of weights `|w| < 2^bits`, if there are parameters for it.
fn find(geometry: &Geometry, batch: usize, bits: u32, ring: Ring, options: &Options) -> Option<Arc<Lattice>> {
    static CHOICES: LazyLock<Mutex<HashMap<Layer, Option<Arc<Lattice>>>>> = LazyLock::new(Mutex::default);
    let bits_per_second = rate(options).bits_per_second;
    let key = (*geometry, batch, bits, ring, bits_per_second);
    let lock = || CHOICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return known.clone();
    }
    let found = choose(geometry, batch, bits, ring, bits_per_second).map(Arc::new);
    if found.as_ref().is_some_and(|lattice| lattice.packing.tiles().len() > KEPT_TILES) {
        return found;
    }
    let mut choices = lock();
    if choices.len() >= KEPT {
        choices.clear();
    }
    choices.insert(key, found.clone());
    found
}

fn choose(geometry: &Geometry, batch: usize, bits: u32, ring: Ring, bits_per_second: u64) -> Option<Lattice> {
    let map = match *geometry {
        Geometry::Conv2d(conv) => Map::Convolution(conv),
        Geometry::Dense { inputs, outputs } => Map::Dense { inputs, outputs },
    };
    let candidates = (0..).zip(ParameterSet::all()).flat_map(|(number, set)| {
        // Prices depend on the ring and the set alone.
        let least = Parameters::with_set(set, ring, WeightBound { bits, terms: 1 });
        let price = least.as_ref().map(|least| price(least, bits_per_second));
        let most = least.map_or(0, |least| least.levels());
        // Without merging, and with it where that differs.
        let levels = [0, most].into_iter().take(if most == 0 { 1 } else { 2 });
        let map = &map;
        levels.filter_map(move |levels| {
            let price = price.as_ref()?;
            let found = |levels| {
                let packing = Packing::choose(map, batch, set.degree(), price, levels);
                let terms = packing.weights_per_sum() as u64;
                let parameters = Parameters::with_set(set, ring, WeightBound { bits, terms })?;
                Some((packing, parameters))
            };
            let (mut packing, mut parameters) = found(levels)?;
            if packing.levels() > parameters.levels() {
                // More weights leave less room than one.
                (packing, parameters) = found(parameters.levels())?;
            }
            if packing.levels() > parameters.levels() || (levels > 0 && packing.levels() == 0) {
                return None;
            }
            // A layer is merged only if that pays for the Galois keys, which other layers may need too.
            let keys = u64::from(packing.levels());
            let keys_ns =
                price.nanoseconds(8 * set.galois_key_bytes() as u64 * keys) + u128::from(galois_key_ns(set) * keys);
            let nanoseconds = packing.nanoseconds(price) + keys_ns;
            Some(Lattice { set: number, parameters, packing, nanoseconds })
        })
    });
    let candidates = candidates.filter(|lattice| lattice.longest() <= MESSAGE);
    candidates.min_by_key(|lattice| (!lattice.hides(), lattice.nanoseconds, lattice.set))
}

/// What a set's messages and work cost. Work is of the size measured (`cargo run --release -p covey-rlwe --example rates`, AVX2); it
/// only decides what is weighed against the network.
fn price(parameters: &Parameters, bits_per_second: u64) -> Price {
    let set = parameters.set();
    let residues = set.degree() as u64 * set.primes().count() as u64;
    let picoseconds = |each: u64| residues * each / 1000;
    let merged = set.degree() as u64 * (4 + 2 * set.gadget() as u64);
    let [result_bits, last_bits] = parameters.response_widths().map(u64::from);
    Price {
        input_bits: 8 * (set.ciphertexts_bytes(1) - set.ciphertexts_bytes(0)) as u64,
        response_bits: set.degree() as u64 * last_bits,
        result_bits,
        encryption_ns: picoseconds(21_000),
        transform_ns: picoseconds(3_500),
        product_ns: picoseconds(850),
        sum_ns: picoseconds(20_000),
        // Transforms of each digit modulo two primes, and back those of both polynomials.
        merge_ns: merged * 5,
        decryption_ns: picoseconds(22_000),
        // A bit takes both parties' processors 0.4 ns beside its time on the network.
        bits_per_second: 1_000_000_000_000 / (1_000_000_000_000 / bits_per_second.max(1) + 400),
    }
}

/// What making and reading a Galois key takes.
fn galois_key_ns(set: &ParameterSet) -> u64 {
    2 * (set.degree() * set.gadget()) as u64 * 21
}

/// All of them have a bit in [`Layout::public_key`].
const _: () = assert!(ParameterSet::COUNT * (LEVELS as usize + 1) <= u32::BITS as usize);

/// The number of a public key: that of a set, or its Galois key of a level.
fn key_number(set: u32, level: Option<u32>) -> u32 {
    set * (LEVELS + 1) + level.map_or(0, |level| 1 + level)
}

/// The lattice's way for a layer, where the options or its cost call for it. Weights that are shared have products across in both
/// directions, which go by OT.
pub(super) fn chosen(
    geometry: &Geometry,
    batch: usize,
    kind: WeightKind,
    ring: Ring,
    options: &Options,
) -> Option<Arc<Lattice>> {
    let WeightKind::Stored { bits } = kind else { return None };
    if options.linear == LinearMethod::Ot || batch == 0 {
        return None;
    }
    let found = find(geometry, batch, bits, ring, options)?;
    let faster = || is_faster(found.nanoseconds, linear::shape(geometry, batch, kind, ring), options);
    (options.linear == LinearMethod::Lattice || faster()).then_some(found)
}

/// The bytes of a tile's two messages, and its results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sizes {
    up: usize,
    down: usize,
    results: usize,
}

impl Lattice {
    /// Whether the noise of all results together shows little of the weights.
    fn hides(&self) -> bool {
        let results: u64 = self.packing.tiles().iter().map(|tile| tile.counts().results).sum();
        self.parameters.hides(results, LEAST_HIDING)
    }

    fn sizes(&self, tile: &Tile) -> Sizes {
        let responses =
            (0..tile.responses()).map(|response| self.parameters.response_bytes(tile.results_len(response)));
        let results = tile.counts().results as usize;
        Sizes { up: self.parameters.set().ciphertexts_bytes(tile.inputs()), down: responses.sum(), results }
    }

    fn layout(&self, sizes: Sizes) -> Layout {
        let mut layout = Layout::default();
        layout.bytes(Step::Online(0), 1, 0, sizes.up);
        layout.bytes(Step::Online(1), 0, 1, sizes.down);
        layout.public_key(key_number(self.set, None));
        (0..self.packing.levels()).for_each(|level| layout.public_key(key_number(self.set, Some(level))));
        layout.exposes(Exposure::of(sizes.results as u64, self.parameters.statistical_distance_bits(1)));
        layout
    }

    /// How many tiles may be in flight.
    fn at_once(&self, options: &Options) -> usize {
        (IN_FLIGHT / self.longest().max(1)).clamp(1, options.window.max(1))
    }

    /// Bytes of the longest message.
    fn longest(&self) -> usize {
        let longest = |tile: &Tile| {
            let Sizes { up, down, .. } = self.sizes(tile);
            up.max(down)
        };
        self.packing.tiles().iter().map(longest).max().unwrap_or(0)
    }

    /// What a layer of so many elements exchanges.
    pub fn cost(&self, [inputs, outputs]: [usize; 2], options: &Options) -> Cost {
        let mut cost = cost(&[self], options);
        if options.preprocess_linear {
            let ring = self.parameters.ring();
            cost = cost.ahead(wire::words_len(outputs, ring) as u64);
            cost += &masks::cost(inputs, ring, options);
        }
        cost
    }

    /// Bytes that each party holds beside operands and result: of tiles in flight P0 their ciphertexts, both their messages, and P0
    /// the weights' transforms.
    pub fn memory(&self, options: &Options) -> [u64; 2] {
        let of_tile = |tile: &Tile| {
            let sizes = self.sizes(tile);
            let ciphertexts = 2 * tile.inputs() * EncodedWeights::bytes(self.parameters.set(), 1);
            [(ciphertexts + sizes.up + sizes.down) as u64, (sizes.up + sizes.down) as u64]
        };
        let of_tiles = self.packing.tiles().iter().map(of_tile);
        let largest = of_tiles.fold([0; 2], |most, bytes| [most[0].max(bytes[0]), most[1].max(bytes[1])]);
        let [weights, values] =
            largest.map(|bytes| bytes * self.packing.tiles().len().min(self.at_once(options)) as u64);
        let merging = |tile: &Tile| match tile.levels() {
            0 => 0,
            levels => Merger::bytes(self.parameters.set(), levels) as u64,
        };
        let transforms = |tile: &Tile| {
            let each = EncodedWeights::bytes(self.parameters.set(), self.packing.weight_step(tile)) as u64;
            let (all, one) = (tile.inputs() * tile.sums(), tile.inputs());
            let at_once = threads::in_use().min(self.packing.tiles().len() * tile.responses()) as u64;
            (each * all as u64).min(TRANSFORMS as u64) + (each * one as u64 + merging(tile)) * at_once
        };
        let keys = self.packing.levels() as usize * GaloisKey::bytes(self.parameters.set());
        [weights + keys as u64 + self.packing.tiles().iter().map(transforms).max().unwrap_or(0), values]
    }
}

/// The tiles of maps that run side by side, each with the number of its map, by run of the scheduler: all in one, or as many as may be in
/// flight where the window holds more.
fn runs<'a>(maps: &[&'a Lattice], options: &Options) -> Vec<Vec<(usize, &'a Tile)>> {
    let tiles =
        maps.iter().enumerate().flat_map(|(map, lattice)| lattice.packing.tiles().iter().map(move |tile| (map, tile)));
    let tiles: Vec<(usize, &Tile)> = tiles.collect();
    let at_once = maps.iter().map(|lattice| lattice.at_once(options)).min().unwrap_or(1);
    let run = if at_once < options.window { at_once } else { tiles.len().max(1) };
    tiles.chunks(run).map(<[_]>::to_vec).collect()
}

/// What all tiles of maps exchange that run side by side.
fn cost(maps: &[&Lattice], options: &Options) -> Cost {
    let mut cost = Cost::default();
    for run in runs(maps, options) {
        let sizes: Vec<(usize, Sizes)> = run.iter().map(|&(map, tile)| (map, maps[map].sizes(tile))).collect();
        cost += &plan::of_tiles(&sizes, options.window, |&(map, sizes)| maps[map].layout(sizes));
    }
    cost
}

/// What sending public keys costs, a bit for each.
pub(super) fn keys_cost(public_keys: u32) -> Cost {
    let mut cost = Cost::default();
    for (set, parameters) in (0..).zip(ParameterSet::all()) {
        let galois = (0..LEVELS).map(|level| (key_number(set, Some(level)), parameters.galois_key_bytes()));
        let all = std::iter::once((key_number(set, None), parameters.public_key_bytes())).chain(galois);
        for (_, bytes) in all.filter(|(number, _)| public_keys >> number & 1 == 1) {
            let traffic = cost.links.entry((StepKind::Offline, 1, 0)).or_insert(Traffic { bytes: 0, messages: 0 });
            traffic.bytes += bytes as u64;
            traffic.messages += 1;
        }
    }
    cost
}

#[cfg(test)]
mod tests {
    use covey_kernels::ConvGeometry;

    use super::*;

    fn lattice(batch: usize, options: &Options) -> Arc<Lattice> {
        let conv = ConvGeometry {
            in_channels: 64,
            out_channels: 64,
            groups: 1,
            input: [224, 224],
            kernel: [3, 3],
            strides: [1, 1],
            pads: [1; 4],
            dilations: [1, 1],
        };
        let kind = WeightKind::Stored { bits: 12 };
        chosen(&Geometry::Conv2d(conv), batch, kind, Ring::Pow2(64), options).unwrap()
    }

    /// The second convolution of VGG16 for 32 images, far away: both directions of 224 tiles are 2 GB.
    #[test]
    fn links_hold_the_tiles_in_flight() {
        let network = NetworkProfile { latency_us: 30_000, bits_per_second: 100_000_000 };
        let options =
            Options { linear: LinearMethod::Lattice, network, window: network.window(), ..Options::default() };
        let lattice = lattice(32, &options);
        let mut tiles = Vec::new();
        for run in runs(&[&lattice], &options) {
            let together = run.len().min(options.window);
            for part in [|sizes: Sizes| sizes.up, |sizes: Sizes| sizes.down] {
                assert!(run.windows(together).all(|tiles| {
                    tiles.iter().map(|(_, tile)| part(lattice.sizes(tile))).sum::<usize>() <= IN_FLIGHT
                }));
            }
            tiles.extend(run.into_iter().map(|(_, tile)| tile.clone()));
        }
        assert!(tiles.iter().eq(lattice.packing.tiles()));
        assert_eq!(lattice.cost([0; 2], &options).rounds, 2 * runs(&[&lattice], &options).len() as u64);
        let memory = lattice.memory(&options);
        assert!(memory.iter().all(|&bytes| bytes < 1 << 30), "{memory:?} bytes");
        // A window that links hold is the scheduler's alone.
        let options = Options { window: 2, ..options };
        assert_eq!(runs(&[&lattice], &options).len(), 1);
    }

    /// Where only bytes count, lattice encryption and OTs are compared by their bytes.
    #[test]
    fn fewest_bytes_are_not_those_of_oblivious_transfer() {
        for adder in [Adder::Auto, Adder::FewestBytes] {
            let options = Options { adder, ..Options::default() };
            assert!(lattice(1, &options).cost([0; 2], &options).links.values().all(|link| link.bytes < 200_000_000));
        }
    }
}
