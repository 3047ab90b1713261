//! Protocols over whole tensors, behind one trait.
//!
//! [`Protocol`] is the interface `operators` and `runtime` are written on; [`clear`] is its executable specification and
//! [`trio`] the three-party protocol of PIGEON, [`two_party`] two parties by oblivious transfer. A protocol's primitives are [`machine::Machine`]s run by one
//! [`scheduler::Scheduler`]; the cost of each is a pure function, summed by [`planner::Planner`].

mod additive;
pub mod agreement;
pub mod any_party;
pub mod api;
mod arrivals;
pub mod beaver;
mod cadence;
pub mod circuits;
pub mod clear;
pub mod clip;
pub mod components;
mod composed;
pub mod cost;
mod estimate;
#[cfg(test)]
mod exposure;
mod flight;
pub mod kind;
mod linear_map;
mod local;
pub mod machine;
mod masked;
pub mod memory;
mod offline;
mod party;
pub mod planner;
pub mod quad;
pub mod randomness;
pub mod scheduler;
pub mod served;
mod shift;
pub mod store;
mod timed;
pub mod trio;
pub mod turned;
pub mod two_party;

/// Methods of all parts of [`Protocol`], for where a protocol is named by its type: `use covey_protocols::parts::*`.
pub mod parts {
    pub use crate::api::{Costs as _, Extended as _, Linear as _, Local as _, NonLinear as _, Session as _};
}

/// Whether this build can leave out checks for the campaign of a party that cheats. Releases cannot.
pub const TAMPERING: bool = cfg!(debug_assertions);

pub use covey_kernels::{device, filled_rows, threads};

pub use api::{
    Bias, BiasOf, Checked, Comparison, Costs, Epilogue, EpilogueOf, Extended, Geometry, LANES, Layer, LayerOf, Linear,
    LinearMethod, Local, MatmulShape, Maximum, NetworkProfile, NonLinear, Options, PARTIES, Phase, Pipelines,
    Placement, Protocol, ProtocolError, Roles, Rounding, Session, Shaped, SourcedMap, Table, TableShape, Term, TermOf,
    Truncation, UnknownLinearMethod, UnknownRoles, WeightKind, WeightOf, WeightSource,
};
