//! Index arithmetic of row-major tensors.

use covey_protocols::api::ZERO;
use covey_protocols::{Protocol, ProtocolError, Shaped, filled_rows};

use covey_protocols::api::Result;

/// A tensor seen as `[outer, size, inner]` around one axis.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    pub outer: usize,
    pub size: usize,
    pub inner: usize,
}

impl Around {
    pub(crate) fn axis(shape: &[usize], axis: usize) -> Result<Self> {
        let Some(&size) = shape.get(axis) else { return Err(ProtocolError::Internal("the axis of a layer")) };
        Ok(Around { outer: shape[..axis].iter().product(), size, inner: shape[axis + 1..].iter().product() })
    }
}

/// Elements between neighbours along each dimension.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        out[axis - 1] = out[axis] * shape[axis];
    }
    out
}

/// Calls `f` with `start + sum of index[d] * steps[d]` for every index of `shape`, in row-major order.
pub(crate) fn each_offset(shape: &[usize], start: usize, steps: &[usize], f: &mut impl FnMut(usize)) {
    match (shape, steps) {
        ([], _) => f(start),
        (&[size], &[step]) => (0..size).for_each(|i| f(start + i * step)),
        (&[size, ref shape @ ..], &[step, ref steps @ ..]) => {
            (0..size).for_each(|i| each_offset(shape, start + i * step, steps, f));
        }
        _ => unreachable!("as many steps as dimensions"),
    }
}

/// The elements of `x` at `indices`, in `shape`; `None` is 0.
pub(crate) fn gather<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    shape: &[usize],
    indices: impl Iterator<Item = Option<usize>>,
) -> Result<P::Arith> {
    let count = indexed::<P>(x)?;
    // An index past the end stays past the end, for the protocol to refuse.
    let indices: Vec<u32> = indices.map(|index| index.map_or(ZERO, |index| index.min(count as usize) as u32)).collect();
    protocol.gather(x, &indices, shape)
}

/// The same, where `indices` are as the protocol takes them. Those past the end are refused.
pub(crate) fn gathered<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    shape: &[usize],
    indices: &[u32],
) -> Result<P::Arith> {
    indexed::<P>(x)?;
    protocol.gather(x, indices, shape)
}

/// `run` elements of `x` from each of `starts` on: one after the other, flat.
pub(crate) fn gather_runs<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    starts: impl Iterator<Item = usize>,
    run: usize,
) -> Result<P::Arith> {
    let count = indexed::<P>(x)? as usize;
    // An index past the end stays past the end, for the protocol to refuse.
    let starts: Vec<u32> = starts.map(|start| start.min(count) as u32).collect();
    gather_lines(protocol, x, starts.len(), run, |number, indices| {
        let start = starts[number];
        indices.iter_mut().zip(0..).for_each(|(place, index)| *place = start.saturating_add(index));
    })
}

/// Elements of `x`: so many lines of `line` of them, flat. `indices` writes where those of a line lie.
pub(crate) fn gather_lines<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    lines: usize,
    line: usize,
    indices: impl Fn(usize, &mut [u32]) + Sync,
) -> Result<P::Arith> {
    indexed::<P>(x)?;
    let places = filled_rows(lines * line, line, indices);
    protocol.gather(x, &places, &[lines * line])
}

/// Elements of `x`, if indices reach all of them.
fn indexed<P: Protocol + ?Sized>(x: &P::Arith) -> Result<u32> {
    let count = u32::try_from(x.shape().iter().product::<usize>()).ok().filter(|&count| count < ZERO);
    count.ok_or(ProtocolError::Internal("a tensor with 2^32 elements"))
}
