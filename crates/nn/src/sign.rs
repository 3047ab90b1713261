//! Comparison with zero.

use covey_protocols::api::Result;
use covey_protocols::{Comparison, Protocol};

/// 1 where x < 0, else 0, as integers of scale 0; any shape.
pub fn less_than_zero<P: Protocol>(protocol: &mut P, x: &P::Arith, comparison: Comparison) -> Result<P::Arith> {
    let negative = protocol.msb(x, comparison)?;
    protocol.bit2a(&negative, P::shape(x))
}
