//! A session over TCP: authenticated connections to all peers become numbered streams.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::channel::{Endpoint, Network};
use crate::frame::{Frame, MAX_MESSAGE, words};
use crate::inbox::{Failure, Inbox, Queue, Wait};
use crate::link::{Link, WRITE_TICK};
use crate::mux::{LINGER, Reader, Shared};
use crate::roster::Roster;
use crate::{Connection, ErrorKind, Meter, PeerId, Phase, TransportError};

/// Time-outs, bounds and line emulation of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// A peer that sends nothing at all for this long, not even a heartbeat, has failed. Heartbeats go out every
    /// quarter of it. The same on all peers. Default 10 s.
    pub silence: Duration,
    /// The longest wait for a message, or for room to queue one, from a peer that is alive. Default 10 minutes.
    pub message: Duration,
    /// Bytes queued to one peer before `send` waits. Default 64 MiB.
    pub queue_bytes: usize,
    /// Bytes one party may have waiting here, over all its streams, before its connection is no longer read. Heartbeats and aborts
    /// of this peer wait with them, so it is generous. Default 256 MiB.
    pub peer_bytes: usize,
    /// The same for a client, and its longest message. Default 64 MiB.
    pub client_bytes: usize,
    /// Emulated one-way latency of every link. Default none.
    pub latency: Duration,
    /// Emulated bandwidth of every link and direction by itself, in bits per second: the links of a machine do not share
    /// it. Default none.
    pub bandwidth: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(10),
            message: Duration::from_secs(600),
            queue_bytes: 64 << 20,
            peer_bytes: 256 << 20,
            client_bytes: 64 << 20,
            latency: Duration::ZERO,
            bandwidth: None,
        }
    }
}

impl Options {
    fn check(&self) -> Result<(), TransportError> {
        let (shortest, longest) = (Duration::from_millis(100), Duration::from_secs(24 * 60 * 60));
        for (name, time) in [("silence", self.silence), ("message", self.message)] {
            if !(shortest..=longest).contains(&time) {
                return Err(TransportError::local(format!("the time-out `{name}` must be from 100 ms to a day")));
            }
        }
        if self.latency > Duration::from_secs(60) || self.bandwidth == Some(0) {
            return Err(TransportError::local("an emulated line has at most 60 s latency and some bandwidth"));
        }
        Ok(())
    }
}

/// One peer's place in a session over TCP.
pub struct Session {
    membership: Arc<Membership>,
}

impl Session {
    /// Starts the streams. `me` is this peer's id and name, `peers` the id, name and connection of each peer it is
    /// linked to; ids below `parties` are parties, the others clients. All peers must use the same ids, and should use
    /// the same names.
    ///
    /// # Errors
    /// Ids that are taken twice or above 254, time-outs that are out of range, or threads that cannot be started.
    pub fn start(
        me: (PeerId, &str),
        parties: usize,
        peers: Vec<(PeerId, String, Connection)>,
        options: Options,
    ) -> Result<Self, TransportError> {
        options.check()?;
        let mut names = BTreeMap::from([(me.0, me.1.to_string())]);
        for (id, name, _) in &peers {
            if names.insert(*id, name.clone()).is_some() {
                return Err(TransportError::local(format!("peer id {id} is taken twice")));
            }
        }
        if let Some(id) = names.keys().find(|id| **id >= usize::from(u8::MAX)) {
            return Err(TransportError::local(format!("peer id {id} is above 254")));
        }
        let roster = Roster::new(me.0, parties, names);
        let failure: Failure = Arc::new(OnceLock::new());
        let mut links = BTreeMap::new();
        let mut readers = Vec::new();
        let tick = (options.silence / 8).clamp(Duration::from_millis(10), WRITE_TICK);
        for (id, _, connection) in peers {
            let wire = connection.wire;
            wire.stream
                .set_read_timeout(Some(tick))
                .and_then(|()| wire.stream.set_write_timeout(Some(WRITE_TICK)))
                .map_err(|_| roster.error(id, ErrorKind::ConnectionLost, "connection lost"))?;
            let link = Arc::new(Link::new(id, wire.stream, wire.tls));
            let mut early = wire.frames;
            let early: Vec<Frame> = std::mem::take(&mut early.0).into();
            readers.push((link.clone(), wire.reader, early, wire.incoming.into_bytes()));
            links.insert(id, link);
        }
        let shared = Arc::new(Shared {
            inbox: Inbox::new(options.peer_bytes, failure.clone()),
            meter: Arc::new(Meter::new()),
            pool: Arc::default(),
            closed: AtomicBool::new(false),
            emulates: AtomicBool::new(true),
            over: OnceLock::new(),
            roster,
            options,
            failure,
            links,
        });
        // Made first: if a thread cannot be started, its drop ends the others.
        let session = Self { membership: Arc::new(Membership { shared: shared.clone() }) };
        for (link, frames, early, incoming) in readers {
            let reader = Reader::new(shared.clone(), link.clone(), frames, incoming);
            spawn("reader", move || reader.run(early))?;
            let shared = shared.clone();
            spawn("writer", move || link.run_writer(&shared))?;
        }
        Ok(session)
    }

    /// Whether messages from now on wait for the line in [`Options`], as they do at first.
    pub fn emulate(&self, emulates: bool) {
        self.membership.shared.emulates.store(emulates, Ordering::Release);
    }

    /// Waits until all that was sent has gone into the sockets, and so into [`Snapshot::sockets`](crate::Snapshot), or its
    /// connection has failed.
    pub fn flush(&self) {
        let shared = &self.membership.shared;
        let patience = Instant::now() + shared.options.message;
        shared.links.values().for_each(|link| link.flush(patience));
    }
}

#[cfg(test)]
impl Session {
    /// Makes TLS change its keys on every link, and ask the peers to change theirs.
    pub(crate) fn refresh_keys(&self) {
        for link in self.membership.shared.links.values() {
            crate::inbox::lock(&link.tls).refresh_keys();
            link.nudge(&self.membership.shared);
        }
    }
}

fn spawn(what: &str, run: impl FnOnce() + Send + 'static) -> Result<(), TransportError> {
    let thread = std::thread::Builder::new().name(format!("covey {what}"));
    thread.spawn(run).map(|_| ()).map_err(|error| TransportError::local(format!("cannot start a thread: {error}")))
}

/// This peer in the session. The session and its endpoints hold it; with the last of them this peer leaves.
struct Membership {
    shared: Arc<Shared>,
}

impl Membership {
    fn close(&self) {
        let shared = &self.shared;
        if shared.closed.swap(true, Ordering::AcqRel) || shared.failure.get().is_some() {
            return;
        }
        let _ = shared.over.set(Instant::now());
        shared.links.values().for_each(|link| link.goodbye(shared));
        shared.links.keys().for_each(|peer| shared.inbox.end(*peer));
        let patience = Instant::now() + shared.options.message;
        shared.links.values().for_each(|link| link.wait_done(false, patience));
        // The peer answers a goodbye by ending its side; then nothing under way can be lost with this process.
        let patience = Instant::now() + shared.options.silence;
        shared.links.values().for_each(|link| link.wait_done(true, patience));
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.failure.get().is_some() {
            // The abort must get out before this process ends.
            let patience = Instant::now() + LINGER + shared.options.latency;
            shared.links.values().for_each(|link| link.wait_done(true, patience));
        }
        let _ = shared.over.set(Instant::now());
        shared.links.values().for_each(|link| link.cut());
    }
}

impl Network for Session {
    fn me(&self) -> PeerId {
        self.membership.shared.roster.me
    }

    fn parties(&self) -> usize {
        self.membership.shared.roster.parties
    }

    fn peers(&self) -> Vec<PeerId> {
        self.membership.shared.roster.peers()
    }

    fn name(&self, peer: PeerId) -> String {
        self.membership.shared.roster.label(peer)
    }

    fn endpoint(&self, stream: u32) -> Result<Box<dyn Endpoint>, TransportError> {
        let shared = &self.membership.shared;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if !shared.inbox.open(stream) {
            return Err(TransportError::local(format!("stream {stream} is open already")));
        }
        let incoming = shared.links.keys().map(|peer| (*peer, shared.inbox.queue(*peer, stream))).collect();
        let meter = Arc::new(shared.meter.view());
        Ok(Box::new(SessionEndpoint { stream, incoming, membership: self.membership.clone(), meter }))
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.membership.shared.meter
    }

    fn failure(&self) -> Option<TransportError> {
        self.membership.shared.failure.get().cloned()
    }

    fn abort(&self, culprit: Option<PeerId>, reason: &str) -> TransportError {
        let shared = &self.membership.shared;
        shared.fail(shared.roster.aborted(culprit, words(reason.as_bytes())))
    }

    fn close(&self) {
        self.membership.close();
    }
}

struct SessionEndpoint {
    stream: u32,
    incoming: HashMap<PeerId, Arc<Queue<Vec<u8>>>>,
    membership: Arc<Membership>,
    meter: Arc<Meter>,
}

impl SessionEndpoint {
    fn shared(&self) -> &Shared {
        &self.membership.shared
    }
}

impl Endpoint for SessionEndpoint {
    fn me(&self) -> PeerId {
        self.shared().roster.me
    }

    fn parties(&self) -> usize {
        self.shared().roster.parties
    }

    fn stream(&self) -> u32 {
        self.stream
    }

    fn send(&mut self, to: PeerId, phase: Phase, message: Vec<u8>) -> Result<(), TransportError> {
        let shared = self.shared();
        shared.roster.check(to)?;
        let len = message.len();
        if len > MAX_MESSAGE {
            return Err(TransportError::local(format!("a message of {len} bytes; the longest has {MAX_MESSAGE}")));
        }
        let link = shared.links.get(&to).ok_or_else(|| TransportError::local("no such link"))?;
        let deadline = Instant::now() + shared.options.message;
        link.send(shared, self.stream, message, deadline)
            .map_err(|wait| shared.give_up(to, wait, |time| format!("took no message for {time}")))?;
        self.meter.count(phase, self.me(), to, len);
        Ok(())
    }

    fn recv(&mut self, from: PeerId, phase: Phase, len: usize) -> Result<Vec<u8>, TransportError> {
        let (shared, stream) = (self.shared(), self.stream);
        shared.roster.check(from)?;
        let queue = self.incoming.get(&from).ok_or_else(|| TransportError::local("no such link"))?;
        let deadline = Instant::now() + shared.options.message;
        let message = queue.pop(deadline).map_err(|wait: Wait| {
            shared.give_up(from, wait, |time| format!("sent nothing on stream {stream} for {time}"))
        })?;
        if message.len() != len {
            let detail = format!("broke the format: {} bytes on stream {stream} where {len} were due", message.len());
            return Err(shared.fail(shared.error(from, ErrorKind::Format, &detail)));
        }
        self.meter.count(phase, from, self.me(), len);
        Ok(message)
    }

    fn buffer(&mut self, len: usize) -> Vec<u8> {
        self.shared().pool.take(len)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.shared().pool.give(buffer);
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl Drop for SessionEndpoint {
    fn drop(&mut self) {
        self.shared().inbox.release(self.stream);
    }
}
