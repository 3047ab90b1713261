//! Why a party cannot serve.

use std::panic::{AssertUnwindSafe, catch_unwind};

use covey_kernels::device::DeviceError;
use covey_kernels::threads::ThreadsError;
use covey_messages::config::ConfigError;
use covey_messages::wire::WireError;
use covey_transport::{ErrorKind, TransportError};

/// Why a party cannot serve at all: one line each. What goes wrong in a session ends the session only.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The listening socket or the certificate.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// What computes linear layers.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The threads that compute.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// The state folder.
    #[error("state folder {folder}: {problem}; choose another `state` in the configuration or correct its permissions")]
    State {
        /// The folder.
        folder: String,
        /// What the system said.
        problem: String,
    },
    /// The address for metrics and health.
    #[error("party.metrics: cannot listen on {address}: {problem}; choose another address or end what listens there")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        problem: String,
    },
    /// The state folder is another process's.
    #[error(
        "state folder {folder} is in use by another party process: stop that one, or choose another `state` in the configuration"
    )]
    InUse {
        /// The folder.
        folder: String,
    },
}

/// Why one conversation ends, in one line for the other side and the log.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// This party says no.
    #[error("{0}")]
    Refused(String),
    /// The other side failed or went away; nobody is left to tell.
    #[error("{0}")]
    Lost(String),
}

impl Failure {
    pub fn refused(reason: impl Into<String>) -> Self {
        Failure::Refused(reason.into())
    }
}

/// A panic, in one line. Its own text may tell of secrets.
pub(crate) const INTERNAL: &str = "internal error: please report it";

/// Does `work`, whose panic is `Err`: the party's log and whoever waits for an answer learn of it. What it leaves half-changed must be of
/// no use any more.
pub(crate) fn caught<T, E>(work: impl FnOnce() -> Result<T, E>, panicked: impl FnOnce() -> E) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()))
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Transport(error) => error.into(),
            error @ WireError::Message { .. } => Failure::Refused(error.to_string()),
        }
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        match error.kind() {
            // It is still there, and can be told.
            ErrorKind::Format => Failure::Refused(error.to_string()),
            _ => Failure::Lost(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_that_tells_nothing_of_its_reason() {
        let panicked = || Failure::refused(INTERNAL);
        assert_eq!(caught(|| Ok(3), panicked).unwrap(), 3);
        let secret = 17;
        let failed = caught(|| -> Result<(), Failure> { panic!("the share is {secret}") }, panicked);
        assert_eq!(failed.unwrap_err().to_string(), "internal error: please report it");
    }
}
