//! Quad: four parties, one of them may do anything; the others then stop without output (PIGEON's Quad, made exact; `docs/quad.md`).
//!
//! P0, P1 and P2 run Trio, P0 dealing with masks it draws from keys of three. P3 knows those masks too: it repeats what P0 deals, and
//! it learns every value that P1 and P2 open under a mask it lacks, on two ways of which one is honest ([`book`]). Before anything is
//! opened, digests of all of that are compared and all four agree that they match ([`verdict`]).
//!
//! PIGEON's P3 is this P0 and the other way round: who deals has the same number as in Trio.

mod audit;
mod bits;
mod book;
mod borrow;
mod client;
mod comparison;
mod convert;
mod digits;
#[cfg(test)]
mod enumeration;
mod folding;
mod fused;
mod input;
mod linear;
mod matmul;
mod memory;
mod output;
mod plan;
mod product;
mod run;
mod share;
mod stored;
mod stream;
pub mod tampering;
mod tape;
mod truncate;
mod verdict;

use std::ops::Range;
use std::sync::Arc;

use covey_kernels::{Buffer, elementwise};
use covey_ring::{BitTensor, Ring, Tensor, Word};
use covey_transport::Endpoint;

pub use client::QuadClient;
pub use linear::Weight;
pub use share::{Arith, Bool, Role};
pub use stored::Stored;

use crate::api::{
    Checked, Comparison, Costs, Epilogue, Extended, Geometry, Linear, MatmulShape, NonLinear, Options, Phase,
    Placement, ProtocolError, Result, Session, Shaped, Truncation, WeightSource,
};
use crate::components::Additive;
use crate::composed;
use crate::cost::{Cost, Gate};
use crate::dealt::Runs;
use crate::masked::fused::Task;
use crate::memory::Held;
use crate::randomness::{Generators, SessionKeys};
use crate::scheduler::Scheduler;
use crate::served::Served;
use crate::trio;
use stream::Opening;
use tape::{Digests, Transcript};
use verdict::{Check, Finding};

/// The client's number among the peers of a party, and how many there are: four parties and the client.
pub(crate) const CLIENT: usize = 4;
const PEERS: usize = 5;

/// Trio's part of a share over one tile.
type Parts<W> = (Buffer<W>, Buffer<W>);

/// Who shares each of the keys of three: k013, k023, k012, k123.
const GROUPS: [[usize; 3]; 4] = [[0, 1, 3], [0, 2, 3], [0, 1, 2], [1, 2, 3]];

/// The keys as the protocol looks them up at `role`: of [`GROUPS`], those that the role has. Under the number of the peer with which
/// Trio's role shares the key of a mask, and under P3's number that of w; k123, which only digests take, where there is room.
pub fn session_keys(role: usize, keys: [Option<[u8; 32]>; 4]) -> SessionKeys {
    SessionKeys::new(by_slot(role, keys))
}

fn by_slot<T>(role: usize, [k013, k023, k012, k123]: [Option<T>; 4]) -> Vec<Option<T>> {
    match Role::of(role) {
        Role::P0 => vec![None, k013, k023, k012],
        Role::P1 => vec![k013, None, k123, k012],
        Role::P2 => vec![k023, k123, None, k012],
        _ => vec![k123, k013, k023, None],
    }
}

/// One party of the protocol, over words of type `W`.
pub struct Quad<W> {
    role: Role,
    ring: Ring,
    options: Options,
    runs: Runs,
    /// Of the current run; none before the first.
    generators: Option<Arc<Generators>>,
    scheduler: Scheduler,
    /// What is to be compared before anything is opened.
    transcript: Transcript,
    gate: u32,
    node: String,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> Quad<W> {
    /// Party `endpoint.me()`, with the keys of [`session_keys`]. `ring` is Z_2^l, 4 <= l <= the word's width.
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
        Ok(Quad {
            role,
            ring,
            options,
            generators: None,
            runs: Runs::new(keys, lane, false),
            scheduler,
            transcript: Transcript::new("session"),
            gate: 0,
            node: String::new(),
            word: std::marker::PhantomData,
        })
    }

    /// This party's role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether this party's values mean anything in the current run.
    fn computes(&self) -> bool {
        self.scheduler.computes()
    }

    /// Online, P0 has a part in the checks, in what is opened, and in its own inputs only; of all other gates it knows the shapes.
    fn rests(&self) -> bool {
        self.role == Role::P0 && !self.computes()
    }

    /// Whether anything is opened in this run.
    fn opens(&self) -> bool {
        self.scheduler.phase() != Phase::Preprocess
    }

    fn failed(&self, what: String) -> ProtocolError {
        let phase = match self.scheduler.phase() {
            Phase::Joint => "joint",
            Phase::Preprocess => "preprocess",
            Phase::Online => "online",
        };
        ProtocolError::CheckFailed(format!("quad, phase {phase}: {what}"))
    }

    /// Refuses a truncation the protocol cannot do exactly inside its bound.
    fn admit(&self, truncation: Truncation) -> Result<()> {
        if !Self::admits_rounding(truncation.rounding) {
            let what = "probabilistic shifts; compile with --truncation exact or ulp".into();
            return Err(ProtocolError::Unsupported { node: self.node.clone(), protocol: Self::NAME, what });
        }
        if truncation.fits_masked(self.ring) {
            return Ok(());
        }
        Err(truncation.refused(self.ring, self.ring.bits() - 2, &self.node, Self::NAME))
    }

    /// Refuses shapes that differ: a defect in the caller, as programs are validated.
    fn same_shape(&self, x: &Arith<W>, y: &[usize]) -> Result<()> {
        if x.shape() == y { Ok(()) } else { Err(ProtocolError::Internal("the shapes of an element-wise operation")) }
    }

    fn one_plane(&self, b: &Bool, shape: &[usize]) -> Result<()> {
        let fits = b.planes() == 1 && b.len() == shape.iter().product();
        fits.then_some(()).ok_or(ProtocolError::Internal("the size of a plane"))
    }

    /// The gate for max(v≫f, 0) over `count` elements, from the parts of a product v, which it opens, or from a sharing.
    fn fused_form(
        &self,
        opening: Opening,
        truncate: Option<Truncation>,
        relu: Comparison,
        count: usize,
    ) -> fused::Form {
        let task = Task::new(opening.opens(), truncate, relu, self.ring, &self.options);
        fused::Form::new(trio::fused::Form::choose(task, &self.options, count), opening.folded())
    }

    fn truncate_form(&self, truncation: Truncation, opening: Opening, count: usize) -> truncate::Form {
        let form = trio::truncate::Form::new(truncation, opening.opens(), self.ring, &self.options, count);
        truncate::Form::new(form, opening.folded())
    }

    /// max(x≫f, 0) of a sharing in one gate.
    fn fused_relu(&mut self, x: &Arith<W>, truncate: Option<Truncation>, relu: Comparison) -> Result<Arith<W>> {
        let form = self.fused_form(Opening::None, truncate, relu, x.len());
        self.shares(x.shape(), |site, range| fused::Fused::new(site, form.clone(), x.sum(range), Buffer::new()))
    }
}

impl<W: Word> Session for Quad<W> {
    type Word = W;
    type Arith = Arith<W>;
    type Bool = Bool;
    type Stored = Stored<W>;

    const NAME: &'static str = "quad";

    fn ring(&self) -> Ring {
        self.ring
    }

    fn restore(&mut self, x: Stored<W>) -> Result<Arith<W>> {
        self.vouch_for(&x);
        Ok(x.share(self.role))
    }

    fn note_public(&mut self, value: &Tensor<W>) {
        self.vouch_for_public(value);
    }

    fn enter(&mut self, node: u32, name: &str) {
        self.node.clear();
        self.node.push_str(name);
        self.transcript.enter(name);
        self.scheduler.enter(node);
    }

    fn begin(&mut self, phase: Phase, inference: u64) -> Result<()> {
        self.generators = Some(self.runs.begin(&mut self.scheduler, phase, inference)?);
        self.gate = 0;
        if !self.transcript.is_open() {
            self.transcript.clear();
        }
        Ok(())
    }

    fn stored(&self) -> usize {
        self.scheduler.stored()
    }

    fn client_input(&mut self, shape: &[usize]) -> Result<Arith<W>> {
        if self.rests() {
            self.gate += 1;
            return Ok(Arith::zeros(shape));
        }
        let machine = |site, _| input::ClientInput::party(site);
        self.joined(shape, machine, |(parts, extra, digests, _)| (parts, extra, digests))
    }

    fn check(&mut self) -> Result<Checked> {
        let found = self.scheduler.run_one(Check::new(self.role, &self.transcript))?;
        // In a preprocessing run nothing was computed that could be compared.
        let Some(Finding { party, what, layer }) = found.filter(|_| self.opens()) else {
            self.transcript.clear();
            return Ok(Checked(()));
        };
        let layer = self.transcript.name(layer);
        Err(self.failed(format!("node '{layer}': P{party} finds that {what}: one of the four cheats")))
    }

    fn reveal(&mut self, x: &Arith<W>, _: &Checked) -> Result<()> {
        self.settled()?;
        self.each_tile(
            x.len(),
            |site, range| output::Reveal::party(&site, x.sum(range.clone()), &x.extra.data()[range]),
            |_, _| Digests::default(),
        )
    }
}

impl<W: Word> Additive for Quad<W> {
    fn public_part(&self) -> Option<usize> {
        self.role.public_part()
    }
}

impl<W: Word> Linear for Quad<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightSource<Self>, geometry: Geometry, _: Placement) -> Result<Weight<W>> {
        match &source {
            WeightSource::Stored(stored) => self.vouch_for(stored),
            WeightSource::Public(value) => self.vouch_for_public(value),
            WeightSource::Shared(_) => {}
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

impl<W: Word> NonLinear for Quad<W> {
    const FUSES_RELU: bool = true;

    fn truncate(&mut self, x: &Arith<W>, truncation: Truncation) -> Result<Arith<W>> {
        self.admit(truncation)?;
        let form = self.truncate_form(truncation, Opening::None, x.len());
        self.shares(x.shape(), |site, range| truncate::Truncate::new(site, form.clone(), x.sum(range), Buffer::new()))
    }

    fn msb(&mut self, x: &Arith<W>, comparison: Comparison) -> Result<Bool> {
        let (read, skipped) = comparison.read(self.ring.bits(), &self.options);
        let circuit = trio::comparison::Plan::sign(read as usize, &self.options, x.len());
        let form = bits::SignForm::new(circuit, read as usize);
        self.planes(x.len(), 1, |site, range| {
            let mut sum = x.sum(range);
            elementwise::shr_assign(&mut sum, skipped);
            bits::Sign::new(site, form.clone(), sum)
        })
    }

    fn and(&mut self, x: &Bool, y: &Bool) -> Result<Bool> {
        if x.len() != y.len() || x.planes() != y.planes() {
            return Err(ProtocolError::Internal("the sizes of an AND"));
        }
        let (len, planes) = (x.len(), x.planes());
        self.planes(len, planes, |site, range| {
            let wires = |b: &Bool| (0..planes).map(|plane| b.tile(plane, range.clone())).collect();
            bits::And::new(site, wires(x), wires(y))
        })
    }

    fn bit2a(&mut self, x: &Bool, shape: &[usize]) -> Result<Arith<W>> {
        self.one_plane(x, shape)?;
        self.shares(shape, |site, range| convert::Select::new(site, x.tile(0, range).inner, None))
    }

    fn select(&mut self, b: &Bool, x: &Arith<W>) -> Result<Arith<W>> {
        self.one_plane(b, x.shape())?;
        self.shares(x.shape(), |site, range| {
            let mask = Buffer::copy_of(&x.inner.second.data()[range.clone()]);
            let operand = trio::convert::Operand { sum: x.sum(range.clone()), mask };
            let extra = Buffer::copy_of(&x.extra.data()[range.clone()]);
            convert::Select::new(site, b.tile(0, range).inner, Some((operand, extra)))
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

impl<W: Word> Costs for Quad<W> {
    fn plan(gate: &Gate, ring: Ring, options: &Options) -> Cost {
        plan::plan(gate, ring, options)
    }

    fn memory(held: &Held, _: Ring, options: &Options) -> Vec<u64> {
        memory::bytes::<W>(held, options)
    }
}

impl<W: Word> Extended for Quad<W> {
    fn input(&mut self, owner: usize, shape: &[usize], value: Option<&Tensor<W>>) -> Result<Arith<W>> {
        let owner = Role::of(owner);
        if owner == Role::Client || (owner == self.role) != value.is_some() || value.is_some_and(|v| v.shape() != shape)
        {
            return Err(ProtocolError::Internal("the owner of an input"));
        }
        let machine =
            |site, range: Range<usize>| input::Input::new(site, owner, value.map(|v| v.data()[range].to_vec()));
        self.joined(shape, machine, |output| output)
    }

    fn open(&mut self, x: &Arith<W>, _: &Checked) -> Result<Tensor<W>> {
        let words = self.opened(x.len(), |site, range| {
            let [first, second, extra] =
                [&x.inner.first, &x.inner.second, &x.extra].map(|part| &part.data()[range.clone()]);
            output::Open::new(site, first, second, extra)
        })?;
        Ok(Tensor::new(x.shape(), words))
    }

    fn open_bits(&mut self, x: &Bool, _: &Checked) -> Result<BitTensor> {
        let mut words = Vec::with_capacity(x.extra.words().len());
        for plane in 0..x.planes() {
            words.extend(self.opened(x.len(), |site, range| output::OpenPlane::new(site, x.tile(plane, range)))?);
        }
        Ok(BitTensor::new(x.len(), x.planes(), words))
    }

    fn a2b(&mut self, x: &Arith<W>) -> Result<Bool> {
        let form = bits::AllForm::new(trio::bits::AllForm::new(self.ring, self.options.adder));
        self.planes(x.len(), self.ring.bits() as usize, |site, range| bits::All::new(site, form.clone(), x.sum(range)))
    }
}
