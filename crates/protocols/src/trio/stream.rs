//! Tensors computed in pieces: each piece is cut into the tiles of a gate when their turn comes, so that it is masked and sent
//! while the next is computed.

use covey_kernels::Buffer;
use covey_ring::Word;

use super::share::Arith;
use super::site::Site;
use super::{Trio, fused, product, truncate};
use crate::api::{Comparison, ProtocolError, Result, Truncation};
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::pieces::{Feed, Pieces, tiles};
use crate::randomness::Place;

impl<W: Word> Trio<W> {
    /// What follows a product whose own parts are `pieces` (`product.rs`), or `opens` its opening's: a shift, and a ReLU that
    /// joins the gate; with neither, the plain resharing.
    pub(super) fn finish_product<Own, Placed>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<Own, Placed>,
        opens: bool,
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
            let form = self.fused_form(opens, truncate, relu, count);
            return self.stream(shape, pieces, |site, own| fused::Fused::new(site, form.clone(), own));
        }
        match truncate {
            None => self.stream(shape, pieces, product::Product::new),
            Some(truncation) => {
                let form = truncate::Form::new(truncation, opens, self.ring, &self.options, count);
                self.stream(shape, pieces, |site, own| truncate::Truncate::new(site, form.clone(), own))
            }
        }
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<M, Own, Placed>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<Own, Placed>,
        machine: impl Fn(Site, Buffer<W>) -> M,
    ) -> Result<Arith<W>>
    where
        M: Machine<Output = (Buffer<W>, Buffer<W>)>,
        Own: FnMut(usize, &mut [W]),
        Placed: Fn(usize, usize, &[W], &mut [W]),
    {
        let gate = self.gate;
        self.gate += 1;
        let (mut first, mut second) = (zeros(shape), zeros(shape));
        if self.rests() {
            return Ok(Arith { first, second });
        }
        let generators = self.generators.clone().ok_or(ProtocolError::Internal("a gate before the first run"))?;
        let (role, ring, computes) = (self.role, self.ring, self.computes());
        let Pieces { lens, own, place } = pieces;
        let tiles = tiles(&lens, self.options.tile);
        let mut feed = Feed::new(lens, own, computes);
        let machines = tiles.iter().enumerate().map(|(index, (piece, range))| {
            let place = Place { gate, tile: index as u32 };
            let site = Site { role, ring, generators: generators.clone(), place, len: range.len() };
            machine(site, feed.tile(*piece, range.clone()))
        });
        self.scheduler.run_each(machines, |index, (a, b)| {
            let (piece, range) = &tiles[index];
            place(*piece, range.start, &a, first.data_mut());
            place(*piece, range.start, &b, second.data_mut());
        })?;
        Ok(Arith { first, second })
    }
}
