//! The largest of up to four values in one gate, with the shift and the ReLU behind it (`docs/trio.md`).
//!
//! All pairs are compared at once, and each value with 0 where a ReLU follows. Of each value a bit says that it is the first of the
//! largest, and no less than 0. At most one of these bits is 1: the result is the sum of the values that they select.

mod gate;
mod plan;

pub(crate) use gate::{Largest, Row};
pub(crate) use plan::LargestPlan;
