//! The party daemon: keeps its shares of weights, and computes on shares with the other parties for the clients it knows.
//!
//! A party never sees weights, inputs or results. It answers only clients and parties whose keys its configuration pins.

mod admission;
mod budget;
mod checkpoints;
mod claim;
mod config;
mod data_sets;
mod dumps;
mod error;
mod files;
mod handshake;
mod headed_file;
mod history;
mod holdings;
mod journal;
mod keys;
mod lanes;
mod masks;
mod metrics;
mod monitor;
mod numbers;
mod offers;
mod others;
mod own;
mod places;
mod queue;
mod quota;
mod records;
mod reports;
mod requests;
mod resuming;
mod role;
mod runs;
mod serve;
mod session;
mod shared_data;
mod sharing;
mod state;
mod stored_runs;
mod supply;
mod trained;
mod turns;
#[cfg(feature = "fuzz")]
pub mod untrusted;
mod usage;
mod weights;

/// Profiles can set debug assertions for one package.
const _: () = assert!(
    !covey_protocols::TAMPERING || cfg!(debug_assertions),
    "covey-protocols has debug assertions, by which checks can be left out, in a release: leave them out"
);
/// Cargo unites the features of all packages of a build.
const _: () = assert!(
    !covey_kernels::constant_time::MARKS,
    "built with the feature `constant-time`, which marks secrets for a checker: leave it out"
);

pub use budget::{ClientBudget, PartyBudget};
pub use config::{AllowedClient, PartyConfig};
pub use dumps::forbid_core_dumps;
pub use error::NodeError;
pub use holdings::{Holdings, Operator};
pub use journal::{LogFormat, UnknownFormat, start_log};
pub use own::{OwnParty, OwnState, delete_own_data, delete_own_material, own_data_sets, own_runs, own_stores};
pub use serve::serve;
