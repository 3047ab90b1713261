//! Subtraction, element by element.

use std::borrow::Cow;

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{equal_scales, most, operands};
use crate::{Arguments, Operand, Operator, Shared, TensorType, Value, broadcast, wire};

/// x - y, broadcasting; equal scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sub;

impl Operator for Sub {
    same_message!(Sub {});

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let [x, y] = operands(inputs)?;
        equal_scales(x, y)?;
        broadcast::type_of(x, y, x.scale)
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands) + 1
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        sub(protocol, arguments.operand(0)?, arguments.operand(1)?).map(Shared::Integers)
    }
}

/// x - y.
pub fn sub<P: Protocol + ?Sized>(protocol: &mut P, x: Operand<P>, y: Operand<P>) -> api::Result<P::Arith> {
    let shape = broadcast::shape(x.shape(), y.shape())?;
    let x = match x {
        Operand::Secret(x) => broadcast::stretch(protocol, x, &shape)?,
        Operand::Public(x) => Cow::Owned(protocol.constant(&*broadcast::stretch_public(x, &shape))),
    };
    let y = match y {
        Operand::Secret(y) => broadcast::stretch(protocol, y, &shape)?,
        Operand::Public(y) => Cow::Owned(protocol.constant(&*broadcast::stretch_public(y, &shape))),
    };
    protocol.sub(&x, &y)
}
