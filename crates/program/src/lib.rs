//! The compiled program and its weights: the only contract between the Python front end and the Rust runtime.
//!
//! A [`Program`] is public and goes to every party; [`Weights`] are secret and stay with their owner's client. Both are
//! parsed, not merely validated: no invalid `Program` or `Weights` exists. `docs/program-format.md` says what each
//! operation means in integer arithmetic; the operators themselves are `covey-operators`'.

#[cfg(any(test, feature = "builder"))]
mod builder;
mod container;
mod convert;
mod dump;
#[cfg(any(test, feature = "builder"))]
mod encode;
mod error;
mod file;
mod node;
mod program;
mod validate;
mod weights;

#[cfg(any(test, feature = "builder"))]
pub use builder::ProgramBuilder;
pub use container::ProgramHash;
pub use covey_operators::{Bound, BoundSource, Kind, Op, Rounding, Value, Visibility, WholeNumbers, Window, op};
pub use error::{ProgramError, WeightsError};
pub use node::{Node, Postprocess, ValueId};
pub use program::{Carried, Program, Served, Serving};
pub use weights::Weights;

#[cfg(test)]
mod tests;
