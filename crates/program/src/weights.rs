//! placeholder

/// Weights.
pub struct Weights;
