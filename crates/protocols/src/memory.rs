//! Memory a run will take at each party, from the shapes alone: what shares and weights weigh is added when they come to be and
//! taken off when they go, and the peak is noted.

use std::sync::{Arc, Mutex, PoisonError};

use crate::api::{Geometry, WeightKind};
use crate::cost::Gate;

/// Something that takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    /// A share of so many ring elements.
    Share(usize),
    /// A share of so many ring elements that products need not open any more.
    Opened(usize),
    /// A share of bit planes.
    Bits {
        /// Bits a plane.
        len: usize,
        /// Planes.
        planes: usize,
    },
    /// A prepared weight.
    Weight {
        /// Its map.
        geometry: &'a Geometry,
        /// Where it comes from.
        kind: WeightKind,
    },
    /// What a gate takes while it runs, beside its operands and its result.
    Gate(&'a Gate),
}

/// What is held now and was held at most, by party.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Usage>>);

#[derive(Default)]
struct Usage {
    now: Vec<u64>,
    peak: Vec<u64>,
}

impl Ledger {
    fn change(&self, bytes: &[u64], sign: i8) {
        let mut usage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let parties = usage.now.len().max(bytes.len());
        usage.now.resize(parties, 0);
        usage.peak.resize(parties, 0);
        let Usage { now, peak } = &mut *usage;
        for ((now, peak), &bytes) in now.iter_mut().zip(peak).zip(bytes) {
            *now = if sign > 0 { *now + bytes } else { now.saturating_sub(bytes) };
            *peak = (*peak).max(*now);
        }
    }

    /// Adds something until the token goes.
    pub fn hold(&self, bytes: Vec<u64>) -> Token {
        self.change(&bytes, 1);
        Token { ledger: self.clone(), bytes }
    }

    /// What is held, in role order.
    pub fn now(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).now.clone()
    }

    /// The peak, in role order.
    pub fn peak(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).peak.clone()
    }
}

/// Memory held as long as this lives. A copy holds as much again.
pub(crate) struct Token {
    ledger: Ledger,
    bytes: Vec<u64>,
}

impl Clone for Token {
    fn clone(&self) -> Self {
        self.ledger.hold(self.bytes.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.change(&self.bytes, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_what_lived_together() {
        let ledger = Ledger::default();
        let x = ledger.hold(vec![10, 20]);
        {
            let y = ledger.hold(vec![5, 0]);
            let _copy = y.clone();
        }
        drop(ledger.hold(vec![3, 4]));
        let z = x.clone();
        drop((x, z));
        assert_eq!(ledger.peak(), [20, 40]);
        assert_eq!(ledger.0.lock().unwrap().now, [0, 0]);
    }
}
