//! Tensors one after another.

use covey_protocols::{Protocol, ProtocolError, Shaped, api};
use covey_ring::Ring;

use crate::indexing::{Around, gather};
use crate::tensor_type::{Dim, bad_axis, equal_scales, full, most, number, to_type};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// The operands one after another along `axis`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concat {
    /// Over the full shape, never the batch.
    pub axis: usize,
}

impl Operator for Concat {
    type Wire = wire::Concat;

    fn decode(wire: wire::Concat) -> Result<Self, String> {
        Ok(Concat { axis: wire.axis as usize })
    }

    fn encode(&self) -> wire::Concat {
        wire::Concat { axis: number(&self.axis) }
    }

    fn options(&self) -> String {
        format!("axis {}", self.axis)
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let axis = self.axis;
        let [first, rest @ ..] = inputs else { return Err("takes at least one operand".into()) };
        let mut dims = full(first);
        let Some(&Dim::Size(mut total)) = dims.get(axis) else {
            return Err(bad_axis(axis, first));
        };
        for other in rest {
            equal_scales(first, other)?;
            let mut theirs = full(other);
            let Some(&Dim::Size(size)) = theirs.get(axis) else { return Err(bad_axis(axis, other)) };
            theirs[axis] = dims[axis];
            if theirs != dims {
                return Err(format!(
                    "'{}' of shape {} and '{}' of shape {} differ outside axis {axis}",
                    first.name,
                    first.described(),
                    other.name,
                    other.described()
                ));
            }
            total += size;
        }
        dims[axis] = Dim::Size(total);
        to_type(dims, first.scale)
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let shares: Vec<_> = (0..arguments.operands.len())
            .map(|position| arguments.share(protocol, position))
            .collect::<api::Result<_>>()?;
        concat(protocol, &shares.iter().map(|share| &**share).collect::<Vec<_>>(), self.axis).map(Shared::Integers)
    }
}

/// The operands one after another along `axis`.
pub fn concat<P: Protocol + ?Sized>(protocol: &mut P, parts: &[&P::Arith], axis: usize) -> api::Result<P::Arith> {
    let Some(first) = parts.first() else { return Err(ProtocolError::Internal("a concat of nothing")) };
    let mut shape = first.shape().to_vec();
    let Around { outer, inner, .. } = Around::axis(&shape, axis)?;
    let blocks: Vec<usize> = parts.iter().map(|part| part.shape().get(axis).map_or(0, |size| size * inner)).collect();
    let fits = parts.iter().zip(&blocks).all(|(part, block)| part.shape().iter().product::<usize>() == outer * block);
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
