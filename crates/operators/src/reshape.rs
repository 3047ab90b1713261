//! The same elements in another shape.

use covey_protocols::{Protocol, ProtocolError, Shaped, api};
use covey_ring::Ring;

use crate::tensor_type::{most, operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// The same elements, row-major, in the output value's shape; the batch dimension stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape;

impl Operator for Reshape {
    same_message!(Reshape {});

    fn result_type(&self, inputs: &[&Value], result: &Value, _: Ring) -> Result<TensorType, String> {
        let [x] = operands(inputs)?;
        if x.batched != result.batched || x.elements() != result.elements() {
            return Err(format!(
                "'{}' of shape {} cannot become '{}' of shape {}: the batch and the number of elements must stay",
                x.name,
                x.described(),
                result.name,
                result.described()
            ));
        }
        Ok(TensorType { scale: x.scale, ..type_of(result) })
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands)
    }

    fn rearranges(&self) -> bool {
        true
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        reshape(protocol, &*arguments.share(protocol, 0)?, &arguments.shape()).map(Shared::Integers)
    }
}

/// The same elements, row-major, in `shape`.
pub fn reshape<P: Protocol + ?Sized>(protocol: &mut P, x: &P::Arith, shape: &[usize]) -> api::Result<P::Arith> {
    if x.shape().iter().product::<usize>() != shape.iter().product::<usize>() {
        return Err(ProtocolError::Internal("the shape of a reshape"));
    }
    Ok(protocol.reshape(x, shape))
}
