//! Right shifts.

use covey_protocols::{Protocol, Truncation, api};
use covey_ring::Ring;

use crate::form::{form, operands};
use crate::shift::{decode_rounding, describe_rounding, encode_rounding, shift_in_ring};
use crate::{Asks, Call, Form, Fusion, Operator, Rounding, Shared, Value, wire};

/// floor(x / 2^bits).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// Bits dropped, at least 1.
    pub bits: u32,
    /// How it rounds.
    pub rounding: Rounding,
}

impl Truncate {
    fn truncation(&self, x: &Value) -> Truncation {
        Truncation { bits: self.bits, rounding: self.rounding, bound: x.bound.bits }
    }
}

impl Operator for Truncate {
    type Wire = wire::Truncate;

    fn decode(wire: wire::Truncate) -> Result<Self, String> {
        Ok(Truncate { bits: wire.bits, rounding: decode_rounding(wire.rounding)? })
    }

    fn encode(&self) -> wire::Truncate {
        wire::Truncate { bits: self.bits, rounding: encode_rounding(self.rounding) }
    }

    fn options(&self) -> String {
        format!("bits {}, {}", self.bits, describe_rounding(self.rounding))
    }

    fn form(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<Form, String> {
        let ([x], bits) = (operands(inputs)?, self.bits);
        shift_in_ring(bits, ring)?;
        let scale = x.scale.checked_sub(bits).ok_or_else(|| {
            format!("drops {bits} bits but '{}' has scale {}: truncate by at most its scale", x.name, x.scale)
        })?;
        Ok(Form { scale, ..form(x) })
    }

    fn asks(&self, x: &Value, _: &Value) -> Asks {
        Asks::shift(self.truncation(x))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Shift { bits: self.bits, rounding: self.rounding }
    }

    fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> api::Result<Shared<P>> {
        let (x, truncation) = (call.share(protocol, 0)?, self.truncation(call.x));
        let shifted = match call.relu {
            Some(comparison) => protocol.truncate_relu(&x, truncation, comparison),
            None => protocol.truncate(&x, truncation),
        };
        shifted.map(Shared::Integers)
    }
}
