//! Messages to the one peer of an oblivious transfer.

use covey_transport::{Endpoint, PeerId, Phase};

use crate::{OtError, Result};

/// Ordered messages between the two sides.
pub trait Channel {
    /// Queues a message.
    ///
    /// # Errors
    /// The transport's.
    fn send(&mut self, message: Vec<u8>) -> Result<()>;

    /// The next message, of exactly `len` bytes.
    ///
    /// # Errors
    /// The transport's; another length is one.
    fn recv(&mut self, len: usize) -> Result<Vec<u8>>;

    /// The error that blames the peer for `detail`.
    fn refuse(&self, detail: String) -> OtError;
}

/// A transport's endpoint and the peer at its other end; messages count as offline.
pub struct Link<'a> {
    endpoint: &'a mut dyn Endpoint,
    peer: PeerId,
}

impl<'a> Link<'a> {
    /// The channel to `peer`.
    pub fn new(endpoint: &'a mut dyn Endpoint, peer: PeerId) -> Self {
        Link { endpoint, peer }
    }
}

impl Channel for Link<'_> {
    fn send(&mut self, message: Vec<u8>) -> Result<()> {
        Ok(self.endpoint.send(self.peer, Phase::Offline, message)?)
    }

    fn recv(&mut self, len: usize) -> Result<Vec<u8>> {
        Ok(self.endpoint.recv(self.peer, Phase::Offline, len)?)
    }

    fn refuse(&self, detail: String) -> OtError {
        OtError::Peer { peer: self.peer, detail }
    }
}
