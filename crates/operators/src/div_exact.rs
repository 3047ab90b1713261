//! Division by a public integer.

use covey_protocols::{Protocol, api};
use covey_ring::Ring;

use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Requirements, Shared, TensorType, Value, wire};

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

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let ([x], divisor) = (operands(inputs)?, self.divisor);
        if divisor == 0 || divisor > ring.signed_range().1 as u64 {
            return Err(format!("divisor {divisor} is not between 1 and the largest integer of {ring}"));
        }
        Ok(type_of(x))
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements { division: Some((self.divisor, x.bound.bits)), ..Requirements::default() }
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        protocol.div_exact(&*arguments.share(protocol, 0)?, self.divisor, arguments.x.bound.bits).map(Shared::Integers)
    }
}
