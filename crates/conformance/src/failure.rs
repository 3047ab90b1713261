//! Why a protocol does not conform.

use covey_protocols::ProtocolError;
use covey_runtime::RuntimeError;
use covey_transport::TransportError;

/// Why a protocol does not conform.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An operation failed.
    #[error("{place}: {source}")]
    Protocol {
        /// The suite's case.
        place: String,
        /// The operation's error.
        source: ProtocolError,
    },
    /// A run of a program failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A wrong element.
    #[error("{place} at {who}: element {index} is {found} where {due} is due by {source_of} (seed {seed})")]
    Value {
        /// The suite and its case.
        place: String,
        /// The party, the client or clear.
        who: String,
        /// Which element.
        index: usize,
        /// What there is.
        found: i64,
        /// What was due.
        due: i64,
        /// Whose word that is.
        source_of: &'static str,
        /// Of the samples.
        seed: u64,
    },
    /// Too many large errors of a probabilistic shift.
    #[error("{place} at {who}: {found} large errors where the stated probability allows {allowed}")]
    Errors {
        /// The suite and its case.
        place: String,
        /// The party.
        who: String,
        /// How many there are.
        found: usize,
        /// How many there may be.
        allowed: usize,
    },
    /// Results that do not line up.
    #[error("{place} at {who}: {problem}")]
    Shape {
        /// The suite and its case.
        place: String,
        /// The party, the client or clear.
        who: String,
        /// What is wrong.
        problem: String,
    },
    /// Traffic or rounds that the plan does not say.
    #[error("{place}: {who} counts {found} where the plan says {due}")]
    Traffic {
        /// The suite and the node.
        place: String,
        /// The party or the client.
        who: String,
        /// What the meter counts.
        found: String,
        /// What the plan says.
        due: String,
    },
    /// A thread of a party ended by a panic.
    #[error("{0} panicked")]
    Panic(String),
}

impl From<ProtocolError> for Failure {
    fn from(source: ProtocolError) -> Self {
        Failure::Protocol { place: "session".into(), source }
    }
}

impl Failure {
    /// Whether a peer or the link to it failed, as opposed to the one that reports it.
    pub fn is_of_a_peer(&self) -> bool {
        matches!(
            self,
            Failure::Transport(_)
                | Failure::Protocol { source: ProtocolError::Transport(_), .. }
                | Failure::Runtime(RuntimeError::Protocol(ProtocolError::Transport(_)))
        )
    }
}
