//! What shares of every kind have in common, component by component.

use covey_ring::{Tensor, Word};

use crate::api::{ProtocolError, Result, ZERO};

/// Element i is `x[indices[i]]`, or 0 where the index is [`ZERO`].
pub(crate) fn gathered<W: Word>(x: &Tensor<W>, indices: &[u32], shape: &[usize]) -> Result<Tensor<W>> {
    let data = x.data();
    if indices.len() != shape.iter().product::<usize>()
        || indices.iter().any(|&i| i != ZERO && i as usize >= data.len())
    {
        return Err(ProtocolError::Internal("the indices of a gather"));
    }
    let element = |&i: &u32| if i == ZERO { W::ZERO } else { data[i as usize] };
    Ok(Tensor::new(shape, indices.iter().map(element).collect()))
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
