//! Clipping to an interval.

use covey_protocols::api::Result;
pub use covey_protocols::clip::{Ends, difference_bound};
use covey_protocols::{Comparison, Protocol};

/// min(max(x, low), high), any shape.
///
/// `comparison` bounds x; the differences from the ends are bounded by [`difference_bound`].
pub fn clip<P: Protocol>(protocol: &mut P, x: &P::Arith, ends: Ends, comparison: Comparison) -> Result<P::Arith> {
    protocol.clip(x, ends, comparison)
}
