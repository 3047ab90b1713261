//! Messages over a connection during the set-up, and over the control stream of a running session.

use std::time::Duration;

use covey_transport::{Connection, Endpoint, PeerId, Phase};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{MAX_CONTROL, MAX_SESSION_MESSAGE, MessageError, Reply, decode, encode, one_line};

/// Why a control message did not come or go.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed.
    #[error(transparent)]
    Transport(#[from] covey_transport::TransportError),
    /// The message is not understood.
    #[error("{peer}: {source}")]
    Message {
        /// Who sent it.
        peer: String,
        /// Why.
        source: MessageError,
    },
}

/// Sends one message of the set-up.
///
/// # Errors
/// A lost connection.
pub fn send<T: Serialize>(connection: &mut Connection, message: &T, timeout: Duration) -> Result<(), WireError> {
    Ok(connection.send_frame(&encode(message), timeout)?)
}

/// Waits at most `timeout` for a message of the set-up.
///
/// # Errors
/// A lost or silent connection, or a message that is not understood.
pub fn receive<T: DeserializeOwned>(connection: &mut Connection, timeout: Duration) -> Result<T, WireError> {
    let bytes = connection.recv_frame(MAX_CONTROL, timeout)?;
    decode(&bytes).map_err(|source| WireError::Message { peer: connection.name().to_string(), source })
}

/// Waits for a party's answer; a refusal comes as [`Answer::Refused`], its reason cleaned.
///
/// # Errors
/// As [`receive`].
pub fn answer(connection: &mut Connection, timeout: Duration) -> Result<Answer, WireError> {
    Ok(match receive(connection, timeout)? {
        Reply::Refused { reason } => Answer::Refused(one_line(&reason)),
        reply => Answer::Reply(reply),
    })
}

/// A party's answer.
pub enum Answer {
    /// Anything but a refusal.
    Reply(Reply),
    /// A refusal, and why.
    Refused(String),
}

/// Sends one message on the control stream: its length in 4 bytes, then itself.
///
/// # Errors
/// The session's failure.
pub fn send_control<T: Serialize>(endpoint: &mut dyn Endpoint, to: PeerId, message: &T) -> Result<(), WireError> {
    let bytes = encode(message);
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    endpoint.send(to, Phase::Online, len.to_le_bytes().to_vec())?;
    Ok(endpoint.send(to, Phase::Online, bytes)?)
}

/// Waits for the next message of `from` on the control stream.
///
/// # Errors
/// The session's failure, or a message that is not understood.
pub fn receive_control<T: DeserializeOwned>(
    endpoint: &mut dyn Endpoint,
    from: PeerId,
    peer: &str,
) -> Result<T, WireError> {
    let refuse = |source| WireError::Message { peer: peer.to_string(), source };
    let head = endpoint.recv(from, Phase::Online, 4)?;
    let len = head.first_chunk().map_or(0, |head| u32::from_le_bytes(*head) as usize);
    if len > MAX_SESSION_MESSAGE {
        return Err(refuse(MessageError::Malformed));
    }
    let bytes = endpoint.recv(from, Phase::Online, len)?;
    decode(&bytes).map_err(refuse)
}
