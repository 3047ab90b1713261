//! The contract every transport keeps: a [`Network`] is one peer's place in a session, an [`Endpoint`] its end of one
//! numbered stream to all the others.

use std::sync::Arc;

use crate::{Meter, TransportError};

/// Who takes part in a session. Ids below the party count are the computing parties (P0, P1, …); ids from there on are
/// clients, which bring inputs or receive results. At most 255, so that an id fits one byte on the wire.
pub type PeerId = usize;

/// What a message is for, as the meter counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Material independent of the inputs.
    Offline,
    /// All that depends on the inputs.
    Online,
}

/// One peer's end of one stream to all its peers. Messages keep their boundaries and, per sender, their order; streams
/// are independent of each other. Used by one thread at a time.
pub trait Endpoint: Send {
    /// This peer's id.
    fn me(&self) -> PeerId;

    /// How many computing parties the session has; ids from here on are clients.
    fn parties(&self) -> usize;

    /// The number of this stream.
    fn stream(&self) -> u32;

    /// Queues one message and returns once it is queued. A full queue waits, at most the time-out.
    ///
    /// # Errors
    /// The session's failure if it has one, an unknown or departed peer, or a queue that stayed full.
    fn send(&mut self, to: PeerId, phase: Phase, message: Vec<u8>) -> Result<(), TransportError>;

    /// Waits for the next message of this stream from `from`; what this endpoint sent before is on its way by then.
    /// Messages that arrived before a failure are still handed out.
    ///
    /// # Errors
    /// The session's failure, a message whose length is not `len` bytes (the peer broke the format), a peer that left,
    /// or none that came within the time-out.
    fn recv(&mut self, from: PeerId, phase: Phase, len: usize) -> Result<Vec<u8>, TransportError>;

    /// An empty buffer for a message of `len` bytes, one that was used before where there is one.
    fn buffer(&mut self, len: usize) -> Vec<u8> {
        Vec::with_capacity(len)
    }

    /// Gives back a received message that has been read, to be a buffer again. Buffers are not overwritten between their uses.
    fn recycle(&mut self, _buffer: Vec<u8>) {}

    /// This endpoint's meter. Its current node ([`Meter::set_node`]) is this endpoint's alone; the counts are the
    /// whole session's.
    fn meter(&self) -> &Arc<Meter>;
}

/// One peer's place in a session. Dropping it together with all its endpoints without [`Network::close`] is a lost
/// connection to the others.
pub trait Network: Send + Sync {
    /// This peer's id.
    fn me(&self) -> PeerId;

    /// How many computing parties the session has.
    fn parties(&self) -> usize;

    /// Ids of all the peers this one is linked to, in order; parties first, then clients, without itself.
    fn peers(&self) -> Vec<PeerId>;

    /// The name of a peer as errors print it, such as `P1 (alpha)`.
    fn name(&self, peer: PeerId) -> String;

    /// Opens the numbered stream. After an endpoint is dropped its stream may be opened again and goes on where it
    /// stopped.
    ///
    /// # Errors
    /// The session's failure, or a stream that is open already.
    fn endpoint(&self, stream: u32) -> Result<Box<dyn Endpoint>, TransportError>;

    /// The session's meter.
    fn meter(&self) -> &Arc<Meter>;

    /// Why the session failed, if it has.
    fn failure(&self) -> Option<TransportError>;

    /// Ends the session for everyone, naming `culprit` (which may be this peer; nobody, where all find the same and it accuses no one) and
    /// one line of reason. The first failure of a session wins; returns the one that holds.
    fn abort(&self, culprit: Option<PeerId>, reason: &str) -> TransportError;

    /// Ends this peer's part cleanly: what is queued still goes out, then a goodbye. Waits at most the time-out.
    fn close(&self);
}
