//! Tensors computed in pieces, as Trio's are, with their asides.

use std::ops::Range;

use covey_kernels::Buffer;
use covey_ring::Word;

use super::audit::{Audit, Audited, Beside, Site};
use super::folding::{Fold, MESSAGES};
use super::share::Arith;
use super::transcript::Digests;
use super::{Parts, Quad, fused, product, truncate};
use crate::api::Result;
use crate::linear_map::Follows;
use crate::machine::Machine;
use crate::masked::pieces::{Feed, Own, PieceTile, Pieces, tile_lens};

/// How what a product opens is checked.
pub(super) enum Compared<'a, W> {
    /// Nothing is opened: a sharing is shifted or clamped.
    Sharing,
    /// Element by element: writes what goes beside piece `index` (`product.rs`).
    ByElement(Own<'a, W>),
    /// By combinations (`folding.rs`).
    Combined(&'a mut dyn Fold<W>),
}

/// How a gate begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// With a sharing.
    None,
    /// With an opening that the gate checks.
    ByElement,
    /// With an opening that is checked beside the gate.
    Combined,
}

impl Opening {
    pub fn opens(self) -> bool {
        self != Opening::None
    }

    pub fn folded(self) -> bool {
        self == Opening::Combined
    }
}

impl<W> Compared<'_, W> {
    fn opening(&self) -> Opening {
        match self {
            Compared::Sharing => Opening::None,
            Compared::ByElement(_) => Opening::ByElement,
            Compared::Combined(_) => Opening::Combined,
        }
    }
}

/// Puts tiles of messages together to the pieces that are combined.
struct Gathered<'a, W> {
    fold: &'a mut dyn Fold<W>,
    lens: Vec<usize>,
    messages: [Vec<W>; 2],
}

impl<W: Word> Gathered<'_, W> {
    /// Takes the tile `range` of a piece. Tiles come in their order.
    fn take(&mut self, piece: usize, range: &Range<usize>, tile: &[Buffer<W>; 2]) {
        for (message, tile) in MESSAGES.into_iter().zip(tile) {
            // A role has nothing of some messages, and in a preprocessing run of none.
            if tile.len() != range.len() {
                continue;
            }
            let words = &mut self.messages[message];
            words.resize(self.lens[piece], W::ZERO);
            words[range.clone()].copy_from_slice(tile);
            if range.end == words.len() {
                self.fold.take(piece, message, words);
            }
        }
    }
}

impl<W: Word> Quad<W> {
    /// What follows a product whose own parts are `pieces`: a shift, and a ReLU that joins the gate; with neither, the plain resharing.
    pub(super) fn finish_product(
        &mut self,
        shape: &[usize],
        pieces: Pieces<'_, W>,
        checked: Compared<'_, W>,
        (truncate, relu): Follows,
    ) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncate)?;
        let (count, opening) = (shape.iter().product(), checked.opening());
        if let Some(relu) = relu {
            let plan = self.fused_plan(opening, truncate, relu, count);
            return self
                .stream(shape, pieces, checked, |site, own, aside| fused::Fused::new(site, plan.clone(), own, aside));
        }
        match truncate {
            None => self.stream(shape, pieces, checked, |site, own, aside| {
                product::Product::new(site, opening.folded(), own, aside)
            }),
            Some(truncation) => {
                let plan = self.truncation_plan(truncation, opening, count);
                self.stream(shape, pieces, checked, |site, own, aside| {
                    truncate::Truncate::new(site, plan.clone(), own, aside)
                })
            }
        }
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<A>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<'_, W>,
        checked: Compared<'_, W>,
        gate: impl Fn(&Site, Buffer<W>, Buffer<W>) -> A + Sync,
    ) -> Result<Arith<W>>
    where
        A: Audited<Extra = Beside<W>, Inner: Machine<Output = Parts<W>>>,
    {
        let lens = &pieces.lens;
        let (mut aside, mut fold) = match checked {
            Compared::Sharing => (None, None),
            Compared::ByElement(aside) => (Some(Feed::new(lens.clone(), aside, self.party.computes(), None)), None),
            Compared::Combined(fold) => {
                (None, Some(Gathered { fold, lens: lens.clone(), messages: Default::default() }))
            }
        };
        let mut digests = vec![Digests::default(); tile_lens(lens.iter().copied(), self.party.options.tile).count()];
        let beside = |(piece, range): &PieceTile| {
            aside.as_mut().map_or_else(Buffer::new, |aside| Buffer::copy_of(&aside.piece(*piece)[range.clone()]))
        };
        let machine = |site, own, aside| Audit::new(&site, gate(&site, own, aside));
        let parts = |((a, b), Beside { extra, messages }, digest): (Parts<W>, Beside<W>, Digests)| {
            ([a, b, extra], (messages, digest))
        };
        let done = |index: usize, (piece, range): &PieceTile, (messages, digest): ([Buffer<W>; 2], Digests)| {
            if let Some(fold) = &mut fold {
                fold.take(*piece, range, &messages);
            }
            digests[index] = digest;
        };
        let tensors = self.party.each_piece(shape, pieces, beside, machine, parts, done)?;
        digests.iter().for_each(|digests| self.transcript.add(digests));
        Ok(tensors.map_or_else(|| Arith::zeros(shape), Arith::of))
    }
}
