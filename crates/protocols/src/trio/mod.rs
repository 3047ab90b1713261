//! Trio: three parties, semi-honest, one of them may be corrupted (PIGEON's Trio; `docs/trio.md`).
//!
//! P0 holds masks only and works ahead of the inputs; P1 and P2 hold masked values and compute online. Every gate is a deal
//! by P0, local work, and a reshare between P1 and P2 ([`site`]).

pub(crate) mod bits;
pub(crate) mod borrow;
mod client;
pub(crate) mod comparison;
mod consistency;
pub(crate) mod convert;
#[cfg(test)]
mod enumeration;
pub(crate) mod fused;
mod io;
mod linear;
mod matmul;
mod memory;
mod plan;
pub(crate) mod product;
pub(crate) mod share;
pub(crate) mod site;
mod stream;
pub(crate) mod truncate;

use std::ops::Range;
use std::sync::Arc;

use covey_kernels::{Buffer, constant_time, elementwise};
use covey_ring::{BitTensor, Ring, Tensor, Word};
use covey_transport::Endpoint;
use zeroize::Zeroizing;

pub use crate::masked::seed::Seed;
pub use client::{Stored, TrioClient, mask_parameter};
pub use linear::Weight;
pub use share::{Arith, Bool, Role};

use crate::api::{
    Checked, Comparison, Costs, Epilogue, Extended, Geometry, Linear, MatmulShape, NonLinear, Options, Phase,
    Placement, ProtocolError, Result, Session, Shaped, Truncation, WeightSource,
};
use crate::components::Additive;
use crate::composed;
use crate::cost::{Cost, Gate};
use crate::dealt::Runs;
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::fused::Task;
use crate::memory::Held;
use crate::randomness::{Generators, Place, SessionKeys};
use crate::scheduler::Scheduler;
use crate::served::Served;
use consistency::{DIGEST, Given};
use share::Wire;
use site::{Site, purpose};

/// Peers of a party: three parties and the client.
const PEERS: usize = 4;

/// One party of the protocol, over words of type `W`.
pub struct Trio<W> {
    role: Role,
    ring: Ring,
    options: Options,
    runs: Runs,
    /// Of the current run; none before the first.
    generators: Option<Arc<Generators>>,
    scheduler: Scheduler,
    /// Of the client's inputs that have yet to be compared: the node, and the own digest.
    inputs: Vec<(u32, [u8; DIGEST])>,
    weights: Given,
    gate: u32,
    node: String,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> Trio<W> {
    /// Party `endpoint.me()`, with the keys it shares with the other two. `ring` is Z_2^l, 4 <= l <= the word's width.
    ///
    /// # Errors
    /// If the ring does not fit, or the endpoint belongs to no party.
    pub fn new(
        endpoint: Box<dyn Endpoint>,
        keys: SessionKeys,
        ring: Ring,
        options: Options,
        lane: u32,
    ) -> Result<Self> {
        let role = Role::of(endpoint.me());
        let fits = matches!(ring, Ring::Pow2(bits) if (4..=W::BITS).contains(&bits));
        if role == Role::Client || !fits {
            let what = format!("party {} computing in {ring}; use ring 32 or 64", endpoint.me());
            return Err(ProtocolError::Unsupported { node: "session".into(), protocol: Self::NAME, what });
        }
        // Tiles start at whole words of bit planes.
        let options = Options { tile: options.tile_size(), ..options };
        let scheduler = Scheduler::new(endpoint, PEERS, options.window).in_step(!options.pipelines.inner_layer);
        let scheduler = if role == Role::P0 { scheduler.working_ahead() } else { scheduler };
        Ok(Trio {
            role,
            ring,
            options,
            generators: None,
            runs: Runs::new(keys, lane, false),
            scheduler,
            inputs: Vec::new(),
            weights: Given::new(),
            gate: 0,
            node: String::new(),
            word: std::marker::PhantomData,
        })
    }

    /// This party's role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether this party's values mean anything in the current run: P1 and P2 compute nothing while preprocessing, P0 nothing
    /// online.
    fn computes(&self) -> bool {
        self.scheduler.computes()
    }

    /// Online, P0 has a part in opening, revealing and its own inputs only; of all other gates it knows the shapes.
    fn rests(&self) -> bool {
        self.role == Role::P0 && !self.computes()
    }

    /// Runs one gate over `len` elements, tile by tile, and hands out where each output belongs.
    fn each_tile<M: Machine>(
        &mut self,
        len: usize,
        machine: impl Fn(Site, Range<usize>) -> M,
        mut done: impl FnMut(Range<usize>, M::Output),
    ) -> Result<()> {
        let (gate, tile) = (self.gate, self.options.tile);
        self.gate += 1;
        let (role, ring) = (self.role, self.ring);
        let generators = self.generators.clone().ok_or(ProtocolError::Internal("a gate before the first run"))?;
        let range = |index: usize| index * tile..len.min((index + 1) * tile);
        let machines = (0..len.div_ceil(tile)).map(|index| {
            let range = range(index);
            let place = Place { gate, tile: index as u32 };
            machine(Site { role, ring, generators: generators.clone(), place, len: range.len() }, range)
        });
        self.scheduler.run_each(machines, |index, output| done(range(index), output))
    }

    /// The same for outputs that are put one after the other.
    fn tiles<M: Machine>(&mut self, len: usize, machine: impl Fn(Site, Range<usize>) -> M) -> Result<Vec<M::Output>> {
        let mut outputs: Vec<Option<M::Output>> = (0..len.div_ceil(self.options.tile)).map(|_| None).collect();
        let tile = self.options.tile;
        self.each_tile(len, machine, |range, output| outputs[range.start / tile] = Some(output))?;
        outputs.into_iter().collect::<Option<_>>().ok_or(ProtocolError::Internal("the tiles of a gate"))
    }

    /// Runs a gate that yields a sharing.
    fn shares<M>(&mut self, shape: &[usize], machine: impl Fn(Site, Range<usize>) -> M) -> Result<Arith<W>>
    where
        M: Machine<Output = (Buffer<W>, Buffer<W>)>,
    {
        if self.rests() {
            self.gate += 1;
            return Ok(Arith { first: Tensor::zeros(shape), second: Tensor::zeros(shape) });
        }
        self.joined(shape, machine)
    }

    /// The same where P0 may have a part online.
    fn joined<M>(&mut self, shape: &[usize], machine: impl Fn(Site, Range<usize>) -> M) -> Result<Arith<W>>
    where
        M: Machine<Output = (Buffer<W>, Buffer<W>)>,
    {
        let (mut first, mut second) = (zeros(shape), zeros(shape));
        self.each_tile(shape.iter().product(), machine, |range, (a, b)| {
            first.data_mut()[range.clone()].copy_from_slice(&a);
            second.data_mut()[range].copy_from_slice(&b);
        })?;
        Ok(Arith { first, second })
    }

    /// Runs a gate that yields `planes` bit planes.
    fn planes<M>(&mut self, len: usize, planes: usize, machine: impl Fn(Site, Range<usize>) -> M) -> Result<Bool>
    where
        M: Machine<Output = Vec<Wire>>,
    {
        if self.rests() {
            self.gate += 1;
            return Ok(Bool { first: BitTensor::zeros(len, planes), second: BitTensor::zeros(len, planes) });
        }
        let mut result = Bool { first: BitTensor::zeros(len, planes), second: BitTensor::zeros(len, planes) };
        self.each_tile(len, machine, |range, wires: Vec<Wire>| {
            let words = range.start / 64..range.end.div_ceil(64);
            for (plane, wire) in wires.iter().enumerate() {
                result.first.plane_mut(plane)[words.clone()].copy_from_slice(&wire.first);
                result.second.plane_mut(plane)[words.clone()].copy_from_slice(&wire.second);
            }
        })?;
        Ok(result)
    }

    /// P1, P2: tells the other a digest of C of an input that gate number `gate` took in, under a key that only the two have.
    fn tell_input(&mut self, x: &Arith<W>, gate: u32) -> Result<()> {
        if !self.role.is_online() || !self.computes() {
            return Ok(());
        }
        let other = 3 - self.role as usize;
        let generators = self.generators.as_ref().ok_or(ProtocolError::Internal("a gate before the first run"))?;
        let key = Zeroizing::new(generators.seed(other, Place { gate, tile: 0 }, purpose::DIGEST));
        let mut hasher = blake3::Hasher::new_keyed(&key);
        let tile = self.options.tile;
        for start in (0..x.len()).step_by(tile) {
            consistency::add_words(&mut hasher, &x.sum(start..x.len().min(start + tile)));
        }
        let digest = *hasher.finalize().as_bytes();
        let node = self.scheduler.tell(other, &digest)?;
        self.inputs.push((node, digest));
        Ok(())
    }

    /// P1, P2: whether both were sent the same inputs.
    fn compare_inputs(&mut self) -> Result<()> {
        let mut same = true;
        for (node, own) in std::mem::take(&mut self.inputs) {
            let theirs = self.scheduler.told(3 - self.role as usize, node, DIGEST)?;
            same &= constant_time::equal_bytes(&own, &theirs);
        }
        if same { Ok(()) } else { Err(ProtocolError::ClientDiffers("P1 and P2")) }
    }

    /// Refuses a truncation the protocol cannot do exactly inside its bound.
    fn admit(&self, truncation: Truncation) -> Result<()> {
        if Self::admits_shift(self.ring, truncation) {
            return Ok(());
        }
        Err(truncation.refused(self.ring, self.ring.bits() - 2, &self.node, Self::NAME))
    }

    /// Refuses shapes that differ: a defect in the caller, as programs are validated.
    fn same_shape(&self, x: &Arith<W>, y: &[usize]) -> Result<()> {
        if x.shape() == y { Ok(()) } else { Err(ProtocolError::Internal("the shapes of an element-wise operation")) }
    }

    /// The gate for max(v≫f, 0) over `count` elements, from the parts of a product v, which it opens, or from a sharing.
    fn fused_form(&self, opens: bool, truncate: Option<Truncation>, relu: Comparison, count: usize) -> fused::Form {
        fused::Form::choose(Task::new(opens, truncate, relu, self.ring, &self.options), &self.options, count)
    }

    /// max(x≫f, 0) of a sharing in one gate.
    fn fused_relu(&mut self, x: &Arith<W>, truncate: Option<Truncation>, relu: Comparison) -> Result<Arith<W>> {
        let form = self.fused_form(false, truncate, relu, x.len());
        self.shares(x.shape(), |site, range| fused::Fused::new(site, form.clone(), x.sum(range)))
    }
}

impl<W: Word> Session for Trio<W> {
    type Word = W;
    type Arith = Arith<W>;
    type Bool = Bool;
    type Stored = Stored<W>;

    const NAME: &'static str = "trio";

    fn ring(&self) -> Ring {
        self.ring
    }

    fn restore(&mut self, x: Stored<W>) -> Result<Arith<W>> {
        self.weights.note(self.role, &x);
        Ok(x.share())
    }

    fn enter(&mut self, node: u32, name: &str) {
        self.node.clear();
        self.node.push_str(name);
        self.scheduler.enter(node);
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        // Of a run that opened nothing.
        self.compare_inputs()?;
        self.generators = Some(self.runs.begin(&mut self.scheduler, phase, inference)?);
        self.gate = 0;
        Ok(())
    }

    fn stored(&self) -> usize {
        self.scheduler.stored()
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        let gate = self.gate;
        let x = self.shares(shape, |site, _| io::ClientInput::party(site))?;
        self.tell_input(&x, gate)?;
        Ok(x)
    }

    fn check(&mut self) -> Result<Checked> {
        if let Some(comparison) = self.weights.take(self.role) {
            self.scheduler.run_one(comparison)??;
        }
        self.compare_inputs()?;
        Ok(Checked(()))
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.tiles(x.len(), |site, range| io::Reveal::party(site, x.sum(range).to_vec())).map(|_| ())
    }
}

impl<W: Word> Additive for Trio<W> {
    fn public_part(&self) -> Option<usize> {
        self.role.public_part()
    }
}

impl<W: Word> Linear for Trio<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightSource<Self>, geometry: Geometry, _: Placement) -> Result<Weight<W>> {
        if let WeightSource::Stored(stored) = &source {
            self.weights.note(self.role, stored);
        }
        Weight::new(self.role, source, geometry)
    }

    fn linear(&mut self, x: &Arith<W>, weight: &Weight<W>, epilogue: &Epilogue<Self>) -> Result<Arith<W>> {
        let result = self.linear_map(x, weight, epilogue)?;
        match epilogue.relu {
            Some(comparison) if !self.options.adder.fuses() => self.relu(&result, comparison),
            _ => Ok(result),
        }
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
        self.elementwise_product(x, y, truncate)
    }
}

impl<W: Word> NonLinear for Trio<W> {
    const FUSES_RELU: bool = true;

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.admit(truncation)?;
        let form = truncate::Form::new(truncation, false, self.ring, &self.options, x.len());
        self.shares(x.shape(), |site, range| truncate::Truncate::new(site, form.clone(), x.sum(range)))
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let (read, skipped) = comparison.read(self.ring.bits(), &self.options);
        let circuit = comparison::Plan::sign(read as usize, &self.options, x.len());
        self.planes(x.len(), 1, |site, range| {
            let mut sum = x.sum(range);
            elementwise::shr_assign(&mut sum, skipped);
            bits::Sign::new(site, &circuit, sum)
        })
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        if x.len() != y.len() || x.planes() != y.planes() {
            return Err(ProtocolError::Internal("the sizes of an AND"));
        }
        let (len, planes) = (x.len(), x.planes());
        self.planes(len, planes, |site, range| {
            let wires = |b: &Bool| -> Vec<Wire> {
                (0..planes).map(|p| bits::tile_of(&b.first, &b.second, p, range.start, range.len())).collect()
            };
            bits::And::new(site, wires(x), wires(y))
        })
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        self.one_plane(x, shape)?;
        self.shares(shape, |site, range| {
            let bit = bits::tile_of(&x.first, &x.second, 0, range.start, range.len());
            convert::Select::new(site, bit, None)
        })
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        self.one_plane(b, x.shape())?;
        self.shares(x.shape(), |site, range| {
            let bit = bits::tile_of(&b.first, &b.second, 0, range.start, range.len());
            let mask = Buffer::copy_of(&x.second.data()[range.clone()]);
            convert::Select::new(site, bit, Some(convert::Operand { sum: x.sum(range), mask }))
        })
    }

    fn relu(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Arith<W>> {
        if self.options.adder.fuses() {
            return self.fused_relu(x, None, comparison);
        }
        composed::relu(self, x, comparison)
    }

    fn truncate_relu(&mut self, x: &Arith<W>, truncation: Truncation, comparison: Comparison) -> Result<Arith<W>> {
        if self.options.adder.fuses() {
            self.admit(truncation)?;
            return self.fused_relu(x, Some(truncation), comparison);
        }
        composed::truncate_relu(self, x, truncation, comparison)
    }
}

impl<W: Word> Costs for Trio<W> {
    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan::plan(gate, ring, options)
    }

    fn memory(held: &Held, _: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, options)
    }
}

impl<W: Word> Extended for Trio<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        let owner = Role::of(owner);
        if owner == Role::Client || (owner == self.role) != value.is_some() || value.is_some_and(|v| v.shape() != shape)
        {
            return Err(ProtocolError::Internal("the owner of an input"));
        }
        self.joined(shape, |site, range| io::Input::new(site, owner, value.map(|v| v.data()[range].to_vec())))
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let parts = self.tiles(x.len(), |site, range| {
            io::Open::new(site, x.first.data()[range.clone()].to_vec(), x.second.data()[range].to_vec())
        })?;
        Ok(Tensor::new(x.shape(), parts.concat()))
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let mut words = Vec::with_capacity(x.first.words().len());
        for plane in 0..x.planes() {
            let tile = |range: Range<usize>| bits::tile_of(&x.first, &x.second, plane, range.start, range.len());
            words.extend(self.tiles(x.len(), |site, range| io::OpenPlane::new(site, tile(range)))?.concat());
        }
        Ok(BitTensor::new(x.len(), x.planes(), words))
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        let form = bits::AllForm::new(self.ring, self.options.adder);
        self.planes(x.len(), self.ring.bits() as usize, |site, range| bits::All::new(site, form.clone(), x.sum(range)))
    }
}

impl<W: Word> Trio<W> {
    fn one_plane(&self, b: &Bool, shape: &[usize]) -> Result<()> {
        if b.planes() == 1 && b.len() == shape.iter().product() {
            Ok(())
        } else {
            Err(ProtocolError::Internal("the size of a plane"))
        }
    }
}
