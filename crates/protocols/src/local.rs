//! What shares of every kind have in common, component by component.

use covey_kernels::{elementwise, large_zeros, threads};
use covey_ring::{Tensor, Word};

use crate::api::{ProtocolError, Result, ZERO};

/// A tensor to be filled.
pub(crate) fn zeros<W: Word>(shape: &[usize]) -> Tensor<W> {
    Tensor::new(shape, large_zeros(shape.iter().product()))
}

/// Element i is `x[indices[i]]`, or 0 where the index is [`ZERO`].
pub(crate) fn gathered<W: Word>(x: &Tensor<W>, indices: &[u32], shape: &[usize]) -> Result<Tensor<W>> {
    const _: () = assert!(ZERO == u32::MAX, "what the kernel takes for 0");
    // One past the highest index; `ZERO` wraps to 0.
    let end = indices.iter().fold(0, |end, &index| index.wrapping_add(1).max(end));
    if indices.len() != shape.iter().product::<usize>() || end as usize > x.len() {
        return Err(ProtocolError::Internal("the indices of a gather"));
    }
    let mut out = zeros(shape);
    threads::fill(out.data_mut(), |start, out| elementwise::gather(out, x.data(), &indices[start..][..out.len()]));
    Ok(out)
}

/// Sums over the last dimension.
pub(crate) fn summed<W: Word>(x: &Tensor<W>, add: impl Fn(W, W) -> W) -> Result<Tensor<W>> {
    let Some((&last, outer)) = x.shape().split_last() else {
        return Err(ProtocolError::Internal("a sum over no dimension"));
    };
    let row = |row: usize| x.data()[row * last..][..last].iter().fold(W::ZERO, |sum, &v| add(sum, v));
    Ok(Tensor::new(outer, (0..outer.iter().product()).map(row).collect()))
}

/// `f` of the elements of two tensors of equal shape.
pub(crate) fn zipped<W: Word>(x: &Tensor<W>, y: &Tensor<W>, f: impl Fn(W, W) -> W + Sync) -> Tensor<W> {
    assert_eq!(x.shape(), y.shape(), "element-wise operation");
    let mut out = zeros(x.shape());
    threads::fill(out.data_mut(), |start, out| {
        let (x, y) = (&x.data()[start..][..out.len()], &y.data()[start..][..out.len()]);
        out.iter_mut().zip(x).zip(y).for_each(|((out, &x), &y)| *out = f(x, y));
    });
    out
}

/// Tensors one after the other, flat.
pub(crate) fn joined<'a, W: Word>(parts: impl Iterator<Item = &'a Tensor<W>> + Clone) -> Tensor<W> {
    let mut out = zeros(&[parts.clone().map(Tensor::len).sum()]);
    let mut left = out.data_mut();
    for part in parts {
        let (place, rest) = left.split_at_mut(part.len());
        threads::fill(place, |start, place| place.copy_from_slice(&part.data()[start..][..place.len()]));
        left = rest;
    }
    out
}
