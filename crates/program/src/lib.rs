//! The compiled program and its weights: the only contract between the Python front end and the Rust runtime.
//!
//! A [`Program`] is public and goes to every party; [`Weights`] are secret and stay with their owner's client. Both are
//! parsed, not merely validated: no invalid `Program` or `Weights` exists. `docs/program-format.md` says what each
//! operation means in integer arithmetic. No protocol is known here.

mod builder;
mod container;
mod convert;
mod dump;
mod error;
mod file;
mod infer;
mod model;
mod program;
mod validate;
mod weights;
mod whole;
mod wire;

pub use builder::ProgramBuilder;
pub use container::ProgramHash;
pub use error::{ProgramError, WeightsError};
pub use model::{Bound, BoundSource, Kind, Node, Op, Postprocess, Rounding, Value, ValueId, Visibility, Window};
pub use program::Program;
pub use weights::Weights;
pub use whole::WholeNumbers;

#[cfg(test)]
mod tests;
