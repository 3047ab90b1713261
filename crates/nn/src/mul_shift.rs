//! Multiplication by a public fraction, as average pooling needs it.

use covey_protocols::api::Result;
use covey_protocols::{Protocol, ProtocolError, Truncation};
use covey_ring::Tensor;

/// Bits that bound the products, for `|x| < 2^bound`.
pub fn product_bound(bound: u32, multipliers: &[i64]) -> u32 {
    let largest = multipliers.iter().map(|m| m.unsigned_abs()).max().unwrap_or(0);
    let product = ((1u128 << bound.min(64)) - 1).saturating_mul(largest.into());
    u128::BITS - product.leading_zeros()
}

/// floor(x · multiplier / 2^shift): one multiplier, or one for each element of the last dimensions of x, row-major.
/// `truncation` is the shift, and bounds the products.
pub fn mul_shift<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    multipliers: &[i64],
    truncation: Truncation,
) -> Result<P::Arith> {
    let shape = P::shape(x);
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
