//! What shifts have in common: their rounding on the wire, and their fit in the ring.

use covey_protocols::Comparison;
use covey_ring::Ring;

use crate::{Rounding, wire};

/// Reads how a shift rounds.
pub(crate) fn decode_rounding(number: i32) -> Result<Rounding, String> {
    match wire::Rounding::try_from(number) {
        Ok(wire::Rounding::Exact) => Ok(Rounding::Exact),
        Ok(wire::Rounding::Ulp) => Ok(Rounding::Ulp),
        Ok(wire::Rounding::Probabilistic) => Ok(Rounding::Probabilistic),
        Err(_) => Err(format!("rounding {number} is not known to this Covey: upgrade")),
    }
}

/// Writes how a shift rounds.
pub(crate) fn encode_rounding(rounding: Rounding) -> i32 {
    match rounding {
        Rounding::Exact => wire::Rounding::Exact.into(),
        Rounding::Ulp => wire::Rounding::Ulp.into(),
        Rounding::Probabilistic => wire::Rounding::Probabilistic.into(),
    }
}

/// Names how a shift rounds.
pub(crate) fn describe_rounding(rounding: Rounding) -> &'static str {
    match rounding {
        Rounding::Exact => "exact",
        Rounding::Ulp => "ulp",
        Rounding::Probabilistic => "probabilistic",
    }
}

/// Bits that are certain behind a shift: no operand that keeps its bound leaves more of them.
pub(crate) fn certain_bits(bits: u32, rounding: Rounding, ring: Ring) -> u32 {
    match rounding {
        Rounding::Exact => ring.bits() - 1 - bits,
        Rounding::Ulp | Rounding::Probabilistic => Comparison::UNKNOWN,
    }
}

/// Refuses shifts that a ring has no room for.
pub(crate) fn shift_in_ring(bits: u32, ring: Ring) -> Result<(), String> {
    if bits == 0 || bits >= ring.bits() {
        return Err(format!("shifts by {bits} bits where 1 to {} are allowed in {ring}", ring.bits() - 1));
    }
    Ok(())
}
