//! Division by a public integer.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::form::{form, operands};
use crate::{Asks, Call, Form, Operator, Shared, Value, wire};

/// floor(x / divisor).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivExact {
    /// Positive.
    pub divisor: u64,
}

impl Operator for DivExact {
    same_message!(DivExact { divisor });

    fn options(&self) -> String {
        format!("divisor {}", self.divisor)
    }

    fn form(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<Form, String> {
        let ([x], divisor) = (operands(inputs)?, self.divisor);
        if divisor == 0 || divisor > ring.signed_range().1 as u64 {
            return Err(format!("divisor {divisor} is not between 1 and the largest integer of {ring}"));
        }
        Ok(form(x))
    }

    fn asks(&self, x: &Value, _: &Value) -> Asks {
        Asks { division: Some((self.divisor, x.bound.bits)), ..Asks::default() }
    }

    fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> api::Result<Shared<P>> {
        protocol.div_exact(&*call.share(protocol, 0)?, self.divisor, call.x.bound.bits).map(Shared::Integers)
    }
}
