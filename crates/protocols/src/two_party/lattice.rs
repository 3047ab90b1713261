//! Products of P0's weights with P1's share by lattice encryption (`covey-rlwe`): P1 sends its share encrypted, P0 answers with the
//! products less a mask, which is its own share. Chosen for each layer from public numbers alone, so that both parties choose alike.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use covey_ring::{Ring, Word};
use covey_rlwe::packing::{Map, Packing, Price, Tile};
use covey_rlwe::{
    Ciphertext, EncodedWeights, Error, ParameterSet, Parameters, PublicKey, SecretKey, WeightBound, respond,
};
use covey_transport::Phase as StepKind;
use zeroize::Zeroizing;

use super::plan;
use super::share::Arithmetic;
use super::{Arith, TwoParty, Weight, linear, product};
use crate::api::{Geometry, LinearMethod, Options, ProtocolError, Result, WeightKind};
use crate::circuits::Adder;
use crate::cost::{Cost, Exposure, Traffic};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// Bytes that the transforms of a layer's weights may take: those that several tiles have in common are kept.
const TRANSFORMS: usize = 1 << 27;

/// Layers whose choices are kept; they are made anew when there are more.
const KEPT: usize = 1024;
/// Tiles of a choice that is kept at most: a choice of more takes less time than its tiles.
const KEPT_TILES: usize = 1 << 12;
/// Bytes of the tiles in flight in one direction, unless one tile has more. P1 sends for all of them before it receives, and P0 answers
/// meanwhile: links have to hold what neither takes in.
const IN_FLIGHT: usize = 1 << 27;

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

/// The lattice's way for a map of weights `|w| < 2^bits`, if there are parameters for it.
fn find(geometry: &Geometry, batch: usize, bits: u32, ring: Ring, options: &Options) -> Option<Arc<Lattice>> {
    static CHOICES: LazyLock<Mutex<HashMap<Layer, Option<Arc<Lattice>>>>> = LazyLock::new(Mutex::default);
    // On a network as slow as that, nothing counts but bytes.
    let slow = options.adder == Adder::FewestBytes;
    let bits_per_second = if slow { 1_000_000 } else { options.network.bits_per_second };
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
    let candidates = (0..).zip(ParameterSet::all()).filter_map(|(number, set)| {
        // Prices depend on the ring and the set alone.
        let least = Parameters::with_set(set, ring, WeightBound { bits, terms: 1 })?;
        let price = price(&least, bits_per_second);
        let packing = Packing::choose(&map, batch, set.degree(), &price);
        let terms = packing.weights_per_response() as u64;
        let parameters = Parameters::with_set(set, ring, WeightBound { bits, terms })?;
        let nanoseconds = packing.nanoseconds(&price);
        Some(Lattice { set: number, parameters, packing, nanoseconds })
    });
    candidates.min_by_key(|lattice| (lattice.nanoseconds, lattice.set))
}

/// What a set's messages and work cost. Work is of the size measured (`cargo run --release -p covey-rlwe --example rates`, AVX2); it
/// only decides what is weighed against the network.
fn price(parameters: &Parameters, bits_per_second: u64) -> Price {
    let set = parameters.set();
    let residues = set.degree() as u64 * set.primes().count() as u64;
    let picoseconds = |each: u64| residues * each / 1000;
    let [result_bits, last_bits] = parameters.response_widths().map(u64::from);
    Price {
        input_bits: 8 * (set.ciphertexts_bytes(1) - set.ciphertexts_bytes(0)) as u64,
        response_bits: set.degree() as u64 * last_bits,
        result_bits,
        encryption_ns: picoseconds(21_000),
        transform_ns: picoseconds(3_500),
        product_ns: picoseconds(850),
        response_ns: picoseconds(25_000),
        decryption_ns: picoseconds(17_000),
        // A bit takes both parties' processors 0.4 ns beside its time on the network.
        bits_per_second: 1_000_000_000_000 / (1_000_000_000_000 / bits_per_second.max(1) + 400),
    }
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
    let by_ot = || product::time(linear::shape(geometry, batch, kind, ring), options);
    // A round trip more: the one that OTs take is in both.
    let latency = u128::from(options.network.latency_us) * 2_000;
    (options.linear == LinearMethod::Lattice || found.nanoseconds + latency < by_ot()).then_some(found)
}

/// The bytes of a tile's two messages, and its results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sizes {
    up: usize,
    down: usize,
    results: usize,
}

impl Lattice {
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
        layout.public_key(self.set);
        layout.exposes(Exposure::of(sizes.results as u64, self.parameters.statistical_distance_bits(1)));
        layout
    }

    /// The tiles of each run of the scheduler: all, or as many as may be in flight where the window holds more.
    fn runs(&self, options: &Options) -> impl Iterator<Item = &[Tile]> {
        let tiles = self.packing.tiles();
        let at_once = self.at_once(options);
        tiles.chunks(if at_once < options.window { at_once } else { tiles.len().max(1) })
    }

    /// How many tiles may be in flight.
    fn at_once(&self, options: &Options) -> usize {
        let longest = |tile: &Tile| {
            let Sizes { up, down, .. } = self.sizes(tile);
            up.max(down)
        };
        let longest = self.packing.tiles().iter().map(longest).max().unwrap_or(0);
        (IN_FLIGHT / longest.max(1)).clamp(1, options.window.max(1))
    }

    /// What all tiles exchange.
    pub fn cost(&self, options: &Options) -> Cost {
        let mut cost = Cost::default();
        for run in self.runs(options) {
            let sizes: Vec<Sizes> = run.iter().map(|tile| self.sizes(tile)).collect();
            cost += &plan::of_tiles(&sizes, options.window, |&sizes| self.layout(sizes));
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
        let transforms = |tile: &Tile| {
            let each = EncodedWeights::bytes(self.parameters.set(), self.packing.weight_step(tile)) as u64;
            let (all, one) = (tile.inputs() * tile.responses(), tile.inputs());
            (each * all as u64).min(TRANSFORMS as u64) + each * one as u64
        };
        [weights + self.packing.tiles().iter().map(transforms).max().unwrap_or(0), values]
    }
}

/// What sending public keys costs, a bit for each set.
pub(super) fn keys_cost(public_keys: u32) -> Cost {
    let mut cost = Cost::default();
    for (number, set) in ParameterSet::all().enumerate() {
        if public_keys >> number & 1 == 1 {
            let traffic = cost.links.entry((StepKind::Offline, 1, 0)).or_insert(Traffic { bytes: 0, messages: 0 });
            traffic.bytes += set.public_key_bytes() as u64;
            traffic.messages += 1;
        }
    }
    cost
}

/// A party's keys, by the number of their set. Not `Debug`.
pub(super) type Keys = HashMap<u32, Key>;

/// One party's part of a pair of keys.
#[derive(Clone)]
pub(super) enum Key {
    /// P0's.
    Public(Arc<PublicKey>),
    /// P1's.
    Secret(Arc<SecretKey>),
}

/// One tile at one party.
struct Exchange<'a, W> {
    lattice: &'a Lattice,
    tile: &'a Tile,
    layout: Layout,
    side: Side<'a, W>,
    /// The results of every response, or what went wrong.
    results: Result<Vec<Vec<u64>>, Error>,
}

/// What a party brings.
enum Side<'a, W> {
    /// P0: the weights.
    Weights { key: Arc<PublicKey>, transforms: &'a Transforms<'a>, ciphertexts: Vec<Ciphertext> },
    /// P1: the values `[batch, in_channels, height, width]`.
    Values { key: Arc<SecretKey>, x: &'a [W] },
}

/// P0's weights as they multiply ciphertexts. Not `Debug`.
struct Transforms<'a> {
    /// By their place in `[out_channels, in_channels / groups, kernel height, kernel width]`.
    weight: &'a dyn Fn(usize) -> i64,
    /// The tile they were last made for, and those that are kept, by response.
    kept: RefCell<(Option<&'a Tile>, Vec<Arc<Vec<EncodedWeights>>>)>,
}

impl<'a> Transforms<'a> {
    fn new(weight: &'a dyn Fn(usize) -> i64) -> Self {
        Transforms { weight, kept: RefCell::default() }
    }

    /// Those of a tile's response, one for each of its ciphertexts. Tiles of the same weights, one after the other, share them.
    fn of(&self, lattice: &'a Lattice, tile: &'a Tile, response: usize) -> Result<Arc<Vec<EncodedWeights>>, Error> {
        let mut kept = self.kept.borrow_mut();
        if !kept.0.is_some_and(|last| last.same_weights(tile)) {
            *kept = (Some(tile), Vec::new());
        }
        if let Some(known) = kept.1.get(response) {
            return Ok(known.clone());
        }
        let (packing, parameters) = (&lattice.packing, &lattice.parameters);
        let step = packing.weight_step(tile);
        let mut polynomial = Zeroizing::new(vec![0; packing.degree() / step]);
        let encode = |input| {
            packing.pack_weights(tile, response, input, self.weight, &mut polynomial);
            EncodedWeights::new(parameters, &polynomial, step)
        };
        let made = Arc::new((0..tile.inputs()).map(encode).collect::<Result<Vec<_>, _>>()?);
        let bytes = tile.inputs() * EncodedWeights::bytes(parameters.set(), step);
        // The first ones of a tile, as many as may be kept.
        if response == kept.1.len() && (response + 1) * bytes <= TRANSFORMS {
            kept.1.push(made.clone());
        }
        Ok(made)
    }
}

impl<W: Word> Exchange<'_, W> {
    /// P1's message: every block of channels, encrypted.
    fn encrypted(&self) -> Result<Vec<u8>, Error> {
        let Side::Values { key, x } = &self.side else { return Ok(Vec::new()) };
        let Lattice { parameters, packing, .. } = self.lattice;
        let mut words = vec![W::ZERO; packing.degree()];
        let block = |input| {
            packing.pack_input(self.tile, input, x, &mut words);
            words.iter().map(|word| word.to_u64()).collect::<Vec<u64>>()
        };
        let polynomials: Vec<Vec<u64>> = (0..self.tile.inputs()).map(block).collect();
        key.encrypt(parameters, &polynomials)
    }

    /// P0's message, and the masks.
    fn responses(&self) -> Result<(Vec<u8>, Vec<Vec<u64>>), Error> {
        let Side::Weights { key, transforms, ciphertexts } = &self.side else { return Ok(Default::default()) };
        let parameters = &self.lattice.parameters;
        let mut message = Vec::with_capacity(self.lattice.sizes(self.tile).down);
        let mut masks = Vec::with_capacity(self.tile.responses());
        for response in 0..self.tile.responses() {
            let encoded = transforms.of(self.lattice, self.tile, response)?;
            let products: Vec<_> = ciphertexts.iter().zip(&*encoded).collect();
            let (bytes, mask) = respond(parameters, key, &products, &self.positions(response))?;
            message.extend_from_slice(&bytes);
            masks.push(mask.to_vec());
        }
        Ok((message, masks))
    }

    fn positions(&self, response: usize) -> Vec<usize> {
        let positions = self.lattice.packing.results(self.tile, response);
        positions.into_iter().map(|position| position as usize).collect()
    }

    /// P1's results.
    fn decrypted(&self, message: &[u8]) -> Result<Vec<Vec<u64>>, Error> {
        let Side::Values { key, .. } = &self.side else { return Ok(Vec::new()) };
        let mut rest = message;
        let one = |response| {
            let bytes = self.lattice.parameters.response_bytes(self.tile.results_len(response));
            let part = rest.split_off(..bytes.min(rest.len())).unwrap_or_default();
            Ok(key.decrypt(&self.lattice.parameters, part, &self.positions(response))?.to_vec())
        };
        (0..self.tile.responses()).map(one).collect()
    }
}

impl<W: Word> Machine for Exchange<'_, W> {
    type Output = Result<Vec<Vec<u64>>, Error>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        // A message goes out whatever went wrong: the other party waits for one of this length, and then hears of the failure.
        let sizes = self.lattice.sizes(self.tile);
        match (step, &self.side) {
            (Step::Online(0), Side::Values { .. }) => {
                let message = self.encrypted().unwrap_or_else(|error| {
                    self.results = Err(error);
                    vec![0; sizes.up]
                });
                out.bytes(0, &message);
            }
            (Step::Online(1), Side::Weights { .. }) => {
                let answer = if self.results.is_ok() { Some(self.responses()) } else { None };
                let message = match answer {
                    Some(Ok((message, masks))) => {
                        self.results = Ok(masks);
                        message
                    }
                    Some(Err(error)) => {
                        self.results = Err(error);
                        vec![0; sizes.down]
                    }
                    None => vec![0; sizes.down],
                };
                out.bytes(1, &message);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let sizes = self.lattice.sizes(self.tile);
        match (step, &mut self.side) {
            (Step::Online(0), Side::Weights { ciphertexts, .. }) => {
                let set = self.lattice.parameters.set();
                match Ciphertext::read(set, inbox.bytes(1, sizes.up), self.tile.inputs()) {
                    Ok(read) => *ciphertexts = read,
                    Err(error) => self.results = Err(error),
                }
            }
            (Step::Online(1), Side::Values { .. }) => {
                let results = self.decrypted(inbox.bytes(0, sizes.down));
                if self.results.is_ok() {
                    self.results = results;
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Self::Output {
        self.results
    }
}

impl<W: Word> TwoParty<W> {
    /// Adds this party's share of the weights times P1's share of x to `sum`, the outputs of `batch` images.
    pub(super) fn lattice_product(
        &mut self,
        lattice: &Lattice,
        weight: &Weight<W>,
        x: &Arith<W>,
        sum: &mut [W],
    ) -> Result<()> {
        let key = self.key(lattice)?;
        let ring = self.party.ring;
        let words = weight.words();
        let plain = |place: usize| ring.signed(words[place]);
        // Stored as [inputs, outputs].
        let turned = |inputs: usize, outputs: usize| {
            move |place: usize| ring.signed(words[place % inputs * outputs + place / inputs])
        };
        let dense;
        let weight: &dyn Fn(usize) -> i64 = match *weight.geometry() {
            Geometry::Conv2d(_) => &plain,
            Geometry::Dense { inputs, outputs } => {
                dense = turned(inputs, outputs);
                &dense
            }
        };
        let transforms = Transforms::new(weight);
        let side = || match &key {
            Key::Public(key) => Side::Weights { key: key.clone(), transforms: &transforms, ciphertexts: Vec::new() },
            Key::Secret(key) => Side::Values { key: key.clone(), x: x.0.data() },
        };
        let (mut across, mut failure) = (vec![W::ZERO; sum.len()], None);
        let options = self.party.options;
        for run in lattice.runs(&options) {
            let tiles: Vec<&Tile> = run.iter().collect();
            self.run_tiles(
                &tiles,
                |_| [0, 0],
                |tile, _| Exchange {
                    lattice,
                    tile,
                    layout: lattice.layout(lattice.sizes(tile)),
                    side: side(),
                    results: Ok(Vec::new()),
                },
                |tile, results| match results {
                    Ok(results) => {
                        for (response, values) in results.into_iter().enumerate() {
                            let values: Vec<W> = values.into_iter().map(W::from_u64).collect();
                            lattice.packing.unpack(tile, response, &values, &mut across);
                        }
                    }
                    Err(error) => failure = failure.take().or(Some(error)),
                },
            )?;
        }
        if let Some(error) = failure {
            return Err(failed(&error));
        }
        let arithmetic = Arithmetic::new(ring);
        sum.iter_mut().zip(across).for_each(|(sum, value)| *sum = arithmetic.add(*sum, value));
        Ok(())
    }

    /// This party's key of the layer's set. P1 makes them and sends the public one, once in a session.
    fn key(&mut self, lattice: &Lattice) -> Result<Key> {
        let (set, number) = (lattice.parameters.set(), lattice.set);
        if let Some(key) = self.keys.get(&number) {
            return Ok(key.clone());
        }
        let key = if self.party.role == 1 {
            let key = SecretKey::new(set).map_err(|error| failed(&error))?;
            let message = key.public_key().map_err(|error| failed(&error))?;
            self.party.scheduler.make_material(|endpoint| Ok(endpoint.send(0, StepKind::Offline, message)?))?;
            Key::Secret(Arc::new(key))
        } else {
            let mut message = Vec::new();
            self.party.scheduler.make_material(|endpoint| {
                message = endpoint.recv(1, StepKind::Offline, set.public_key_bytes())?;
                Ok(())
            })?;
            Key::Public(Arc::new(PublicKey::read(set, &message).map_err(|error| failed(&error))?))
        };
        self.keys.insert(number, key.clone());
        Ok(key)
    }
}

fn failed(error: &Error) -> ProtocolError {
    ProtocolError::Material(format!("lattice encryption: {error}"))
}

#[cfg(test)]
mod tests {
    use covey_kernels::ConvGeometry;

    use super::*;
    use crate::api::NetworkProfile;

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
        for run in lattice.runs(&options) {
            let together = run.len().min(options.window);
            for part in [|sizes: Sizes| sizes.up, |sizes: Sizes| sizes.down] {
                assert!(
                    run.windows(together).all(|tiles| {
                        tiles.iter().map(|tile| part(lattice.sizes(tile))).sum::<usize>() <= IN_FLIGHT
                    })
                );
            }
            tiles.extend(run);
        }
        assert!(tiles.iter().copied().eq(lattice.packing.tiles()));
        assert_eq!(lattice.cost(&options).rounds, 2 * lattice.runs(&options).count() as u64);
        assert!(lattice.memory(&options) < 1 << 29, "{} bytes", lattice.memory(&options));
        // A window that links hold is the scheduler's alone.
        let options = Options { window: 2, ..options };
        assert_eq!(lattice.runs(&options).count(), 1);
    }
}
