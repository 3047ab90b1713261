//! Beaver: 2 to 8 parties, semi-honest, all but one of them may pool what they see; a dealer apart from them (`docs/beaver.md`).
//!
//! A value is a sum of shares. Every gate opens what it takes under masks that the dealer knows, and the dealer's shares of
//! products of masks, or of what a comparison reads of them, turn what is open into shares of the result. The dealer works
//! ahead of the inputs and sees no share.

mod again;
mod bits;
mod convert;
#[cfg(test)]
mod enumeration;
mod fused;
mod io;
mod linear;
mod memory;
mod open;
mod plan;
mod product;
mod served;
mod share;
mod site;
mod tree;
mod truncate;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Ring, Tensor, Word};
use covey_transport::Endpoint;
use zeroize::Zeroizing;

pub use io::BeaverClient;
pub use linear::Weight;
pub use share::Stored;

pub use crate::additive::{Arith, Bool};

use crate::api::{
    Checked, Comparison, Costs, Epilogue, Extended, Geometry, Linear, Local, MatmulShape, NonLinear, Options, PARTIES,
    Phase, Placement, ProtocolError, Result, Session, Shaped, Truncation, WeightSource,
};
use crate::components::Additive;
use crate::cost::{Cost, Gate, WEIGHTS};
use crate::dealt::Runs;
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::fused::Task;
use crate::masked::seed::Seed;
use crate::masked::{Seat, Table};
use crate::memory::Held;
use crate::randomness::{Generators, Place, SessionKeys};
use crate::scheduler::Scheduler;
use crate::served::{ClientGates, Served};
use site::{Site, purpose, table_of};

/// The run whose generators the masks of weights are drawn from: no inference has its number.
const WEIGHTS_RUN: u64 = u64::MAX;

/// Above the numbers of a program's values: of weights that have none. Masks under it serve this session only.
const UNNUMBERED: u32 = (1 << 31) - 1;

/// One party of the protocol, or the dealer, over words of type `W`.
pub struct Beaver<W> {
    table: Table,
    me: usize,
    ring: Ring,
    options: Options,
    runs: Runs,
    /// Of the current run; none before the first.
    generators: Option<Arc<Generators>>,
    weight_generators: Arc<Generators>,
    /// Of the masks of weights: the own one; at the dealer every party's; none without the dealer, until they are restored.
    mask_seeds: Zeroizing<Vec<u8>>,
    /// Their generators.
    weight_seeds: Vec<Seed>,
    /// The masks are those of an earlier session, which may have used any of them.
    restored: bool,
    /// How often each value was prepared as a secret weight.
    prepared: HashMap<u32, u32>,
    /// Secret weights prepared so far.
    weights: u32,
    scheduler: Scheduler,
    gate: u32,
    node: u32,
    name: String,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> Beaver<W> {
    /// Party or dealer `endpoint.me()`, with the keys it shares with all others. Without one for the dealer it runs what was dealt in
    /// earlier sessions, and prepares weights under masks of earlier sessions. `ring` is Z_2^l, 4 <= l <= the word's width.
    ///
    /// # Errors
    /// If the ring or the number of parties does not fit, or the endpoint belongs to neither a party nor the dealer.
    pub fn new(
        endpoint: Box<dyn Endpoint>,
        keys: SessionKeys,
        ring: Ring,
        options: Options,
        lane: u32,
    ) -> Result<Self> {
        let me = endpoint.me();
        let fits = matches!(ring, Ring::Pow2(bits) if (4..=W::BITS).contains(&bits));
        if !PARTIES.contains(&options.parties) || me > options.parties || !fits {
            let what = format!(
                "role {me} of {} parties computing in {ring}; use 2 to 8 parties, a dealer and ring 32 or 64",
                options.parties
            );
            return Err(ProtocolError::Unsupported { node: "session".into(), protocol: Self::NAME, what });
        }
        let table = table_of(&options);
        let scheduler = Scheduler::new(endpoint, Self::peers(&options), options.window);
        let scheduler = scheduler.in_step(!options.pipelines.inner_layer);
        let scheduler = if me == table.dealer { scheduler.working_ahead() } else { scheduler };
        let weight_generators = keys.generators(WEIGHTS_RUN, lane);
        let seed = |peer: usize| weight_generators.seed(peer, Place { gate: 0, tile: 0 }, purpose::SEED);
        let dealer = keys.has(table.dealer).then_some(table.dealer);
        let mask_seeds: Vec<[u8; 32]> =
            if me == table.dealer { table.peers().map(seed).collect() } else { dealer.map(seed).into_iter().collect() };
        let mask_seeds = Zeroizing::new(Zeroizing::new(mask_seeds).concat());
        Ok(Beaver {
            table,
            me,
            ring,
            options,
            runs: Runs::new(keys, lane, me != table.dealer && dealer.is_none()),
            generators: None,
            weight_seeds: seeds_of(&mask_seeds),
            mask_seeds,
            weight_generators: Arc::new(weight_generators),
            restored: false,
            prepared: HashMap::new(),
            weights: 0,
            scheduler,
            gate: 0,
            node: 0,
            name: String::new(),
            word: std::marker::PhantomData,
        })
    }

    /// Number among the parties; none at the dealer.
    fn party(&self) -> Option<usize> {
        (self.me != self.table.dealer).then_some(self.me)
    }

    /// Whether this role's values mean anything in the current run: the parties compute nothing while preprocessing, the dealer
    /// nothing online.
    fn computes(&self) -> bool {
        self.scheduler.computes()
    }

    /// Online, the dealer has no part in anything.
    fn rests(&self) -> bool {
        self.party().is_none() && !self.computes()
    }

    fn generators(&self) -> Result<Arc<Generators>> {
        self.generators.clone().ok_or(ProtocolError::Internal("a gate before the first run"))
    }

    /// Tile by tile, given its number and its elements, where gate number `gate` runs and what it draws from.
    fn sites(&self, generators: Arc<Generators>, gate: u32) -> impl Fn(usize, usize) -> Site + use<W> {
        let (table, party, ring) = (self.table, self.party(), self.ring);
        move |tile, len| {
            let place = Place { gate, tile: tile as u32 };
            Site { seat: Seat { table, party, generators: generators.clone(), place, len }, ring }
        }
    }

    /// The next gate's.
    fn next_sites(&mut self) -> Result<impl Fn(usize, usize) -> Site + use<W>> {
        let gate = self.gate;
        self.gate += 1;
        Ok(self.sites(self.generators()?, gate))
    }

    /// Runs one gate over `len` elements, tile by tile, and hands out where each output belongs.
    fn each_tile<M: Machine>(
        &mut self,
        len: usize,
        machine: impl Fn(Site, Range<usize>) -> M,
        mut done: impl FnMut(Range<usize>, M::Output),
    ) -> Result<()> {
        let (tile, site) = (self.options.tile_size(), self.next_sites()?);
        if self.rests() {
            return Ok(());
        }
        let range = |index: usize| index * tile..len.min((index + 1) * tile);
        let machines = (0..len.div_ceil(tile)).map(|index| {
            let range = range(index);
            machine(site(index, range.len()), range)
        });
        self.scheduler.run_each(machines, |index, output| done(range(index), output))
    }

    /// Runs a gate that yields words.
    fn words<M>(&mut self, shape: &[usize], machine: impl Fn(Site, Range<usize>) -> M) -> Result<Arith<W>>
    where
        M: Machine<Output = Buffer<W>>,
    {
        let mut out = zeros(shape);
        let held = self.party().is_some();
        self.each_tile(shape.iter().product(), machine, |range, words| {
            if held {
                out.data_mut()[range].copy_from_slice(&words);
            }
        })?;
        Ok(Arith(out))
    }

    /// Runs a gate that yields bit planes.
    fn planes<M>(&mut self, len: usize, planes: usize, machine: impl Fn(Site, Range<usize>) -> M) -> Result<Bool>
    where
        M: Machine<Output = Buffer<u64>>,
    {
        let mut out = BitTensor::zeros(len, planes);
        self.each_tile(len, machine, |range, bits| place_planes(&mut out, range, &bits))?;
        Ok(Bool(out))
    }

    /// x ∧ y of planes one after the other.
    fn and_planes(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        let planes = x.planes();
        self.planes(x.len(), planes, |site, range| bits::And::new(site, planes, [x.tile(range.clone()), y.tile(range)]))
    }

    fn fused_form(&self, truncate: Option<Truncation>, relu: Comparison, count: usize) -> fused::Form {
        fused::Form::choose(Task::new(true, truncate, relu, self.ring, &self.options), &self.options, count)
    }

    /// max(x≫f, 0), and where there is no shift shares of the sign of x.
    fn fused_relu(&mut self, x: &Arith<W>, truncate: Option<Truncation>, relu: Comparison) -> Result<(Arith<W>, Bool)> {
        let form = self.fused_form(truncate, relu, x.len());
        let (mut out, mut sign) = (zeros(x.shape()), BitTensor::zeros(x.len(), 1));
        let held = self.party().is_some();
        self.each_tile(
            x.len(),
            |site, range| fused::Fused::new(site, form.clone(), x.tile(range)),
            |range, (words, bits)| {
                if held {
                    out.data_mut()[range.clone()].copy_from_slice(&words);
                }
                place_planes(&mut sign, range, &bits);
            },
        )?;
        Ok((Arith(out), Bool(sign)))
    }

    /// Refuses a shift the protocol cannot do exactly inside its bound.
    fn admit(&self, truncation: Truncation) -> Result<()> {
        if Self::admits_shift(self.ring, truncation) {
            return Ok(());
        }
        Err(truncation.refused(self.ring, self.ring.bits() - 2, &self.name, Self::NAME))
    }
}

/// The generators of seeds one after the other.
fn seeds_of(seeds: &[u8]) -> Vec<Seed> {
    seeds.as_chunks().0.iter().map(Seed::new).collect()
}

/// Puts a tile's bits, plane after plane, in their place.
fn place_planes(out: &mut BitTensor, range: Range<usize>, bits: &[u64]) {
    let words = range.start / 64..range.end.div_ceil(64);
    for (plane, bits) in bits.chunks_exact(words.len().max(1)).enumerate() {
        out.plane_mut(plane)[words.clone()].copy_from_slice(bits);
    }
}

impl<W: Word> Session for Beaver<W> {
    type Word = W;
    type Arith = Arith<W>;
    type Bool = Bool;
    type Stored = Stored<W>;

    const NAME: &'static str = "beaver";

    fn ring(&self) -> Ring {
        self.ring
    }

    fn restore(&mut self, x: Stored<W>) -> Result<Arith<W>> {
        let shape = x.shape.clone();
        Ok(Arith(Tensor::new(&shape[..], x.words())))
    }

    fn enter(&mut self, node: u32, name: &str) {
        self.name.clear();
        self.name.push_str(name);
        self.node = node;
        self.scheduler.enter(node);
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        if inference == WEIGHTS_RUN {
            return Err(ProtocolError::RunUsed { run: inference });
        }
        self.generators = Some(self.runs.begin(&mut self.scheduler, phase, inference)?);
        self.gate = 0;
        Ok(())
    }

    fn stored(&self) -> usize {
        self.scheduler.stored()
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        self.words(shape, |site, _| io::ClientInput::party(site))
    }

    fn check(&mut self) -> Result<Checked> {
        Ok(Checked(()))
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.each_tile(x.len(), |site, range| io::Reveal::party(site, x.tile(range)), |_, _| ())
    }
}

impl<W: Word> Additive for Beaver<W> {
    fn public_part(&self) -> Option<usize> {
        (self.me == 0).then_some(0)
    }

    fn holds_shares(&self) -> bool {
        self.party().is_some()
    }
}

impl<W: Word> Linear for Beaver<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightSource<Self>, geometry: Geometry, placement: Placement) -> Result<Weight<W>> {
        self.prepare_value(UNNUMBERED, source, geometry, placement)
    }

    fn prepare_value(
        &mut self,
        value: u32,
        source: WeightSource<Self>,
        geometry: Geometry,
        _: Placement,
    ) -> Result<Weight<W>> {
        // Once for a version of a weight, so apart from what its layer exchanges in every run.
        self.scheduler.enter(WEIGHTS);
        let prepared = self.prepared(value, source, geometry);
        self.scheduler.enter(self.node);
        prepared
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
        self.elementwise_product(x, (!std::ptr::eq(x, y)).then_some(y), truncate)
    }
}

impl<W: Word> NonLinear for Beaver<W> {
    const FUSES_RELU: bool = true;

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.admit(truncation)?;
        let form = truncate::Form::new(truncation, self.ring, &self.options, x.len());
        self.words(x.shape(), |site, range| truncate::Truncate::new(site, form.clone(), x.tile(range)))
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let form = fused::SignForm::new(comparison.read(self.ring.bits(), &self.options), &self.options, x.len());
        self.planes(x.len(), 1, |site, range| fused::Sign::new(site, form.clone(), x.tile(range)))
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        if x.len() != y.len() || x.planes() != y.planes() {
            return Err(ProtocolError::Internal("the sizes of a conjunction"));
        }
        self.and_planes(x, y)
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        x.one_plane(shape)?;
        self.words(shape, |site, range| convert::Select::new(site, x.tile(range), None))
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        b.one_plane(x.shape())?;
        self.words(x.shape(), |site, range| convert::Select::new(site, b.tile(range.clone()), Some(x.tile(range))))
    }

    fn relu(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        Ok(self.fused_relu(x, None, comparison)?.0)
    }

    fn truncate_relu(&mut self, x: &Arith<W>, truncation: Truncation, comparison: Comparison) -> Result<Arith<W>> {
        self.admit(truncation)?;
        Ok(self.fused_relu(x, Some(truncation), comparison)?.0)
    }

    fn max(&mut self, x: &Arith<W>, y: &Arith<W>, comparison: Comparison) -> Result<(Arith<W>, Bool)> {
        let difference = self.sub(x, y)?;
        let (gain, less) = self.fused_relu(&difference, None, comparison)?;
        Ok((self.add(y, &gain)?, less))
    }
}

impl<W: Word> Costs for Beaver<W> {
    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan::plan(gate, ring, options)
    }

    fn memory(held: &Held, _: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, options)
    }
}

impl<W: Word> Extended for Beaver<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        if owner >= self.table.parties
            || (Some(owner) == self.party()) != value.is_some()
            || value.is_some_and(|v| v.shape() != shape)
        {
            return Err(ProtocolError::Internal("the owner of an input"));
        }
        let site = self.next_sites()?(0, shape.iter().product());
        let share = io::input(&site, owner, value.map(Tensor::data));
        Ok(Arith(Tensor::new(shape, share.to_vec())))
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let mut out = Tensor::zeros(x.shape());
        self.each_tile(
            x.len(),
            |site, range| io::Open::new(site, x.tile(range)),
            |range, words| out.data_mut()[range].copy_from_slice(&words),
        )?;
        Ok(out)
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let (planes, mut out) = (x.planes(), BitTensor::zeros(x.len(), x.planes()));
        self.each_tile(
            x.len(),
            |site, range| io::OpenPlanes::new(site, planes, x.tile(range)),
            |range, bits| place_planes(&mut out, range, &bits),
        )?;
        Ok(out)
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        self.bits_of(x)
    }
}
