//! What can go wrong, in one line.

use covey_store::StoreError;
use covey_transport::{PeerId, TransportError};

/// A failure of oblivious transfer.
#[derive(Debug, thiserror::Error)]
pub enum OtError {
    /// The connection.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A peer sent what no honest peer sends.
    #[error("P{peer} broke the protocol of oblivious transfer: {detail} (all peers must run the same Covey version)")]
    Peer {
        /// Who.
        peer: PeerId,
        /// What it sent.
        detail: String,
    },
    /// More was asked of an extension that failed before.
    #[error("an earlier extension of oblivious transfer was interrupted: start a new session")]
    Interrupted,
    /// Fewer OTs are left than asked for.
    #[error("{wanted} correlated OTs asked for, {left} left in stock")]
    Short {
        /// How many were asked for.
        wanted: u64,
        /// How many there are.
        left: u64,
    },
    /// A file of stored material.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system gave no randomness.
    #[error("no randomness from the operating system: {0}")]
    Randomness(getrandom::Error),
}

/// A result of oblivious transfer.
pub type Result<T> = std::result::Result<T, OtError>;
