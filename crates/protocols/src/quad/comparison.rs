//! The circuit of a comparison gate that stands alone, checked: a digit tree, or a carry circuit over single bits.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_kernels::bits::xor_assign;

use super::checks::TileChecks;
use super::{borrow, digits};
use crate::machine::Outbox;
use crate::trio::comparison::{Comparison, ComparisonPlan};

/// The masked messages and verification values of a circuit.
#[derive(Clone)]
pub(super) enum Audit {
    Bits(Arc<borrow::Audit>),
    Digits(Arc<digits::Audit>),
}

/// w or V of a circuit's results.
pub(super) enum Verified {
    Bits(borrow::Verified),
    /// The first result's.
    Digits(Buffer<u64>),
}

impl Audit {
    pub fn new(plan: &ComparisonPlan) -> Self {
        match plan {
            ComparisonPlan::Bits(circuit, dealt) => Audit::Bits(Arc::new(borrow::Audit::new(circuit, *dealt))),
            ComparisonPlan::Digits(circuit) => Audit::Digits(Arc::new(digits::Audit::new(circuit))),
        }
    }

    /// Bytes of P2's masked messages of `len` elements.
    pub fn masked_len(&self, len: usize) -> usize {
        match self {
            Audit::Bits(audit) => audit.masked_len(len),
            Audit::Digits(audit) => audit.masked_len(len),
        }
    }

    /// Bytes that P0 sends for the verification values of `len` elements.
    pub fn verified_len(&self, len: usize) -> usize {
        match self {
            Audit::Bits(audit) => audit.verified_len(len),
            Audit::Digits(audit) => audit.verified_len(len),
        }
    }

    /// P1, P2, before the last round of the circuit or later. Returns what [`Audit::verify`] takes.
    pub fn send_masked(&self, circuit: &Comparison, checks: &mut TileChecks, out: &mut Outbox) -> Buffer<u64> {
        match (self, circuit) {
            (Audit::Bits(audit), Comparison::Bits(borrow)) => return audit.send_masked(borrow, checks, out),
            (Audit::Digits(audit), Comparison::Digits(digits, _)) => audit.send_masked(digits, checks, out),
            _ => unreachable!("of one plan"),
        }
        Buffer::new()
    }

    /// P1, P2, once all is open.
    pub fn verify(&self, circuit: &Comparison, leaves: &[u64], checks: &mut TileChecks) -> Verified {
        match (self, circuit) {
            (Audit::Bits(audit), Comparison::Bits(borrow)) => Verified::Bits(audit.verify(borrow, leaves, checks)),
            (Audit::Digits(audit), Comparison::Digits(digits, _)) => {
                Verified::Digits(audit.result(&audit.verify(digits, checks), checks.width()))
            }
            _ => unreachable!("of one plan"),
        }
    }

    /// P0, P3.
    pub fn verify_dealt(&self, circuit: &Comparison, checks: &mut TileChecks, out: &mut Outbox) -> Verified {
        match (self, circuit) {
            (Audit::Bits(audit), Comparison::Bits(borrow)) => Verified::Bits(audit.verify_dealt(borrow, checks, out)),
            (Audit::Digits(audit), Comparison::Digits(digits, _)) => {
                Verified::Digits(audit.result(&audit.verify_dealt(digits, checks, out), checks.width()))
            }
            _ => unreachable!("of one plan"),
        }
    }
}

impl Verified {
    /// w or V of [`Comparison::sign`].
    pub fn sign(&self, bits: usize, constants: bool) -> Buffer<u64> {
        match self {
            Verified::Bits(verified) => verified.difference_bit(bits - 1, Some(0), constants),
            Verified::Digits(plane) => plane.clone(),
        }
    }
}

/// `x ⊕ y`
pub(super) fn xor(x: &[u64], y: &[u64]) -> Buffer<u64> {
    let mut out = Buffer::copy_of(x);
    xor_assign(&mut out, y);
    out
}
