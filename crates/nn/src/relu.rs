//! The rectifier.

use covey_protocols::api::Result;
use covey_protocols::{Comparison, Protocol};

/// max(x, 0), any shape.
pub fn relu<P: Protocol>(protocol: &mut P, x: &P::Arith, comparison: Comparison) -> Result<P::Arith> {
    protocol.relu(x, comparison)
}
