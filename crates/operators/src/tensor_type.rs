//! Shape and scale of results: what operators' rules share.

use covey_protocols::Comparison;
use covey_ring::Ring;

use crate::Value;

/// One dimension of a full shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    /// The batch, chosen at run time; only ever first.
    Batch,
    Size(usize),
}

/// Shape and scale of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// A batch dimension precedes `shape`.
    pub batched: bool,
    /// Dimensions without the batch.
    pub shape: Vec<usize>,
    /// Fractional bits.
    pub scale: u32,
    /// The elements are bits.
    pub bits: bool,
}

/// As many operands as an operator takes.
pub(crate) fn operands<'a, const N: usize>(inputs: &[&'a Value]) -> Result<[&'a Value; N], String> {
    inputs.try_into().map_err(|_| format!("takes {N} operands, not {}", inputs.len()))
}

/// The type of `x` itself, of integers.
pub(crate) fn type_of(x: &Value) -> TensorType {
    TensorType { batched: x.batched, shape: x.shape.clone(), scale: x.scale, bits: false }
}

/// The most of the bits that are certain of operands: they are of what is one of them, or lies between two.
pub(crate) fn most(operands: &[u32]) -> u32 {
    operands.iter().copied().max().unwrap_or(Comparison::UNKNOWN)
}

/// Dimensions of `x`, the batch included.
pub(crate) fn full(x: &Value) -> Vec<Dim> {
    let batch = x.batched.then_some(Dim::Batch);
    batch.into_iter().chain(x.shape.iter().map(|&size| Dim::Size(size))).collect()
}

/// The type of these dimensions.
pub(crate) fn to_type(dims: Vec<Dim>, scale: u32) -> Result<TensorType, String> {
    let batched = dims.first() == Some(&Dim::Batch);
    let sizes = dims.iter().skip(usize::from(batched)).map(|dim| match dim {
        Dim::Size(size) => Ok(*size),
        Dim::Batch => Err("moves the batch dimension, which must stay first".to_string()),
    });
    Ok(TensorType { batched, shape: sizes.collect::<Result<_, _>>()?, scale, bits: false })
}

pub(crate) fn equal_scales(x: &Value, y: &Value) -> Result<(), String> {
    if x.scale == y.scale {
        return Ok(());
    }
    Err(format!(
        "'{}' has scale {} and '{}' {}: shift one left or truncate the other first",
        x.name, x.scale, y.name, y.scale
    ))
}

pub(crate) fn bad_axis(axis: usize, x: &Value) -> String {
    format!("axis {axis} is the batch or past the end of '{}' of shape {}", x.name, x.described())
}

/// Largest `b` with every integer of |v| < 2^b in the ring: l - 1 for Z_2^l.
pub fn largest_bound(ring: Ring) -> u32 {
    (ring.signed_range().1 as u64 + 1).ilog2()
}

/// Sizes as the wire writes them.
pub(crate) fn numbers(sizes: &[usize]) -> Vec<u32> {
    sizes.iter().map(number).collect()
}

/// A size as the wire writes it; one beyond its width saturates.
pub(crate) fn number(size: &usize) -> u32 {
    u32::try_from(*size).unwrap_or(u32::MAX)
}

/// Sizes as the wire gives them.
pub(crate) fn sizes(wire: &[u32]) -> Vec<usize> {
    wire.iter().map(|&size| size as usize).collect()
}
