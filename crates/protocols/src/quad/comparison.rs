//! The circuit of a comparison gate that stands alone, checked: a digit tree, or a carry circuit over single bits.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_kernels::bits::xor_assign;

use super::book::Book;
use super::{borrow, digits};
use crate::machine::Outbox;
use crate::trio::comparison::{Comparison, Plan};

/// What is disclosed and settled of a circuit.
#[derive(Clone)]
pub(super) enum Audit {
    Bits(Arc<borrow::Audit>),
    Digits(Arc<digits::Audit>),
}

/// w or V of a circuit's results.
pub(super) enum Settled {
    Bits(borrow::Settled),
    /// The first result's.
    Digits(Buffer<u64>),
}

impl Audit {
    pub fn new(plan: &Plan) -> Self {
        match plan {
            Plan::Bits(circuit, dealt) => Audit::Bits(Arc::new(borrow::Audit::new(circuit, *dealt))),
            Plan::Digits(program) => Audit::Digits(Arc::new(digits::Audit::new(program))),
        }
    }

    /// Bytes that P2 discloses of `len` elements.
    pub fn disclosed_len(&self, len: usize) -> usize {
        match self {
            Audit::Bits(audit) => audit.disclosed_len(len),
            Audit::Digits(audit) => audit.disclosed_len(len),
        }
    }

    /// Bytes that P0 sends for what is settled of `len` elements.
    pub fn settled_len(&self, len: usize) -> usize {
        match self {
            Audit::Bits(audit) => audit.settled_len(len),
            Audit::Digits(audit) => audit.settled_len(len),
        }
    }

    /// P1, P2, before the last round of the circuit or later. Returns what [`Audit::settle`] takes.
    pub fn disclose(&self, circuit: &Comparison, book: &mut Book, out: &mut Outbox) -> Buffer<u64> {
        match (self, circuit) {
            (Audit::Bits(audit), Comparison::Bits(borrow)) => return audit.disclose(borrow, book, out),
            (Audit::Digits(audit), Comparison::Digits(digits, _)) => audit.disclose(digits, book, out),
            _ => unreachable!("of one plan"),
        }
        Buffer::new()
    }

    /// P1, P2, once all is open.
    pub fn settle(&self, circuit: &Comparison, leaves: &[u64], book: &mut Book) -> Settled {
        match (self, circuit) {
            (Audit::Bits(audit), Comparison::Bits(borrow)) => Settled::Bits(audit.settle(borrow, leaves, book)),
            (Audit::Digits(audit), Comparison::Digits(digits, _)) => {
                Settled::Digits(audit.result(&audit.settle(digits, book), book.width()))
            }
            _ => unreachable!("of one plan"),
        }
    }

    /// P0, P3.
    pub fn settle_dealt(&self, circuit: &Comparison, book: &mut Book, out: &mut Outbox) -> Settled {
        match (self, circuit) {
            (Audit::Bits(audit), Comparison::Bits(borrow)) => Settled::Bits(audit.settle_dealt(borrow, book, out)),
            (Audit::Digits(audit), Comparison::Digits(digits, _)) => {
                Settled::Digits(audit.result(&audit.settle_dealt(digits, book, out), book.width()))
            }
            _ => unreachable!("of one plan"),
        }
    }
}

impl Settled {
    /// w or V of [`Comparison::sign`].
    pub fn sign(&self, bits: usize, constants: bool) -> Buffer<u64> {
        match self {
            Settled::Bits(settled) => settled.difference_bit(bits - 1, Some(0), constants),
            Settled::Digits(plane) => plane.clone(),
        }
    }
}

/// `x ⊕ y`
pub(super) fn xor(x: &[u64], y: &[u64]) -> Buffer<u64> {
    let mut out = Buffer::copy_of(x);
    xor_assign(&mut out, y);
    out
}
