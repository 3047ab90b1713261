//! Linear maps: products of shares computed chunk by chunk, with their asides (`product.rs` has the equations).

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use covey_kernels::{Chunk, Chunks, LinearWeight, Part, elementwise, filled};
use covey_ring::{Ring, Word};

use super::challenge::Challenge;
use super::folding::{self, Folded, FoldedMap, FoldedProduct, Source};
use super::matmul::{Operand, negated, pairs, sum_of_products};
use super::share::{Arith, Role};
use super::stream::{Compared, Opening};
use super::{Quad, StoredShare};
use crate::api::{
    Bias, BiasOf, Comparison, Epilogue, EpilogueOf, Geometry, Linear, MatmulShape, Placement, Result, Shaped,
    SourcedMap, Term, TermOf, Truncation, WeightKind, WeightOf, WeightSource,
};
use crate::components::same_shape;
use crate::composed;
use crate::linear_map::{Applied, Follows, MapSum, add_bias, add_chunks, public_map};
use crate::masked::fused::Task;
use crate::masked::pieces::{
    Own, PIECE, Pieces, add_residual, by_chunks, by_rows, chunks, consecutive, only, parallel, rows_of,
};
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

    pub(super) fn public(&self) -> bool {
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
        let pieces = by_rows(&dims, Box::new(part(false)));
        if !folding::pays_for_product(&dims) {
            return only(self.finish_product(pieces, Compared::by_element(Box::new(part(true))), &[(shift, None)])?);
        }
        let mut fold = FoldedProduct::new(role, self.party.runs.lasting(), dims);
        let compared = Compared::combined(&mut fold);
        let result = only(self.finish_product(pieces, compared, &[(shift, None)])?)?;
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
        let pieces = consecutive(x.shape(), PIECE, Box::new(part(false)));
        only(self.finish_product(pieces, Compared::by_element(Box::new(part(true))), &[(shift, None)])?)
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
        only(self.sums(&[MapSum { terms, leading, epilogue: Epilogue { ..*epilogue } }])?)
    }

    /// Several sums in one gate, whose endings are of one form. Weights are public in all or in none.
    pub(super) fn sums(&mut self, sums: &[MapSum<Self>]) -> Result<Vec<Arith<W>>> {
        let fuses = self.party.options.adder.fuses();
        let follows = |sum: &MapSum<Self>| (sum.epilogue.truncate, sum.epilogue.relu.filter(|_| fuses));
        let follows: Vec<Follows> = sums.iter().map(follows).collect();
        let plain = follows.iter().all(|follows| *follows == (None, None));
        let public = sums.iter().all(|sum| sum.leading().weight.public());
        let mut weights = sums.iter().flat_map(|sum| sum.terms).map(|term| term.weight);
        debug_assert!(weights.all(|weight| weight.public() == public), "weights of one visibility");
        let (role, opens) = (self.party.role, !public && !plain);
        let prepared = sums.iter().map(|sum| self.prepared(sum, public, opens)).collect::<Result<Vec<_>>>()?;
        let of_each = prepared.iter().zip(parts(&prepared, role, false, (opens, plain)));
        let pieces = of_each.map(|(sum, (_, own))| by_chunks(&sum.shape, &sum.chunks, own)).collect();
        let asides = parts(&prepared, role, true, (opens, plain));
        let folded = || firsts(&prepared).zip(&prepared).filter(|(_, sum)| sum.opening().folded());
        let mut folds = folding::Parallel(folded().map(|(first, sum)| (first, sum.fold(role, plain))).collect());
        let compared = Compared::each(
            prepared.iter().map(Prepared::opening).collect(),
            (!asides.is_empty()).then(|| parallel(asides)),
            if folds.0.is_empty() { None } else { Some(&mut folds) },
        );
        let results = self.finish_product(Pieces::parallel(pieces), compared, &follows)?;
        let computes = self.party.computes();
        for ((_, sum), (_, fold)) in folded().zip(folds.0) {
            let (Term { x, weight, .. }, epilogue) = (sum.sum.leading(), &sum.sum.epilogue);
            let verified = sum.verified(fold.finish(x, computes), role, computes);
            self.transcript.is_challenged(&weight.challenge);
            let ring = self.opened_ring(epilogue.truncate, epilogue.relu.filter(|_| fuses));
            self.verify_folded(verified, ring)?;
        }
        let finish = |(mut out, sum): (Arith<W>, &MapSum<Self>)| {
            if plain {
                let (Term { weight, bias, .. }, Arith { inner, extra }) = (sum.leading(), &mut out);
                add_bias(self, bias, &weight.geometry, [&mut inner.first, &mut inner.second, extra]);
            }
            // What no gate has taken in.
            composed::then_relu(self, out, sum.epilogue.relu.filter(|_| !fuses))
        };
        results.into_iter().zip(sums).map(finish).collect()
    }

    /// A sum with what its parts take.
    fn prepared<'a>(&self, sum: &'a MapSum<'a, Self>, public: bool, opens: bool) -> Result<Prepared<'a, W>> {
        let MapSum { terms, epilogue, .. } = sum;
        let &Term { x, weight, bias } = sum.leading();
        let Applied { shape, batch, .. } = Epilogue { bias, ..*epilogue }.applied(&weight.geometry, x)?;
        let role = self.party.role;
        // All maps of a sum were prepared in one session.
        let keys = self.party.runs.lasting_for(&weight.challenge.keys).clone();
        let folded = |term: &TermOf<Self>| term.weight.folded(role, batch, &keys);
        let folded: Option<Vec<_>> = if public { None } else { terms.iter().map(folded).collect() };
        let inputs = terms.iter().map(|term| self.inputs(term.x, public, folded.is_some())).collect();
        let residual = epilogue.residual.map(Bias::Shared);
        let added = [own_of, aside_of].map(|of| {
            let biases = terms.iter().flat_map(|term| of(role, opens, term.bias.as_ref())).collect();
            Added { biases, residual: of(role, opens, residual.as_ref()) }
        });
        let chunks = chunks(&weight.geometry, batch);
        Ok(Prepared { sum, shape, batch, chunks, keys, folded, inputs, added, residual })
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

/// What is added to products: of the biases, and of the residual.
struct Added<W> {
    biases: Vec<Vec<W>>,
    residual: Vec<Vec<W>>,
}

/// A sum of maps with what its parts take.
struct Prepared<'a, W: Word> {
    sum: &'a MapSum<'a, Quad<W>>,
    shape: Vec<usize>,
    batch: usize,
    chunks: Chunks,
    /// Of what combines openings.
    keys: DrawKeys,
    /// Where combinations check what is opened.
    folded: Option<Vec<Arc<Folded<W>>>>,
    inputs: Vec<Inputs<'a, W>>,
    /// What is added to the own parts, and to the asides.
    added: [Added<W>; 2],
    residual: Option<BiasOf<'a, Quad<W>>>,
}

impl<W: Word> Prepared<'_, W> {
    fn opening(&self) -> Opening {
        match &self.folded {
            _ if self.sum.leading().weight.public() => Opening::None,
            Some(_) => Opening::Combined,
            None => Opening::ByElement,
        }
    }

    /// What writes the own parts or the asides of its pieces.
    fn part(&self, role: Role, aside: bool, opens: bool, plain: bool) -> impl FnMut(usize, &mut [W]) + Send + '_ {
        let (chunks, Added { biases, residual }) = (&self.chunks, &self.added[usize::from(aside)]);
        let maps = self.sum.terms.iter().zip(&self.inputs);
        let mut maps: Vec<_> =
            maps.map(|(term, inputs)| term.weight.kernel.running(self.batch, &inputs.of(aside), chunks)).collect();
        let (mut scratch, scale) = (Vec::new(), self.sum.epilogue.scale());
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
    }

    /// What combines its openings.
    fn fold(&self, role: Role, plain: bool) -> FoldedMap<'_, W, impl FnMut(usize, &mut [W]) + Send + '_> {
        let folded = self.folded.as_ref().expect("combinations check it");
        // A plain product takes what is added later.
        let biases = self.sum.terms.iter().map(|term| term.bias.as_ref()).filter(|_| !plain);
        let biases: Vec<_> = biases.flat_map(|bias| taken_of(role, bias)).collect();
        let residual = taken_of(role, self.residual.as_ref().filter(|_| !plain));
        FoldedMap::new(&folded[self.sum.leading], role, &self.keys, self.batch, &self.chunks, move |piece, words| {
            // Less what is added: everything changes its sign twice.
            let chunk: &Chunk = &self.chunks[piece];
            elementwise::neg_assign(words);
            biases.iter().for_each(|part| chunk.add_bias(part, words));
            residual
                .iter()
                .for_each(|part| add_residual(chunk, part, self.sum.epilogue.scale(), &mut Vec::new(), words));
            elementwise::neg_assign(words);
        })
    }

    /// The verification values of the sum, from what was combined of the leading map.
    fn verified(&self, mut leading: [Vec<W>; 2], role: Role, computes: bool) -> [Vec<W>; 2] {
        for (index, (term, folded)) in self.sum.terms.iter().zip(self.folded.iter().flatten()).enumerate() {
            if index == self.sum.leading {
                continue;
            }
            // Both are combined alike, so that one sum of the messages serves all.
            let others = FoldedMap::new(folded, role, &self.keys, self.batch, &self.chunks, |_, _| {});
            let others = others.finish(term.x, computes);
            leading.iter_mut().zip(&others).for_each(|(sum, other)| elementwise::add_assign(sum, other));
        }
        leading
    }
}

/// The numbers of the sums' first pieces.
fn firsts<W: Word>(sums: &[Prepared<W>]) -> impl Iterator<Item = usize> {
    sums.iter().scan(0, |pieces, sum| {
        *pieces += sum.chunks.len();
        Some(*pieces - sum.chunks.len())
    })
}

/// What writes the own parts of the sums' pieces, or their asides where they have such, with the number of the first of each.
fn parts<'a, W: Word>(
    sums: &'a [Prepared<W>],
    role: Role,
    aside: bool,
    (opens, plain): (bool, bool),
) -> Vec<(usize, Own<'a, W>)> {
    let mut parts: Vec<(usize, Own<'a, W>)> = Vec::with_capacity(sums.len());
    for (first, sum) in firsts(sums).zip(sums).filter(|(_, sum)| !aside || sum.opening() == Opening::ByElement) {
        parts.push((first, Box::new(sum.part(role, aside, opens, plain))));
    }
    parts
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
