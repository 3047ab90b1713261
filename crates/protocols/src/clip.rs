//! Clipping to an interval, from rectifiers.

use covey_ring::Tensor;

use crate::api::{Comparison, Protocol, ProtocolError, Result};

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

/// Bits that bound the differences a clip compares, for `|x| < 2^bound`: those of 2^bound - 1 plus the larger end.
pub fn difference_bound(bound: u32, ends: Ends) -> u32 {
    let largest = (1u128 << bound.min(64)) - 1 + u128::from(ends.largest());
    u128::BITS - largest.leading_zeros()
}

impl Comparison {
    /// What a clip's comparisons of such a value with its ends may rely on.
    pub(crate) fn of_differences(self, ends: Ends) -> Comparison {
        Comparison { bound: difference_bound(self.bound, ends), ..self }
    }
}

/// min(max(x, low), high) as x + max(low - x, 0) - max(x - high, 0): both comparisons side by side.
pub(crate) fn composed<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    ends: Ends,
    comparison: Comparison,
) -> Result<P::Arith> {
    let shape = P::shape(x).to_vec();
    let count: usize = shape.iter().product();
    let ring = protocol.ring();
    let constant = |value: i128| Tensor::new(shape.clone(), vec![ring.wrap::<P::Word>(value); count]);
    let mut outside = Vec::with_capacity(2);
    if let Some(low) = ends.low {
        let low = protocol.constant(&constant(low.into()));
        outside.push(protocol.sub(&low, x)?);
    }
    if let Some(high) = ends.high {
        outside.push(protocol.add_public(x, &constant(-i128::from(high)))?);
    }
    let all = protocol.concat(&outside.iter().collect::<Vec<_>>())?;
    let excess = protocol.relu(&all, comparison.of_differences(ends))?;
    // What lacks below is added, what exceeds above is taken away.
    let signs = [ends.low.map(|_| 1), ends.high.map(|_| -1)].into_iter().flatten();
    let signs: Vec<P::Word> = signs.flat_map(|sign| vec![ring.wrap(sign); count]).collect();
    let excess = protocol.mul_public(&excess, &Tensor::new([signs.len()], signs))?;
    let correction = match outside.len() {
        1 => excess,
        2 => {
            let by_element: Vec<u32> = (0..count).flat_map(|i| [i as u32, (count + i) as u32]).collect();
            let paired = protocol.gather(&excess, &by_element, &[count, 2])?;
            protocol.sum_last(&paired)?
        }
        _ => return Err(ProtocolError::Internal("a clip without ends")),
    };
    let correction = protocol.reshape(&correction, &shape);
    protocol.add(x, &correction)
}
