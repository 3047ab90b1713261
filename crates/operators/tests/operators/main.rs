//! Operators, as one binary.

mod layers;
mod wire;
