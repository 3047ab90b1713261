//! Linear maps: products of shares computed chunk by chunk, with their asides (`product.rs` has the equations).

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use covey_kernels::{Chunk, LinearWeight, Part, elementwise, filled};
use covey_ring::{Ring, Word};

use super::challenge::Challenge;
use super::folding::{self, Folded, FoldedMap, FoldedProduct, Source};
use super::matmul::{Operand, negated, pairs, sum_of_products};
use super::share::{Arith, Role};
use super::stream::Compared;
use super::{Quad, StoredShare};
use crate::api::{
    Bias, BiasOf, Comparison, EpilogueOf, Geometry, Linear, MatmulShape, Placement, Result, Shaped, SourcedMap, Term,
    TermOf, Truncation, WeightKind, WeightOf, WeightSource,
};
use crate::components::same_shape;
use crate::composed;
use crate::linear_map::{Applied, add_bias, add_chunks, public_map};
use crate::masked::fused::Task;
use crate::masked::pieces::{PIECE, add_residual, by_chunks, by_rows, chunks, consecutive, rows_of};
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
    kind: WeightKind,
    kernel: LinearWeight<W>,
    /// Of a stored weight: what combinations of its columns are computed from, what they are drawn from in all sessions, and the ones that
    /// were computed last.
    source: Option<Source<W>>,
    challenge: Arc<Challenge>,
    folded: Mutex<Option<Arc<Folded<W>>>>,
}

impl<W: Word> Weight<W> {
    pub(super) fn new(
        role: Role,
        source: WeightOf<Quad<W>>,
        geometry: Geometry,
        placement: Placement,
        challenge: Arc<Challenge>,
    ) -> Result<Self> {
        let kind = source.kind();
        source.check(&geometry)?;
        let kept = match &source {
            WeightSource::Stored(stored) => Source::new(role, stored, &geometry),
            _ => None,
        };
        let parts = match source {
            WeightSource::Shared(w) | WeightSource::Computed(w) => {
                let main = w.sum(0..w.len()).to_vec();
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
        let kernel = geometry.kernel(parts, placement);
        let source = kept.map(|source| source.beside(&kernel));
        Ok(Weight { kernel, geometry, kind, source, challenge, folded: Mutex::new(None) })
    }

    fn public(&self) -> bool {
        self.kind == WeightKind::Public
    }

    /// The map, and where the weight comes from.
    pub(super) fn map(&self) -> SourcedMap {
        (self.geometry, self.kind)
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
fn stored_parts<W: Word>(role: Role, stored: StoredShare<W>) -> Vec<Part<W>> {
    let StoredShare { l1, l2, w, words, .. } = stored;
    let drawn = |mask: Option<Mask>| mask.expect("the role has it").into_stream();
    let stream = |mask: Option<Mask>| Part::Stream(vec![drawn(mask)]);
    match role {
        Role::P1 => vec![Part::Words(words), stream(l1)],
        Role::P2 => vec![Part::Words(words), stream(l2)],
        _ => {
            let both = Part::Stream(vec![drawn(l1), drawn(l2)]);
            // P3 is sent x + w, which is V' - λ'.
            vec![both, if role == Role::P0 { stream(w) } else { Part::Words(words) }]
        }
    }
}

impl<W: Word> Linear for Quad<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, placement: Placement) -> Result<Weight<W>> {
        match &source {
            WeightSource::Stored(stored) => self.note_stored(stored),
            WeightSource::Public(value) => self.note_public_parameter(value),
            WeightSource::Shared(_) | WeightSource::Computed(_) => {}
        }
        Weight::new(self.party.role, source, geometry, placement, self.challenge.clone())
    }

    fn on_gpu(&self, weight: &Weight<W>) -> bool {
        self.party.computes() && weight.kernel.on_gpu()
    }

    fn linear(&mut self, x: &Arith<W>, weight: &Weight<W>, epilogue: &EpilogueOf<Self>) -> Result<Arith<W>> {
        let fuses = epilogue.relu.is_some() && self.party.options.adder.fuses();
        if weight.public() && epilogue.truncate.is_none() && !fuses {
            let Applied { shape, batch, .. } = epilogue.applied(&weight.geometry, x)?;
            let mut out = public_map::<Self>(x, &weight.kernel, &shape, batch, self.party.computes());
            let Arith { inner, extra } = &mut out;
            add_bias(self, &epilogue.bias, &weight.geometry, [&mut inner.first, &mut inner.second, extra]);
            return composed::then_relu(self, out, epilogue.relu);
        }
        self.sum(&[Term { x, weight, bias: epilogue.bias }], 0, epilogue)
    }

    fn matmul(&mut self, x: &Arith<W>, y: &Arith<W>, dims: MatmulShape, shift: Option<Truncation>) -> Result<Arith<W>> {
        dims.check(x, y)?;
        let (role, opens) = (self.party.role, shift.is_some());
        let part = |aside: bool| {
            move |index: usize, out: &mut [W]| {
                out.fill(W::ZERO);
                for rows in rows_of(&dims, index, out.len()) {
                    let operand = |t: &Arith<W>, range: std::ops::Range<usize>| {
                        let [first, second, extra] =
                            [&t.inner.first, &t.inner.second, &t.extra].map(|t| &t.data()[range.clone()]);
                        Operand::new(role, first, second, extra)
                    };
                    let (x, mut y) = (operand(x, rows.left.clone()), operand(y, rows.right.clone()));
                    if role == Role::P2 && !aside {
                        elementwise::neg_assign(&mut y.beside);
                    }
                    let part = &mut out[rows.out.clone()];
                    rows.multiply(&pairs(role, aside, &x, &y), part);
                    if negated(role, aside, opens) {
                        elementwise::neg_assign(part);
                    }
                }
            }
        };
        let (out, pieces) = (dims.output(), by_rows(&dims, Box::new(part(false))));
        if !folding::pays_for_product(&dims) {
            return self.finish_product(&out, pieces, Compared::ByElement(Box::new(part(true))), (shift, None));
        }
        let mut fold = FoldedProduct::new(role, self.party.runs.lasting(), dims);
        let compared = Compared::Combined(&mut fold);
        let result = self.finish_product(&out, pieces, compared, (shift, None))?;
        let sums = fold.finish(role, x, y, self.party.computes());
        self.verify_folded(sums, self.party.ring)?;
        Ok(result)
    }

    fn mul(&mut self, x: &Arith<W>, y: &Arith<W>, shift: Option<Truncation>) -> Result<Arith<W>> {
        same_shape::<Self>(x, y.shape())?;
        let (role, opens) = (self.party.role, shift.is_some());
        let part = |aside: bool| {
            move |index: usize, out: &mut [W]| {
                let range = index * PIECE..index * PIECE + out.len();
                let operand = |t: &Arith<W>| {
                    let [first, second, extra] =
                        [&t.inner.first, &t.inner.second, &t.extra].map(|t| &t.data()[range.clone()]);
                    let mut operand = Operand::new(role, first, second, extra);
                    if role == Role::P2 && !aside {
                        elementwise::neg_assign(&mut operand.beside);
                    }
                    operand
                };
                let (x, y) = (operand(x), operand(y));
                let sign = if negated(role, aside, opens) { !W::ZERO } else { W::ZERO };
                match &pairs(role, aside, &x, &y)[..] {
                    [(a, c), (b, d)] => sum_of_products(out, a, c, b, d, sign),
                    [(a, c)] => {
                        elementwise::mul(out, a, c);
                        if sign != W::ZERO {
                            elementwise::neg_assign(out);
                        }
                    }
                    _ => unreachable!("one or two"),
                }
            }
        };
        let pieces = consecutive(x.len(), PIECE, Box::new(part(false)));
        self.finish_product(x.shape(), pieces, Compared::ByElement(Box::new(part(true))), (shift, None))
    }
}

impl<W: Word> Quad<W> {
    /// The sum of maps of one output shape with what follows, cut as the one at `leading` is.
    pub(super) fn sum(
        &mut self,
        terms: &[TermOf<Self>],
        leading: usize,
        epilogue: &EpilogueOf<Self>,
    ) -> Result<Arith<W>> {
        let Term { x, weight, .. } = terms[leading];
        let Applied { shape, batch, .. } = epilogue.applied(&weight.geometry, x)?;
        let chunks = chunks(&weight.geometry, batch);
        let relu = epilogue.relu.filter(|_| self.party.options.adder.fuses());
        let plain = epilogue.truncate.is_none() && relu.is_none();
        let (role, opens) = (self.party.role, !weight.public() && !plain);
        // What no gate has taken in.
        let left = epilogue.relu.filter(|_| relu.is_none());
        let scale = epilogue.scale();
        // All maps of a sum were prepared in one session.
        let keys = self.party.runs.lasting_for(&weight.challenge.keys).clone();
        let folded = |term: &TermOf<Self>| term.weight.folded(role, batch, &keys);
        let folded: Option<Vec<_>> = if weight.public() { None } else { terms.iter().map(folded).collect() };
        let inputs: Vec<_> =
            terms.iter().map(|term| self.inputs(term.x, term.weight.public(), folded.is_some())).collect();
        let residual = epilogue.residual.map(Bias::Shared);
        let biases = || terms.iter().map(|term| term.bias.as_ref());
        let added = [own_of, aside_of].map(|of| {
            let biases: Vec<_> = biases().flat_map(|bias| of(role, opens, bias)).collect();
            (biases, of(role, opens, residual.as_ref()))
        });
        let part = |aside: bool| {
            let (chunks, (biases, residual)) = (&chunks, &added[usize::from(aside)]);
            let maps = terms.iter().zip(&inputs);
            let mut maps: Vec<_> =
                maps.map(|(term, inputs)| term.weight.kernel.running(batch, &inputs.of(aside), chunks)).collect();
            let mut scratch = Vec::new();
            move |index: usize, out: &mut [W]| {
                let chunk = &chunks[index];
                add_chunks(&mut maps, index, &mut scratch, out);
                if plain {
                    return;
                }
                // R = -λλ' and what masks it.
                if opens && !aside && !role.is_online() {
                    elementwise::neg_assign(out);
                }
                biases.iter().for_each(|part| chunk.add_bias(part, out));
                residual.iter().for_each(|part| add_residual(chunk, part, scale, &mut scratch, out));
            }
        };
        let pieces = by_chunks(&chunks, Box::new(part(false)));
        let mut out = if let Some(folded) = folded {
            // A plain product takes what is added later.
            let biases: Vec<_> = biases().filter(|_| !plain).flat_map(|bias| taken_of(role, bias)).collect();
            let residual = taken_of(role, residual.as_ref().filter(|_| !plain));
            let mut fold = FoldedMap::new(&folded[leading], role, &keys, batch, &chunks, |piece, words| {
                // Less what is added: everything changes its sign twice.
                let chunk: &Chunk = &chunks[piece];
                elementwise::neg_assign(words);
                biases.iter().for_each(|part| chunk.add_bias(part, words));
                residual.iter().for_each(|part| add_residual(chunk, part, scale, &mut Vec::new(), words));
                elementwise::neg_assign(words);
            });
            let compared = Compared::Combined(&mut fold);
            let out = self.finish_product(&shape, pieces, compared, (epilogue.truncate, relu))?;
            let computes = self.party.computes();
            let mut sums = fold.finish(x, computes);
            for (index, (term, folded)) in terms.iter().zip(&folded).enumerate() {
                if index == leading {
                    continue;
                }
                // Both are combined alike, so that one sum of the messages serves all.
                let others = FoldedMap::new(folded, role, &keys, batch, &chunks, |_, _| {}).finish(term.x, computes);
                sums.iter_mut().zip(&others).for_each(|(sum, other)| elementwise::add_assign(sum, other));
            }
            let ring = self.opened_ring(epilogue.truncate, relu);
            self.transcript.is_challenged(&weight.challenge);
            self.verify_folded(sums, ring)?;
            out
        } else {
            let compared = if weight.public() { Compared::Sharing } else { Compared::ByElement(Box::new(part(true))) };
            self.finish_product(&shape, pieces, compared, (epilogue.truncate, relu))?
        };
        if plain {
            let Arith { inner, extra } = &mut out;
            add_bias(self, &epilogue.bias, &weight.geometry, [&mut inner.first, &mut inner.second, extra]);
        }
        composed::then_relu(self, out, left)
    }

    /// The ring in which what a shift or clamp begins with is opened.
    pub(super) fn opened_ring(&self, truncate: Option<Truncation>, relu: Option<Comparison>) -> Ring {
        relu.map_or(self.party.ring, |relu| {
            Task::new(true, truncate, relu, self.party.ring, &self.party.options).opened()
        })
    }

    /// What a weight's parts multiply; nothing in runs in which this party computes nothing.
    fn inputs<'a>(&self, x: &'a Arith<W>, public: bool, combined: bool) -> Inputs<'a, W> {
        let (first, second, extra) = (x.inner.first.data(), x.inner.second.data(), x.extra.data());
        if !self.party.computes() {
            return Inputs { own: Vec::new(), aside: Vec::new() };
        }
        let sum = filled(x.len(), |start, out| {
            let (first, second) = (&first[start..][..out.len()], &second[start..][..out.len()]);
            elementwise::add(out, first, second);
        });
        // What is filled begins as zeros.
        let negated = |x: &[W]| {
            let less = |start: usize, out: &mut [W]| elementwise::sub_assign(out, &x[start..][..out.len()]);
            Cow::Owned(filled(x.len(), less))
        };
        let (own, aside) = match self.party.role {
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
fn own_of<W: Word>(role: Role, opens: bool, addend: Option<&BiasOf<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), _) if !opens => vec![x.sum(0..x.len()).to_vec()],
        (Some(Bias::Shared(x)), Role::P0 | Role::P2 | Role::P3) => vec![x.inner.first.data().to_vec()],
        (Some(Bias::Public(x)), Role::P2) => vec![x.data().to_vec()],
        (Some(Bias::Public(x)), Role::P1) if !opens => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}

/// What P2's message has of it beside what P1 has to take off and P3 to add: A at P1, and l2 at P3.
fn taken_of<W: Word>(role: Role, addend: Option<&BiasOf<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), Role::P1) => vec![x.sum(0..x.len()).to_vec()],
        (Some(Bias::Shared(x)), Role::P3) => vec![x.inner.second.data().to_vec()],
        (Some(Bias::Public(x)), Role::P1) => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}

/// What the aside takes of it: P0 w, and P3 x + w.
fn aside_of<W: Word>(role: Role, _: bool, addend: Option<&BiasOf<Quad<W>>>) -> Vec<Vec<W>> {
    match (addend, role) {
        (Some(Bias::Shared(x)), Role::P0) => vec![x.extra.data().to_vec()],
        (Some(Bias::Shared(x)), Role::P3) => {
            vec![x.extra.data().iter().zip(x.sum(0..x.len()).iter()).map(|(&v, &mask)| v.sub(mask)).collect()]
        }
        (Some(Bias::Public(x)), Role::P3) => vec![x.data().to_vec()],
        _ => Vec::new(),
    }
}
