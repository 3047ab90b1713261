//! Right shifts.

use covey_protocols::{Protocol, Truncation, api};
use covey_ring::Ring;

use crate::shift::{self, decode_rounding, describe_rounding, encode_rounding, shift_in_ring};
use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Fusion, Operator, Requirements, Rounding, Shared, TensorType, Value, wire};

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

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let ([x], bits) = (operands(inputs)?, self.bits);
        shift_in_ring(bits, ring)?;
        let scale = x.scale.checked_sub(bits).ok_or_else(|| {
            format!("drops {bits} bits but '{}' has scale {}: truncate by at most its scale", x.name, x.scale)
        })?;
        Ok(TensorType { scale, ..type_of(x) })
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements::shift(self.truncation(x))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Shift { bits: self.bits, rounding: self.rounding }
    }

    fn certain_bits(&self, _: &[u32], ring: Ring) -> u32 {
        shift::certain_bits(self.bits, self.rounding, ring)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let (x, truncation) = (arguments.share(protocol, 0)?, self.truncation(arguments.x));
        let shifted = match arguments.relu {
            Some(comparison) => protocol.truncate_relu(&x, truncation, comparison),
            None => protocol.truncate(&x, truncation),
        };
        shifted.map(Shared::Integers)
    }
}
