//! Why a client cannot do what it was asked to.

use covey_messages::STOPPED;
use covey_messages::config::ConfigError;
use covey_messages::wire::WireError;
use covey_program::WeightsError;
use covey_protocols::ProtocolError;
use covey_runtime::RuntimeError;
use covey_runtime::session::Unsupported;
use covey_transport::{ErrorKind, TransportError};

/// Why a client cannot do what it was asked to: one line each.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A party failed, or the link to it did.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A control message did not come, or is not understood.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A party said no.
    #[error("{party} refused: {reason}")]
    Refused {
        /// The party's name.
        party: String,
        /// What it said.
        reason: String,
    },
    /// The dealer cannot be reached, and the parties cannot go on without.
    #[error("{dealer}; without the dealer: {refusal}")]
    NoDealer {
        /// Why it cannot be reached.
        dealer: TransportError,
        /// Why the parties cannot go on.
        refusal: Box<ClientError>,
    },
    /// A party answered something else than was asked for.
    #[error("{0} broke the format: an answer to another question; install the same Covey release on all machines")]
    Unexpected(String),
    /// The protocol cannot run the program.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The weights do not fit the program.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// An input or a batch that the program cannot take.
    #[error(transparent)]
    Input(#[from] RuntimeError),
    /// The protocol failed in this process.
    #[error(transparent)]
    Protocol(ProtocolError),
    /// Something asked for that makes no sense; says what does.
    #[error("{0}")]
    Request(String),
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random bytes: {0}")]
    Randomness(#[from] getrandom::Error),
}

impl ClientError {
    /// Whether a party's process or connection ended, or it does not answer: it may come back.
    pub fn is_loss(&self) -> bool {
        use ErrorKind::{Aborted, ConnectionLost, Left, Silent, Stalled, Unreachable};
        match self {
            ClientError::Transport(error) | ClientError::Wire(WireError::Transport(error)) => {
                matches!(error.kind(), ConnectionLost | Silent | Stalled | Left | Unreachable)
                    || error.kind() == Aborted && error.detail() == STOPPED
            }
            _ => false,
        }
    }
}

impl From<ProtocolError> for ClientError {
    fn from(error: ProtocolError) -> Self {
        match error {
            ProtocolError::Transport(error) => ClientError::Transport(error),
            error => ClientError::Protocol(error),
        }
    }
}
