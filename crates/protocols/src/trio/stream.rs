//! Tensors computed in pieces: each piece is cut into the tiles of a gate when their turn comes, so that it is masked and sent
//! while the next is computed.

use std::ops::Range;

use covey_kernels::Buffer;
use covey_ring::{Tensor, Word};

use super::share::Arith;
use super::site::Site;
use super::{Trio, fused, product, truncate};
use crate::api::{Comparison, ProtocolError, Result, Truncation};
use crate::machine::Machine;
use crate::randomness::Place;

/// Elements computed at once. At 2^18, 1 MiB of 32-bit words, reading all of a layer's weights again for each piece costs little,
/// and a piece is on its way within milliseconds.
pub(super) const PIECE: usize = 1 << 18;

/// A tensor in pieces. How it is cut follows from sizes alone.
pub(super) struct Pieces<Own, Placed> {
    /// Elements of each.
    pub lens: Vec<usize>,
    /// Writes this party's part of piece `index`.
    pub own: Own,
    /// Copies elements of piece `index`, from number `start` on, to their places in the whole.
    pub place: Placed,
}

/// Pieces one after the other, each but the last of `size` elements.
#[allow(clippy::type_complexity)] // A closure's type has no name.
pub(super) fn consecutive<W: Copy, Own>(
    len: usize,
    size: usize,
    own: Own,
) -> Pieces<Own, impl Fn(usize, usize, &[W], &mut [W])> {
    let lens = (0..len).step_by(size.max(1)).map(|start| size.min(len - start)).collect();
    let place = move |index: usize, start: usize, part: &[W], tensor: &mut [W]| {
        tensor[index * size + start..][..part.len()].copy_from_slice(part);
    };
    Pieces { lens, own, place }
}

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
        let (mut first, mut second) = (Tensor::zeros(shape), Tensor::zeros(shape));
        if self.rests() {
            return Ok(Arith { first, second });
        }
        let generators = self.generators.clone().ok_or(ProtocolError::Internal("a gate before the first run"))?;
        let (role, ring, computes) = (self.role, self.ring, self.computes());
        let Pieces { lens, mut own, place } = pieces;
        let tiles = tiles(&lens, self.options.tile);
        let (mut words, mut current) = (Buffer::new(), None);
        let machines = tiles.iter().enumerate().map(|(index, (piece, range))| {
            if current.replace(*piece) != Some(*piece) {
                if words.len() != lens[*piece] {
                    words = Buffer::zeros(lens[*piece]);
                }
                if computes {
                    own(*piece, &mut words);
                }
            }
            let place = Place { gate, tile: index as u32 };
            let site = Site { role, ring, generators: generators.clone(), place, len: range.len() };
            machine(site, Buffer::copy_of(&words[range.clone()]))
        });
        self.scheduler.run_each(machines, |index, (a, b)| {
            let (piece, range) = &tiles[index];
            place(*piece, range.start, &a, first.data_mut());
            place(*piece, range.start, &b, second.data_mut());
        })?;
        Ok(Arith { first, second })
    }
}

/// The tiles of pieces of these lengths: piece and range within it.
fn tiles(lens: &[usize], tile: usize) -> Vec<(usize, Range<usize>)> {
    let of_piece = |(piece, &len): (usize, &usize)| {
        (0..len).step_by(tile).map(move |start| (piece, start..len.min(start + tile))).collect::<Vec<_>>()
    };
    lens.iter().enumerate().flat_map(of_piece).collect()
}

/// The lengths of the tiles of pieces of these lengths.
pub(super) fn tile_lens(lens: impl IntoIterator<Item = usize>, tile: usize) -> impl Iterator<Item = usize> {
    lens.into_iter().flat_map(move |len| (0..len).step_by(tile).map(move |start| tile.min(len - start)))
}
