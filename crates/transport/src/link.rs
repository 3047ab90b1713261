//! The sending half of a TLS connection in a session: a bounded queue and the one thread that empties it. Where the
//! queue is empty a small message is written by the sending thread itself, which saves a wake-up.

use std::collections::VecDeque;
use std::io::{ErrorKind as IoError, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::frame::{HEADER, Kind, MAX_FRAME, header};
use crate::inbox::{Wait, lock};
use crate::mux::{LINGER, Shared};
use crate::record::{RECORD, Sealed, Tls};
use crate::{ErrorKind, PeerId, error::spoken};

/// Frames are gathered up to this size into one write.
const BATCH: usize = 256 << 10;

/// Bytes sealed under one lock on the TLS state, so that the reader never waits for long: whole records.
const STEP: usize = 4 * RECORD;

/// Up to this size the sender may write by itself. A larger message is encrypted by the writer, while the sender computes.
const DIRECT: usize = 8 << 10;

/// Threads wake up late by about this much; the end of a wait for an emulated line is waited out awake.
const LATE: Duration = Duration::from_micros(80);

/// How often a blocked write looks whether the session still stands.
pub(crate) const WRITE_TICK: Duration = Duration::from_millis(250);

/// About what a message takes from one end to the other with no line emulated.
const OWN: Duration = Duration::from_micros(15);
const OWN_PER_KIB: Duration = Duration::from_nanos(900);

/// A message on its way out.
struct Item {
    /// When it may leave, under the emulated latency and bandwidth.
    release: Instant,
    stream: u32,
    kind: Kind,
    body: Vec<u8>,
    /// How much of the body has been written.
    written: usize,
}

impl Item {
    /// The next frame of this message.
    fn frame(&self) -> ([u8; HEADER], &[u8]) {
        let rest = &self.body[self.written..];
        match rest.len() > MAX_FRAME {
            true => (header(self.stream, Kind::Part, MAX_FRAME), &rest[..MAX_FRAME]),
            false => (header(self.stream, self.kind, rest.len()), rest),
        }
    }
}

struct Outgoing {
    /// Heartbeats and aborts, ahead of all messages.
    urgent: VecDeque<Item>,
    messages: VecDeque<Item>,
    bytes: usize,
    /// Somebody is writing; nobody else may.
    busy: bool,
    /// Nothing more is taken in; when the queues are empty the writer ends.
    ending: bool,
    writer_done: bool,
    reader_done: bool,
    /// When something was last written.
    wrote: Instant,
    /// When the emulated line will be free.
    line_free: Instant,
    /// Senders asleep for room, and whether the writer sleeps.
    sleepers: usize,
    writer_sleeps: bool,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.messages.is_empty()
    }

    /// Takes what may leave now: several small frames, or one frame of a large message.
    fn take_batch(&mut self, now: Instant, batch: &mut Vec<Item>) {
        let mut total = 0;
        while total < BATCH {
            let due = |queue: &VecDeque<Item>| queue.front().is_some_and(|item| item.release <= now);
            let queue = if due(&self.urgent) { &mut self.urgent } else { &mut self.messages };
            if !due(queue) {
                break;
            }
            let Some(item) = queue.pop_front() else { break };
            total += HEADER + item.body.len() - item.written;
            batch.push(item);
        }
    }

    fn next_release(&self) -> Option<Instant> {
        self.urgent.front().into_iter().chain(self.messages.front()).map(|item| item.release).min()
    }
}

pub(crate) struct Link {
    pub peer: PeerId,
    pub stream: TcpStream,
    pub tls: Mutex<Tls>,
    outgoing: Mutex<Outgoing>,
    /// For the writer: there may be something to write.
    work: Condvar,
    /// For senders and for those who wait for the end.
    room: Condvar,
    buffers: Mutex<Buffers>,
}

/// What goes out is gathered here, then encrypted for the socket.
#[derive(Default)]
struct Buffers {
    plain: Vec<u8>,
    sealed: Sealed,
}

impl Link {
    pub fn new(peer: PeerId, stream: TcpStream, tls: Tls) -> Self {
        let now = Instant::now();
        let outgoing = Outgoing {
            urgent: VecDeque::new(),
            messages: VecDeque::new(),
            bytes: 0,
            busy: false,
            ending: false,
            writer_done: false,
            reader_done: false,
            wrote: now,
            line_free: now,
            sleepers: 0,
            writer_sleeps: false,
        };
        Self {
            peer,
            stream,
            tls: Mutex::new(tls),
            outgoing: Mutex::new(outgoing),
            work: Condvar::new(),
            room: Condvar::new(),
            buffers: Mutex::default(),
        }
    }

    /// Queues a message, or writes it right away where nothing is before it.
    pub fn send(&self, shared: &Shared, stream: u32, body: Vec<u8>, deadline: Instant) -> Result<(), Wait> {
        let mut outgoing = lock(&self.outgoing);
        loop {
            if let Some(failure) = shared.failure.get() {
                return Err(Wait::Failed(failure.clone()));
            }
            if outgoing.ending {
                return Err(Wait::Ended);
            }
            if outgoing.bytes == 0 || outgoing.bytes + body.len() <= shared.options.queue_bytes {
                break;
            }
            outgoing = self.sleep_for_room(outgoing, deadline)?;
        }
        let options = &shared.options;
        let emulated = (!options.latency.is_zero() || options.bandwidth.is_some()) && shared.emulates.load(Acquire);
        let now = Instant::now();
        if emulated || outgoing.busy || outgoing.writer_done || !outgoing.is_empty() || body.len() > DIRECT {
            let release = if emulated { emulate(shared, &mut outgoing, body.len(), now) } else { now };
            outgoing.bytes += body.len();
            outgoing.messages.push_back(Item { release, stream, kind: Kind::Data, body, written: 0 });
            self.wake_writer(outgoing);
            return Ok(());
        }
        outgoing.busy = true;
        drop(outgoing);
        let header = header(stream, Kind::Data, body.len());
        let written = self.transmit(shared, [(header, body.as_slice())].into_iter());
        shared.pool.give(body);
        let mut outgoing = lock(&self.outgoing);
        outgoing.busy = false;
        outgoing.wrote = now;
        // After a failed write the reader finds out what happened to the peer.
        outgoing.ending |= written.is_err();
        if outgoing.sleepers > 0 {
            self.room.notify_all();
        }
        if !outgoing.is_empty() || outgoing.ending {
            self.wake_writer(outgoing);
        }
        Ok(())
    }

    /// Waits until all that was queued has gone into the socket, or nothing more will.
    pub fn flush(&self, deadline: Instant) {
        let mut outgoing = lock(&self.outgoing);
        while (outgoing.busy || !outgoing.is_empty()) && !outgoing.writer_done {
            match self.sleep_for_room(outgoing, deadline) {
                Ok(awake) => outgoing = awake,
                Err(_) => return,
            }
        }
    }

    /// Lets the writer push out what TLS itself has to say, with a heartbeat.
    pub fn nudge(&self, shared: &Shared) {
        let mut outgoing = lock(&self.outgoing);
        // One is enough, however often a peer that reads nothing makes TLS answer.
        if !outgoing.ending && outgoing.urgent.is_empty() {
            outgoing.urgent.push_back(urgent(shared, Kind::Heartbeat, Vec::new()));
            self.wake_writer(outgoing);
        }
    }

    /// Drops what is queued, sends the abort and ends.
    pub fn abort(&self, shared: &Shared, body: Vec<u8>) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.messages.clear();
        outgoing.bytes = 0;
        if !outgoing.ending {
            outgoing.ending = true;
            outgoing.urgent.push_back(urgent(shared, Kind::Abort, body));
        }
        self.wake_everyone(outgoing);
    }

    /// Sends what is queued, then the goodbye, and ends.
    pub fn goodbye(&self, shared: &Shared) {
        let mut outgoing = lock(&self.outgoing);
        if !outgoing.ending {
            outgoing.ending = true;
            let release = emulate(shared, &mut outgoing, 0, Instant::now());
            outgoing.messages.push_back(Item { release, stream: 0, kind: Kind::Goodbye, body: Vec::new(), written: 0 });
        }
        self.wake_everyone(outgoing);
    }

    /// The peer is gone and wants nothing more.
    pub fn end(&self) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.ending = true;
        outgoing.urgent.clear();
        outgoing.messages.clear();
        outgoing.bytes = 0;
        self.wake_everyone(outgoing);
    }

    /// Ends at once, without a word.
    pub fn cut(&self) {
        self.end();
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub fn reader_is_done(&self) {
        let mut outgoing = lock(&self.outgoing);
        outgoing.reader_done = true;
        self.wake_everyone(outgoing);
    }

    /// Waits until the writer, and the reader too if asked, has ended.
    pub fn wait_done(&self, reader_too: bool, deadline: Instant) {
        let mut outgoing = lock(&self.outgoing);
        while !(outgoing.writer_done && (outgoing.reader_done || !reader_too)) {
            match self.sleep_for_room(outgoing, deadline) {
                Ok(awake) => outgoing = awake,
                Err(_) => return,
            }
        }
    }

    /// The writer thread.
    pub fn run_writer(&self, shared: &Shared) {
        let mut outgoing = lock(&self.outgoing);
        let mut intact = true;
        let mut batch = Vec::new();
        while intact {
            if outgoing.busy {
                outgoing = self.sleep_for_work(outgoing, None);
                continue;
            }
            let now = Instant::now();
            outgoing.take_batch(now, &mut batch);
            if batch.is_empty() {
                if outgoing.ending && outgoing.is_empty() {
                    break;
                }
                let heartbeat = outgoing.wrote + shared.options.silence / 4;
                if now >= heartbeat && !outgoing.ending {
                    outgoing.wrote = now;
                    outgoing.urgent.push_back(urgent(shared, Kind::Heartbeat, Vec::new()));
                    continue;
                }
                let release = outgoing.next_release();
                if let Some(release) = release.filter(|release| *release < now + LATE) {
                    drop(outgoing);
                    while Instant::now() < release {
                        std::hint::spin_loop();
                    }
                    outgoing = lock(&self.outgoing);
                    continue;
                }
                let early = release.and_then(|release| release.checked_sub(LATE));
                let until = match outgoing.ending {
                    true => early,
                    false => Some(early.map_or(heartbeat, |early| early.min(heartbeat))),
                };
                outgoing = self.sleep_for_work(outgoing, until.map(|until| until.saturating_duration_since(now)));
                continue;
            }
            outgoing.busy = true;
            drop(outgoing);
            intact = self.transmit(shared, batch.iter().map(Item::frame)).is_ok();
            outgoing = lock(&self.outgoing);
            outgoing.busy = false;
            outgoing.wrote = Instant::now();
            self.settle(&mut outgoing, shared, &mut batch);
        }
        outgoing.writer_done = true;
        outgoing.ending = true;
        outgoing.urgent.clear();
        outgoing.messages.clear();
        outgoing.bytes = 0;
        self.wake_everyone(outgoing);
        let _ = self.stream.shutdown(if intact { Shutdown::Write } else { Shutdown::Both });
    }

    /// Accounts for what was written and puts back what is left of a large message.
    fn settle(&self, outgoing: &mut Outgoing, shared: &Shared, batch: &mut Vec<Item>) {
        for mut item in batch.drain(..).rev() {
            let frame = item.frame().1.len();
            item.written += frame;
            outgoing.bytes = outgoing.bytes.saturating_sub(frame);
            if item.written < item.body.len() && shared.failure.get().is_none() {
                outgoing.messages.push_front(item);
            } else {
                shared.pool.give(item.body);
            }
        }
        if outgoing.sleepers > 0 {
            self.room.notify_all();
        }
    }

    /// Encrypts and writes; only by whoever set `busy`.
    fn transmit<'a>(&self, shared: &Shared, frames: impl Iterator<Item = ([u8; HEADER], &'a [u8])>) -> Result<(), ()> {
        let mut buffers = lock(&self.buffers);
        let Buffers { plain, sealed } = &mut *buffers;
        plain.clear();
        sealed.clear();
        for (header, body) in frames {
            for mut rest in [&header, body] {
                while !rest.is_empty() {
                    // Whole records are sealed from where they lie; others are gathered first, to be as large.
                    let whole = if plain.is_empty() { rest.len().min(STEP) / RECORD * RECORD } else { 0 };
                    if whole > 0 {
                        lock(&self.tls).seal(&rest[..whole], sealed)?;
                        rest = &rest[whole..];
                    } else {
                        let (now, later) = rest.split_at(rest.len().min(RECORD - plain.len()));
                        plain.extend_from_slice(now);
                        rest = later;
                        if plain.len() == RECORD {
                            lock(&self.tls).seal(plain, sealed)?;
                            plain.clear();
                        }
                    }
                    if sealed.bytes().len() >= BATCH {
                        self.write_sealed(shared, sealed)?;
                    }
                }
            }
        }
        // Where nothing is left this still sends what TLS itself has to say.
        let last = lock(&self.tls).seal(plain, sealed);
        self.write_sealed(shared, sealed)?;
        last
    }

    fn write_sealed(&self, shared: &Shared, sealed: &mut Sealed) -> Result<(), ()> {
        // Counted first, so that what a peer has received is counted here.
        shared.meter.count_socket(self.peer, sealed.bytes().len(), 0);
        self.write_socket(shared, sealed.bytes())?;
        sealed.clear();
        Ok(())
    }

    fn write_socket(&self, shared: &Shared, mut rest: &[u8]) -> Result<(), ()> {
        let started = Instant::now();
        while !rest.is_empty() {
            match (&self.stream).write(rest) {
                Ok(0) => return Err(()),
                Ok(count) => rest = &rest[count..],
                Err(error) => match error.kind() {
                    IoError::Interrupted => {}
                    IoError::WouldBlock | IoError::TimedOut => {
                        if shared.over_for(LINGER) {
                            return Err(());
                        }
                        if started.elapsed() >= shared.options.message {
                            let detail = format!("took no message for {}", spoken(shared.options.message));
                            shared.fail(shared.error(self.peer, ErrorKind::Stalled, &detail));
                            return Err(());
                        }
                    }
                    _ => return Err(()),
                },
            }
        }
        Ok(())
    }

    fn sleep_for_work<'a>(
        &self,
        mut outgoing: MutexGuard<'a, Outgoing>,
        time: Option<Duration>,
    ) -> MutexGuard<'a, Outgoing> {
        outgoing.writer_sleeps = true;
        // Bounded in any case; the loop looks again.
        let time = time.unwrap_or(WRITE_TICK);
        let mut outgoing = self.work.wait_timeout(outgoing, time).unwrap_or_else(PoisonError::into_inner).0;
        outgoing.writer_sleeps = false;
        outgoing
    }

    fn sleep_for_room<'a>(
        &self,
        mut outgoing: MutexGuard<'a, Outgoing>,
        deadline: Instant,
    ) -> Result<MutexGuard<'a, Outgoing>, Wait> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Wait::TimedOut);
        }
        outgoing.sleepers += 1;
        let mut outgoing = self.room.wait_timeout(outgoing, left).unwrap_or_else(PoisonError::into_inner).0;
        outgoing.sleepers -= 1;
        Ok(outgoing)
    }

    fn wake_writer(&self, outgoing: MutexGuard<'_, Outgoing>) {
        let asleep = outgoing.writer_sleeps;
        drop(outgoing);
        if asleep {
            self.work.notify_one();
        }
    }

    fn wake_everyone(&self, outgoing: MutexGuard<'_, Outgoing>) {
        drop(outgoing);
        self.work.notify_all();
        self.room.notify_all();
    }
}

/// When a message may leave: after those before it have been clocked out at the emulated bandwidth, plus the latency, less what
/// encrypting, copying and decrypting it takes by itself.
fn emulate(shared: &Shared, outgoing: &mut Outgoing, bytes: usize, now: Instant) -> Instant {
    let start = outgoing.line_free.max(now);
    let clocked = shared.options.bandwidth.map_or(0.0, |bits| (bytes + HEADER) as f64 * 8.0 / bits.max(1) as f64);
    outgoing.line_free = start + Duration::from_secs_f64(clocked.min(1e6));
    let own = OWN + OWN_PER_KIB * (bytes >> 10) as u32;
    (outgoing.line_free + shared.options.latency).checked_sub(own).map_or(now, |early| early.max(now))
}

fn urgent(shared: &Shared, kind: Kind, body: Vec<u8>) -> Item {
    Item { release: Instant::now() + shared.options.latency, stream: 0, kind, body, written: 0 }
}
