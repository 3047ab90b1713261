//! Linear maps: Δ = x - A is opened once, of a whole tensor; E = w - B when the weight is prepared, under a mask B that serves one
//! version of it. Then x·w = Δ·B + A·E + Δ·E + A·B: the dealer knows A·B, and every party computes its part of the rest in one
//! accumulation, Δ·Bᵢ + Aᵢ·E, the first one with Δ + A₀ for A₀.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use covey_kernels::{Buffer, LinearWeight, Part, elementwise};
use covey_ring::{Tensor, Word};

use super::again::own_part;
use super::open::{Exchange, Masked};
use super::share::{Opening, Share, StoredShare};
use super::site::{Site, purpose};
use super::{Arith, Beaver, Role, UNNUMBERED, fused, product, truncate};
use crate::api::{
    Bias, EpilogueOf, Geometry, Linear, MatmulShape, Placement, ProtocolError, Result, Shaped, Truncation, WeightOf,
    WeightSource,
};
use crate::components::same_shape;
use crate::cost::WEIGHTS;
use crate::linear_map::{Applied, Follows};
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::pieces::{PIECE, Pieces, add_residual, by_chunks, by_rows, chunks, consecutive, rows_of};
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
        let Applied { shape, batch, .. } = epilogue.applied(&weight.geometry, x)?;
        let chunks = chunks(&weight.geometry, batch);
        let opened = match weight.public {
            true => None,
            false => Some(match self.party.options.pipelines.inter_linear || weight.computed {
                true => self.operand(x)?,
                false => Cow::Owned(self.open_beside(x, weight.geometry.weights_len(), weight.own.as_ref())?),
            }),
        };
        let xs: Vec<&[W]> = match (&opened, self.number()) {
            (None, _) => vec![x.words()],
            (Some(opened), Some(_)) => vec![opened.opened(), opened.words()],
            (Some(opened), None) => vec![opened.opened()],
        };
        let (party, plain) = (self.number(), epilogue.truncate.is_none() && epilogue.relu.is_none());
        let scale = epilogue.scale();
        let mut running = weight.kernel.as_ref().map(|kernel| kernel.running(batch, &xs, &chunks));
        let mut scratch = Vec::new();
        let own = |index: usize, out: &mut [W]| {
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
            match &epilogue.bias {
                Some(Bias::Shared(bias)) => chunk.add_bias(bias.words(), out),
                Some(Bias::Public(bias)) if party == Some(0) => chunk.add_bias(bias.data(), out),
                _ => {}
            }
            if let Some(residual) = epilogue.residual {
                add_residual(chunk, residual.words(), scale, &mut scratch, out);
            }
        };
        self.finish_product(
            &shape,
            by_chunks(&chunks, Box::new(own)),
            weight.public,
            (epilogue.truncate, epilogue.relu),
        )
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
        self.finish_product(&dims.output(), by_rows(&dims, Box::new(own)), false, (shift, None))
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
        self.finish_product(x.shape(), consecutive(x.len(), PIECE, Box::new(own)), false, (shift, None))
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
        let mut opened = Opening::new(x.shape(), self.number(), self.party.computes());
        self.each_tile(
            x.len(),
            |site, range| Masked::new(site, purpose::OPENING, x.tile(range)),
            |range, tile| opened.put(range, &tile),
        )?;
        Ok(opened.finish())
    }

    /// An operand of a product, opened unless it is already.
    fn operand<'a>(&mut self, x: &'a Arith<W>) -> Result<Cow<'a, Arith<W>>> {
        Ok(if x.is_opened() { Cow::Borrowed(x) } else { Cow::Owned(self.open_masked(x)?) })
    }

    /// What follows a product whose own terms are `pieces`: a shift, and a ReLU that joins the gate; with neither, the dealer's
    /// shares, which a public weight's product does not need.
    fn finish_product(
        &mut self,
        shape: &[usize],
        pieces: Pieces<'_, W>,
        public: bool,
        (truncate, relu): Follows,
    ) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncate)?;
        let count = shape.iter().product();
        if let Some(relu) = relu {
            let plan = self.fused_plan(truncate, relu, count);
            let value = |(value, _): (Buffer<W>, Buffer<u64>)| value;
            return self.stream(shape, pieces, |site, own| fused::Fused::new(site, plan.clone(), own), value);
        }
        let same = |value: Buffer<W>| value;
        match truncate {
            Some(truncation) => {
                let plan = truncate::TruncationPlan::new(truncation, self.party.ring, &self.party.options, count);
                self.stream(shape, pieces, |site, own| truncate::Truncate::new(site, plan.clone(), own), same)
            }
            None if public => Ok(self.local(shape, pieces)),
            None => self.stream(shape, pieces, product::Product::new, same),
        }
    }

    /// The pieces themselves.
    fn local(&mut self, shape: &[usize], pieces: Pieces<'_, W>) -> Arith<W> {
        if self.number().is_none() || !self.party.computes() {
            return Arith::new(zeros(shape));
        }
        let out = pieces.assembly(usize::MAX);
        let Pieces { lens, mut own, .. } = pieces;
        let mut words = Vec::new();
        for (index, &len) in lens.iter().enumerate() {
            words.resize(len, W::ZERO);
            own(index, &mut words);
            out.place(index, 0, &words);
        }
        Arith::new(Tensor::new(shape, out.finish().expect("all pieces were placed")))
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<M: Machine>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<'_, W>,
        machine: impl Fn(Site, Buffer<W>) -> M + Sync,
        value: impl Fn(M::Output) -> Buffer<W> + Sync,
    ) -> Result<Arith<W>> {
        let machine = |site: party::Site<Role>, own, ()| machine(site.into(), own);
        let parts = |output| ([value(output)], ());
        let tensors = self.party.each_piece(shape, pieces, |_| (), machine, parts, |_, _, ()| ())?;
        Ok(Arith::new(tensors.map_or_else(|| zeros(shape), |[out]| out)))
    }
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
