//! Element-wise arithmetic with NumPy broadcasting.

use std::borrow::Cow;

use covey_protocols::api::Result;
use covey_protocols::{Protocol, ProtocolError, Truncation};
use covey_ring::{Tensor, Word};

use crate::Operand;
use crate::indexing::{each_offset, gather, strides};

/// x + y.
pub fn add<P: Protocol>(protocol: &mut P, x: Operand<P>, y: Operand<P>) -> Result<P::Arith> {
    let shape = broadcast_shape(x.shape(), y.shape())?;
    match (x, y) {
        (Operand::Secret(x), Operand::Secret(y)) => {
            let (x, y) = (stretch(protocol, x, &shape)?, stretch(protocol, y, &shape)?);
            protocol.add(&x, &y)
        }
        (Operand::Secret(x), Operand::Public(c)) | (Operand::Public(c), Operand::Secret(x)) => {
            let x = stretch(protocol, x, &shape)?;
            protocol.add_public(&x, &*stretch_public(c, &shape))
        }
        (Operand::Public(x), y) => {
            let x = protocol.constant(x);
            add(protocol, Operand::Secret(&x), y)
        }
    }
}

/// x - y.
pub fn sub<P: Protocol>(protocol: &mut P, x: Operand<P>, y: Operand<P>) -> Result<P::Arith> {
    let shape = broadcast_shape(x.shape(), y.shape())?;
    let x = match x {
        Operand::Secret(x) => stretch(protocol, x, &shape)?,
        Operand::Public(x) => Cow::Owned(protocol.constant(&*stretch_public(x, &shape))),
    };
    let y = match y {
        Operand::Secret(y) => stretch(protocol, y, &shape)?,
        Operand::Public(y) => Cow::Owned(protocol.constant(&*stretch_public(y, &shape))),
    };
    protocol.sub(&x, &y)
}

/// x · y, then the truncation.
pub fn mul<P: Protocol>(
    protocol: &mut P,
    x: Operand<P>,
    y: Operand<P>,
    truncate: Option<Truncation>,
) -> Result<P::Arith> {
    let shape = broadcast_shape(x.shape(), y.shape())?;
    match (x, y) {
        (Operand::Secret(x), Operand::Secret(y)) => {
            let (x, y) = (stretch(protocol, x, &shape)?, stretch(protocol, y, &shape)?);
            protocol.mul(&x, &y, truncate)
        }
        (Operand::Secret(x), Operand::Public(c)) | (Operand::Public(c), Operand::Secret(x)) => {
            let x = stretch(protocol, x, &shape)?;
            let product = protocol.mul_public(&x, &*stretch_public(c, &shape))?;
            match truncate {
                Some(truncation) => protocol.truncate(&product, truncation),
                None => Ok(product),
            }
        }
        (Operand::Public(x), y) => {
            let x = protocol.constant(x);
            mul(protocol, Operand::Secret(&x), y, truncate)
        }
    }
}

/// x · 2^bits.
pub fn shift_left<P: Protocol>(protocol: &mut P, x: &P::Arith, bits: u32) -> Result<P::Arith> {
    let shape = P::shape(x);
    let factor = protocol.ring().wrap::<P::Word>(1i128 << bits.min(126));
    let factors = Tensor::new(shape, vec![factor; shape.iter().product()]);
    protocol.mul_public(x, &factors)
}

/// The shape two operands share: aligned at the last dimension, a size of 1 stretches.
fn broadcast_shape(x: &[usize], y: &[usize]) -> Result<Vec<usize>> {
    let rank = x.len().max(y.len());
    let size = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let sizes = (0..rank).map(|axis| match (size(x, axis), size(y, axis)) {
        (a, b) if a == b => Ok(a),
        (1, other) | (other, 1) => Ok(other),
        _ => Err(ProtocolError::Internal("the shapes of an element-wise layer")),
    });
    sizes.collect()
}

/// Where each element of `to` comes from when `from` is stretched to it.
fn stretch_indices(from: &[usize], to: &[usize]) -> Vec<usize> {
    let missing = to.len() - from.len();
    let own = strides(from);
    let steps: Vec<usize> = (0..to.len())
        .map(|axis| if axis < missing || from[axis - missing] == 1 { 0 } else { own[axis - missing] })
        .collect();
    let mut indices = Vec::with_capacity(to.iter().product());
    each_offset(to, 0, &steps, &mut |offset| indices.push(offset));
    indices
}

fn stretch<'a, P: Protocol>(protocol: &mut P, x: &'a P::Arith, shape: &[usize]) -> Result<Cow<'a, P::Arith>> {
    if P::shape(x) == shape {
        return Ok(Cow::Borrowed(x));
    }
    let indices = stretch_indices(P::shape(x), shape);
    gather(protocol, x, shape, indices.into_iter().map(Some)).map(Cow::Owned)
}

fn stretch_public<'a, W: Word>(x: &'a Tensor<W>, shape: &[usize]) -> Cow<'a, Tensor<W>> {
    if x.shape() == shape {
        return Cow::Borrowed(x);
    }
    let data = stretch_indices(x.shape(), shape).into_iter().map(|index| x.data()[index]).collect();
    Cow::Owned(Tensor::new(shape, data))
}
