//! Multiplication by a power of two.

use covey_protocols::{Protocol, Shaped, api};
use covey_ring::{Ring, Tensor};

use crate::shift::shift_in_ring;
use crate::tensor_type::{operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, wire};

/// x * 2^bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShiftLeft {
    /// Bits gained, at least 1.
    pub bits: u32,
}

impl Operator for ShiftLeft {
    same_message!(ShiftLeft { bits });

    fn options(&self) -> String {
        format!("bits {}", self.bits)
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, ring: Ring) -> Result<TensorType, String> {
        let [x] = operands(inputs)?;
        shift_in_ring(self.bits, ring)?;
        Ok(TensorType { scale: x.scale + self.bits, ..type_of(x) })
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        shift_left(protocol, &*arguments.share(protocol, 0)?, self.bits).map(Shared::Integers)
    }
}

/// x · 2^bits.
pub fn shift_left<P: Protocol + ?Sized>(protocol: &mut P, x: &P::Arith, bits: u32) -> api::Result<P::Arith> {
    let shape = x.shape();
    let factor = protocol.ring().wrap::<P::Word>(1i128 << bits.min(126));
    let factors = Tensor::new(shape, vec![factor; shape.iter().product()]);
    protocol.mul_public(x, &factors)
}
