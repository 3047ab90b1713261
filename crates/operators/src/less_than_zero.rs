//! Comparison with zero.

use covey_protocols::{Comparison, Protocol, api};
use covey_ring::Ring;

use crate::form::{form, operands};
use crate::{Asks, Call, Form, Operator, Shared, Value, wire};

/// 1 where x < 0, else 0, as an integer of scale 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LessThanZero;

impl Operator for LessThanZero {
    same_message!(LessThanZero {});

    fn form(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<Form, String> {
        operands(inputs).map(|[x]| Form { scale: 0, ..form(x) })
    }

    fn puts(&self, _: &[&Value]) -> u64 {
        1
    }

    fn asks(&self, x: &Value, _: &Value) -> Asks {
        Asks::comparison(x.bound.bits)
    }

    fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> api::Result<Shared<P>> {
        less_than_zero(protocol, &*call.share(protocol, 0)?, call.comparison()).map(Shared::Integers)
    }
}

/// 1 where x < 0, else 0, as integers of scale 0; any shape.
pub fn less_than_zero<P: Protocol>(protocol: &mut P, x: &P::Arith, comparison: Comparison) -> api::Result<P::Arith> {
    let negative = protocol.msb(x, comparison)?;
    protocol.bit2a(&negative, P::shape(x))
}
