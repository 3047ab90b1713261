//! What can be made to go wrong on a simulated link.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::PeerId;

/// One fault: on the `at`-th message (from 0) of a directed link, counted on one stream or over all of them.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The sender.
    pub from: PeerId,
    /// The receiver.
    pub to: PeerId,
    /// Count the messages of this stream only; deterministic even when a party uses several threads.
    pub stream: Option<u32>,
    /// Which message.
    pub at: u64,
    /// What happens to it.
    pub what: Trigger,
}

/// Changes a message in place.
pub type Rewrite = Arc<dyn Fn(&mut Vec<u8>) + Send + Sync>;

/// What happens at a fault.
#[derive(Clone)]
pub enum Trigger {
    /// The message is lost. The receiver notices at the next one of the stream, or at the time-out.
    Drop,
    /// The message comes twice. The receiver notices the second.
    Duplicate,
    /// One bit, chosen by the seed, is flipped. The receiver's transport does not notice.
    Corrupt,
    /// The message is cut to this many bytes at most.
    Truncate(usize),
    /// The message arrives this much later.
    Delay(Duration),
    /// The sender puts another message in its place: a malicious peer. The receiver's transport does not notice.
    Rewrite(Rewrite),
    /// From here on the link is cut in both directions: connection lost.
    Cut,
    /// From here on the sender sends nothing more to anyone, without an error of its own.
    Stall,
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Drop => write!(f, "Drop"),
            Trigger::Duplicate => write!(f, "Duplicate"),
            Trigger::Corrupt => write!(f, "Corrupt"),
            Trigger::Truncate(len) => write!(f, "Truncate({len})"),
            Trigger::Delay(time) => write!(f, "Delay({time:?})"),
            Trigger::Rewrite(_) => write!(f, "Rewrite"),
            Trigger::Cut => write!(f, "Cut"),
            Trigger::Stall => write!(f, "Stall"),
        }
    }
}

/// Flips one bit of the message; which one depends only on the seed and the message's place.
pub(super) fn corrupt(message: &mut [u8], seed: u64, from: PeerId, to: PeerId, number: u64) {
    if message.is_empty() {
        return;
    }
    let mut place = ring::digest::Context::new(&ring::digest::SHA256);
    for part in [seed, from as u64, to as u64, number] {
        place.update(&part.to_le_bytes());
    }
    let digest = place.finish();
    let bits = digest.as_ref().iter().take(8).fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let bit = (bits % (message.len() as u64 * 8)) as usize;
    message[bit / 8] ^= 1 << (bit % 8);
}
