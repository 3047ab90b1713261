//! Elements put around a tensor.

use covey_protocols::{Protocol, ProtocolError, Shaped, api};
use covey_ring::{Ring, Tensor, Word};

use crate::indexing::{each_offset, gather, strides};
use crate::tensor_type::{Dim, full, numbers, operands, sizes, to_type};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// `value` put around x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pad {
    /// Elements added in front, per dimension of the full shape; 0 for the batch.
    pub before: Vec<usize>,
    /// Elements added behind, per dimension of the full shape; 0 for the batch.
    pub after: Vec<usize>,
    /// What is added, at the value's scale.
    pub value: i64,
}

impl Operator for Pad {
    type Wire = wire::Pad;

    fn decode(wire: wire::Pad) -> Result<Self, String> {
        Ok(Pad { before: sizes(&wire.before), after: sizes(&wire.after), value: wire.value })
    }

    fn encode(&self) -> wire::Pad {
        wire::Pad { before: numbers(&self.before), after: numbers(&self.after), value: self.value }
    }

    fn options(&self) -> String {
        format!("before {:?}, after {:?}, value {}", self.before, self.after, self.value)
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let ([x], Pad { before, after, .. }) = (operands(inputs)?, self);
        let mut dims = full(x);
        if before.len() != dims.len() || after.len() != dims.len() {
            return Err(format!(
                "pads {} dimensions before and {} after where '{}' has {}",
                before.len(),
                after.len(),
                x.name,
                dims.len()
            ));
        }
        for (dim, (before, after)) in dims.iter_mut().zip(before.iter().zip(after)) {
            match dim {
                Dim::Size(size) => *size += before + after,
                Dim::Batch if *before == 0 && *after == 0 => {}
                Dim::Batch => {
                    return Err(format!("pads the batch dimension of '{}', which must stay as it is", x.name));
                }
            }
        }
        to_type(dims, x.scale)
    }

    fn largest_constant(&self, _: &[&Value]) -> u64 {
        self.value.unsigned_abs()
    }

    fn rearranges(&self) -> bool {
        self.value == 0
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        pad(protocol, &*arguments.share(protocol, 0)?, &self.before, &self.after, self.value).map(Shared::Integers)
    }
}

/// `value`, at x's scale, put around x: `before` and `after` elements along each dimension.
pub fn pad<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    before: &[usize],
    after: &[usize],
    value: i64,
) -> api::Result<P::Arith> {
    let from = x.shape();
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
