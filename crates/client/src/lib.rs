//! The clients' side: a model owner shares weights with the parties, a data owner shares inputs and opens results.
//!
//! A client never computes for others and holds no shares of theirs. What it sends each party is random to that party:
//! a secret leaves this process only masked, under masks no single party knows.

mod checkpoints;
mod config;
mod data_sets;
mod diagnosis;
mod error;
mod half;
mod opening;
mod parties;
mod preprocessing;
mod queue;
mod reports;
mod role;
mod session;
mod sharing;
mod status;

pub use checkpoints::Resumption;
pub use config::ClientConfig;
pub use data_sets::{data_sets, delete_data};
pub use diagnosis::{Diagnosis, Finding, ProgramDiagnosis, Verdict, diagnose};
pub use error::ClientError;
pub use opening::AbsentDealer;
pub use queue::Waiting;
pub use reports::Progress;
pub use role::{own_role, take_role};
pub use session::{Inference, Inferences, Session, SessionOptions};
pub use sharing::{ShareReport, share_weights};
pub use status::{check, delete_store, delete_weights, round_trips, status};
