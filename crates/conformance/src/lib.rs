//! Every suite on every protocol over every transport, against the executable specification.
//!
//! A [`suites::Suite`] is one circuit written on [`covey_protocols::Protocol`]. [`conform`] runs it on `Clear`, on the planner
//! and at every party of a [`Session`], and compares: every opened element with `Clear`'s and with plain integers where the
//! suite states them, every message with the plan. [`program`] does the same for whole programs through the runtime's
//! executor. A [`Harness`] is all a protocol brings: how its parties, its client and its shares of a weight come to be.

#[cfg(debug_assertions)]
pub mod adversary;
pub mod beaver;
pub mod bench;
pub mod conform;
pub mod difference;
pub mod failure;
pub mod goldens;
pub mod harness;
pub mod off_by_one;
pub mod program;
pub mod programs;
pub mod quad;
pub mod samples;
pub mod secrets;
pub mod session;
pub mod suites;
pub mod tap;
pub mod threads;
pub mod transports;
pub mod trio;
pub mod two_party;
pub mod views;

use covey_protocols::{Extended, Protocol};

/// What suites ask of a protocol: all that layers do, and what parties do among themselves.
pub trait Complete: Protocol + Extended {}

impl<P: Protocol + Extended> Complete for P {}

pub use conform::{Counts, conform, conform_clear};
pub use failure::Failure;
pub use harness::{ClientHalf, Harness};
pub use session::Session;
pub use threads::Threads;
pub use transports::Transport;
