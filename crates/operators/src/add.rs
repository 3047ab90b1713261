//! Addition, element by element.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{equal_scales, most, operands};
use crate::{Arguments, Fusion, Operand, Operator, Shared, TensorType, Value, broadcast, wire};

/// x + y, broadcasting; equal scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add;

impl Operator for Add {
    same_message!(Add {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let [x, y] = operands(inputs)?;
        equal_scales(x, y)?;
        broadcast::type_of(x, y, x.scale)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Addition
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands) + 1
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        add(protocol, arguments.operand(0)?, arguments.operand(1)?).map(Shared::Integers)
    }
}

/// x + y.
pub fn add<P: Protocol + ?Sized>(protocol: &mut P, x: Operand<P>, y: Operand<P>) -> api::Result<P::Arith> {
    let shape = broadcast::shape(x.shape(), y.shape())?;
    match (x, y) {
        (Operand::Secret(x), Operand::Secret(y)) => {
            let (x, y) = (broadcast::stretch(protocol, x, &shape)?, broadcast::stretch(protocol, y, &shape)?);
            protocol.add(&x, &y)
        }
        (Operand::Secret(x), Operand::Public(c)) | (Operand::Public(c), Operand::Secret(x)) => {
            let x = broadcast::stretch(protocol, x, &shape)?;
            protocol.add_public(&x, &*broadcast::stretch_public(c, &shape))
        }
        (Operand::Public(x), y) => {
            let x = protocol.constant(x);
            add(protocol, Operand::Secret(&x), y)
        }
    }
}
