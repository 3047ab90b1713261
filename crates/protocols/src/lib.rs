//! Protocols over whole tensors, behind one trait.
//!
//! [`Protocol`] is the interface `operators` and `runtime` are written on; [`clear`] is its executable specification and
//! [`trio`] the three-party protocol of PIGEON, [`two_party`] two parties by oblivious transfer. A protocol's primitives are [`machine::Machine`]s run by one
//! [`scheduler::Scheduler`]; the cost of each is a pure function, summed by [`planner::Planner`].

mod additive;
pub mod agreement;
pub mod api;
pub mod beaver;
mod cadence;
pub mod circuits;
pub mod clear;
pub mod clip;
pub mod cost;
mod dealt;
#[cfg(test)]
mod exposure;
mod linear_map;
mod local;
pub mod machine;
mod masked;
pub mod memory;
pub mod planner;
pub mod quad;
pub mod randomness;
pub mod scheduler;
pub mod served;
mod shift;
pub mod store;
mod timed;
pub mod trio;
pub mod two_party;

/// Whether this build can leave out checks: none that serves anyone.
pub const TAMPERING: bool = cfg!(feature = "tampering");

pub use api::{
    Bias, Checked, Comparison, Epilogue, Geometry, LANES, MatmulShape, NetworkProfile, Options, PARTIES, Phase,
    Pipelines, Placement, Protocol, ProtocolError, Rounding, Truncation, WeightKind, WeightSource,
};
