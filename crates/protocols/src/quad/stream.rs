//! Tensors computed in pieces, as Trio's are, with their asides.

use covey_kernels::Buffer;
use covey_ring::Word;

use super::audit::{Audit, Audited, Site, put};
use super::share::Arith;
use super::{Parts, Quad, fused, product, truncate};
use crate::api::{Comparison, ProtocolError, Result, Truncation};
use crate::masked::pieces::{Feed, Pieces, tiles};
use crate::randomness::Place;

impl<W: Word> Quad<W> {
    /// What follows a product whose own parts are `pieces`: a shift, and a ReLU that joins the gate; with neither, the plain resharing.
    /// `aside` writes what goes beside piece `index` (`product.rs`); where nothing is opened, there is none.
    pub(super) fn finish_product<Own, Placed, Aside>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<Own, Placed>,
        aside: Option<Aside>,
        truncate: Option<Truncation>,
        relu: Option<Comparison>,
    ) -> Result<Arith<W>>
    where
        Own: FnMut(usize, &mut [W]),
        Placed: Fn(usize, usize, &[W], &mut [W]),
        Aside: FnMut(usize, &mut [W]),
    {
        truncate.map_or(Ok(()), |truncation| self.admit(truncation))?;
        let (count, opens) = (shape.iter().product(), aside.is_some());
        if let Some(relu) = relu {
            let form = self.fused_form(opens, truncate, relu, count);
            return self
                .stream(shape, pieces, aside, |site, own, aside| fused::Fused::new(site, form.clone(), own, aside));
        }
        match truncate {
            None => self.stream(shape, pieces, aside, product::Product::new),
            Some(truncation) => {
                let form = self.truncate_form(truncation, opens, count);
                self.stream(shape, pieces, aside, |site, own, aside| {
                    truncate::Truncate::new(site, form.clone(), own, aside)
                })
            }
        }
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<A, Own, Placed, Aside>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<Own, Placed>,
        aside: Option<Aside>,
        gate: impl Fn(&Site, Buffer<W>, Buffer<W>) -> A,
    ) -> Result<Arith<W>>
    where
        A: Audited<Extra = Buffer<W>>,
        A::Inner: crate::machine::Machine<Output = Parts<W>>,
        Own: FnMut(usize, &mut [W]),
        Placed: Fn(usize, usize, &[W], &mut [W]),
        Aside: FnMut(usize, &mut [W]),
    {
        let number = self.gate;
        self.gate += 1;
        let mut result = Arith::zeros(shape);
        if self.rests() {
            return Ok(result);
        }
        let generators = self.generators.clone().ok_or(ProtocolError::Internal("a gate before the first run"))?;
        let (role, ring, computes) = (self.role, self.ring, self.computes());
        let Pieces { lens, own, place } = pieces;
        let tiles = tiles(&lens, self.options.tile);
        let mut aside = aside.map(|aside| Feed::new(lens.clone(), aside, computes));
        let mut feed = Feed::new(lens, own, computes);
        let machines = tiles.iter().enumerate().map(|(index, (piece, range))| {
            let place = Place { gate: number, tile: index as u32 };
            let site = Site { role, ring, generators: generators.clone(), place, len: range.len() };
            let own = feed.tile(*piece, range.clone());
            let aside = aside.as_mut().map_or_else(Buffer::new, |aside| aside.tile(*piece, range.clone()));
            Audit::new(&site, gate(&site, own, aside))
        });
        let mut digests = vec![Default::default(); tiles.len()];
        let Arith { inner, extra } = &mut result;
        let mut whole = Buffer::new();
        self.scheduler.run_each(machines, |index, ((a, b), own, digest)| {
            let (piece, range) = &tiles[index];
            place(*piece, range.start, &a, inner.first.data_mut());
            place(*piece, range.start, &b, inner.second.data_mut());
            whole = Buffer::zeros(range.len());
            put(&own, &mut whole);
            place(*piece, range.start, &whole, extra.data_mut());
            digests[index] = digest;
        })?;
        digests.iter().for_each(|digests| self.transcript.add(digests));
        Ok(result)
    }
}
