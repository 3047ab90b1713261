//! Subtraction, element by element.

use std::borrow::Cow;

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::form::{equal_scales, operands};
use crate::{Call, Form, Operand, Operator, Shared, Value, broadcast, wire};

/// x - y, broadcasting; equal scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sub;

impl Operator for Sub {
    same_message!(Sub {});

    fn form(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<Form, String> {
        let [x, y] = operands(inputs)?;
        equal_scales(x, y)?;
        broadcast::form(x, y, x.scale)
    }

    fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> api::Result<Shared<P>> {
        sub(protocol, call.operand(0)?, call.operand(1)?).map(Shared::Integers)
    }
}

/// x - y.
pub fn sub<P: Protocol>(protocol: &mut P, x: Operand<P>, y: Operand<P>) -> api::Result<P::Arith> {
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
