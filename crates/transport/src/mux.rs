//! What the threads of a TCP session share: the receiving half of every connection, and how a failure spreads so that
//! all peers name the same culprit.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind as IoError, Read};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::budget::{Budget, cost};
use crate::error::spoken;
use crate::frame::{Frame, FrameReader, Kind, MAX_MESSAGE, words};
use crate::inbox::{Failure, Inbox, Queue, Wait, lock};
use crate::link::Link;
use crate::pool::Pool;
use crate::record::{OpenError, RECORD};
use crate::roster::Roster;
use crate::session::Options;
use crate::{ErrorKind, Meter, PeerId, TransportError};

/// How long a failed session keeps a connection for its abort to go out and the others' to come in.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// After a connection ends without a word: how long to wait for another peer's abort that names who really failed.
const GRACE: Duration = Duration::from_millis(200);

/// Bytes asked of the socket at a time.
const READ: usize = 256 << 10;

/// Bytes opened under one lock on the TLS state, so that the writer never waits for long: some whole records.
const STEP: usize = 5 * RECORD;

/// Streams that no endpoint here has opened yet, on which one peer may have messages waiting: a faster peer is ahead by the few
/// streams of a session.
const EARLY_STREAMS: usize = 16;

/// Bytes that may wait there; more are read once the stream is opened, which is waited for so long at most.
const EARLY_BYTES: usize = 1 << 20;
const EARLY_PATIENCE: Duration = Duration::from_secs(60);

/// What the operator of a party can raise for a client.
const QUEUE: &str = "`queue_mb` of its [[client]] entry";

/// How often that wait looks again.
const EARLY_TICK: Duration = Duration::from_millis(5);

pub(crate) struct Shared {
    pub roster: Roster,
    pub options: Options,
    pub meter: Arc<Meter>,
    pub inbox: Inbox<Vec<u8>>,
    pub pool: Arc<Pool>,
    pub failure: Failure,
    pub links: BTreeMap<PeerId, Arc<Link>>,
    /// This peer said goodbye.
    pub closed: AtomicBool,
    /// The line in the options is emulated now.
    pub emulates: AtomicBool,
    /// When this peer's part ended, by goodbye or failure.
    pub over: OnceLock<Instant>,
}

impl Shared {
    /// An error with one line of safe words, the same here as where the abort arrives.
    pub fn error(&self, culprit: PeerId, kind: ErrorKind, detail: &str) -> TransportError {
        self.roster.error(culprit, kind, words(detail.as_bytes()))
    }

    /// Makes this the session's failure, unless it has one already, and tells everyone. Returns the one that holds.
    pub fn fail(&self, error: TransportError) -> TransportError {
        let mut first = false;
        let failure = self.failure.get_or_init(|| {
            first = true;
            error
        });
        if first {
            let _ = self.over.set(Instant::now());
            let body = encode_abort(failure);
            self.links.values().for_each(|link| link.abort(self, body.clone()));
            self.inbox.wake();
        }
        failure.clone()
    }

    /// Bytes that `peer` may have waiting here.
    pub fn waiting_bytes(&self, peer: PeerId) -> usize {
        if self.roster.is_party(peer) { self.options.peer_bytes } else { self.options.client_bytes }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether this peer's part ended at least this long ago.
    pub fn over_for(&self, time: Duration) -> bool {
        self.over.get().is_some_and(|over| over.elapsed() >= time)
    }

    /// Turns the end of a wait on a peer into an error of the session.
    pub fn give_up(&self, peer: PeerId, wait: Wait, stalled: impl FnOnce(String) -> String) -> TransportError {
        match wait {
            Wait::Failed(failure) => failure,
            _ if self.is_closed() => TransportError::local("this session is closed"),
            // A connection that broke while writing ends the link before the reader has found out who is to blame.
            Wait::Ended if !self.inbox.has_ended(peer) => {
                self.settle_loss(peer);
                self.failure.get().cloned().unwrap_or_else(|| self.error(peer, ErrorKind::Left, LEFT))
            }
            Wait::Ended => self.fail(self.error(peer, ErrorKind::Left, LEFT)),
            Wait::TimedOut => self.fail(self.error(peer, ErrorKind::Stalled, &stalled(spoken(self.options.message)))),
        }
    }

    /// A connection ended without a word: waits a moment for an abort that names who really failed, since a peer may
    /// have ended it because of a third one, and blames this one only if none comes.
    pub fn settle_loss(&self, peer: PeerId) {
        let until = Instant::now() + GRACE;
        while self.failure.get().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.is_closed() && !self.inbox.has_ended(peer) {
            self.fail(self.error(peer, ErrorKind::ConnectionLost, "connection lost"));
        }
    }
}

const LEFT: &str = "left the session before it was over";

/// In an abort frame: no peer.
const NOBODY: u8 = u8::MAX;

/// The body of an abort frame: culprit, kind, the peer it was heard from, length of the culprit's name, the name, the reason.
fn encode_abort(failure: &TransportError) -> Vec<u8> {
    let cut = |text: &str, most: usize| {
        let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.as_bytes()[..end].to_vec()
    };
    let name = cut(failure.peer().unwrap_or(""), 255);
    let code = |peer: Option<PeerId>| peer.and_then(|id| u8::try_from(id).ok()).unwrap_or(NOBODY);
    let (culprit, heard_from) = (code(failure.culprit()), code(failure.teller()));
    let mut body = vec![culprit, failure.kind() as u8, heard_from, name.len() as u8];
    body.extend(name);
    body.extend(cut(failure.detail(), 700));
    body
}

/// What the abort of peer `from` says. What it says of itself stands; of others, or in nobody's name, it is that peer's word.
pub(crate) fn decode_abort(roster: &Roster, from: PeerId, body: &[u8]) -> Option<TransportError> {
    let (&[culprit, kind, heard_from, name_len], rest) = body.split_first_chunk()?;
    let (name, detail) = rest.split_at_checked(name_len as usize)?;
    let kind = ErrorKind::from_code(kind)?;
    let heard_from = (heard_from != NOBODY).then(|| PeerId::from(heard_from));
    let teller = match heard_from {
        Some(other) => format!("{}, who heard it from {},", roster.label(from), roster.label(other)),
        None => roster.label(from),
    };
    if culprit == NOBODY && name.is_empty() {
        return Some(TransportError::nobodys(kind, words(detail)).told_by(from, teller));
    }
    let culprit = PeerId::from(culprit);
    // Each peer has its own name for a key; one it has no link to goes by the name it came with.
    let name = if roster.knows(culprit) { roster.label(culprit) } else { words(name) };
    let said = TransportError::of(culprit, name, kind, words(detail));
    Some(if culprit == from && heard_from.is_none() { said } else { said.told_by(from, teller) })
}

/// The reader thread of one connection.
pub(crate) struct Reader {
    pub shared: Arc<Shared>,
    pub link: Arc<Link>,
    pub frames: FrameReader,
    /// Bytes from the socket, of which the first `filled` wait to be opened.
    bytes: Vec<u8>,
    filled: usize,
    queues: HashMap<u32, Arc<Queue<Vec<u8>>>>,
    /// Bytes that wait on streams not opened yet.
    early: HashMap<u32, usize>,
    budget: Arc<Budget>,
    /// The longest message from this peer.
    longest: usize,
    /// The message under way, where it comes in parts.
    partial: Option<Partial>,
}

/// A message of which parts are here.
struct Partial {
    stream: u32,
    message: Vec<u8>,
    /// What was taken for it of the peer's budget.
    taken: usize,
}

impl Reader {
    /// `incoming` is what came after the last whole record of the set-up.
    pub fn new(shared: Arc<Shared>, link: Arc<Link>, mut frames: FrameReader, incoming: Vec<u8>) -> Self {
        frames.pool = shared.pool.clone();
        let (filled, mut bytes) = (incoming.len(), incoming);
        bytes.resize(filled + READ, 0);
        let bound = shared.waiting_bytes(link.peer);
        // A party's messages are as long as the protocol wants them; a client's share a tile at most.
        let longest = if shared.roster.is_party(link.peer) { MAX_MESSAGE } else { bound.min(MAX_MESSAGE) };
        let budget = shared.inbox.budget(link.peer, bound);
        let (queues, early) = (HashMap::new(), HashMap::new());
        Self { shared, link, frames, bytes, filled, queues, early, budget, longest, partial: None }
    }

    /// Reads until the connection ends; `early` are frames that came before the session started.
    pub fn run(mut self, early: Vec<Frame>) {
        if let Err(what) = self.read(early) {
            let detail = format!("broke the format: {what}");
            if !self.shared.is_closed() {
                self.shared.fail(self.shared.error(self.link.peer, ErrorKind::Format, &detail));
            }
            self.link.wait_done(false, Instant::now() + LINGER);
        }
        let _ = self.link.stream.shutdown(Shutdown::Both);
        self.link.reader_is_done();
    }

    fn read(&mut self, early: Vec<Frame>) -> Result<(), String> {
        let mut frames = early;
        self.deliver(&mut frames)?;
        let mut heard = Instant::now();
        loop {
            let room = &mut self.bytes[self.filled..];
            match (&self.link.stream).read(room) {
                Ok(0) => break,
                Ok(count) => {
                    self.shared.meter.count_socket(self.link.peer, 0, count);
                    self.filled += count;
                    self.open(&mut frames)?;
                    // Only now: while a full queue kept this thread from reading, the peer was not silent.
                    heard = Instant::now();
                }
                Err(error) => match error.kind() {
                    IoError::Interrupted => {}
                    IoError::WouldBlock | IoError::TimedOut => {
                        if self.is_over() {
                            return Ok(());
                        }
                        self.check_silence(heard);
                    }
                    _ => break,
                },
            }
        }
        let excused = self.shared.is_closed() || self.shared.inbox.has_ended(self.link.peer);
        if !excused && self.shared.failure.get().is_none() {
            self.shared.settle_loss(self.link.peer);
        }
        Ok(())
    }

    /// Whether enough time has passed after the end for everything to have been said.
    fn is_over(&self) -> bool {
        let linger = if self.shared.failure.get().is_some() { LINGER } else { self.shared.options.silence };
        self.shared.over_for(linger)
    }

    fn check_silence(&self, heard: Instant) {
        let silence = self.shared.options.silence;
        let excused = self.shared.is_closed() || self.shared.inbox.has_ended(self.link.peer);
        if heard.elapsed() >= silence && !excused && self.shared.failure.get().is_none() {
            let detail = format!("silent for {}", spoken(silence));
            self.shared.fail(self.shared.error(self.link.peer, ErrorKind::Silent, &detail));
        }
    }

    /// Opens the whole records among the bytes and delivers their frames.
    fn open(&mut self, frames: &mut Vec<Frame>) -> Result<(), String> {
        let mut done = 0;
        loop {
            let step = done..self.filled.min(done + STEP);
            let last = step.end == self.filled;
            let mut tls = lock(&self.link.tls);
            let reader = &mut self.frames;
            let opened = tls.open(&mut self.bytes[step], &mut |plain| reader.feed(plain, frames));
            let has_word = tls.owes();
            drop(tls);
            if has_word {
                self.link.nudge(&self.shared);
            }
            match opened {
                Ok(used) => done += used,
                Err(OpenError::Frame(what)) => return Err(what),
                Err(OpenError::Tls(error)) => return Err(format!("TLS: {error}")),
            }
            self.deliver(frames)?;
            if last {
                break;
            }
        }
        self.bytes.copy_within(done..self.filled, 0);
        self.filled -= done;
        Ok(())
    }

    fn deliver(&mut self, frames: &mut Vec<Frame>) -> Result<(), String> {
        for frame in frames.drain(..) {
            match frame.kind {
                Kind::Data | Kind::Part if self.shared.over.get().is_some() => {}
                Kind::Data | Kind::Part if self.shared.inbox.has_ended(self.link.peer) => {
                    return Err("a message after its goodbye".into());
                }
                Kind::Data => self.join(frame.stream, frame.body, true)?,
                Kind::Part => self.join(frame.stream, frame.body, false)?,
                Kind::Heartbeat => {}
                Kind::Abort => {
                    let failure = decode_abort(&self.shared.roster, self.link.peer, &frame.body)
                        .ok_or("an abort that cannot be read")?;
                    if !self.shared.is_closed() {
                        self.shared.fail(failure);
                    }
                }
                Kind::Goodbye => {
                    self.shared.inbox.end(self.link.peer);
                    if !self.shared.is_closed() {
                        self.link.end();
                    }
                }
                Kind::Control | Kind::Welcome | Kind::Refuse => {
                    return Err(format!("a frame of kind {} during a session", frame.kind as u8));
                }
            }
        }
        Ok(())
    }

    /// Adds a part to the message under way, and hands the message on when it is whole. Parts of two messages never mix.
    fn join(&mut self, stream: u32, body: Vec<u8>, last: bool) -> Result<(), String> {
        let mut partial = match self.partial.take() {
            Some(partial) if partial.stream != stream => {
                return Err(format!("stream {stream} inside a message of stream {}", partial.stream));
            }
            Some(partial) => partial,
            None => Partial { stream, message: Vec::new(), taken: 0 },
        };
        let (have, len) = (partial.message.capacity(), partial.message.len() + body.len());
        if len > self.longest {
            if self.longest == MAX_MESSAGE {
                return Err(format!("a message of more than {MAX_MESSAGE} bytes"));
            }
            self.fail(
                ErrorKind::Aborted,
                &format!(
                    "sent a message of more than the {} bytes it may have waiting: have {QUEUE} raised",
                    self.longest
                ),
            );
            return Ok(());
        }
        // What the message takes is counted before it is there.
        let room = match partial.taken {
            0 => body.capacity(),
            _ if len <= have => have,
            _ => len.max(2 * have),
        };
        let more = cost(room) - partial.taken;
        if more > 0 && !self.take(more, partial.taken) {
            return Ok(());
        }
        if partial.taken == 0 {
            partial.message = body;
        } else {
            partial.message.reserve_exact(room - partial.message.len());
            partial.message.extend_from_slice(&body);
            self.shared.pool.give(body);
        }
        partial.taken += more;
        if last {
            return self.push(partial);
        }
        self.partial = Some(partial);
        Ok(())
    }

    /// Takes so much of the peer's budget for a message that has taken `own`. False where the session ends meanwhile.
    fn take(&self, bytes: usize, own: usize) -> bool {
        let shared = &self.shared;
        let taken = self.budget.take(bytes, own, Instant::now() + shared.options.message);
        if let Err(Wait::TimedOut) = taken {
            let patience = spoken(shared.options.message);
            if shared.roster.is_party(self.link.peer) {
                let detail = format!("took no message for {patience}");
                shared.fail(shared.error(shared.roster.me, ErrorKind::Stalled, &detail));
            } else {
                // A client decides what is asked for, so it must not send more than that uses up.
                let bytes = shared.waiting_bytes(self.link.peer);
                let detail = format!(
                    "filled the {bytes} bytes it may have waiting ({QUEUE}) with what nothing took for {patience}"
                );
                self.fail(ErrorKind::Aborted, &detail);
            }
        }
        taken.is_ok()
    }

    /// Ends the session on account of this link's peer.
    fn fail(&self, kind: ErrorKind, detail: &str) {
        if !self.shared.is_closed() {
            self.shared.fail(self.shared.error(self.link.peer, kind, detail));
        }
    }

    fn push(&mut self, Partial { stream, message, taken }: Partial) -> Result<(), String> {
        let shared = &self.shared;
        let queue = self.queues.get(&stream).cloned().unwrap_or_else(|| shared.inbox.queue(self.link.peer, stream));
        if !self.queues.contains_key(&stream) {
            if queue.is_opened() {
                self.early.remove(&stream);
                self.queues.insert(stream, queue.clone());
            } else {
                self.admit_early(stream, &queue, taken)?;
            }
        }
        queue.put(message, taken);
        Ok(())
    }

    /// Admits a message on a stream that no endpoint here has opened yet. Few wait, and for longer ones the connection is not read until
    /// the stream is opened.
    fn admit_early(&mut self, stream: u32, queue: &Queue<Vec<u8>>, taken: usize) -> Result<(), String> {
        let shared = &self.shared;
        self.early.retain(|number, _| !shared.inbox.queue(self.link.peer, *number).is_opened());
        if !self.early.contains_key(&stream) && self.early.len() == EARLY_STREAMS {
            return Err(format!("messages on more than {EARLY_STREAMS} streams that are not open here"));
        }
        let waiting: usize = self.early.values().sum();
        if waiting + taken > EARLY_BYTES {
            let patience = shared.options.message.min(EARLY_PATIENCE);
            let deadline = Instant::now() + patience;
            while !queue.is_opened() && shared.over.get().is_none() {
                if Instant::now() >= deadline {
                    let detail = format!(
                        "more than {EARLY_BYTES} bytes on stream {stream}, which was not open here for {}",
                        spoken(patience)
                    );
                    if shared.roster.is_party(self.link.peer) {
                        // A client may have asked that party for what it has not asked this one for: nobody knows here whose fault it is.
                        let detail = format!("{} sent {detail}", shared.roster.label(self.link.peer));
                        shared.fail(TransportError::nobodys(ErrorKind::Stalled, words(detail.as_bytes())));
                    } else {
                        self.fail(ErrorKind::Aborted, &format!("sent {detail}"));
                    }
                    return Ok(());
                }
                std::thread::sleep(EARLY_TICK);
            }
            return Ok(());
        }
        *self.early.entry(stream).or_default() += taken;
        Ok(())
    }
}
