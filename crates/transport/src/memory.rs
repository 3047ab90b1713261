//! Parties as threads of one process: messages move from queue to queue, nothing is copied or encrypted.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::channel::{Endpoint, Network};
use crate::error::spoken;
use crate::inbox::{Failure, Inbox, Queue, Wait};
use crate::pool::Pool;
use crate::roster::Roster;
use crate::{ErrorKind, Meter, PeerId, Phase, TransportError};

/// Bytes one sender may have waiting on one stream before its `send` waits.
const QUEUE_BYTES: usize = 256 << 20;

/// Networks of `parties` parties in this process, P0 first. A `recv` or a `send` waits at most `timeout`.
pub fn network(parties: usize, timeout: Duration) -> Vec<MemoryNetwork> {
    network_with_clients(parties, 0, timeout)
}

/// The same with `clients` clients beside the parties; their networks follow those of the parties.
pub fn network_with_clients(parties: usize, clients: usize, timeout: Duration) -> Vec<MemoryNetwork> {
    let names: Vec<(PeerId, String)> = (0..parties + clients).map(|id| (id, String::new())).collect();
    let failure: Failure = Arc::new(OnceLock::new());
    let inboxes = names.iter().map(|_| Inbox::new(QUEUE_BYTES, failure.clone())).collect();
    let hub = Arc::new(Hub { inboxes, failure, pool: Pool::default() });
    names
        .iter()
        .map(|(me, _)| {
            let roster = Roster::new(*me, parties, names.clone());
            let membership = Arc::new(Membership { roster, hub: hub.clone(), timeout });
            MemoryNetwork { membership, meter: Arc::new(Meter::new()) }
        })
        .collect()
}

/// What all peers share. One failure slot for all, so they report the same by construction.
struct Hub {
    inboxes: Vec<Inbox<Vec<u8>>>,
    failure: Failure,
    pool: Pool,
}

impl Hub {
    fn fail(&self, error: TransportError) -> TransportError {
        let failure = self.failure.get_or_init(|| error).clone();
        self.inboxes.iter().for_each(Inbox::wake);
        failure
    }
}

/// One peer in the network; when its network and all its endpoints are gone, so is the peer.
struct Membership {
    roster: Roster,
    hub: Arc<Hub>,
    timeout: Duration,
}

impl Membership {
    fn has_left(&self, peer: PeerId) -> bool {
        self.hub.inboxes.iter().any(|inbox| inbox.has_ended(peer))
    }

    fn leave(&self) {
        self.hub.inboxes.iter().for_each(|inbox| inbox.end(self.roster.me));
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let me = self.roster.me;
        let last = self.roster.peers().iter().all(|peer| self.has_left(*peer));
        if !last && !self.has_left(me) {
            self.hub.fail(self.roster.error(me, ErrorKind::ConnectionLost, "connection lost"));
        }
    }
}

/// One peer of an in-process session.
pub struct MemoryNetwork {
    membership: Arc<Membership>,
    meter: Arc<Meter>,
}

impl Network for MemoryNetwork {
    fn me(&self) -> PeerId {
        self.membership.roster.me
    }

    fn parties(&self) -> usize {
        self.membership.roster.parties
    }

    fn peers(&self) -> Vec<PeerId> {
        self.membership.roster.peers()
    }

    fn name(&self, peer: PeerId) -> String {
        self.membership.roster.label(peer)
    }

    fn endpoint(&self, stream: u32) -> Result<Box<dyn Endpoint>, TransportError> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let me = self.me();
        if !self.membership.hub.inboxes[me].open(stream) {
            return Err(TransportError::local(format!("stream {stream} is open already")));
        }
        let links = self
            .peers()
            .into_iter()
            .map(|peer| {
                let inboxes = &self.membership.hub.inboxes;
                (peer, Link { outgoing: inboxes[peer].queue(me, stream), incoming: inboxes[me].queue(peer, stream) })
            })
            .collect();
        Ok(Box::new(MemoryEndpoint {
            stream,
            links,
            membership: self.membership.clone(),
            meter: Arc::new(self.meter.view()),
        }))
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    fn failure(&self) -> Option<TransportError> {
        self.membership.hub.failure.get().cloned()
    }

    fn abort(&self, culprit: Option<PeerId>, reason: &str) -> TransportError {
        self.membership.hub.fail(self.membership.roster.aborted(culprit, reason))
    }

    fn close(&self) {
        self.membership.leave();
    }
}

/// The two queues between this peer and another on one stream.
struct Link {
    outgoing: Arc<Queue<Vec<u8>>>,
    incoming: Arc<Queue<Vec<u8>>>,
}

struct MemoryEndpoint {
    stream: u32,
    links: HashMap<PeerId, Link>,
    membership: Arc<Membership>,
    meter: Arc<Meter>,
}

impl MemoryEndpoint {
    fn link(&self, peer: PeerId) -> Result<&Link, TransportError> {
        self.membership.roster.check(peer)?;
        self.links.get(&peer).ok_or_else(|| TransportError::local("no such link"))
    }

    /// Turns the end of a wait on `peer` into the failure of the session.
    fn give_up(&self, peer: PeerId, wait: Wait, stalled: impl FnOnce(String) -> String) -> TransportError {
        let error = match wait {
            Wait::Failed(failure) => return failure,
            Wait::Ended if self.membership.has_left(self.me()) => {
                return TransportError::local("this session is closed");
            }
            Wait::Ended => (ErrorKind::Left, "left the session before it was over".to_string()),
            Wait::TimedOut => (ErrorKind::Stalled, stalled(spoken(self.membership.timeout))),
        };
        self.membership.hub.fail(self.membership.roster.error(peer, error.0, error.1))
    }
}

impl Endpoint for MemoryEndpoint {
    fn me(&self) -> PeerId {
        self.membership.roster.me
    }

    fn parties(&self) -> usize {
        self.membership.roster.parties
    }

    fn stream(&self) -> u32 {
        self.stream
    }

    fn send(&mut self, to: PeerId, phase: Phase, message: Vec<u8>) -> Result<(), TransportError> {
        let link = self.link(to)?;
        if let Some(failure) = self.membership.hub.failure.get() {
            return Err(failure.clone());
        }
        if self.membership.has_left(to) {
            return Err(self.give_up(to, Wait::Ended, |_| String::new()));
        }
        let len = message.len();
        let deadline = Instant::now() + self.membership.timeout;
        link.outgoing
            .push(message, len, deadline)
            .map_err(|wait| self.give_up(to, wait, |time| format!("took no message for {time}")))?;
        self.meter.count(phase, self.me(), to, len);
        Ok(())
    }

    fn recv(&mut self, from: PeerId, phase: Phase, len: usize) -> Result<Vec<u8>, TransportError> {
        let deadline = Instant::now() + self.membership.timeout;
        let stream = self.stream;
        let message =
            self.link(from)?.incoming.pop(deadline).map_err(|wait| {
                self.give_up(from, wait, |time| format!("sent nothing on stream {stream} for {time}"))
            })?;
        if message.len() != len {
            let detail = format!("broke the format: {} bytes on stream {stream} where {len} were due", message.len());
            return Err(self.membership.hub.fail(self.membership.roster.error(from, ErrorKind::Format, detail)));
        }
        self.meter.count(phase, from, self.me(), len);
        Ok(message)
    }

    fn buffer(&mut self, len: usize) -> Vec<u8> {
        self.membership.hub.pool.take(len)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.membership.hub.pool.give(buffer);
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl Drop for MemoryEndpoint {
    fn drop(&mut self) {
        self.membership.hub.inboxes[self.membership.roster.me].release(self.stream);
    }
}
