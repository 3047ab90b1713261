//! Tensors computed in pieces: each piece is cut into the tiles of a gate when their turn comes, so that it is masked and sent
//! while the next is computed.

use covey_kernels::Buffer;
use covey_ring::Word;

use super::reduced::{Reduced, ShiftPlan};
use super::share::Arith;
use super::site::Site;
use super::{Trio, fused, product, truncate};
use crate::api::Result;
use crate::linear_map::Follows;
use crate::local::zeros;
use crate::machine::Machine;
use crate::masked::pieces::Pieces;

impl<W: Word> Trio<W> {
    /// What follows a product whose own parts are `pieces` (`product.rs`), or `opens` its opening's: a shift, and a ReLU that
    /// joins the gate; with neither, the plain resharing.
    pub(super) fn finish_product(
        &mut self,
        shape: &[usize],
        pieces: Pieces<'_, W>,
        opens: bool,
        (truncate, relu): Follows,
    ) -> Result<Arith<W>> {
        self.party.admit::<Self>(truncate)?;
        let count = shape.iter().product();
        if let Some(relu) = relu {
            let plan = self.fused_plan(opens, truncate, relu, count);
            return self.stream(shape, pieces, |site, own| fused::Fused::new(site, plan.clone(), own));
        }
        match truncate {
            None => self.stream(shape, pieces, product::Product::new),
            Some(truncation) => {
                match ShiftPlan::choose(truncation, opens, self.party.ring, &self.party.options, count) {
                    ShiftPlan::Full(plan) => {
                        self.stream(shape, pieces, |site, own| truncate::Truncate::new(site, plan.clone(), own))
                    }
                    ShiftPlan::Reduced(plan) => {
                        self.stream(shape, pieces, |site, own| Reduced::new(site, plan.clone(), own))
                    }
                }
            }
        }
    }

    /// Runs a gate over pieces that are computed when their first tile's turn comes.
    fn stream<M: Machine<Output = (Buffer<W>, Buffer<W>)>>(
        &mut self,
        shape: &[usize],
        pieces: Pieces<'_, W>,
        machine: impl Fn(Site, Buffer<W>) -> M + Sync,
    ) -> Result<Arith<W>> {
        let machine = |site, own, ()| machine(site, own);
        let tensors = self.party.each_piece(shape, pieces, |_| (), machine, |(a, b)| ([a, b], ()), |_, _, ()| ())?;
        let [first, second] = tensors.unwrap_or_else(|| std::array::from_fn(|_| zeros(shape)));
        Ok(Arith { first, second })
    }
}
