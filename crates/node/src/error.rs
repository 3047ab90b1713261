//! Why a party cannot serve.

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
