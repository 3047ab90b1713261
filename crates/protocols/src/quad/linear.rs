//! Linear maps: products of shares computed chunk by chunk, with their asides (`product.rs` has the equations).

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use covey_kernels::{Chunk, LinearWeight, Part, elementwise};
use covey_ring::{Ring, Tensor, Word};

use super::folding::{self, Folded, FoldedMap, Source};
use super::share::{Arith, Role};
use super::stream::Compared;
use super::{Quad, Stored};
use crate::api::{Bias, Comparison, Epilogue, Geometry, ProtocolError, Result, Shaped, Truncation, WeightSource};
use crate::linear_map::Applied;
use crate::masked::fused::Task;
use crate::masked::pieces::{add_residual, by_chunks, chunks};
use crate::masked::seed::Mask;
use crate::randomness::DrawKeys;

/// This party's working form of one version of a weight, with masks λ' = l1' + l2' and w':
///
/// | | parts | multiply, own | multiply, aside |
/// |---|---|---|---|
/// | P0 | λ', w' | λ | -w, -λ |
/// | P1 | Y', l1' | l1, X | X |
/// | P2 | Y', l2' | X - l2, -X | X |
/// | P3 | λ', V' - λ' | λ | -V, -λ |
pub struct Weight<W> {
    geometry: Geometry,
    public: bool,
    kernel: LinearWeight<W>,
    /// Of a stored weight: what combinations of its columns are computed from, and those that were last.
    source: Option<Source<W>>,
    folded: Mutex<Option<Arc<Folded<W>>>>,
}

impl<W: Word> Weight<W> {
    pub(super) fn new(role: Role, source: WeightSource<Quad<W>>, geometry: Geometry) -> Result<Self> {
        let public = matches!(source, WeightSource::Public(_));
        let len = match &source {
            WeightSource::Shared(w) => w.len(),
            WeightSource::Stored(w) => w.shape.iter().product(),
            WeightSource::Public(w) => w.len(),
        };
        if len != geometry.weights_len() {
            return Err(ProtocolError::Internal("the size of a weight"));
        }
        let kept = match &source {
            WeightSource::Stored(stored) => Source::new(role, stored, &geometry),
            _ => None,
        };
        let parts = match source {
            WeightSource::Shared(w) => {
                let main = w.sum(0..len).to_vec();
                let beside = match role {
                    Role::P0 => w.extra.data().to_vec(),
                    Role::P3 => w.extra.data().iter().zip(&main).map(|(&v, &mask)| v.sub(mask)).collect(),
                    _ => w.inner.second.data().to_vec(),
                };
                vec![Part::Words(main), Part::Words(beside)]
            }
            WeightSource::Stored(w) => stored_parts(role, w),
            WeightSource::Public(w) => vec![Part::Words(w.data().to_vec())],
        };
        Ok(Weight { kernel: geometry.kernel(parts), geometry, public, source: kept, folded: Mutex::new(None) })
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        let folded = self.folded.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = self.source.as_ref().map_or(0, Source::bytes) + folded.as_ref().map_or(0, |folded| folded.bytes());
        self.kernel.bytes() + beside
    }

    /// What checks its maps of `batch` images or rows by combinations under `keys`, if that pays.
    fn folded(&self, role: Role, batch: usize, keys: &DrawKeys) -> Option<Arc<Folded<W>>> {
        let source = self.source.as_ref().filter(|_| folding::pays_for_map(&self.geometry, batch))?;
        let mut folded = self.folded.lock().unwrap_or_else(PoisonError::into_inner);
        if !folded.as_ref().is_some_and(|folded| folded.is_of(keys)) {
            *folded = Some(Arc::new(Folded::new(role, keys, &self.geometry, source, &self.kernel)));
        }
        folded.clone()
    }
}

/// Masks are drawn again for each use: that is as fast as reading them, and they need no memory.
fn stored_parts<W: Word>(role: Role, stored: Stored<W>) -> Vec<Part<W>> {
    let Stored { l1, l2, w, words, .. } = stored;
    let stream = |mask: Option<Mask>| -> Part<W> {
        let mask = mask.expect("the role has it");
        Part::Stream(Arc::new(move |start: usize, out: &mut [W]| mask.fill(start, out)))
    };
    match role {
        Role::P1 => vec![Part::Words(words), stream(l1)],
        Role::P2 => vec![Part::Words(words), stream(l2)],
        _ => {
            let (l1, l2) = (l1.expect("the role has it"), l2.expect("the role has it"));
            let both: Part<W> = Part::Stream(Arc::new(move |start: usize, out: &mut [W]| {
                l1.fill(start, out);
                l2.add(start, out);
            }));
            // P3 is sent x + w, which is V' - λ'.
            vec![both, if role == Role::P0 { stream(w) } else { Part::Words(words) }]
        }
    }
}

impl<W: Word> Quad<W> {
    pub(super) fn linear_map(
        &mut self,
        x: &Arith<W>,
        weight: &Weight<W>,
        epilogue: &Epilogue<Self>,
    ) -> Result<Arith<W>> {
        let applied = weight.geometry.applied(x.shape())?;
        epilogue.check(&applied)?;
        let Applied { shape, batch, .. } = applied;
        let chunks = chunks(&weight.geometry, batch);
        let relu = epilogue.relu.filter(|_| self.options.adder.fuses());
        let plain = epilogue.truncate.is_none() && relu.is_none();
        if plain && weight.public {
            return Ok(self.public_map(x, weight, epilogue, &shape, (batch, &chunks)));
        }
        let (role, opens) = (self.role, !weight.public && !plain);
        let scale = epilogue.truncate.map_or(0, |truncation| truncation.bits);
        let folded = if opens { weight.folded(role, batch, self.runs.lasting()) } else { None };
        let inputs = self.inputs(x, weight.public, folded.is_some());
        let residual = epilogue.residual.map(Bias::Shared);
        let added =
            [own_of, aside_of].map(|of| (of(role, opens, epilogue.bias.as_ref()), of(role, opens, residual.as_ref())));
        let part = |aside: bool| {
            let (inputs, chunks, (bias, residual)) = (&inputs, &chunks, &added[usize::from(aside)]);
            let mut scratch = Vec::new();
            move |index: usize, out: &mut [W]| {
                let chunk = &chunks[index];
                weight.kernel.product(batch, &inputs.of(aside), chunk, out);
                if plain {
                    return;
                }
                // R = -λλ' and what masks it.
                if opens && !aside && !role.is_online() {
                    elementwise::neg_assign(out);
                }
                bias.iter().for_each(|part| chunk.add_bias(part, out));
                residual.iter().for_each(|part| add_residual(chunk, part, scale, &mut scratch, out));
            }
        };
        let pieces = by_chunks(&chunks, part(false));
        if let Some(folded) = folded {
            let taken = [epilogue.bias.as_ref(), residual.as_ref()].map(|addend| taken_of(role, addend));
            let [bias, residual] = taken;
            let mut fold = FoldedMap::new(&folded, role, self.runs.lasting(), batch, &chunks, |piece, words| {
                // Less what is added: everything changes its sign twice.
                let chunk: &Chunk = &chunks[piece];
                elementwise::neg_assign(words);
                bias.iter().for_each(|part| chunk.add_bias(part, words));
                residual.iter().for_each(|part| add_residual(chunk, part, scale, &mut Vec::new(), words));
                elementwise::neg_assign(words);
            });
            let compared = Compared::<W, fn(usize, &mut [W])>::Combined(&mut fold);
            let out = self.finish_product(&shape, pieces, compared, epilogue.truncate, relu)?;
            let sums = fold.finish(x, self.computes());
            let ring = self.opened_ring(epilogue.truncate, relu);
            self.settle_folded(sums, ring)?;
            return Ok(out);
        }
        let compared = if weight.public { Compared::Sharing } else { Compared::ByElement(part(true)) };
        let mut out = self.finish_product(&shape, pieces, compared, epilogue.truncate, relu)?;
        if plain {
            self.share_bias(epilogue, &chunks, &mut out);
        }
        Ok(out)
    }

    /// The ring in which what a shift or clamp begins with is opened.
    pub(super) fn opened_ring(&self, truncate: Option<Truncation>, relu: Option<Comparison>) -> Ring {
        relu.map_or(self.ring, |relu| Task::new(true, truncate, relu, self.ring, &self.options).opened())
    }

    /// What a weight's parts multiply; nothing in runs in which this party computes nothing.
    fn inputs<'a>(&self, x: &'a Arith<W>, public: bool, combined: bool) -> Inputs<'a, W> {
        let (first, second, extra) = (x.inner.first.data(), x.inner.second.data(), x.extra.data());
        if !self.computes() {
            return Inputs { own: Vec::new(), aside: Vec::new() };
        }
        let mut sum = vec![W::ZERO; x.len()];
        elementwise::add(&mut sum, first, second);
        let negated = |x: &[W]| {
            let mut out = x.to_vec();
            elementwise::neg_assign(&mut out);
            Cow::Owned(out)
        };
        let (own, aside) = match self.role {
            // A shift or clamp of a share needs no more than the sum of its components.
            _ if public => (vec![sum.into()], Vec::new()),
            Role::P1 if combined => (vec![second.into(), sum.into()], Vec::new()),
            Role::P2 if combined => (vec![first.into(), negated(&sum)], Vec::new()),
            _ if combined => (vec![sum.into()], Vec::new()),
            Role::P1 => (vec![second.into(), sum.clone().into()], vec![sum.into()]),
            Role::P2 => (vec![first.into(), negated(&sum)], vec![sum.into()]),
            _ => {
                let aside = vec![negated(extra), negated(&sum)];
                (vec![sum.into()], aside)
            }
        };
        Inputs { own, aside }
    }

    /// A public weight applied to each component: nothing is sent.
    fn public_map(
        &mut self,
        x: &Arith<W>,
        weight: &Weight<W>,
        epilogue: &Epilogue<Self>,
        shape: &[usize],
        (batch, chunks): (usize, &[Chunk]),
    ) -> Arith<W> {
        let computes = self.computes();
        let apply = |component: &Tensor<W>| {
            let mut out = vec![W::ZERO; shape.iter().product()];
            if computes {
                weight.kernel.map(batch, &[component.data()], &mut out);
            }
            Tensor::new(shape, out)
        };
        let inner = crate::trio::Arith { first: apply(&x.inner.first), second: apply(&x.inner.second) };
        let mut out = Arith { inner, extra: apply(&x.extra) };
        self.share_bias(epilogue, chunks, &mut out);
        out
    }

    /// Adds the bias to a sharing.
    fn share_bias(&self, epilogue: &Epilogue<Self>, chunks: &[Chunk], out: &mut Arith<W>) {
        let add = |bias: &[W], component: &mut Tensor<W>| {
            let mut scratch = Vec::new();
            for chunk in chunks {
                scratch.resize(chunk.len(), W::ZERO);
                chunk.gather(component.data(), &mut scratch);
                chunk.add_bias(bias, &mut scratch);
                chunk.scatter(&scratch, component.data_mut());
            }
        };
        match &epilogue.bias {
            None => {}
            Some(Bias::Shared(bias)) => {
                add(bias.inner.first.data(), &mut out.inner.first);
                add(bias.inner.second.data(), &mut out.inner.second);
                add(bias.extra.data(), &mut out.extra);
            }
            Some(Bias::Public(bias)) => match self.role {
                Role::P1 | Role::P2 => add(bias.data(), &mut out.inner.first),
                Role::P3 => add(bias.data(), &mut out.extra),
                _ => {}
            },
        }
    }
}

/// What a weight's parts multiply, for the own part of a product and for its aside.
struct Inputs<'a, W: Clone> {
    own: Vec<Cow<'a, [W]>>,
    aside: Vec<Cow<'a, [W]>>,
}

impl<W: Clone> Inputs<'_, W> {
    fn of(&self, aside: bool) -> Vec<&[W]> {
        let inputs = if aside { &self.aside } else { &self.own };
        inputs.iter().map(|input| &input[..]).collect()
    }
}

/// What the own part takes of a share that is added to v. Opening: P2 adds x + l1, P0 and P3 take l1 into R. A sum takes both
/// components.
fn own_of<W: Word>(role: Role, opens: bool, addend: Option<&Bias<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), _) if !opens => vec![x.sum(0..x.len()).to_vec()],
        (Some(Bias::Shared(x)), Role::P0 | Role::P2 | Role::P3) => vec![x.inner.first.data().to_vec()],
        (Some(Bias::Public(x)), Role::P2) => vec![x.data().to_vec()],
        (Some(Bias::Public(x)), Role::P1) if !opens => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}

/// What P2's message has of it beside what P1 has to take off and P3 to add: A at P1, and l2 at P3.
fn taken_of<W: Word>(role: Role, addend: Option<&Bias<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), Role::P1) => vec![x.sum(0..x.len()).to_vec()],
        (Some(Bias::Shared(x)), Role::P3) => vec![x.inner.second.data().to_vec()],
        (Some(Bias::Public(x)), Role::P1) => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}

/// What the aside takes of it: P0 w, and P3 x + w.
fn aside_of<W: Word>(role: Role, _: bool, addend: Option<&Bias<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), Role::P0) => vec![x.extra.data().to_vec()],
        (Some(Bias::Shared(x)), Role::P3) => {
            vec![x.extra.data().iter().zip(x.sum(0..x.len()).iter()).map(|(&v, &mask)| v.sub(mask)).collect()]
        }
        (Some(Bias::Public(x)), Role::P3) => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}
