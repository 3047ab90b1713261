//! Linear maps: Δ = x - A is opened once, of a whole tensor; E = w - B when the weight is prepared, under a mask B that serves one
//! version of it. Then x·w = Δ·B + A·E + Δ·E + A·B: the dealer knows A·B, and every party computes its part of the rest in one
//! accumulation, Δ·Bᵢ + Aᵢ·E, the first one with Δ + A₀ for A₀.

use std::ops::Range;
use std::sync::Arc;

use covey_kernels::{Buffer, LinearWeight, Part, elementwise, gemm_concat};
use covey_ring::Word;

use super::again::own_part;
use super::open::{Exchange, Masked};
use super::share::{Share, Stored};
use super::site::{Site, purpose};
use super::{Arith, Beaver, UNNUMBERED, fused, product, truncate};
use crate::api::{
    Bias, Comparison, Epilogue, Geometry, MatmulShape, ProtocolError, Result, Shaped, Truncation, WeightSource,
};
use crate::linear_map::Applied;
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::pieces::{
    Feed, PIECE, Pieces, Rows, add_residual, by_chunks, chunks, consecutive, piece_of, rows_of, tiles,
};
use crate::masked::seed::Mask;

/// One version of a weight: Bᵢ and E at a party, B at the dealer; of a public weight the weight.
pub struct Weight<W> {
    geometry: Geometry,
    public: bool,
    /// None where nothing is multiplied: a public weight at the dealer.
    kernel: Option<LinearWeight<W>>,
    /// A party's part of E, where that is opened in every run.
    own: Option<Fill<W>>,
}

/// The words of a share, from any element on.
pub(super) type Fill<W> = Arc<dyn Fn(usize, &mut [W]) + Send + Sync>;

impl<W: Word> Weight<W> {
    fn new(geometry: Geometry, public: bool, parts: Vec<Part<W>>) -> Self {
        let kernel = (!parts.is_empty()).then(|| geometry.kernel(parts));
        Weight { geometry, public, kernel, own: None }
    }

    /// Memory it takes.
    pub fn bytes(&self) -> usize {
        self.kernel.as_ref().map_or(0, LinearWeight::bytes)
    }
}

/// x - a as all parties know it, and the own part of a; at the dealer nothing, and a.
pub(super) struct Opened<W> {
    difference: Vec<W>,
    mask: Vec<W>,
}

impl<W: Word> Opened<W> {
    /// Puts a tile's difference and mask in their places, where there is room for any.
    pub fn put(&mut self, range: Range<usize>, (difference, mask): &(Buffer<W>, Buffer<W>)) {
        for (whole, tile) in [(&mut self.difference, difference), (&mut self.mask, mask)] {
            if !whole.is_empty() {
                whole[range.clone()].copy_from_slice(tile);
            }
        }
    }
}

impl<W: Word> Beaver<W> {
    pub(super) fn prepared(&mut self, value: u32, source: WeightSource<Self>, geometry: Geometry) -> Result<Weight<W>> {
        let len = geometry.weights_len();
        let given = match &source {
            WeightSource::Shared(w) => w.len(),
            WeightSource::Stored(w) => w.len(),
            WeightSource::Public(w) => w.len(),
        };
        if given != len {
            return Err(ProtocolError::Internal("the size of a weight"));
        }
        let share: Fill<W> = match source {
            // It takes no mask, so that it can be prepared in any session, on any lane.
            WeightSource::Public(w) => {
                let parts = if self.party().is_some() { vec![Part::Words(w.data().to_vec())] } else { Vec::new() };
                return Ok(Weight::new(geometry, true, parts));
            }
            WeightSource::Shared(w) => from_words(w.0.data().to_vec()),
            WeightSource::Stored(Stored { share: Share::Drawn(mask), .. }) => {
                Arc::new(move |start, out| mask.fill(start, out))
            }
            WeightSource::Stored(stored) => from_words(stored.words()),
        };
        let masks = self.weight_masks(value)?;
        let own = self.party().map(|_| own_part(share, masks[0].clone()));
        let opened = self.open_weight(len, own.as_ref())?;
        let mask: Fill<W> = Arc::new(move |start, out| {
            masks[0].fill(start, out);
            let mut more = Buffer::stale(out.len());
            for mask in &masks[1..] {
                mask.fill(start, &mut more);
                elementwise::add_assign(out, &more);
            }
        });
        let parts = match self.party() {
            Some(_) => vec![Part::Stream(mask), Part::Words(opened)],
            None => vec![Part::Stream(mask)],
        };
        let again = !self.options.pipelines.inter_linear;
        Ok(Weight { own: own.filter(|_| again), ..Weight::new(geometry, false, parts) })
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
        let (tile, party) = (self.options.tile_size(), self.party());
        let range = |index: usize| index * tile..len.min((index + 1) * tile);
        let site = self.sites(self.weight_generators.clone(), self.weights);
        self.weights += 1;
        let machines = (0..len.div_ceil(tile)).map(|index| {
            let range = range(index);
            let mut value = Buffer::zeros(range.len());
            if let Some(own) = own {
                own(range.start, &mut value);
            }
            Exchange::new(site(index, range.len()), value)
        });
        let mut opened = vec![W::ZERO; if party.is_some() { len } else { 0 }];
        self.scheduler.run_each(machines, |index, value| {
            if party.is_some() {
                opened[range(index)].copy_from_slice(&value);
            }
        })?;
        Ok(opened)
    }

    /// Room for the opening of `len` elements: of what this role has of it, in a run in which it has anything.
    pub(super) fn nothing_opened(&self, len: usize) -> Opened<W> {
        let len = if self.computes() { len } else { 0 };
        Opened { difference: vec![W::ZERO; if self.party().is_some() { len } else { 0 }], mask: vec![W::ZERO; len] }
    }

    /// Opens a tensor under fresh masks.
    pub(super) fn open_masked(&mut self, x: &Arith<W>) -> Result<Opened<W>> {
        let mut opened = self.nothing_opened(x.len());
        self.each_tile(
            x.len(),
            |site, range| Masked::new(site, purpose::OPENING, x.tile(range)),
            |range, tile| opened.put(range, &tile),
        )?;
        Ok(opened)
    }

    /// What a product's second operand, the one that E multiplies, is: Aᵢ, or Δ + A₀ at the first party; at the dealer A.
    fn second(&self, opened: &mut Opened<W>) {
        if self.party() == Some(0) {
            elementwise::add_assign(&mut opened.mask, &opened.difference);
        }
    }

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
        let opened = match weight.public {
            true => None,
            false => {
                let mut opened = match self.options.pipelines.inter_linear {
                    true => self.open_masked(x)?,
                    false => self.open_beside(x, weight.geometry.weights_len(), weight.own.as_ref())?,
                };
                self.second(&mut opened);
                Some(opened)
            }
        };
        let xs: Vec<&[W]> = match (&opened, self.party()) {
            (None, _) => vec![x.0.data()],
            (Some(opened), Some(_)) => vec![&opened.difference, &opened.mask],
            (Some(opened), None) => vec![&opened.mask],
        };
        let (party, plain) = (self.party(), epilogue.truncate.is_none() && epilogue.relu.is_none());
        let scale = epilogue.truncate.map_or(0, |truncation| truncation.bits);
        let mut scratch = Vec::new();
        let own = |index: usize, out: &mut [W]| {
            let chunk = &chunks[index];
            match &weight.kernel {
                Some(kernel) => kernel.product(batch, &xs, chunk, out),
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
                Some(Bias::Shared(bias)) => chunk.add_bias(bias.0.data(), out),
                Some(Bias::Public(bias)) if party == Some(0) => chunk.add_bias(bias.data(), out),
                _ => {}
            }
            if let Some(residual) = epilogue.residual {
                add_residual(chunk, residual.0.data(), scale, &mut scratch, out);
            }
        };
        self.finish_product(&shape, by_chunks(&chunks, own), weight.public, epilogue.truncate, epilogue.relu)
    }

    /// x · y element by element, then a shift; `None` for y squares x, which is then opened once.
    pub(super) fn elementwise_product(
        &mut self,
        x: &Arith<W>,
        y: Option<&Arith<W>>,
        truncate: Option<Truncation>,
    ) -> Result<Arith<W>> {
        let x_opened = self.open_masked(x)?;
        let y_opened = y.map(|y| self.open_masked(y)).transpose()?;
        let second = y_opened.as_ref().unwrap_or(&x_opened);
        let (party, opens) = (self.party(), truncate.is_some());
        let own = |index: usize, out: &mut [W]| {
            let range = index * PIECE..index * PIECE + out.len();
            let [a, b] = [&x_opened, second].map(|opened| &opened.mask[range.clone()]);
            elementwise::mul(out, a, b);
            match party {
                None if opens => elementwise::neg_assign(out),
                None => {}
                Some(me) => {
                    let [d, e] = [&x_opened, second].map(|opened| &opened.difference[range.clone()]);
                    triple(out, (a, b), (d, e), if me == 0 { W::ONE } else { W::ZERO });
                }
            }
        };
        self.finish_product(x.shape(), consecutive(x.len(), PIECE, own), false, truncate, None)
    }

    pub(super) fn matrix_product(
        &mut self,
        x: &Arith<W>,
        y: &Arith<W>,
        shape: MatmulShape,
        truncate: Option<Truncation>,
    ) -> Result<Arith<W>> {
        let MatmulShape { batch, rows, inner, columns } = shape;
        if x.len() != batch * rows * inner || y.len() != batch * inner * columns {
            return Err(ProtocolError::Internal("the shapes of a matrix product"));
        }
        let mut first = self.open_masked(x)?;
        self.second(&mut first);
        let second = self.open_masked(y)?;
        let (party, opens) = (self.party(), truncate.is_some());
        let own = |index: usize, out: &mut [W]| {
            out.fill(W::ZERO);
            for Rows { count: m, left, right, out: part } in rows_of(&shape, index, out.len()) {
                let (part, masks) = (&mut out[part], &first.mask[left.clone()]);
                if party.is_some() {
                    let operands =
                        [(&first.difference[left], &second.mask[right.clone()]), (masks, &second.difference[right])];
                    gemm_concat(m, columns, inner, &operands, part);
                } else {
                    gemm_concat(m, columns, inner, &[(masks, &second.mask[right])], part);
                    if opens {
                        elementwise::neg_assign(part);
                    }
                }
            }
        };
        let count = batch * rows * columns;
        self.finish_product(&[batch, rows, columns], consecutive(count, piece_of(&shape), own), false, truncate, None)
    }

    /// What follows a product whose own terms are `pieces`: a shift, and a ReLU that joins the gate; with neither, the dealer's
    /// shares, which a public weight's product does not need.
    fn finish_product<Own, Placed>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<Own, Placed>,
        public: bool,
        truncate: Option<Truncation>,
        relu: Option<Comparison>,
    ) -> Result<Arith<W>>
    where
        Own: FnMut(usize, &mut [W]),
        Placed: Fn(usize, usize, &[W], &mut [W]),
    {
        truncate.map_or(Ok(()), |truncation| self.admit(truncation))?;
        let count = shape.iter().product();
        if let Some(relu) = relu {
            let form = self.fused_form(truncate, relu, count);
            let value = |(value, _): (Buffer<W>, Buffer<u64>)| value;
            return self.stream(shape, pieces, |site, own| fused::Fused::new(site, form.clone(), own), value);
        }
        let same = |value: Buffer<W>| value;
        match truncate {
            Some(truncation) => {
                let form = truncate::Form::new(truncation, self.ring, &self.options, count);
                self.stream(shape, pieces, |site, own| truncate::Truncate::new(site, form.clone(), own), same)
            }
            None if public => Ok(self.local(shape, pieces)),
            None => self.stream(shape, pieces, product::Product::new, same),
        }
    }

    /// The pieces themselves.
    fn local<Own, Placed>(&mut self, shape: &[usize], pieces: Pieces<Own, Placed>) -> Arith<W>
    where
        Own: FnMut(usize, &mut [W]),
        Placed: Fn(usize, usize, &[W], &mut [W]),
    {
        let mut out = zeros(shape);
        if self.party().is_some() && self.computes() {
            let Pieces { lens, mut own, place } = pieces;
            let mut words = Vec::new();
            for (index, &len) in lens.iter().enumerate() {
                words.resize(len, W::ZERO);
                own(index, &mut words);
                place(index, 0, &words, out.data_mut());
            }
        }
        Arith(out)
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<M, Own, Placed>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<Own, Placed>,
        machine: impl Fn(Site, Buffer<W>) -> M,
        value: impl Fn(M::Output) -> Buffer<W>,
    ) -> Result<Arith<W>>
    where
        M: Machine,
        Own: FnMut(usize, &mut [W]),
        Placed: Fn(usize, usize, &[W], &mut [W]),
    {
        let (site, mut out) = (self.next_sites()?, zeros(shape));
        if self.rests() {
            return Ok(Arith(out));
        }
        let Pieces { lens, own, place } = pieces;
        let tiles = tiles(&lens, self.options.tile_size());
        let mut feed = Feed::new(lens, own, self.computes());
        let machines = tiles
            .iter()
            .enumerate()
            .map(|(index, (piece, range))| machine(site(index, range.len()), feed.tile(*piece, range.clone())));
        self.scheduler.run_each(machines, |index, output| {
            let (piece, range) = &tiles[index];
            place(*piece, range.start, &value(output), out.data_mut());
        })?;
        Ok(Arith(out))
    }
}

fn from_words<W: Word>(words: Vec<W>) -> Fill<W> {
    Arc::new(move |start: usize, out: &mut [W]| out.copy_from_slice(&words[start..start + out.len()]))
}

covey_kernels::vectorised! {
    /// A party's part of a product: `d·b + e·a + first·d·e`.
    fn triple<W: Word>(out: &mut [W], masks: (&[W], &[W]), opened: (&[W], &[W]), first: W) {
        let operands = masks.0.iter().zip(masks.1).zip(opened.0.iter().zip(opened.1));
        for (out, ((&a, &b), (&d, &e))) in out.iter_mut().zip(operands) {
            *out = d.mul(b.add(first.mul(e))).add(e.mul(a));
        }
    }
}
