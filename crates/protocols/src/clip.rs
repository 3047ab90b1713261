//! Clipping to an interval: its ends, and what bounds the comparisons.

use covey_ring::Ring;

use crate::api::Comparison;

/// The ends of a clip at the value's scale; an absent end is open. If both stand, `low <= high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Lowest result.
    pub low: Option<i64>,
    /// Highest result.
    pub high: Option<i64>,
}

impl Ends {
    fn largest(self) -> u64 {
        [self.low, self.high].into_iter().flatten().map(i64::unsigned_abs).max().unwrap_or(0)
    }
}

/// What a table's operand A = max(x, low) is clipped to, min(A, high), and whether A is added to the table's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clipped {
    /// The ends.
    pub ends: Ends,
    /// Whether max(x, low) is added.
    pub adds_input: bool,
}

impl Clipped {
    /// The largest x of that bound.
    pub(crate) fn largest(self, comparison: Comparison, ring: Ring) -> i64 {
        i64::MAX >> (i64::BITS - 1 - comparison.certain.min(ring.bits() - 1))
    }
}

/// Bits that bound the differences a clip compares, for `|x| < 2^bound`: those of 2^bound - 1 plus the larger end.
pub fn difference_bound(bound: u32, ends: Ends) -> u32 {
    let largest = (1u128 << bound.min(64)) - 1 + u128::from(ends.largest());
    u128::BITS - largest.leading_zeros()
}

impl Comparison {
    /// What a clip's comparisons of such a value with its ends may rely on.
    pub(crate) fn of_differences(self, ends: Ends) -> Comparison {
        Comparison { bound: difference_bound(self.bound, ends), certain: difference_bound(self.certain, ends) }
    }
}
