//! The rectifier.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::form::{form, operands};
use crate::{Asks, Call, Form, Fusion, Operator, Shared, Value, wire};

/// max(x, 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relu;

impl Operator for Relu {
    same_message!(Relu {});

    fn form(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<Form, String> {
        operands(inputs).map(|[x]| form(x))
    }

    fn asks(&self, x: &Value, _: &Value) -> Asks {
        Asks::comparison(x.bound.bits)
    }

    fn fusion(&self) -> Fusion {
        Fusion::Rectifier
    }

    fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> api::Result<Shared<P>> {
        protocol.relu(&*call.share(protocol, 0)?, call.comparison()).map(Shared::Integers)
    }
}
