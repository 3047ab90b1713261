//! Multiplication by a public fraction, as average pooling needs it.

use covey_protocols::{Protocol, ProtocolError, Shaped, Truncation, api};
use covey_ring::{Ring, Tensor};

use crate::shift::{self, decode_rounding, describe_rounding, encode_rounding, shift_in_ring};
use crate::tensor_type::{Dim, full, operands, type_of};
use crate::{Arguments, Operator, Requirements, Rounding, Shared, TensorType, Value, wire};

/// floor(x * multiplier / 2^shift).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulShift {
    /// One, or one per element of the trailing `[H,W]` of x, row-major.
    pub multipliers: Vec<i64>,
    /// Bits dropped, at least 1.
    pub shift: u32,
    /// How it rounds.
    pub rounding: Rounding,
}

impl MulShift {
    /// Where multipliers differ, the largest meets smaller operands than the bound of all of them tells (the border of an
    /// average pool), but what stays below 2^b after a shift by s was below 2^(b+s) before.
    fn truncation(&self, x: &Value, result: &Value) -> Truncation {
        let bound = product_bound(x.bound.bits, &self.multipliers).min(result.bound.bits + self.shift);
        Truncation { bits: self.shift, rounding: self.rounding, bound }
    }
}

impl Operator for MulShift {
    type Wire = wire::MulShift;

    fn decode(wire: wire::MulShift) -> Result<Self, String> {
        let rounding = decode_rounding(wire.rounding)?;
        Ok(MulShift { multipliers: wire.multipliers, shift: wire.shift, rounding })
    }

    fn encode(&self) -> wire::MulShift {
        let rounding = encode_rounding(self.rounding);
        wire::MulShift { multipliers: self.multipliers.clone(), shift: self.shift, rounding }
    }

    fn options(&self) -> String {
        let multipliers = match self.multipliers[..] {
            [multiplier] => format!("multiplier {multiplier}"),
            _ => format!("multipliers {:?}", self.multipliers),
        };
        format!("{multipliers}, shift {}, {}", self.shift, describe_rounding(self.rounding))
    }

    fn result_type(&self, inputs: &[&Value], result: &Value, ring: Ring) -> Result<TensorType, String> {
        let ([x], multipliers, shift) = (operands(inputs)?, &self.multipliers, self.shift);
        shift_in_ring(shift, ring)?;
        let plane = match full(x)[..] {
            [.., Dim::Size(height), Dim::Size(width)] => height.checked_mul(width),
            _ => None,
        };
        if multipliers.len() != 1 && (multipliers.is_empty() || Some(multipliers.len()) != plane) {
            return Err(format!(
                "holds {} multipliers: give one, or one per element of the last two dimensions of '{}' {}",
                multipliers.len(),
                x.name,
                x.described()
            ));
        }
        let (least, most) = ring.signed_range();
        if let Some(multiplier) = multipliers.iter().find(|m| !(least..=most).contains(m)) {
            return Err(format!("multiplies by {multiplier}, outside {ring}"));
        }
        // The product is no value of its own, so its fit in the ring is checked here. Several multipliers meet different
        // sums (a border's are smaller and its multipliers larger), which one bound cannot tell apart: their fit is the
        // compiler's to prove, as every value's bound is.
        if let [multiplier] = multipliers[..] {
            let product = ((1u128 << x.bound.bits) - 1) * u128::from(multiplier.unsigned_abs());
            if product > most as u128 {
                return Err(format!(
                    "'{}' is bounded by 2^{} and times {multiplier} leaves {ring}: compile with a larger ring or a smaller \
                     scale",
                    x.name, x.bound.bits
                ));
            }
        }
        if result.scale > x.scale + shift {
            return Err(format!(
                "'{}' has scale {}, above the {} of '{}' plus the shift {shift}",
                result.name, result.scale, x.scale, x.name
            ));
        }
        Ok(TensorType { scale: result.scale, ..type_of(x) })
    }

    fn requirements(&self, x: &Value, result: &Value) -> Requirements {
        Requirements::shift(self.truncation(x, result))
    }

    fn certain_bits(&self, _: &[u32], ring: Ring) -> u32 {
        shift::certain_bits(self.shift, self.rounding, ring)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let truncation = self.truncation(arguments.x, arguments.result);
        mul_shift(protocol, &*arguments.share(protocol, 0)?, &self.multipliers, truncation).map(Shared::Integers)
    }
}

/// Bits that bound the products, for `|x| < 2^bound`.
pub fn product_bound(bound: u32, multipliers: &[i64]) -> u32 {
    let largest = multipliers.iter().map(|m| m.unsigned_abs()).max().unwrap_or(0);
    let product = ((1u128 << bound.min(64)) - 1).saturating_mul(largest.into());
    u128::BITS - product.leading_zeros()
}

/// floor(x · multiplier / 2^shift): one multiplier, or one for each element of the last dimensions of x, row-major.
/// `truncation` is the shift, and bounds the products.
pub fn mul_shift<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    multipliers: &[i64],
    truncation: Truncation,
) -> api::Result<P::Arith> {
    let shape = x.shape();
    let count: usize = shape.iter().product();
    if multipliers.is_empty() || !count.is_multiple_of(multipliers.len()) {
        return Err(ProtocolError::Internal("the multipliers of a layer"));
    }
    if multipliers.iter().all(|&multiplier| multiplier == 1) {
        return protocol.truncate(x, truncation);
    }
    let ring = protocol.ring();
    let factors = multipliers.iter().cycle().take(count).map(|&m| ring.wrap(m.into())).collect();
    let product = protocol.mul_public(x, &Tensor::new(shape, factors))?;
    protocol.truncate(&product, truncation)
}
