//! What shares of every kind have in common, component by component.

use covey_kernels::{elementwise, large_zeros};
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
    elementwise::gather(out.data_mut(), x.data(), indices);
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

/// Tensors one after the other, flat.
pub(crate) fn joined<'a, W: Word>(parts: impl Iterator<Item = &'a Tensor<W>>) -> Tensor<W> {
    let words: Vec<W> = parts.flat_map(Tensor::data).copied().collect();
    Tensor::new([words.len()], words)
}
