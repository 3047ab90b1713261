//! Two parties, semi-honest, no dealer: additive shares and oblivious transfer (CrypTFlow2's layers; `docs/two-party.md`).
//!
//! P0 is the model owner's server, P1 the data owner's. Gates use correlated OTs from a stock, of both directions; a gate's
//! demand follows from its size, ring and options, and nothing else is prepared ahead, so gates have online messages only.

mod comparison;
mod division;
#[cfg(test)]
mod enumeration;
mod gate;
mod gates;
mod io;
mod linear;
mod memory;
mod odd;
mod plan;
mod product;
mod program;
mod rings;
mod served;
mod share;
mod stock;

use std::ops::Range;
use std::sync::Arc;

use covey_ot::{Received, Sent};
use covey_ring::{BitTensor, Ring, Tensor, Word};
use covey_transport::Endpoint;

pub use io::TwoPartyClient;
pub use linear::Weight;
pub use rings::{Extension, Narrow, Resize};
pub use share::Stored;

pub use crate::additive::{Arith, Bool};
pub use stock::{PARAMETERS, Stock, silent_stock};

use crate::api::{
    Checked, Comparison, Costs, Epilogue, Extended, Geometry, Linear, MatmulShape, NonLinear, Options, Phase,
    Placement, ProtocolError, Result, Session, Shaped, Truncation, WeightSource,
};
use crate::clip::Ends;
use crate::components::Additive;
use crate::composed;
use crate::cost::{Cost, Demand, Gate};
use crate::machine::Machine;
use crate::memory::Held;
use crate::randomness::{Generators, Place, SessionKeys};
use crate::scheduler::Scheduler;
use crate::served::Served;
use plan::{Turns, programs};
use program::Values;
use share::Arithmetic;

/// Peers of a party: two parties and an outside client.
const PEERS: usize = 3;

/// One gate over one tile, seen from one party: its number, its randomness, its size.
#[derive(Clone)]
struct Site {
    me: usize,
    ring: Ring,
    generators: Arc<Generators>,
    place: Place,
    /// Elements of the tile.
    len: usize,
}

/// One party of the protocol, over words of type `W`.
pub struct TwoParty<W> {
    me: usize,
    ring: Ring,
    options: Options,
    keys: SessionKeys,
    lane: u32,
    /// Of the current run; none before the first.
    generators: Option<Arc<Generators>>,
    scheduler: Scheduler,
    stock: Box<dyn Stock>,
    reservations: stock::Reservations,
    /// What was made ahead of the session, by run.
    supplies: Vec<stock::Supply>,
    run: u64,
    gate: u32,
    node: String,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> TwoParty<W> {
    /// Party `endpoint.me()`, with the key it shares with the other, P0 also with one of its own, and with its side of the correlated
    /// OTs. `ring` is Z_2^l,
    /// 4 <= l <= the word's width, or Z_n of at most as many bits.
    ///
    /// # Errors
    /// If the ring does not fit, or the endpoint belongs to no party.
    pub fn new(
        endpoint: Box<dyn Endpoint>,
        keys: SessionKeys,
        stock: Box<dyn Stock>,
        ring: Ring,
        options: Options,
        lane: u32,
    ) -> Result<Self> {
        let me = endpoint.me();
        if me > 1 || !(4..=W::BITS).contains(&ring.bits()) {
            let what = format!("party {me} computing in {ring}; use a ring of 16 to 64 bits");
            return Err(ProtocolError::Unsupported { node: "session".into(), protocol: Self::NAME, what });
        }
        let scheduler = Scheduler::new(endpoint, PEERS, options.window).in_step(!options.pipelines.inner_layer);
        Ok(TwoParty {
            me,
            ring,
            options,
            keys,
            lane,
            generators: None,
            scheduler,
            stock,
            reservations: stock::Reservations::default(),
            supplies: Vec::new(),
            run: 0,
            gate: 0,
            node: String::new(),
            word: std::marker::PhantomData,
        })
    }

    /// Whether values mean anything in the current run.
    fn computes(&self) -> bool {
        self.scheduler.computes()
    }

    fn site(&self, tile: usize, len: usize) -> Result<Site> {
        let generators = self.generators.clone().ok_or(ProtocolError::Internal("a gate before the first run"))?;
        let place = Place { gate: self.gate, tile: tile as u32 };
        Ok(Site { me: self.me, ring: self.ring, generators, place, len })
    }

    /// Runs a gate without OTs over `len` elements, tile by tile.
    fn plain_tiles<M: Machine>(
        &mut self,
        len: usize,
        machine: impl Fn(Site, Range<usize>) -> M,
    ) -> Result<Vec<M::Output>> {
        let (tile, whole) = (self.options.tile_size(), self.site(0, 0)?);
        self.gate += 1;
        let machines = (0..len.div_ceil(tile)).map(|index| {
            let range = index * tile..len.min((index + 1) * tile);
            let place = Place { tile: index as u32, ..whole.place };
            machine(Site { place, len: range.len(), ..whole.clone() }, range)
        });
        self.scheduler.run(machines)
    }

    /// Runs a gate's tiles in as many runs of the scheduler as its OTs need, and hands each result out. While preprocessing, sets
    /// the OTs aside and does nothing else.
    fn run_tiles<T, M: Machine>(
        &mut self,
        tiles: &[T],
        transfers: impl Fn(&T) -> [usize; 2],
        mut machine: impl FnMut(&T, (Sent, Received)) -> M,
        mut done: impl FnMut(&T, M::Output),
    ) -> Result<()> {
        if self.generators.is_none() {
            return Err(ProtocolError::Internal("a gate before the first run"));
        }
        self.gate += 1;
        let (me, phase) = (self.me, self.scheduler.phase());
        let mut start = 0;
        for run in plan::runs(tiles.iter().map(&transfers)) {
            let tiles = &tiles[start..start + run];
            start += run;
            let mut demand = Demand::default();
            for tile in tiles {
                demand += Demand { transfers: transfers(tile).map(|count| count as u64) };
            }
            let run = self.run;
            let supply = self.supplies.iter_mut().find(|supply| supply.runs.contains(&run));
            let stock: &mut dyn Stock = match supply {
                Some(supply) => supply,
                None => {
                    let stock = &mut *self.stock;
                    if let Some(wanted) = self.reservations.wanted(phase, demand, stock.left())? {
                        self.scheduler.make_material(|endpoint| stock.fill(wanted, endpoint))?;
                    }
                    stock
                }
            };
            if phase == Phase::Preprocess {
                continue;
            }
            let machines = tiles.iter().map(|tile| {
                let counts = transfers(tile);
                Ok(machine(tile, stock.take(counts[me], counts[1 - me])?))
            });
            self.scheduler.try_run_each(machines, |index, output| done(&tiles[index], output))?;
        }
        Ok(())
    }

    /// Runs a program over `len` elements: `inputs` are the tensors it takes, the results whole ones as it yields them.
    fn run_program(
        &mut self,
        turns: &Turns<W>,
        len: usize,
        (words, planes): (&[&[W]], &[&[u64]]),
    ) -> Result<Values<W>> {
        let tile = turns.tile(len, &self.options);
        let tiles: Vec<Range<usize>> = (0..len.div_ceil(tile)).map(|i| i * tile..len.min((i + 1) * tile)).collect();
        let program = |range: &Range<usize>| turns.of(range.start / tile);
        let outputs = &turns.of(0).outputs;
        let mut out_words = vec![vec![W::ZERO; len]; outputs.0.len()];
        let mut out_planes = vec![vec![0u64; BitTensor::words_per_plane(len)]; outputs.1.len()];
        let me = self.me;
        let in_planes = |range: &Range<usize>| range.start / 64..range.end.div_ceil(64);
        self.run_tiles(
            &tiles,
            |range| program(range).transfers.map(|each| each * range.len()),
            |range, ots| {
                let words = words.iter().map(|words| words[range.clone()].to_vec()).collect();
                let planes = planes.iter().map(|plane| plane[in_planes(range)].to_vec()).collect();
                gate::Gate::new(program(range).clone(), me, range.len(), (words, planes), ots)
            },
            |range, (words, planes)| {
                out_words.iter_mut().zip(words).for_each(|(out, words)| out[range.clone()].copy_from_slice(&words));
                out_planes.iter_mut().zip(planes).for_each(|(out, plane)| {
                    out[in_planes(range)].copy_from_slice(&plane);
                });
            },
        )?;
        Ok((out_words, out_planes))
    }

    /// A program that yields one tensor of words.
    fn words(
        &mut self,
        program: impl Into<Turns<W>>,
        shape: &[usize],
        inputs: (&[&[W]], &[&[u64]]),
    ) -> Result<Arith<W>> {
        let (mut words, _) = self.run_program(&program.into(), shape.iter().product(), inputs)?;
        let words = words.pop().ok_or(ProtocolError::Internal("the results of a gate"))?;
        Ok(Arith(Tensor::new(shape, words)))
    }

    /// A program that yields planes.
    fn planes(&mut self, program: impl Into<Turns<W>>, len: usize, inputs: (&[&[W]], &[&[u64]])) -> Result<Bool> {
        let (_, planes) = self.run_program(&program.into(), len, inputs)?;
        Ok(Bool(BitTensor::new(len, planes.len(), planes.concat())))
    }

    fn unsupported<T>(&self, what: String) -> Result<T> {
        Err(ProtocolError::Unsupported { node: self.node.clone(), protocol: Self::NAME, what })
    }

    /// Refuses a shift the protocol cannot do inside its bound.
    fn admit(&self, truncation: Truncation) -> Result<()> {
        if Self::admits_shift(self.ring, truncation) {
            return Ok(());
        }
        Err(truncation.refused(self.ring, self.ring.bits() - 1, &self.node, Self::NAME))
    }

    fn arithmetic(&self) -> Arithmetic {
        Arithmetic::new(self.ring)
    }
}

impl<W: Word> Session for TwoParty<W> {
    type Word = W;
    type Arith = Arith<W>;
    type Bool = Bool;
    type Stored = Stored<W>;

    const NAME: &'static str = "two-party";

    fn ring(&self) -> Ring {
        self.ring
    }

    fn restore(&mut self, x: Stored<W>) -> Result<Arith<W>> {
        Ok(x.share())
    }

    fn enter(&mut self, node: u32, name: &str) {
        self.node.clear();
        self.node.push_str(name);
        self.scheduler.enter(node);
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        self.scheduler.begin(phase, inference)?;
        self.reservations.begin(phase, inference);
        self.supplies.retain(|supply| supply.left() != Demand::default());
        self.run = inference;
        self.gate = 0;
        self.generators = Some(Arc::new(self.keys.generators(inference, self.lane)));
        Ok(())
    }

    fn stored(&self) -> usize {
        self.scheduler.stored()
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        let parts = self.plain_tiles(shape.iter().product(), |site, _| io::ClientInput::party(site))?;
        Ok(Arith(Tensor::new(shape, parts.concat())))
    }

    fn check(&mut self) -> Result<Checked> {
        Ok(Checked(()))
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.plain_tiles(x.len(), |site, range| io::Reveal::party(site, x.0.data()[range].to_vec())).map(|_| ())
    }
}

impl<W: Word> Additive for TwoParty<W> {
    fn public_part(&self) -> Option<usize> {
        (self.me == 0).then_some(0)
    }

    fn addition(&self) -> impl Fn(W, W) -> W + Copy + use<W> {
        let arithmetic = self.arithmetic();
        move |a, b| arithmetic.add(a, b)
    }

    fn subtraction(&self) -> impl Fn(W, W) -> W + Copy + use<W> {
        let arithmetic = self.arithmetic();
        move |a, b| arithmetic.sub(a, b)
    }

    fn multiplication(&self) -> impl Fn(W, W) -> W + Copy + use<W> {
        let arithmetic = self.arithmetic();
        move |a, b| arithmetic.mul(a, b)
    }
}

impl<W: Word> Linear for TwoParty<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightSource<Self>, geometry: Geometry, _: Placement) -> Result<Weight<W>> {
        match source {
            WeightSource::Stored(stored) if !stored.keeps_bound(self.ring) => {
                self.unsupported(format!("weights outside their bound of {} bits; share them again", stored.bits))
            }
            source => Weight::new(source, geometry),
        }
    }

    fn linear(&mut self, x: &Arith<W>, weight: &Weight<W>, epilogue: &Epilogue<Self>) -> Result<Arith<W>> {
        self.linear_map(x, weight, epilogue)
    }

    fn matmul(
        &mut self,
        x: &Arith<W>,
        y: &Arith<W>,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<Arith<W>> {
        self.matrix_product(x, y, shape, truncate)
    }

    fn mul(&mut self, x: &Arith<W>, y: &Arith<W>, truncate: Option<Truncation>) -> Result<Arith<W>> {
        x.same_shape(y.shape())?;
        truncate.map_or(Ok(()), |truncation| self.admit(truncation))?;
        let product = self.words(gates::mul(self.ring), x.shape(), (&[x.0.data(), y.0.data()], &[]))?;
        self.finish_product(product, truncate, None)
    }
}

impl<W: Word> NonLinear for TwoParty<W> {
    const FUSES_RELU: bool = true;

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.admit(truncation)?;
        let program = programs::truncate(self.ring, truncation, &self.options, x.len());
        self.words(program, x.shape(), (&[x.0.data()], &[]))
    }

    fn div_exact(&mut self, x: &Arith<W>, divisor: u64, bound: u32) -> Result<Arith<W>> {
        if !Self::admits_division(self.ring, divisor, bound) {
            return self.unsupported(format!(
                "dividing values of {bound} bits by {divisor} in {}; compile with a larger ring",
                self.ring
            ));
        }
        let program = programs::divide(self.ring, divisor, bound, &self.options, x.len());
        self.words(program, x.shape(), (&[x.0.data()], &[]))
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let program = programs::msb(self.ring, comparison, &self.options, x.len());
        self.planes(program, x.len(), (&[x.0.data()], &[]))
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        if x.len() != y.len() || x.planes() != y.planes() {
            return Err(ProtocolError::Internal("the sizes of an AND"));
        }
        let planes: Vec<&[u64]> =
            [x, y].into_iter().flat_map(|b| (0..b.planes()).map(|plane| b.0.plane(plane))).collect();
        self.planes(gates::and(x.planes()), x.len(), (&[], &planes))
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        x.one_plane(shape)?;
        self.words(gates::bit2a(self.ring), shape, (&[], &[x.0.plane(0)]))
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        b.one_plane(x.shape())?;
        self.words(gates::select(self.ring), x.shape(), (&[x.0.data()], &[b.0.plane(0)]))
    }

    /// Where comparisons leave bits out, one end's mistake must not meet the other's; over Z_n nothing is gained.
    fn fuses_clip(ring: Ring, options: &Options) -> bool {
        matches!(ring, Ring::Pow2(_)) && options.key_bits.is_none()
    }

    fn relu(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        let program = programs::relu(self.ring, comparison, &self.options, x.len());
        self.words(program, x.shape(), (&[x.0.data()], &[]))
    }

    fn clip(&mut self, x: &Arith<W>, ends: Ends, comparison: Comparison) -> Result<Arith<W>> {
        match (self.ring, ends) {
            (Ring::Pow2(l), Ends { low: Some(low), high: Some(high) })
                if Self::fuses_clip(self.ring, &self.options) =>
            {
                let program = programs::clip(l, (low, high), comparison, &self.options, x.len());
                self.words(program, x.shape(), (&[x.0.data()], &[]))
            }
            _ => composed::clip(self, x, ends, comparison),
        }
    }

    fn truncate_relu(&mut self, x: &Arith<W>, truncation: Truncation, comparison: Comparison) -> Result<Arith<W>> {
        self.admit(truncation)?;
        match self.ring {
            Ring::Pow2(l) => {
                let program = programs::truncate_relu(l, truncation, comparison, &self.options, x.len());
                self.words(program, x.shape(), (&[x.0.data()], &[]))
            }
            Ring::Odd(_) => composed::truncate_relu(self, x, truncation, comparison),
        }
    }
}

impl<W: Word> Costs for TwoParty<W> {
    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan::plan::<W>(gate, ring, options)
    }

    fn plan_material(demand: &Demand, _: Ring, _: &Options) -> Cost {
        stock::cost(demand)
    }

    fn stock_memory(used: u64, more: u64) -> Option<Vec<u64>> {
        stock::memory(used, more, plan::RUN as u64).map(|bytes| vec![bytes; 2])
    }

    fn memory(held: &Held, ring: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, ring, options)
    }
}

impl<W: Word> Extended for TwoParty<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        if owner > 1 || (owner == self.me) != value.is_some() || value.is_some_and(|v| v.shape() != shape) {
            return Err(ProtocolError::Internal("the owner of an input"));
        }
        let site = self.site(0, shape.iter().product())?;
        self.gate += 1;
        Ok(Arith(Tensor::new(shape, io::input(&site, owner, value.map(Tensor::data)))))
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let parts = self.plain_tiles(x.len(), |site, range| io::Open::new(site, x.0.data()[range].to_vec()))?;
        Ok(Tensor::new(x.shape(), parts.concat()))
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let tiles = self.plain_tiles(x.len(), |site, range| {
            let words = range.start / 64..range.end.div_ceil(64);
            let planes = (0..x.planes()).flat_map(|plane| &x.0.plane(plane)[words.clone()]).copied().collect();
            io::OpenPlanes::new(site, planes)
        })?;
        let mut out = BitTensor::zeros(x.len(), x.planes());
        let mut start = 0;
        for tile in tiles {
            let width = tile.len() / x.planes().max(1);
            for plane in 0..x.planes() {
                out.plane_mut(plane)[start..start + width].copy_from_slice(&tile[plane * width..][..width]);
            }
            start += width;
        }
        Ok(out)
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        match self.ring {
            Ring::Pow2(l) => self.planes(programs::a2b(l, &self.options), x.len(), (&[x.0.data()], &[])),
            Ring::Odd(_) => self.unsupported(format!("the bits of elements of {}; use a ring Z_2^l", self.ring)),
        }
    }
}
