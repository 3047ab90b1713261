//! Layers that move elements, and products of two secrets.

use covey_protocols::api::{MatmulShape, Result};
use covey_protocols::{Protocol, ProtocolError, Truncation};
use covey_ring::{Tensor, Word};

use crate::indexing::{Around, each_offset, gather, strides};

/// The same elements, row-major, in `shape`.
pub fn reshape<P: Protocol>(protocol: &mut P, x: &P::Arith, shape: &[usize]) -> Result<P::Arith> {
    if P::shape(x).iter().product::<usize>() != shape.iter().product::<usize>() {
        return Err(ProtocolError::Internal("the shape of a reshape"));
    }
    Ok(protocol.reshape(x, shape))
}

/// Dimension i of the result is dimension `permutation[i]` of x.
pub fn transpose<P: Protocol>(protocol: &mut P, x: &P::Arith, permutation: &[usize]) -> Result<P::Arith> {
    let from = P::shape(x);
    let mut seen = permutation.to_vec();
    seen.sort_unstable();
    if !seen.iter().copied().eq(0..from.len()) {
        return Err(ProtocolError::Internal("the axes of a transpose"));
    }
    let shape: Vec<usize> = permutation.iter().map(|&axis| from[axis]).collect();
    let own = strides(from);
    let steps: Vec<usize> = permutation.iter().map(|&axis| own[axis]).collect();
    let mut indices = Vec::with_capacity(shape.iter().product());
    each_offset(&shape, 0, &steps, &mut |offset| indices.push(offset));
    gather(protocol, x, &shape, indices.into_iter().map(Some))
}

/// The operands one after another along `axis`.
pub fn concat<P: Protocol>(protocol: &mut P, parts: &[&P::Arith], axis: usize) -> Result<P::Arith> {
    let Some(first) = parts.first() else { return Err(ProtocolError::Internal("a concat of nothing")) };
    let mut shape = P::shape(first).to_vec();
    let Around { outer, inner, .. } = Around::axis(&shape, axis)?;
    let blocks: Vec<usize> = parts.iter().map(|part| P::shape(part).get(axis).map_or(0, |size| size * inner)).collect();
    let fits = parts.iter().zip(&blocks).all(|(part, block)| P::shape(part).iter().product::<usize>() == outer * block);
    if !fits {
        return Err(ProtocolError::Internal("the shapes of a concat"));
    }
    shape[axis] = blocks.iter().sum::<usize>() / inner.max(1);
    let flat = protocol.concat(parts)?;
    if outer == 1 {
        return Ok(protocol.reshape(&flat, &shape));
    }
    let mut start = 0;
    let placed: Vec<(usize, usize)> = blocks
        .iter()
        .map(|&block| {
            let placed = (start, block);
            start += outer * block;
            placed
        })
        .collect();
    let placed = &placed;
    let indices = (0..outer).flat_map(|o| {
        placed.iter().flat_map(move |&(start, block)| (start + o * block..start + (o + 1) * block).map(Some))
    });
    gather(protocol, &flat, &shape, indices)
}

/// `value`, at x's scale, put around x: `before` and `after` elements along each dimension.
pub fn pad<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    before: &[usize],
    after: &[usize],
    value: i64,
) -> Result<P::Arith> {
    let from = P::shape(x);
    if before.len() != from.len() || after.len() != from.len() {
        return Err(ProtocolError::Internal("the sizes of a padding"));
    }
    let shape: Vec<usize> =
        from.iter().zip(before).zip(after).map(|((size, before), after)| size + before + after).collect();
    let own = strides(&shape);
    let start = own.iter().zip(before).map(|(stride, before)| stride * before).sum();
    let mut indices = vec![None; shape.iter().product()];
    let mut next = 0;
    each_offset(from, start, &own, &mut |offset| {
        indices[offset] = Some(next);
        next += 1;
    });
    let ring = protocol.ring();
    let filling: Vec<P::Word> =
        indices.iter().map(|index| if index.is_some() { P::Word::ZERO } else { ring.wrap(value.into()) }).collect();
    let padded = gather(protocol, x, &shape, indices.into_iter())?;
    if value == 0 { Ok(padded) } else { protocol.add_public(&padded, &Tensor::new(shape, filling)) }
}

/// x `[..,M,K]` times y `[..,K,P]` with equal leading dimensions, then the truncation: `[..,M,P]`.
pub fn matmul<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    y: &P::Arith,
    truncate: Option<Truncation>,
) -> Result<P::Arith> {
    let mut shape = P::shape(x).to_vec();
    let ([lead @ .., rows, inner], [lead_y @ .., inner_y, columns]) = (&shape[..], P::shape(y)) else {
        return Err(ProtocolError::Internal("the shapes of a matrix product"));
    };
    if lead != lead_y || inner != inner_y {
        return Err(ProtocolError::Internal("the shapes of a matrix product"));
    }
    let (columns, sizes) = (*columns, [lead.iter().product(), *rows, *inner]);
    let dimensions = MatmulShape { batch: sizes[0], rows: sizes[1], inner: sizes[2], columns };
    let product = protocol.matmul(x, y, dimensions, truncate)?;
    *shape.last_mut().expect("two dimensions") = columns;
    Ok(if shape.len() == 3 { product } else { protocol.reshape(&product, &shape) })
}
