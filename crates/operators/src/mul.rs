//! Products, element by element.

use covey_protocols::{Protocol, Shaped, Truncation, api};
use covey_ring::Ring;

use crate::tensor_type::operands;
use crate::{Arguments, Fusion, Operand, Operator, Shared, TensorType, Value, broadcast, wire};

/// x * y element by element, broadcasting; scales add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mul;

impl Operator for Mul {
    same_message!(Mul {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let [x, y] = operands(inputs)?;
        broadcast::type_of(x, y, x.scale + y.scale)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Product { elementwise: true }
    }

    /// The smaller operand is stretched first, over the samples too: there may be many.
    fn factor_elements(&self, operand: &Value, result: &Value) -> usize {
        let samples = if result.batched && !operand.batched { 2 } else { 1 };
        samples * result.elements()
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let (x, y) = (arguments.operand(0)?, arguments.operand(1)?);
        match (x, y, arguments.truncate) {
            (Operand::Secret(x), Operand::Secret(y), Some(truncation)) if arguments.to_nearest => {
                let shape = broadcast::shape(x.shape(), y.shape())?;
                let (x, y) = (broadcast::stretch(protocol, x, &shape)?, broadcast::stretch(protocol, y, &shape)?);
                let product = protocol.mul_to_nearest(&x, &y, truncation)?;
                Ok(protocol.reshape(&product, &arguments.shape()))
            }
            (x, y, truncate) => mul(protocol, x, y, truncate),
        }
        .map(Shared::Integers)
    }
}

/// x · y, then the truncation.
pub fn mul<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: Operand<P>,
    y: Operand<P>,
    truncate: Option<Truncation>,
) -> api::Result<P::Arith> {
    let shape = broadcast::shape(x.shape(), y.shape())?;
    match (x, y) {
        (Operand::Secret(x), Operand::Secret(y)) => {
            let (x, y) = (broadcast::stretch(protocol, x, &shape)?, broadcast::stretch(protocol, y, &shape)?);
            protocol.mul(&x, &y, truncate)
        }
        (Operand::Secret(x), Operand::Public(c)) | (Operand::Public(c), Operand::Secret(x)) => {
            let x = broadcast::stretch(protocol, x, &shape)?;
            let product = protocol.mul_public(&x, &*broadcast::stretch_public(c, &shape))?;
            match truncate {
                Some(truncation) => protocol.truncate(&product, truncation),
                None => Ok(product),
            }
        }
        (Operand::Public(x), y) => {
            let x = protocol.constant(x);
            mul(protocol, Operand::Secret(&x), y, truncate)
        }
    }
}
