//! The same elements in another shape.

use covey_protocols::{Protocol, ProtocolError, api};
use covey_ring::Ring;

use crate::form::{form, operands};
use crate::{Call, Form, Operator, Shared, Value, wire};

/// The same elements, row-major, in the output value's shape; the batch dimension stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape;

impl Operator for Reshape {
    same_message!(Reshape {});

    fn form(&self, inputs: &[&Value], result: &Value, _: Ring) -> Result<Form, String> {
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
        Ok(Form { scale: x.scale, ..form(result) })
    }

    fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> api::Result<Shared<P>> {
        reshape(protocol, &*call.share(protocol, 0)?, &call.shape()).map(Shared::Integers)
    }
}

/// The same elements, row-major, in `shape`.
pub fn reshape<P: Protocol>(protocol: &mut P, x: &P::Arith, shape: &[usize]) -> api::Result<P::Arith> {
    if P::shape(x).iter().product::<usize>() != shape.iter().product::<usize>() {
        return Err(ProtocolError::Internal("the shape of a reshape"));
    }
    Ok(protocol.reshape(x, shape))
}
