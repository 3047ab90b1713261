//! Tensors computed in pieces: each piece is cut into the tiles of a gate when their turn comes, so that it is masked and sent
//! while the next is computed.

use covey_kernels::Buffer;
use covey_ring::Word;

use super::reduced::{Reduced, ShiftPlan};
use super::share::Arith;
use super::site::Site;
use super::{Trio, fused, plan, product, truncate};
use crate::api::Result;
use crate::linear_map::Follows;
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::ending::{Ending, all, mixed};
use crate::masked::pieces::Pieces;
use crate::party::Party;

impl<W: Word> Trio<W> {
    /// What follows each product whose own parts are `pieces` (`product.rs`), or `opens` its opening's: a shift, and a ReLU that
    /// joins the gate; with neither, the plain resharing. The endings are of one form.
    pub(super) fn finish_product(
        &mut self,
        pieces: Pieces<'_, W>,
        opens: bool,
        follows: &[Follows],
    ) -> Result<Vec<Arith<W>>> {
        follows.iter().try_for_each(|(truncate, _)| self.party.admit::<Self>(*truncate))?;
        let Party { ring, options, .. } = &self.party;
        let ending = |(&follows, count): (&Follows, usize)| plan::ending(opens, follows, *ring, options, count);
        let endings: Vec<_> = follows.iter().zip(pieces.counts()).map(ending).collect();
        let plans = all(&endings, |ending| if let Ending::Relu(plan) = ending { Some(plan.clone()) } else { None });
        if let Some(plans) = plans {
            return self.stream(pieces, |site, tensor, own| fused::Fused::new(site, plans[tensor].clone(), own));
        }
        let full = |ending: &_| match ending {
            Ending::Shift(ShiftPlan::Full(plan)) => Some(plan.clone()),
            _ => None,
        };
        if let Some(plans) = all(&endings, full) {
            return self.stream(pieces, |site, tensor, own| truncate::Truncate::new(site, plans[tensor].clone(), own));
        }
        let reduced = |ending: &_| match ending {
            Ending::Shift(ShiftPlan::Reduced(plan)) => Some(plan.clone()),
            _ => None,
        };
        if let Some(plans) = all(&endings, reduced) {
            return self.stream(pieces, |site, tensor, own| Reduced::new(site, plans[tensor].clone(), own));
        }
        match all(&endings, |ending| matches!(ending, Ending::Plain).then_some(())) {
            Some(_) => self.stream(pieces, |site, _, own| product::Product::new(site, own)),
            None => Err(mixed()),
        }
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<M: Machine<Output = (Buffer<W>, Buffer<W>)>>(
        &mut self,
        pieces: Pieces<'_, W>,
        machine: impl Fn(Site, usize, Buffer<W>) -> M + Sync,
    ) -> Result<Vec<Arith<W>>> {
        let machine = |site, tensor, own, ()| machine(site, tensor, own);
        let shapes = pieces.shapes();
        let tensors = self.party.each_piece(pieces, |_| (), machine, |(a, b)| ([a, b], ()), |_, _, ()| ())?;
        let resting = || shapes.iter().map(|shape| std::array::from_fn(|_| zeros(shape))).collect();
        let tensors = tensors.unwrap_or_else(resting);
        Ok(tensors.into_iter().map(|[first, second]| Arith { first, second }).collect())
    }
}
