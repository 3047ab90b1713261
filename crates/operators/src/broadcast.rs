//! NumPy's broadcasting: shapes align at their last dimension, and a size of 1 stretches.

use std::borrow::Cow;

use covey_protocols::api::Result;
use covey_protocols::{Protocol, ProtocolError, Shaped};
use covey_ring::{Tensor, Word};

use crate::indexing::{each_offset, gather, strides};
use crate::tensor_type::{Dim, full, to_type};
use crate::{TensorType, Value};

/// The type of an element-wise result at `scale`.
pub(crate) fn type_of(x: &Value, y: &Value, scale: u32) -> std::result::Result<TensorType, String> {
    let (left, right) = (full(x), full(y));
    let rank = left.len().max(right.len());
    let at = |dims: &[Dim], index: usize| match (index + dims.len()).checked_sub(rank) {
        Some(index) => dims[index],
        None => Dim::Size(1),
    };
    let dims = (0..rank).map(|index| match (at(&left, index), at(&right, index)) {
        (a, b) if a == b => Ok(a),
        (Dim::Size(1), other) | (other, Dim::Size(1)) => Ok(other),
        _ => Err(format!(
            "'{}' of shape {} and '{}' of shape {} do not broadcast",
            x.name,
            x.described(),
            y.name,
            y.described()
        )),
    });
    to_type(dims.collect::<std::result::Result<_, _>>()?, scale)
}

/// The shape two operands share: aligned at the last dimension, a size of 1 stretches.
pub(crate) fn shape(x: &[usize], y: &[usize]) -> Result<Vec<usize>> {
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

pub(crate) fn stretch<'a, P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &'a P::Arith,
    shape: &[usize],
) -> Result<Cow<'a, P::Arith>> {
    if x.shape() == shape {
        return Ok(Cow::Borrowed(x));
    }
    let indices = stretch_indices(x.shape(), shape);
    gather(protocol, x, shape, indices.into_iter().map(Some)).map(Cow::Owned)
}

pub(crate) fn stretch_public<'a, W: Word>(x: &'a Tensor<W>, shape: &[usize]) -> Cow<'a, Tensor<W>> {
    if x.shape() == shape {
        return Cow::Borrowed(x);
    }
    let data = stretch_indices(x.shape(), shape).into_iter().map(|index| x.data()[index]).collect();
    Cow::Owned(Tensor::new(shape, data))
}
