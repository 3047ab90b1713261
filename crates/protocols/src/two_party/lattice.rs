//! Products of P0's weights with P1's share by lattice encryption (`covey-rlwe`): P1 sends its share encrypted, P0 answers with the
//! products less a mask, which is its own share. Chosen for each layer from public numbers alone, so that both parties choose alike.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use covey_ring::{Ring, Word};
use covey_rlwe::packing::{Map, Packing, Price, Tile};
use covey_rlwe::{
    Ciphertext, EncodedWeights, Error, ParameterSet, Parameters, PublicKey, SecretKey, WeightBound, respond,
};
use covey_transport::Phase as StepKind;

use super::plan;
use super::share::Arithmetic;
use super::{Arith, TwoParty, Weight, linear, product};
use crate::api::{Geometry, LinearMethod, Options, ProtocolError, Result, WeightKind};
use crate::cost::{Cost, Traffic};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

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
    let key = (*geometry, batch, bits, ring, options.network.bits_per_second);
    let lock = || CHOICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return known.clone();
    }
    let found = choose(geometry, batch, bits, ring, options.network.bits_per_second).map(Arc::new);
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

/// What a set's messages and work cost. Work is of the size measured; it only decides what is weighed against the network.
fn price(parameters: &Parameters, bits_per_second: u64) -> Price {
    let set = parameters.set();
    // Nanoseconds of a pass over one polynomial modulo one prime.
    let pass = set.degree() as u64 * 3;
    let primes = set.primes().count() as u64;
    let [result_bits, last_bits] = parameters.response_widths().map(u64::from);
    Price {
        input_bits: 8 * (set.ciphertexts_bytes(1) - set.ciphertexts_bytes(0)) as u64,
        response_bits: set.degree() as u64 * last_bits,
        result_bits,
        encryption_ns: 8 * pass * primes,
        transform_ns: 2 * pass * primes,
        product_ns: pass * primes,
        response_ns: 20 * pass * primes,
        decryption_ns: 10 * pass * primes,
        bits_per_second,
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

/// The bytes of a tile's two messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sizes {
    up: usize,
    down: usize,
}

impl Lattice {
    fn sizes(&self, tile: &Tile) -> Sizes {
        let responses =
            (0..tile.responses()).map(|response| self.parameters.response_bytes(tile.results_len(response)));
        Sizes { up: self.parameters.set().ciphertexts_bytes(tile.inputs()), down: responses.sum() }
    }

    fn layout(&self, sizes: Sizes) -> Layout {
        let mut layout = Layout::default();
        layout.bytes(Step::Online(0), 1, 0, sizes.up);
        layout.bytes(Step::Online(1), 0, 1, sizes.down);
        layout.public_key(self.set);
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
            let Sizes { up, down } = self.sizes(tile);
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

    /// Bytes that a party holds beside operands and result: both messages of the tiles in flight, and of the one that P0 works
    /// on its ciphertexts, the weights of a response and the answer before it is sent.
    pub fn memory(&self, options: &Options) -> u64 {
        let largest = |of_tile: &dyn Fn(&Tile) -> usize| self.packing.tiles().iter().map(of_tile).max().unwrap_or(0);
        let messages = largest(&|tile| {
            let Sizes { up, down } = self.sizes(tile);
            up + down
        });
        let set = self.parameters.set();
        let polynomials = |tile: &Tile| 3 * tile.inputs() * set.primes().count() * set.degree();
        let work = largest(&|tile| 8 * polynomials(tile) + self.sizes(tile).down);
        let tiles = self.packing.tiles().len().min(self.at_once(options));
        messages as u64 * tiles as u64 + work as u64
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
    /// The weights, by their place in `[out_channels, in_channels / groups, kernel height, kernel width]`.
    Weights { key: Arc<PublicKey>, weight: &'a dyn Fn(usize) -> i64, ciphertexts: Vec<Ciphertext> },
    /// The values `[batch, in_channels, height, width]`.
    Values { key: Arc<SecretKey>, x: &'a [W] },
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
        let Side::Weights { key, weight, ciphertexts } = &self.side else { return Ok(Default::default()) };
        let Lattice { parameters, packing, .. } = self.lattice;
        let mut message = Vec::with_capacity(self.lattice.sizes(self.tile).down);
        let mut masks = Vec::with_capacity(self.tile.responses());
        let mut polynomial = vec![0; packing.degree()];
        for response in 0..self.tile.responses() {
            let mut encoded = Vec::with_capacity(ciphertexts.len());
            for input in 0..ciphertexts.len() {
                packing.pack_weights(self.tile, response, input, weight, &mut polynomial);
                encoded.push(EncodedWeights::new(parameters, &polynomial)?);
            }
            let products: Vec<_> = ciphertexts.iter().zip(&encoded).collect();
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
        let side = || match &key {
            Key::Public(key) => Side::Weights { key: key.clone(), weight, ciphertexts: Vec::new() },
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
