//! Linear maps: Δ = x - A is opened once, of a whole tensor; E = w - B when the weight is prepared, under a mask B that serves one
//! version of it. Then x·w = Δ·B + A·E + Δ·E + A·B: the dealer knows A·B, and every party computes its part of the rest in one
//! accumulation, Δ·Bᵢ + Aᵢ·E, the first one with Δ + A₀ for A₀.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use covey_kernels::{Buffer, LinearWeight, Part, elementwise};
use covey_ring::Word;

use super::again::own_part;
use super::open::{Exchange, Masked};
use super::share::{Opening, Share, StoredShare};
use super::site::{Site, purpose};
use super::{Arith, Beaver, Role, UNNUMBERED, fused, plan, product, truncate};
use crate::api::{
    Bias, Epilogue, EpilogueOf, Geometry, Linear, MatmulShape, Placement, ProtocolError, Result, Shaped, SourcedMap,
    Term, TermOf, Truncation, WeightKind, WeightOf, WeightSource,
};
use crate::components::same_shape;
use crate::cost::WEIGHTS;
use crate::linear_map::{Applied, Follows, MapSum};
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::ending::{Ending, all, mixed};
use crate::masked::pieces::{PIECE, Pieces, add_residual, by_chunks, by_rows, chunks, consecutive, only, rows_of};
use crate::masked::seed::Mask;
use crate::party;

/// One version of a weight: Bᵢ and E at a party, B at the dealer; of a public weight the weight.
pub struct Weight<W> {
    geometry: Geometry,
    public: bool,
    /// None where nothing is multiplied: a public weight at the dealer.
    kernel: Option<LinearWeight<W>>,
    /// A party's part of E, where that is opened in every run.
    own: Option<Fill<W>>,
    /// It serves one run, in which E has been opened.
    computed: bool,
}

/// The words of a share, from any element on.
pub(super) type Fill<W> = Arc<dyn Fn(usize, &mut [W]) + Send + Sync>;

impl<W: Word> Weight<W> {
    fn new(geometry: Geometry, public: bool, parts: Vec<Part<W>>, placement: Placement) -> Self {
        let kernel = (!parts.is_empty()).then(|| geometry.kernel(parts, placement));
        Weight { geometry, public, kernel, own: None, computed: false }
    }

    pub(super) fn public(&self) -> bool {
        self.public
    }

    /// The map, and where the weight comes from.
    pub(super) fn map(&self) -> SourcedMap {
        let kind = match (self.public, self.computed) {
            (true, _) => WeightKind::Public,
            (false, true) => WeightKind::Computed,
            (false, false) => WeightKind::Shared,
        };
        (self.geometry, kind)
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.kernel.as_ref().map_or(0, LinearWeight::bytes)
    }
}

impl<W: Word> Linear for Beaver<W> {
    type Weight = Weight<W>;

    fn prepare(&mut self, source: WeightOf<Self>, geometry: Geometry, placement: Placement) -> Result<Weight<W>> {
        self.prepare_value(UNNUMBERED, source, geometry, placement)
    }

    fn prepare_value(
        &mut self,
        value: u32,
        source: WeightOf<Self>,
        geometry: Geometry,
        placement: Placement,
    ) -> Result<Weight<W>> {
        // Once for a version of a weight, so apart from what its layer exchanges in every run.
        if !matches!(source, WeightSource::Computed(_)) {
            self.party.scheduler.enter(WEIGHTS);
        }
        let prepared = self.prepared(value, source, geometry, placement);
        self.party.scheduler.enter(self.party.node);
        prepared
    }

    fn open_operand(&mut self, x: &Arith<W>) -> Result<Option<Arith<W>>> {
        let apart = self.party.options.pipelines.inter_linear && !x.is_opened();
        apart.then(|| self.open_masked(x)).transpose()
    }

    fn forget_opening(&self, x: &Arith<W>) -> Arith<W> {
        x.forgotten()
    }

    fn on_gpu(&self, weight: &Weight<W>) -> bool {
        self.party.computes() && weight.kernel.as_ref().is_some_and(LinearWeight::on_gpu)
    }

    fn linear(&mut self, x: &Arith<W>, weight: &Weight<W>, epilogue: &EpilogueOf<Self>) -> Result<Arith<W>> {
        let terms = [Term { x, weight, bias: epilogue.bias }];
        only(self.maps(&[MapSum { terms: &terms, leading: 0, epilogue: Epilogue { ..*epilogue } }])?)
    }

    fn matmul(&mut self, x: &Arith<W>, y: &Arith<W>, dims: MatmulShape, shift: Option<Truncation>) -> Result<Arith<W>> {
        dims.check(x, y)?;
        let (first, second) = (self.operand(x)?, self.operand(y)?);
        // Δ·Bᵢ + (Δ + A₀)·E = Δ·(E + B₀) + A₀·E at the first party.
        let (party, opens) = (self.number(), shift.is_some());
        let mut scratch = Vec::new();
        let own = |index: usize, out: &mut [W]| {
            out.fill(W::ZERO);
            for rows in rows_of(&dims, index, out.len()) {
                let (left, right) = (rows.left.clone(), rows.right.clone());
                let (part, opened) =
                    (&mut out[rows.out.clone()], (&first.opened()[left.clone()], &second.opened()[right.clone()]));
                if party.is_some() {
                    let mask = first.mask(party == Some(0), left, &mut scratch);
                    rows.multiply(&[(opened.0, &second.words()[right]), (mask, opened.1)], part);
                } else {
                    rows.multiply(&[opened], part);
                    if opens {
                        elementwise::neg_assign(part);
                    }
                }
            }
        };
        only(self.finish_product(by_rows(&dims, Box::new(own)), false, &[(shift, None)])?)
    }

    fn mul(&mut self, x: &Arith<W>, y: &Arith<W>, shift: Option<Truncation>) -> Result<Arith<W>> {
        same_shape::<Self>(x, y.shape())?;
        // A square opens its factor once.
        let y = (!std::ptr::eq(x, y)).then_some(y);
        let x_opened = self.operand(x)?;
        let y_opened = y.map(|y| self.operand(y)).transpose()?;
        let second = y_opened.as_ref().unwrap_or(&x_opened);
        let (party, opens) = (self.number(), shift.is_some());
        let own = |index: usize, out: &mut [W]| {
            let range = index * PIECE..index * PIECE + out.len();
            let [d, e] = [&x_opened, second].map(|operand| &operand.opened()[range.clone()]);
            match party {
                Some(me) => {
                    let [x, y] = [&x_opened, second].map(|operand| &operand.words()[range.clone()]);
                    triple(out, (x, y), (d, e), if me == 0 { W::ONE } else { W::ZERO });
                }
                None => {
                    elementwise::mul(out, d, e);
                    if opens {
                        elementwise::neg_assign(out);
                    }
                }
            }
        };
        only(self.finish_product(consecutive(x.shape(), PIECE, Box::new(own)), false, &[(shift, None)])?)
    }
}

impl<W: Word> Beaver<W> {
    fn prepared(
        &mut self,
        value: u32,
        source: WeightOf<Self>,
        geometry: Geometry,
        placement: Placement,
    ) -> Result<Weight<W>> {
        source.check(&geometry)?;
        let len = geometry.weights_len();
        let share: Fill<W> = match source {
            // It takes no mask, so that it can be prepared in any session, on any lane.
            WeightSource::Public(w) => {
                let parts = if self.number().is_some() { vec![Part::Words(w.data().to_vec())] } else { Vec::new() };
                return Ok(Weight::new(geometry, true, parts, placement));
            }
            WeightSource::Computed(w) => return self.computed(w, geometry, placement),
            WeightSource::Shared(w) => from_words(w.words().to_vec()),
            WeightSource::Stored(StoredShare { share: Share::Drawn(mask), .. }) => {
                Arc::new(move |start, out| mask.fill(start, out))
            }
            WeightSource::Stored(stored) => from_words(stored.words()),
        };
        let masks = self.weight_masks(value)?;
        let own = self.number().map(|_| own_part(share, masks[0].clone()));
        let opened = self.open_weight(len, own.as_ref())?;
        let mask = Part::Stream(masks.into_iter().map(Mask::into_stream).collect());
        let parts = match self.number() {
            Some(_) => vec![mask, Part::Words(opened)],
            None => vec![mask],
        };
        let again = !self.party.options.pipelines.inter_linear;
        Ok(Weight { own: own.filter(|_| again), ..Weight::new(geometry, false, parts, placement) })
    }

    /// Maps in one gate, whose endings are of one form. Weights are public in all or in none.
    pub(super) fn maps(&mut self, maps: &[MapSum<Self>]) -> Result<Vec<Arith<W>>> {
        let follows: Vec<Follows> = maps.iter().map(|map| (map.epilogue.truncate, map.epilogue.relu)).collect();
        let public = maps.iter().all(|map| map.leading().weight.public);
        debug_assert!(maps.iter().all(|map| map.leading().weight.public == public), "weights of one visibility");
        let (party, plain) = (self.number(), follows.iter().all(|follows| *follows == (None, None)));
        let secret = maps.iter().map(MapSum::leading).filter(|term| !term.weight.public);
        let mut opened = match self.party.options.pipelines.inter_linear {
            true => self.operands(secret.map(|term| term.x).collect())?,
            false => secret.map(|term| self.operand_of(term)).collect::<Result<_>>()?,
        }
        .into_iter();
        let operand = |map: &MapSum<Self>| if map.leading().weight.public { None } else { opened.next() };
        let operands: Vec<_> = maps.iter().map(operand).collect();
        let of_map = |map: &MapSum<Self>| {
            let &Term { x, weight, bias } = map.leading();
            let applied = Epilogue { bias, ..map.epilogue }.applied(&weight.geometry, x)?;
            let cut = chunks(&weight.geometry, applied.batch);
            Ok((applied, cut))
        };
        let cut = maps.iter().map(of_map).collect::<Result<Vec<_>>>()?;
        let mut pieces = Vec::with_capacity(maps.len());
        for ((map, opened), (Applied { shape, batch, .. }, chunks)) in maps.iter().zip(&operands).zip(&cut) {
            let (&Term { x, weight, bias }, epilogue) = (map.leading(), &map.epilogue);
            let xs: Vec<&[W]> = match (opened, party) {
                (None, _) => vec![x.words()],
                (Some(opened), Some(_)) => vec![opened.opened(), opened.words()],
                (Some(opened), None) => vec![opened.opened()],
            };
            let mut running = weight.kernel.as_ref().map(|kernel| kernel.running(*batch, &xs, chunks));
            let mut scratch = Vec::new();
            let own = move |index: usize, out: &mut [W]| {
                let chunk = &chunks[index];
                match &mut running {
                    Some(running) => running.chunk(index, out),
                    None => out.fill(W::ZERO),
                }
                if party.is_none() {
                    // Shares of v less A·B are opened: A·B belongs to the masks.
                    if !plain {
                        elementwise::neg_assign(out);
                    }
                    return;
                }
                match &bias {
                    Some(Bias::Shared(bias)) => chunk.add_bias(bias.words(), out),
                    Some(Bias::Public(bias)) if party == Some(0) => chunk.add_bias(bias.data(), out),
                    _ => {}
                }
                if let Some(residual) = epilogue.residual {
                    add_residual(chunk, residual.words(), epilogue.scale(), &mut scratch, out);
                }
            };
            pieces.push(by_chunks(shape, chunks, Box::new(own)));
        }
        self.finish_product(Pieces::parallel(pieces), public, &follows)
    }

    /// A weight of one run: B is a mask of this run, and E = w - B is opened like any factor.
    fn computed(&mut self, w: &Arith<W>, geometry: Geometry, placement: Placement) -> Result<Weight<W>> {
        let w = self.operand(w)?;
        // A phase in which a role computes nothing leaves nothing.
        let parts = match (w.opened().is_empty(), self.number()) {
            (true, _) => Vec::new(),
            (false, Some(party)) => w.into_owned().into_mask(party == 0).map(Part::Words).into(),
            (false, None) => vec![Part::Words(w.opened().to_vec())],
        };
        Ok(Weight { computed: true, ..Weight::new(geometry, false, parts, placement) })
    }

    /// The own part of the next B for value number `value`; at the dealer all of them. The number is the value's and, as a mask serves one
    /// version of one value, how often this session prepared it: whatever else is prepared, and in which order, changes no mask.
    fn weight_masks(&mut self, value: u32) -> Result<Vec<Mask>> {
        if self.weight_seeds.is_empty() {
            return Err(ProtocolError::Internal(
                "weights prepared without a dealer and without masks of an earlier session",
            ));
        }
        if value > UNNUMBERED || value == UNNUMBERED && self.restored {
            return Err(ProtocolError::Internal("the number of a weight under masks of an earlier session"));
        }
        let times = self.prepared.entry(value).or_default();
        let number = u64::from(value) << 32 | u64::from(*times);
        *times += 1;
        Ok(self.weight_seeds.iter().map(|seed| seed.mask(number)).collect())
    }

    /// E = w - B.
    fn open_weight(&mut self, len: usize, own: Option<&Fill<W>>) -> Result<Vec<W>> {
        let site = self.party.sites_of(self.weights, self.weight_generators.clone());
        self.weights += 1;
        let machine = |site: party::Site<Role>, range: Range<usize>| {
            let mut value = Buffer::zeros(range.len());
            if let Some(own) = own {
                own(range.start, &mut value);
            }
            Exchange::new(site.into(), value)
        };
        let held = self.number().is_some();
        let mut opened = vec![W::ZERO; if held { len } else { 0 }];
        self.party.each_tile_at(site, len, machine, |range, value| {
            if held {
                opened[range].copy_from_slice(&value);
            }
        })?;
        Ok(opened)
    }

    /// Opens a tensor under fresh masks.
    fn open_masked(&mut self, x: &Arith<W>) -> Result<Arith<W>> {
        only(self.open_all(&[x])?)
    }

    /// Opens several tensors under fresh masks, one after the other in the tiles of one gate.
    fn open_all(&mut self, xs: &[&Arith<W>]) -> Result<Vec<Arith<W>>> {
        let (number, computes) = (self.number(), self.party.computes());
        let mut openings: Vec<_> = xs.iter().map(|x| Opening::new(x.shape(), number, computes)).collect();
        let lens: Vec<usize> = xs.iter().map(|x| x.len()).collect();
        let value = |range: Range<usize>| match xs {
            [x] => x.tile(range),
            _ => {
                let parts: Vec<Buffer<W>> =
                    parts(&lens, range).map(|(number, within, _)| xs[number].tile(within)).collect();
                let mut joined = Buffer::zeros(parts.iter().map(|part| part.len()).sum());
                let mut rest = &mut joined[..];
                for part in &parts {
                    let (place, after) = rest.split_at_mut(part.len());
                    place.copy_from_slice(part);
                    rest = after;
                }
                joined
            }
        };
        self.each_tile(
            lens.iter().sum(),
            |site, range| Masked::new(site, purpose::OPENING, value(range)),
            |range, (difference, mask)| {
                for (number, within, place) in parts(&lens, range) {
                    // A role has nothing of a run in which it computes nothing.
                    let [difference, mask] =
                        [&difference, &mask].map(|words| words.get(place.clone()).unwrap_or_default());
                    openings[number].put(within, difference, mask);
                }
            },
        )?;
        Ok(openings.into_iter().map(Opening::finish).collect())
    }

    /// Operands of products, opened at once unless they are already.
    pub(super) fn operands<'a>(&mut self, xs: Vec<&'a Arith<W>>) -> Result<Vec<Cow<'a, Arith<W>>>> {
        let closed: Vec<&Arith<W>> = xs.iter().copied().filter(|x| !x.is_opened()).collect();
        let opened = if closed.is_empty() { Vec::new() } else { self.open_all(&closed)? };
        let mut opened = opened.into_iter();
        let operand = |x: &'a Arith<W>| match x.is_opened() {
            true => Some(Cow::Borrowed(x)),
            false => opened.next().map(Cow::Owned),
        };
        xs.into_iter().map(operand).collect::<Option<_>>().ok_or(ProtocolError::Internal("the opened operands"))
    }

    /// What a map is applied to, opened in front of it, with the weight unless that serves one run.
    fn operand_of<'a>(&mut self, &Term { x, weight, .. }: &TermOf<'a, Self>) -> Result<Cow<'a, Arith<W>>> {
        match weight.computed {
            true => self.operand(x),
            false => Ok(Cow::Owned(self.open_beside(x, weight.geometry.weights_len(), weight.own.as_ref())?)),
        }
    }

    /// An operand of a product, opened unless it is already.
    fn operand<'a>(&mut self, x: &'a Arith<W>) -> Result<Cow<'a, Arith<W>>> {
        only(self.operands(vec![x])?)
    }

    /// What follows a product whose own terms are `pieces`: a shift, and a ReLU that joins the gate; with neither, the dealer's
    /// shares, which a public weight's product does not need.
    fn finish_product(&mut self, pieces: Pieces<'_, W>, public: bool, follows: &[Follows]) -> Result<Vec<Arith<W>>> {
        follows.iter().try_for_each(|(truncate, _)| self.party.admit::<Self>(*truncate))?;
        let party::Party { ring, options, .. } = &self.party;
        let ending = |(&follows, count): (&Follows, usize)| plan::ending(follows, *ring, options, count);
        let endings: Vec<_> = follows.iter().zip(pieces.counts()).map(ending).collect();
        let plans = all(&endings, |ending| if let Ending::Relu(plan) = ending { Some(plan.clone()) } else { None });
        if let Some(plans) = plans {
            let value = |(value, _): (Buffer<W>, Buffer<u64>)| value;
            return self.stream(pieces, |site, tensor, own| fused::Fused::new(site, plans[tensor].clone(), own), value);
        }
        let same = |value: Buffer<W>| value;
        let plans = all(&endings, |ending| if let Ending::Shift(plan) = ending { Some(plan.clone()) } else { None });
        if let Some(plans) = plans {
            return self.stream(
                pieces,
                |site, tensor, own| truncate::Truncate::new(site, plans[tensor].clone(), own),
                same,
            );
        }
        match all(&endings, |ending| matches!(ending, Ending::Plain).then_some(())) {
            Some(_) if public => self.local(pieces),
            Some(_) => self.stream(pieces, |site, _, own| product::Product::new(site, own), same),
            None => Err(mixed()),
        }
    }

    /// The pieces themselves.
    fn local(&mut self, pieces: Pieces<'_, W>) -> Result<Vec<Arith<W>>> {
        if self.number().is_none() || !self.party.computes() {
            return Ok(pieces.shapes().iter().map(|shape| Arith::new(zeros(shape))).collect());
        }
        let (tiles, out) = (pieces.tiles(usize::MAX), pieces.assemblies(usize::MAX));
        let mut own = pieces.own;
        for tile in &tiles {
            let mut words = Buffer::zeros(tile.range.len());
            own(tile.piece, &mut words);
            out.place(tile, [words], true);
        }
        Ok(out.finish()?.into_iter().map(|[out]| Arith::new(out)).collect())
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<M: Machine>(
        &mut self,
        pieces: Pieces<'_, W>,
        machine: impl Fn(Site, usize, Buffer<W>) -> M + Sync,
        value: impl Fn(M::Output) -> Buffer<W> + Sync,
    ) -> Result<Vec<Arith<W>>> {
        let shapes = pieces.shapes();
        let machine = |site: party::Site<Role>, tensor, own, ()| machine(site.into(), tensor, own);
        let parts = |output| ([value(output)], ());
        let tensors = self.party.each_piece(pieces, |_| (), machine, parts, |_, _, ()| ())?;
        let resting = || shapes.iter().map(|shape| [zeros(shape)]).collect();
        Ok(tensors.unwrap_or_else(resting).into_iter().map(|[out]| Arith::new(out)).collect())
    }
}

/// The parts of `range` that lie in each of several tensors one after the other: the tensor, where in it, and where in the range.
fn parts(lens: &[usize], range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> {
    let starts = lens.iter().scan(0, |before, len| {
        *before += len;
        Some(*before - len)
    });
    let part = move |(number, (start, &len)): (usize, (usize, &usize))| {
        let (first, end) = (range.start.max(start), range.end.min(start + len));
        (first < end).then(|| (number, first - start..end - start, first - range.start..end - range.start))
    };
    starts.zip(lens).enumerate().filter_map(part)
}

fn from_words<W: Word>(words: Vec<W>) -> Fill<W> {
    Arc::new(move |start: usize, out: &mut [W]| out.copy_from_slice(&words[start..start + out.len()]))
}

covey_kernels::vectorised! {
    /// A party's part of a product of shares x and y: `d·b + e·a`, and `d·e` at the first party, whose x is `a + d` and y `b + e`.
    fn triple<W: Word>(out: &mut [W], shares: (&[W], &[W]), opened: (&[W], &[W]), first: W) {
        let operands = shares.0.iter().zip(shares.1).zip(opened.0.iter().zip(opened.1));
        for (out, ((&x, &y), (&d, &e))) in out.iter_mut().zip(operands) {
            *out = d.mul(y).add(e.mul(x.sub(first.mul(d))));
        }
    }
}
