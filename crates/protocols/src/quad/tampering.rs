//! Checks that conformance leaves out, one at a time, to see that each is missed. In a release none can be.

use super::transcript::{GIVEN, Line};
use super::verdict::FIRST_LINE;

/// How a verdict begins that says that P3 was sent other digests of what was computed than its own.
pub const COMPUTED_DIFFERS: u8 = super::verdict::OPENED;

/// One check of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// What P0 deals to P1 is what P3 computes.
    DealtToP1,
    /// What P0 deals to P2 is what P3 computes.
    DealtToP2,
    /// All that P3 compares with P1.
    P1WithP3,
    /// All that P3 compares with P2.
    P2WithP3,
    /// All that P1 and P2 compare.
    P1WithP2,
    /// Seeds at P0 and P1.
    P0WithP1,
    /// Seeds at P0 and P2.
    P0WithP2,
    /// Seeds at P0 and P3.
    P0WithP3,
    /// Nothing is said of what was computed where what was given differs.
    GivenFirst,
    /// What P2 sends P3 masked is what P1 would.
    MaskedMessage,
    /// What a gate opens, under P3's mask.
    VerificationValue,
    /// Combinations of what is opened of a matrix product.
    Combined,
    /// P1 and P2 were given the same masked input.
    InputMasked,
    /// P3 was given the same input as P1 and P2.
    InputValue,
    /// Seeds of parameters at rest.
    StoredSeeds,
    /// P1 and P2 were given the same masked parameter.
    StoredMasked,
    /// P3 was given the same parameter as P1 and P2.
    StoredValue,
    /// All parties were given the same public parameters.
    Public,
    /// What a party says of the comparison is what it told the others.
    Echoes,
    /// Two parties gave the client the same seeds.
    ClientSeeds,
    /// The client was told the same result twice.
    ClientOutput,
    /// A party was told the same twice when a value is opened.
    Opening,
    /// What a party finds itself stops it. A cheater's business: none of [`Check::ALL`].
    Own,
}

impl Check {
    /// All that honest parties do.
    pub const ALL: [Check; 22] = [
        Check::DealtToP1,
        Check::DealtToP2,
        Check::P1WithP3,
        Check::P2WithP3,
        Check::P1WithP2,
        Check::P0WithP1,
        Check::P0WithP2,
        Check::P0WithP3,
        Check::GivenFirst,
        Check::MaskedMessage,
        Check::VerificationValue,
        Check::Combined,
        Check::InputMasked,
        Check::InputValue,
        Check::StoredSeeds,
        Check::StoredMasked,
        Check::StoredValue,
        Check::Public,
        Check::Echoes,
        Check::ClientSeeds,
        Check::ClientOutput,
        Check::Opening,
    ];

    /// The checks without any one of which a party might not have come to `verdict`, in a check of weights or in a later one. A message of
    /// copies of verdicts is none.
    pub fn behind(verdict: &[u8], of_weights: bool) -> Vec<Check> {
        let [what, _, _, _, _] = *verdict else { return Vec::new() };
        // What is noted for lines; nothing is noted of what is dealt but all of it.
        let computed = match of_weights {
            true => vec![Check::StoredSeeds, Check::StoredValue],
            false => vec![Check::MaskedMessage, Check::VerificationValue, Check::Combined, Check::InputValue],
        };
        let given = match of_weights {
            true => vec![Check::StoredSeeds, Check::StoredMasked, Check::Public],
            false => vec![Check::InputMasked],
        };
        let line = what.checked_sub(FIRST_LINE).and_then(|index| GIVEN.get(usize::from(index)));
        match (what, line) {
            (0, _) => Vec::new(),
            (COMPUTED_DIFFERS, _) => [vec![Check::P1WithP3, Check::P2WithP3], computed].concat(),
            (_, Some(line)) => [vec![Check::of(*line), Check::GivenFirst], given].concat(),
            _ => vec![Check::GivenFirst],
        }
    }

    /// The comparison of a line.
    pub(super) fn of(line: Line) -> Check {
        match line {
            Line::P3ToP1 => Check::DealtToP1,
            Line::P3ToP2 => Check::DealtToP2,
            Line::P1ToP3 => Check::P1WithP3,
            Line::P2ToP3 => Check::P2WithP3,
            Line::P1ToP2 => Check::P1WithP2,
            Line::P0ToP1 => Check::P0WithP1,
            Line::P0ToP2 => Check::P0WithP2,
            Line::P0ToP3 => Check::P0WithP3,
        }
    }
}

/// Whether the check is done.
#[cfg(not(debug_assertions))]
pub(super) const fn is_done(_: Check) -> bool {
    true
}

#[cfg(debug_assertions)]
pub(super) use chosen::is_done;
#[cfg(debug_assertions)]
pub use chosen::leave_out;

/// A thread is one party.
#[cfg(debug_assertions)]
mod chosen {
    use std::cell::RefCell;

    use super::Check;

    thread_local! {
        static LEFT_OUT: RefCell<Vec<Check>> = const { RefCell::new(Vec::new()) };
    }

    /// From now on the party of this thread does without `checks`.
    ///
    /// # Panics
    /// If other threads compute for it, which would not know.
    pub fn leave_out(checks: Vec<Check>) {
        assert_eq!(covey_kernels::threads::in_use(), 1, "checks are left out on one thread");
        LEFT_OUT.set(checks);
    }

    pub(in crate::quad) fn is_done(check: Check) -> bool {
        LEFT_OUT.with_borrow(|left_out| !left_out.contains(&check))
    }
}
