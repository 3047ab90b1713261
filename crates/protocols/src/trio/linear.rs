//! Linear maps: products of shares computed chunk by chunk, one accumulation per output, each chunk masked and sent while the next
//! is computed; then one reshare, one shift or one clamp. Products of two secrets likewise, piece by piece.

use std::borrow::Cow;

use covey_kernels::{LinearWeight, Part, elementwise, filled, vectorised};
use covey_ring::Word;

use super::share::{Arith, Role};
use super::{StoredShare, Trio};
use crate::api::{
    Bias, BiasOf, Epilogue, EpilogueOf, Geometry, Linear, MatmulShape, Placement, Result, Shaped, SourcedMap, Term,
    TermOf, Truncation, WeightKind, WeightOf, WeightSource,
};
use crate::components::same_shape;
use crate::composed;
use crate::linear_map::{Applied, Follows, MapSum, add_bias, add_chunks, public_map};
use crate::masked::pieces::{PIECE, Pieces, add_residual, by_chunks, by_rows, chunks, consecutive, only, rows_of};
use crate::masked::select as loops;

/// This party's working form of one version of a weight. Its products (`product.rs`) are sums over parts: P0 multiplies
/// (l2 - l1, l1) by the weight's (l1', l2'), P1 (x + l2, l1) by (l1', w + l2'), P2 x + l1 by w + l1'.
pub struct Weight<W> {
    geometry: Geometry,
    kind: WeightKind,
    kernel: LinearWeight<W>,
}

impl<W: Word> Weight<W> {
    pub(super) fn new(role: Role, source: WeightOf<Trio<W>>, geometry: Geometry, placement: Placement) -> Result<Self> {
        let kind = source.kind();
        source.check(&geometry)?;
        let parts = match source {
            WeightSource::Shared(w) | WeightSource::Computed(w) => {
                let (first, second) = (w.first.data().to_vec(), w.second.data().to_vec());
                match role {
                    Role::P0 => vec![Part::Words(first), Part::Words(second)],
                    Role::P1 => vec![Part::Words(second), Part::Words(first)],
                    _ => vec![Part::Words(first)],
                }
            }
            WeightSource::Stored(w) => stored_parts(role, w),
            WeightSource::Public(w) => vec![Part::Words(w.data().to_vec())],
        };
        let kernel = geometry.kernel(parts, placement);
        Ok(Weight { geometry, kind, kernel })
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
        self.kernel.bytes()
    }
}

/// Masks are drawn again for each use: that is as fast as reading them, and they need no memory.
fn stored_parts<W: Word>(role: Role, stored: StoredShare<W>) -> Vec<Part<W>> {
    let StoredShare { masks, masked, .. } = stored;
    let streams = masks.into_iter().map(|mask| Part::Stream(vec![mask.into_stream()]));
    match role {
        Role::P0 => streams.collect(),
        Role::P1 => streams.chain([Part::Words(masked)]).collect(),
        _ => vec![Part::Words(masked)],
    }
}

impl<W: Word> Linear for Trio<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, placement: Placement) -> Result<Weight<W>> {
        if let WeightSource::Stored(stored) = &source {
            self.weights.note(self.party.role, stored);
        }
        Weight::new(self.party.role, source, geometry, placement)
    }

    fn on_gpu(&self, weight: &Weight<W>) -> bool {
        self.party.computes() && weight.kernel.on_gpu()
    }

    fn linear(&mut self, x: &Arith<W>, weight: &Weight<W>, epilogue: &EpilogueOf<Self>) -> Result<Arith<W>> {
        let fuses = epilogue.relu.is_some() && self.party.options.adder.fuses();
        if weight.public() && epilogue.truncate.is_none() && !fuses {
            let Applied { shape, batch, .. } = epilogue.applied(&weight.geometry, x)?;
            let mut out = public_map::<Self>(x, &weight.kernel, &shape, batch, self.party.computes());
            add_bias(self, &epilogue.bias, &weight.geometry, [&mut out.first, &mut out.second]);
            return composed::then_relu(self, out, epilogue.relu);
        }
        self.sum(&[Term { x, weight, bias: epilogue.bias }], 0, epilogue)
    }

    fn matmul(&mut self, x: &Arith<W>, y: &Arith<W>, dims: MatmulShape, shift: Option<Truncation>) -> Result<Arith<W>> {
        dims.check(x, y)?;
        let mut difference = Vec::new();
        let (role, opens) = (self.party.role, shift.is_some());
        let own = |index: usize, out: &mut [W]| {
            out.fill(W::ZERO);
            for rows in rows_of(&dims, index, out.len()) {
                let part = &mut out[rows.out.clone()];
                let [xf, xs] = [&x.first, &x.second].map(|t| &t.data()[rows.left.clone()]);
                let [yf, ys] = [&y.first, &y.second].map(|t| &t.data()[rows.right.clone()]);
                match role {
                    Role::P0 => {
                        difference.resize(xf.len(), W::ZERO);
                        elementwise::sub(&mut difference, xs, xf);
                        rows.multiply(&[(&difference, yf), (xf, ys)], part);
                    }
                    Role::P1 => rows.multiply(&[(xf, ys), (xs, yf)], part),
                    _ => rows.multiply(&[(xf, yf)], part),
                }
                if opens && role == Role::P0 {
                    elementwise::neg_assign(part);
                }
            }
        };
        only(self.finish_product(by_rows(&dims, Box::new(own)), opens, &[(shift, None)])?)
    }

    fn mul(&mut self, x: &Arith<W>, y: &Arith<W>, shift: Option<Truncation>) -> Result<Arith<W>> {
        self.product_and(x, y, shift, W::ZERO)
    }
}

impl<W: Word> Trio<W> {
    /// x · y, and with a shift behind it `added` before that.
    pub(super) fn product_and(
        &mut self,
        x: &Arith<W>,
        y: &Arith<W>,
        shift: Option<Truncation>,
        added: W,
    ) -> Result<Arith<W>> {
        same_shape::<Self>(x, y.shape())?;
        let (role, opens) = (self.party.role, shift.is_some());
        let own = |index: usize, out: &mut [W]| {
            let range = index * PIECE..index * PIECE + out.len();
            let [xf, xs, yf, ys] = [&x.first, &x.second, &y.first, &y.second].map(|t| &t.data()[range.clone()]);
            match role {
                Role::P0 => dealt(out, xf, xs, yf, ys),
                Role::P1 => crossed(out, xf, xs, yf, ys),
                _ => elementwise::mul(out, xf, yf),
            }
            match role {
                Role::P0 if opens => elementwise::neg_assign(out),
                Role::P2 if opens => loops::offset(out, added),
                _ => {}
            }
        };
        only(self.finish_product(consecutive(x.shape(), PIECE, Box::new(own)), opens, &[(shift, None)])?)
    }

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
        let of_sum = |sum: &MapSum<Self>| {
            let &Term { x, weight, bias } = sum.leading();
            let applied = Epilogue { bias, ..sum.epilogue }.applied(&weight.geometry, x)?;
            let cut = chunks(&weight.geometry, applied.batch);
            Ok((applied, cut))
        };
        let cut = sums.iter().map(of_sum).collect::<Result<Vec<_>>>()?;
        let terms = sums.iter().flat_map(|sum| sum.terms);
        let multiplied: Vec<_> = terms.map(|term| self.multiplied(term.x, term.weight.public())).collect();
        let (mut multiplied, mut pieces) = (multiplied.iter(), Vec::with_capacity(sums.len()));
        for (MapSum { terms, epilogue, .. }, (Applied { shape, batch, .. }, chunks)) in sums.iter().zip(&cut) {
            let maps = terms.iter().zip(multiplied.by_ref());
            let mut maps: Vec<_> = maps
                .map(|(term, xs)| {
                    term.weight.kernel.running(*batch, &xs.iter().map(|x| &x[..]).collect::<Vec<_>>(), chunks)
                })
                .collect();
            let mut scratch = Vec::new();
            let own = move |index: usize, out: &mut [W]| {
                let chunk = &chunks[index];
                add_chunks(&mut maps, index, &mut scratch, out);
                if plain {
                    return;
                }
                if opens && role == Role::P0 {
                    elementwise::neg_assign(out);
                }
                for part in terms.iter().flat_map(|term| added(role, opens, term.bias.as_ref())) {
                    chunk.add_bias(part, out);
                }
                let residual = epilogue.residual.map(Bias::Shared);
                for part in added(role, opens, residual.as_ref()) {
                    add_residual(chunk, part, epilogue.scale(), &mut scratch, out);
                }
            };
            pieces.push(by_chunks(shape, chunks, Box::new(own)));
        }
        let results = self.finish_product(Pieces::parallel(pieces), opens, &follows)?;
        let finish = |(mut out, sum): (Arith<W>, &MapSum<Self>)| {
            let Term { weight, bias, .. } = sum.leading();
            if plain {
                add_bias(self, bias, &weight.geometry, [&mut out.first, &mut out.second]);
            }
            composed::then_relu(self, out, sum.epilogue.relu.filter(|_| !fuses))
        };
        results.into_iter().zip(sums).map(finish).collect()
    }

    /// What the parts of a weight multiply of x.
    fn multiplied<'a>(&self, x: &'a Arith<W>, public: bool) -> Vec<Cow<'a, [W]>> {
        let (first, second) = (x.first.data(), x.second.data());
        let of = |start: usize, len: usize| (&first[start..][..len], &second[start..][..len]);
        let sum = |start, out: &mut [W]| {
            let (first, second) = of(start, out.len());
            elementwise::add(out, first, second);
        };
        let difference = |start, out: &mut [W]| {
            let (first, second) = of(start, out.len());
            elementwise::sub(out, second, first);
        };
        match (public, self.party.role) {
            // The sum of both components is all that a shift or clamp of a share needs.
            (true, _) => vec![self.computed(x.len(), sum).into()],
            (false, Role::P0) => vec![self.computed(x.len(), difference).into(), first.into()],
            (false, Role::P1) => vec![first.into(), second.into()],
            (false, _) => vec![first.into()],
        }
    }

    /// What `compute` writes, or zeros where this party computes nothing.
    fn computed(&self, len: usize, compute: impl Fn(usize, &mut [W]) + Sync) -> Vec<W> {
        if self.party.computes() { filled(len, compute) } else { vec![W::ZERO; len] }
    }
}

vectorised! {
    /// `out = a · d + b · c`: P1's part of a product of shares (a, b) and (c, d).
    fn crossed<W: Word>(out: &mut [W], a: &[W], b: &[W], c: &[W], d: &[W]) {
        let operands = a.iter().zip(b).zip(c.iter().zip(d));
        out.iter_mut().zip(operands).for_each(|(out, ((&a, &b), (&c, &d)))| *out = a.mul(d).add(b.mul(c)));
    }

    /// `out = (b - a) · c + a · d`: v0, P0's part, of masks (a, b) and (c, d).
    fn dealt<W: Word>(out: &mut [W], a: &[W], b: &[W], c: &[W], d: &[W]) {
        let operands = a.iter().zip(b).zip(c.iter().zip(d));
        out.iter_mut().zip(operands).for_each(|(out, ((&a, &b), (&c, &d)))| *out = b.sub(a).mul(c).add(a.mul(d)));
    }
}

/// What an opening of v, or a sharing's sum, takes of a share that is added to v. Opening: P2 adds x + l1, P0 takes l1 into R. A sum
/// takes both components.
fn added<'a, W: Word>(role: Role, opens: bool, addend: Option<&'a BiasOf<'a, Trio<W>>>) -> Vec<&'a [W]> {
    match (addend, role) {
        (Some(Bias::Shared(x)), _) if !opens => vec![x.first.data(), x.second.data()],
        (Some(Bias::Shared(x)), Role::P0 | Role::P2) => vec![x.first.data()],
        (Some(Bias::Public(x)), Role::P2) => vec![x.data()],
        (Some(Bias::Public(x)), Role::P1) if !opens => vec![x.data()],
        _ => Vec::new(),
    }
}
