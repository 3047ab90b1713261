//! Why operations fail.

use covey_transport::TransportError;

/// Why a protocol operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A peer failed or the link to it did.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The clear protocol met an integer outside its bound.
    #[error(
        "node '{node}': the value {value} passes its bound of {bits} bits: the input is outside what the program was \
         compiled for; compile with a wider --input-range, more --calibration data or a larger ring"
    )]
    BoundViolated {
        /// The node that computed it.
        node: String,
        /// The integer, before reduction into the ring.
        value: i128,
        /// `|value| < 2^bits` was promised.
        bits: u32,
    },
    /// The clear protocol met an integer outside a table's domain.
    #[error(
        "node '{node}': the value {value} lies outside the table, which reaches from {low} to {high}: the input is outside what \
         the program was compiled for; compile with a wider --input-range or more --calibration data"
    )]
    OutsideTable {
        /// The node that looked it up.
        node: String,
        /// The integer.
        value: i64,
        /// The lowest that the table holds.
        low: i64,
        /// The highest.
        high: i64,
    },
    /// The protocol has no such operation.
    #[error("node '{node}': {protocol} does not support {what}")]
    Unsupported {
        /// The node that asked.
        node: String,
        /// The protocol.
        protocol: &'static str,
        /// The operation, with the way out.
        what: String,
    },
    /// Preprocessed material is missing.
    #[error("no preprocessed material is left for this inference: preprocess more, or run with phase joint")]
    StoreEmpty,
    /// A run number was used before: its randomness must not mask a second set of values.
    #[error("run {run} has been used: number runs upwards, and take each preprocessed one once")]
    RunUsed {
        /// The number.
        run: u64,
    },
    /// A party did not keep to the protocol. What differs, and where; nothing was opened.
    #[error("{0}; nothing is output")]
    CheckFailed(String),
    /// The client did not keep to the protocol; nothing was opened.
    #[error("the client sent {0} different values of its input; nothing is output")]
    ClientDiffers(&'static str),
    /// Correlated randomness could not be made or read.
    #[error("{0}")]
    Material(String),
    /// A layout and the code that should follow it disagree: a defect in Covey.
    #[error("internal error in {0}: please report it")]
    Internal(&'static str),
}

impl ProtocolError {
    /// The same error under the name of the node that met it, where the protocol left the name open.
    #[must_use]
    pub fn at(mut self, name: &str) -> Self {
        if let ProtocolError::BoundViolated { node, .. } | ProtocolError::Unsupported { node, .. } = &mut self
            && node.is_empty()
        {
            *node = name.to_string();
        }
        self
    }
}

/// Result of a protocol operation.
pub type Result<T, E = ProtocolError> = std::result::Result<T, E>;
