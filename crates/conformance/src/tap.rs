//! An endpoint that keeps what its party receives: the party's view, as messages.

use std::sync::{Arc, Mutex, PoisonError};

use covey_transport::{Endpoint, Meter, PeerId, Phase, TransportError};

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender.
    pub from: PeerId,
    /// Offline or online.
    pub phase: Phase,
    /// The message.
    pub bytes: Vec<u8>,
}

/// What one peer received, in order.
pub type Log = Arc<Mutex<Vec<Received>>>;

/// An endpoint that logs what it receives.
pub struct Tap {
    inner: Box<dyn Endpoint>,
    log: Log,
}

impl Tap {
    /// `inner`, logged to `log`.
    pub fn new(inner: Box<dyn Endpoint>, log: Log) -> Self {
        Tap { inner, log }
    }
}

/// The messages of a log.
pub fn messages(log: &Log) -> Vec<Received> {
    std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many messages a log has.
pub fn count(log: &Log) -> usize {
    log.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// Takes all messages but the first `kept` out of a log.
pub fn forget(log: &Log, kept: usize) {
    log.lock().unwrap_or_else(PoisonError::into_inner).truncate(kept);
}

impl Endpoint for Tap {
    fn me(&self) -> PeerId {
        self.inner.me()
    }

    fn parties(&self) -> usize {
        self.inner.parties()
    }

    fn stream(&self) -> u32 {
        self.inner.stream()
    }

    fn send(&mut self, to: PeerId, phase: Phase, message: Vec<u8>) -> Result<(), TransportError> {
        self.inner.send(to, phase, message)
    }

    fn recv(&mut self, from: PeerId, phase: Phase, len: usize) -> Result<Vec<u8>, TransportError> {
        let bytes = self.inner.recv(from, phase, len)?;
        let received = Received { from, phase, bytes: bytes.clone() };
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(received);
        Ok(bytes)
    }

    fn meter(&self) -> &Arc<Meter> {
        self.inner.meter()
    }
}
