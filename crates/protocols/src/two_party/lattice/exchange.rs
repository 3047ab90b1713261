//! The exchange of a layer's tiles, and the keys that it takes.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use covey_kernels::threads;
use covey_ring::Word;
use covey_rlwe::packing::Tile;
use covey_rlwe::{Ciphertext, EncodedWeights, Error, GaloisKey, Merger, PublicKey, SecretKey, respond};
use covey_transport::Phase as StepKind;
use zeroize::Zeroizing;

use super::{Lattice, TRANSFORMS};
use crate::api::{Geometry, Phase, ProtocolError, Result};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::two_party::share::Arithmetic;
use crate::two_party::{TwoParty, Weight};

/// A party's keys, by the number of their set. Not `Debug`.
pub(in crate::two_party) type Keys = HashMap<u32, Key>;

/// One party's part of a pair of keys.
#[derive(Clone)]
pub(in crate::two_party) enum Key {
    /// P0's, with the Galois keys from level 0 on that it has.
    Public(Arc<PublicKey>, Vec<Arc<GaloisKey>>),
    /// P1's, with the number of Galois keys that it has sent.
    Secret(Arc<SecretKey>, u32),
}

/// A party's share of the results of every response.
type Results = Vec<Zeroizing<Vec<u64>>>;

/// One tile at one party.
struct Exchange<'a, W> {
    lattice: &'a Lattice,
    tile: &'a Tile,
    layout: Layout,
    side: Side<'a, W>,
    /// What it has at the end, or what went wrong.
    results: Result<Results, Error>,
}

/// What a party brings.
enum Side<'a, W> {
    /// P0: the weights.
    Weights {
        key: Arc<PublicKey>,
        galois_keys: Vec<Arc<GaloisKey>>,
        transforms: &'a Transforms<'a>,
        ciphertexts: Vec<Ciphertext>,
    },
    /// P1: the values `[batch, in_channels, height, width]`.
    Values { key: Arc<SecretKey>, x: &'a [W] },
}

/// P0's weights as they multiply ciphertexts. Not `Debug`.
struct Transforms<'a> {
    /// By their place in `[out_channels, in_channels / groups, kernel height, kernel width]`.
    weight: &'a (dyn Fn(usize) -> i64 + Sync),
    /// Whether any tiles have weights in common.
    shares: bool,
    /// The tile they were last made for, and those that are kept, by sum: of a tile's first ones, as many as may be.
    kept: Mutex<(Option<&'a Tile>, Vec<Place>)>,
    /// Buffers of transforms that are not kept: later sums use them again.
    spare: Mutex<Vec<Vec<EncodedWeights>>>,
}

/// The weights of a sum, one polynomial for each of its ciphertexts.
enum OfSum {
    Kept(Arc<Vec<EncodedWeights>>),
    Once(Vec<EncodedWeights>),
}

impl Deref for OfSum {
    type Target = [EncodedWeights];

    fn deref(&self) -> &[EncodedWeights] {
        match self {
            OfSum::Kept(weights) => weights,
            OfSum::Once(weights) => weights,
        }
    }
}

/// Where they are kept: whoever wants them first makes them, and others wait.
type Place = Arc<Mutex<Option<Arc<Vec<EncodedWeights>>>>>;

impl<'a> Transforms<'a> {
    fn new(weight: &'a (dyn Fn(usize) -> i64 + Sync), lattice: &Lattice) -> Self {
        Transforms {
            weight,
            shares: lattice.packing.runs().any(|run| run.len() > 1),
            kept: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// Those of a tile's sum, one for each of its ciphertexts. Tiles of the same weights, one after the other, share them.
    fn of(&self, lattice: &'a Lattice, tile: &'a Tile, sum: usize) -> Result<OfSum, Error> {
        let Some(place) = self.place(lattice, tile, sum) else {
            let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
            return Ok(OfSum::Once(self.made(lattice, tile, sum, spare.unwrap_or_default())?));
        };
        let mut kept = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*kept {
            return Ok(OfSum::Kept(known.clone()));
        }
        let made = Arc::new(self.made(lattice, tile, sum, Vec::new())?);
        *kept = Some(made.clone());
        Ok(OfSum::Kept(made))
    }

    /// Takes back the buffers of transforms that are not kept.
    fn done(&self, weights: OfSum) {
        if let OfSum::Once(weights) = weights {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(weights);
        }
    }

    /// Where those of a tile's sum are kept, if they are.
    fn place(&self, lattice: &'a Lattice, tile: &'a Tile, sum: usize) -> Option<Place> {
        let bytes = tile.inputs() * EncodedWeights::bytes(lattice.parameters.set(), lattice.packing.weight_step(tile));
        if !self.shares || (sum + 1) * bytes > TRANSFORMS {
            return None;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.0.is_some_and(|last| last.same_weights(tile)) {
            *kept = (Some(tile), Vec::new());
        }
        if kept.1.len() <= sum {
            kept.1.resize_with(sum + 1, Arc::default);
        }
        kept.1.get(sum).cloned()
    }

    /// Makes those of a sum, in the buffers of an earlier sum where there are any.
    fn made(
        &self,
        lattice: &'a Lattice,
        tile: &'a Tile,
        sum: usize,
        mut place: Vec<EncodedWeights>,
    ) -> Result<Vec<EncodedWeights>, Error> {
        let (packing, parameters) = (&lattice.packing, &lattice.parameters);
        let step = packing.weight_step(tile);
        let mut polynomial = Zeroizing::new(vec![0; packing.weights_len(tile)]);
        place.truncate(tile.inputs());
        for input in 0..tile.inputs() {
            packing.pack_weights(tile, sum, input, self.weight, &mut polynomial);
            match place.get_mut(input) {
                Some(weights) => weights.encode(parameters, &polynomial, step)?,
                None => place.push(EncodedWeights::new(parameters, &polynomial, step)?),
            }
        }
        Ok(place)
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
            Zeroizing::new(words.iter().map(|word| word.to_u64()).collect::<Vec<u64>>())
        };
        let polynomials: Vec<_> = (0..self.tile.inputs()).map(block).collect();
        key.encrypt(parameters, &polynomials)
    }

    /// P0's message, and the masks.
    fn responses(&self) -> Result<(Vec<u8>, Results), Error> {
        let Side::Weights { key, galois_keys, transforms, ciphertexts } = &self.side else {
            return Ok(Default::default());
        };
        let (tile, levels) = (self.tile, self.tile.levels() as usize);
        let products = |sum| -> Result<_, Error> {
            let encoded = transforms.of(self.lattice, tile, sum)?;
            let positions = self.lattice.packing.sum_results(tile, sum);
            Ok((encoded, positions.into_iter().map(|at| at as usize).collect::<Vec<_>>()))
        };
        let parameters = &self.lattice.parameters;
        let answers = self.each_of(tile.responses(), |response| {
            let sums = tile.sums_of(response);
            if levels == 0 {
                let (encoded, positions) = products(sums.start)?;
                let pairs: Vec<_> = ciphertexts.iter().zip(&*encoded).collect();
                let answer = respond(parameters, key, &pairs, &positions);
                transforms.done(encoded);
                return answer;
            }
            let mut merger = Merger::new(parameters, key, &galois_keys[..levels])?;
            for sum in sums {
                let (encoded, positions) = products(sum)?;
                let pairs: Vec<_> = ciphertexts.iter().zip(&*encoded).collect();
                merger.add(&pairs, &positions)?;
                transforms.done(encoded);
            }
            Ok(merger.finish())
        })?;
        let mut message = Vec::with_capacity(self.lattice.sizes(tile).down);
        let mut masks = Vec::with_capacity(answers.len());
        for (bytes, mask) in answers {
            message.extend_from_slice(&bytes);
            masks.push(mask);
        }
        Ok((message, masks))
    }

    /// P1's results.
    fn decrypted(&self, message: &[u8]) -> Result<Results, Error> {
        let Side::Values { key, .. } = &self.side else { return Ok(Vec::new()) };
        let mut rest = message;
        let parts = (0..self.tile.responses()).map(|response| {
            let bytes = self.lattice.parameters.response_bytes(self.tile.results_len(response));
            rest.split_off(..bytes.min(rest.len())).unwrap_or_default()
        });
        let parts: Vec<&[u8]> = parts.collect();
        self.each_of(parts.len(), |response| {
            let positions = self.lattice.packing.results(self.tile, response);
            let positions: Vec<_> = positions.into_iter().map(|at| at as usize).collect();
            key.decrypt(&self.lattice.parameters, parts[response], &positions)
        })
    }

    /// What `make` gives for 0..count, on all threads where tiles leave some idle.
    fn each_of<T: Send>(&self, count: usize, make: impl Fn(usize) -> Result<T, Error> + Sync) -> Result<Vec<T>, Error> {
        if self.lattice.packing.tiles().len() >= threads::in_use() {
            return (0..count).map(make).collect();
        }
        let mut made: Vec<Option<Result<T, Error>>> = (0..count).map(|_| None).collect();
        threads::each(made.iter_mut().enumerate().collect(), |(index, place)| *place = Some(make(index)));
        made.into_iter().flatten().collect()
    }
}

impl<W: Word> Machine for Exchange<'_, W> {
    type Output = Result<Results, Error>;

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

/// A linear map of P1's values by P0's weights.
pub(super) struct LinearMap<'a, W> {
    pub lattice: &'a Lattice,
    /// At P0: the weights, by their place in `[out_channels, in_channels / groups, kernel height, kernel width]`.
    pub weight: &'a (dyn Fn(usize) -> i64 + Sync),
    /// At P1: the values.
    pub x: &'a [W],
    /// Elements of the result.
    pub outputs: usize,
}

impl<W: Word> TwoParty<W> {
    /// Adds this party's share of the weights times P1's x to `sum`. While preprocessing, if layers are not preprocessed, the parties make
    /// sure of the key and do nothing else.
    pub(in crate::two_party) fn lattice_product(
        &mut self,
        lattice: &Lattice,
        weight: &Weight<W>,
        x: &[W],
        sum: &mut [W],
    ) -> Result<()> {
        let ring = self.party.ring;
        let words = weight.words();
        let plain = |place: usize| ring.signed(words[place]);
        // Stored as [inputs, outputs].
        let turned = |inputs: usize, outputs: usize| {
            move |place: usize| ring.signed(words[place % inputs * outputs + place / inputs])
        };
        let dense;
        let weight: &(dyn Fn(usize) -> i64 + Sync) = match *weight.geometry() {
            Geometry::Conv2d(_) => &plain,
            Geometry::Dense { inputs, outputs } => {
                dense = turned(inputs, outputs);
                &dense
            }
        };
        let map = LinearMap { lattice, weight, x, outputs: sum.len() };
        let across = self.lattice_maps(&[map], self.party.options.preprocess_linear)?;
        let arithmetic = Arithmetic::new(ring);
        for across in across.into_iter().flatten() {
            sum.iter_mut().zip(across).for_each(|(sum, value)| *sum = arithmetic.add(*sum, value));
        }
        Ok(())
    }

    /// This party's shares of maps' results, all computed side by side, in any phase if they are `ahead`. Otherwise none while
    /// preprocessing: the parties make sure of the keys.
    pub(super) fn lattice_maps(&mut self, maps: &[LinearMap<W>], ahead: bool) -> Result<Option<Vec<Vec<W>>>> {
        let keys = maps.iter().map(|map| self.key(map.lattice)).collect::<Result<Vec<Key>>>()?;
        let (options, phase) = (self.party.options, self.party.scheduler.phase());
        if phase == Phase::Preprocess && !ahead {
            return Ok(None);
        }
        let transforms: Vec<Transforms> = maps.iter().map(|map| Transforms::new(map.weight, map.lattice)).collect();
        let side = |map: usize| match &keys[map] {
            Key::Public(key, galois_keys) => Side::Weights {
                key: key.clone(),
                galois_keys: galois_keys.clone(),
                transforms: &transforms[map],
                ciphertexts: Vec::new(),
            },
            Key::Secret(key, _) => Side::Values { key: key.clone(), x: maps[map].x },
        };
        let mut across: Vec<Vec<W>> = maps.iter().map(|map| vec![W::ZERO; map.outputs]).collect();
        let mut failure = None;
        let lattices: Vec<&Lattice> = maps.iter().map(|map| map.lattice).collect();
        for run in super::runs(&lattices, &options) {
            let machines = run.iter().map(|&(map, tile)| Exchange {
                lattice: lattices[map],
                tile,
                layout: lattices[map].layout(lattices[map].sizes(tile)),
                side: side(map),
                results: Ok(Vec::new()),
            });
            let done = |index: usize, results: Result<Results, Error>| match results {
                Ok(results) => {
                    let (map, tile) = run[index];
                    for (response, values) in results.into_iter().enumerate() {
                        let values: Vec<W> = values.iter().map(|&value| W::from_u64(value)).collect();
                        lattices[map].packing.unpack(tile, response, &values, &mut across[map]);
                    }
                }
                Err(error) => failure = failure.take().or(Some(error)),
            };
            let scheduler = &mut self.party.scheduler;
            match ahead {
                true => scheduler.ahead(|scheduler| scheduler.run_each(machines, done))?,
                false => scheduler.run_each(machines, done)?,
            }
        }
        match failure {
            Some(error) => Err(self.broken(&error)),
            None => Ok(Some(across)),
        }
    }

    /// What the other party's message, or this party's system, is to blame for.
    fn broken(&self, error: &Error) -> ProtocolError {
        match error {
            Error::Length { .. } | Error::Residue { .. } | Error::Padding { .. } => ProtocolError::Material(format!(
                "P{} broke the protocol of lattice encryption: {error}",
                1 - self.party.role
            )),
            error => failed(error),
        }
    }

    /// This party's keys of the layer's set. P1 makes them and sends the public ones, each once in a session.
    fn key(&mut self, lattice: &Lattice) -> Result<Key> {
        let (set, number, levels) = (lattice.parameters.set(), lattice.set, lattice.packing.levels());
        if !self.keys.contains_key(&number) {
            let key = if self.party.role == 1 {
                let key = SecretKey::new(set).map_err(|error| failed(&error))?;
                self.send_key(key.public_key())?;
                Key::Secret(Arc::new(key), 0)
            } else {
                let message = self.receive_key(set.public_key_bytes())?;
                let key = PublicKey::read(set, &message).map_err(|error| self.broken(&error))?;
                Key::Public(Arc::new(key), Vec::new())
            };
            self.keys.insert(number, key);
        }
        loop {
            match self.keys.get(&number).cloned() {
                Some(Key::Secret(key, sent)) if sent < levels => {
                    self.send_key(key.galois_key(sent))?;
                    self.keys.insert(number, Key::Secret(key, sent + 1));
                }
                Some(Key::Public(key, mut galois_keys)) if (galois_keys.len() as u32) < levels => {
                    let message = self.receive_key(set.galois_key_bytes())?;
                    let read = GaloisKey::read(set, galois_keys.len() as u32, &message);
                    galois_keys.push(Arc::new(read.map_err(|error| self.broken(&error))?));
                    self.keys.insert(number, Key::Public(key, galois_keys));
                }
                Some(key) => return Ok(key),
                None => unreachable!("it was made"),
            }
        }
    }

    fn send_key(&mut self, message: Result<Vec<u8>, Error>) -> Result<()> {
        let message = message.map_err(|error| failed(&error))?;
        self.party.scheduler.make_material(|endpoint| Ok(endpoint.send(0, StepKind::Offline, message)?))
    }

    fn receive_key(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let mut message = Vec::new();
        self.party.scheduler.make_material(|endpoint| {
            message = endpoint.recv(1, StepKind::Offline, bytes)?;
            Ok(())
        })?;
        Ok(message)
    }
}

fn failed(error: &Error) -> ProtocolError {
    ProtocolError::Material(format!("lattice encryption: {error}"))
}
