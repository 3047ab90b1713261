//! What shares of every kind have in common, component by component.

use std::sync::atomic::{AtomicBool, Ordering};

use covey_kernels::{elementwise, filled, large_zeros, threads};
use covey_ring::{Tensor, Word};

use crate::api::{ProtocolError, Result, ZERO};

/// A tensor to be filled.
pub(crate) fn zeros<W: Word>(shape: &[usize]) -> Tensor<W> {
    Tensor::new(shape, large_zeros(shape.iter().product()))
}

/// Element i is `x[indices[i]]`, or 0 where the index is [`ZERO`].
pub(crate) fn gathered<W: Word>(x: &Tensor<W>, indices: &[u32], shape: &[usize]) -> Result<Tensor<W>> {
    const _: () = assert!(ZERO == u32::MAX, "what the kernel takes for 0");
    let misfit = AtomicBool::new(indices.len() != shape.iter().product::<usize>());
    let words = filled(indices.len(), |start, out| {
        let indices = &indices[start..][..out.len()];
        match elementwise::end_of(indices) <= x.len() {
            true => elementwise::gather(out, x.data(), indices),
            false => misfit.store(true, Ordering::Relaxed),
        }
    });
    match misfit.into_inner() {
        false => Ok(Tensor::new(shape, words)),
        true => Err(ProtocolError::Internal("the indices of a gather")),
    }
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
    let words = filled(x.len(), |start, out| {
        let (x, y) = (&x.data()[start..][..out.len()], &y.data()[start..][..out.len()]);
        out.iter_mut().zip(x).zip(y).for_each(|((out, &x), &y)| *out = f(x, y));
    });
    Tensor::new(x.shape(), words)
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
