//! Comparison with zero that gives bits.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::form::{form, operands};
use crate::{Asks, Call, Form, Operator, Shared, Value, wire};

/// The bit of x < 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsNegative;

impl Operator for IsNegative {
    same_message!(IsNegative {});

    fn form(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<Form, String> {
        operands(inputs).map(|[x]| Form { scale: 0, bits: true, ..form(x) })
    }

    fn asks(&self, x: &Value, _: &Value) -> Asks {
        Asks::comparison(x.bound.bits)
    }

    fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> api::Result<Shared<P>> {
        protocol.msb(&*call.share(protocol, 0)?, call.comparison()).map(Shared::Bits)
    }
}
