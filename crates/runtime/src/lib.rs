//! Runs compiled programs on any protocol.
//!
//! A [`Schedule`] says what runs when; the [`Executor`] runs it on any `Protocol`, in any phase, at any batch size; the
//! same executor on a planner gives the [`plan`], whose seconds on a network [`estimate`] tells. [`session`] chooses
//! protocol and ring once, [`clear`] runs the specification.

mod batch;
mod carried;
pub mod clear;
mod data;
mod error;
pub mod estimate;
mod executor;
mod factors;
pub mod plan;
pub mod profile;
mod rounding;
mod rows;
mod schedule;
pub mod session;

pub use batch::check_batch;
pub use carried::CarriedShares;
pub use data::{Input, Output, encode_inputs};
pub use error::RuntimeError;
pub use executor::{Executor, Observer, Parameter, Preparation, RunSettings};
pub use profile::Profile;
pub use rounding::{RoundedOutputs, loses_bits};
pub use rows::RowForm;
pub use schedule::{Fusions, INPUTS, OUTPUTS, Schedule, Step};
