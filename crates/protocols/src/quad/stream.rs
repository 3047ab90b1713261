//! Tensors computed in pieces, as Trio's are, with their asides.

use std::ops::Range;

use covey_kernels::Buffer;
use covey_ring::Word;

use super::audit::{Audit, Audited, Beside, Site};
use super::folding::{Fold, MESSAGES};
use super::share::Arith;
use super::transcript::Digests;
use super::{Parts, Quad, fused, plan, product, truncate};
use crate::api::Result;
use crate::linear_map::Follows;
use crate::machine::Machine;
use crate::masked::ending::{Ending, all, mixed};
use crate::masked::pieces::{Feed, Own, PieceTile, Pieces, tile_lens};
use crate::party::Party;

/// How the openings of one gate are checked.
pub(super) struct Compared<'a, W> {
    /// By tensor.
    openings: Vec<Opening>,
    /// Writes the asides of pieces whose tensor is checked by element (`product.rs`).
    aside: Option<Own<'a, W>>,
    /// Takes pieces whose tensor is checked by combinations (`folding.rs`).
    fold: Option<&'a mut dyn Fold<W>>,
}

/// How a product's gate begins.
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

impl<'a, W> Compared<'a, W> {
    /// Of several tensors.
    pub fn each(openings: Vec<Opening>, aside: Option<Own<'a, W>>, fold: Option<&'a mut dyn Fold<W>>) -> Self {
        Compared { openings, aside, fold }
    }

    /// One tensor, by element.
    pub fn by_element(aside: Own<'a, W>) -> Self {
        Compared::each(vec![Opening::ByElement], Some(aside), None)
    }

    /// One tensor, by combinations.
    pub fn combined(fold: &'a mut dyn Fold<W>) -> Self {
        Compared::each(vec![Opening::Combined], None, Some(fold))
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
        pieces: Pieces<'_, W>,
        checked: Compared<'_, W>,
        follows: &[Follows],
    ) -> Result<Vec<Arith<W>>> {
        follows.iter().try_for_each(|(truncate, _)| self.party.admit::<Self>(*truncate))?;
        let (openings, Party { ring, options, .. }) = (checked.openings.clone(), &self.party);
        let ending = |((&opening, &follows), count)| plan::ending(opening, follows, *ring, options, count);
        let endings: Vec<_> = openings.iter().zip(follows).zip(pieces.counts()).map(ending).collect();
        let plans = all(&endings, |ending| if let Ending::Relu(plan) = ending { Some(plan.clone()) } else { None });
        if let Some(plans) = plans {
            return self.stream(pieces, checked, |site, tensor, own, aside| {
                fused::Fused::new(site, plans[tensor].clone(), own, aside)
            });
        }
        let plans = all(&endings, |ending| if let Ending::Shift(plan) = ending { Some(plan.clone()) } else { None });
        if let Some(plans) = plans {
            return self.stream(pieces, checked, |site, tensor, own, aside| {
                truncate::Truncate::new(site, plans[tensor].clone(), own, aside)
            });
        }
        match all(&endings, |ending| matches!(ending, Ending::Plain).then_some(())) {
            Some(_) => self.stream(pieces, checked, |site, tensor, own, aside| {
                product::Product::new(site, openings[tensor].folded(), own, aside)
            }),
            None => Err(mixed()),
        }
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<A>(
        &mut self,
        pieces: Pieces<'_, W>,
        checked: Compared<'_, W>,
        gate: impl Fn(&Site, usize, Buffer<W>, Buffer<W>) -> A + Sync,
    ) -> Result<Vec<Arith<W>>>
    where
        A: Audited<Extra = Beside<W>, Inner: Machine<Output = Parts<W>>>,
    {
        let (lens, shapes) = (&pieces.lens, pieces.shapes());
        let Compared { openings, aside, fold } = checked;
        let computes = self.party.computes();
        let mut aside = aside.map(|aside| Feed::new(lens.clone(), aside, computes, None));
        let mut fold = fold.map(|fold| Gathered { fold, lens: lens.clone(), messages: Default::default() });
        let mut digests = vec![Digests::default(); tile_lens(lens.iter().copied(), self.party.options.tile).count()];
        let beside = |PieceTile { tensor, piece, range }: &PieceTile| {
            let aside = aside.as_mut().filter(|_| openings[*tensor] == Opening::ByElement);
            aside.map_or_else(Buffer::new, |aside| Buffer::copy_of(&aside.piece(*piece)[range.clone()]))
        };
        let machine = |site, tensor, own, aside| Audit::new(&site, gate(&site, tensor, own, aside));
        let parts = |((a, b), Beside { extra, messages }, digest): (Parts<W>, Beside<W>, Digests)| {
            ([a, b, extra], (messages, digest))
        };
        let done = |index: usize,
                    PieceTile { tensor, piece, range }: &PieceTile,
                    (messages, digest): ([Buffer<W>; 2], Digests)| {
            if let Some(fold) = fold.as_mut().filter(|_| openings[*tensor].folded()) {
                fold.take(*piece, range, &messages);
            }
            digests[index] = digest;
        };
        let tensors = self.party.each_piece(pieces, beside, machine, parts, done)?;
        digests.iter().for_each(|digests| self.transcript.add(digests));
        Ok(match tensors {
            Some(tensors) => tensors.into_iter().map(Arith::of).collect(),
            None => shapes.iter().map(|shape| Arith::zeros(shape)).collect(),
        })
    }
}
