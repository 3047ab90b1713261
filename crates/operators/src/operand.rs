//! Operands that are shared or known to every party.

use std::borrow::Cow;

use covey_protocols::{Protocol, Shaped};
use covey_ring::Tensor;

/// An operand of a layer that takes both kinds.
pub enum Operand<'a, P: Protocol + ?Sized> {
    /// In shares.
    Secret(&'a P::Arith),
    /// Known to every party.
    Public(&'a Tensor<P::Word>),
}

impl<P: Protocol + ?Sized> Clone for Operand<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Protocol + ?Sized> Copy for Operand<'_, P> {}

impl<'a, P: Protocol + ?Sized> Operand<'a, P> {
    /// Dimensions, outermost first.
    pub fn shape(self) -> &'a [usize] {
        match self {
            Operand::Secret(x) => x.shape(),
            Operand::Public(x) => x.shape(),
        }
    }

    /// As a share, whoever knows it.
    pub fn share(self, protocol: &P) -> Cow<'a, P::Arith> {
        match self {
            Operand::Secret(x) => Cow::Borrowed(x),
            Operand::Public(x) => Cow::Owned(protocol.constant(x)),
        }
    }
}
