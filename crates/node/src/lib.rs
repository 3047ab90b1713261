//! The party daemon: keeps its shares of weights, and computes on shares with the other parties for the clients it knows.
//!
//! A party never sees weights, inputs or results. It answers only clients and parties whose keys its configuration pins.

mod ahead;
mod config;
mod error;
mod handshake;
mod keys;
mod lanes;
mod masks;
mod numbers;
mod own;
mod place;
mod quota;
mod runs;
mod serve;
mod session;
mod sharing;
mod state;
mod supply;
#[doc(hidden)]
pub mod untrusted;
mod usage;
mod weights;

pub use config::{AllowedClient, PartyConfig};
pub use error::NodeError;
pub use own::{OwnSession, own_stores};
pub use serve::serve;
