//! What B and A of a prepared weight are drawn from, in all sessions that use it ([`super::folding`]).
//!
//! Whether a changed message passes tells its sender something of B. Who sent one may also end the session before it has said its verdict,
//! and then no other party hears of the difference. So P3, which compares, marks the challenge as spent by itself, and before it tells
//! anybody: weights that it has prepared with such a challenge serve no further session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::randomness::DrawKeys;

/// The keys, and whether somebody has tried what they catch.
pub(super) struct Challenge {
    pub keys: DrawKeys,
    spent: Arc<AtomicBool>,
}

impl Challenge {
    pub fn new(keys: DrawKeys) -> Self {
        Challenge { keys, spent: Arc::default() }
    }

    /// A message that it served to check was changed.
    pub fn spend(&self) {
        self.spent.store(true, Ordering::Release);
    }

    /// For whoever keeps the weights.
    pub fn spent(&self) -> Arc<AtomicBool> {
        self.spent.clone()
    }
}
