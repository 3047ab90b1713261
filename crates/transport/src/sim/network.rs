//! The simulated network itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::fault::{Fault, Trigger, corrupt};
use super::{Line, Options};
use crate::channel::{Endpoint, Network};
use crate::error::spoken;
use crate::inbox::{Failure, Inbox, Queue, Wait, lock};
use crate::roster::Roster;
use crate::{ErrorKind, Meter, PeerId, Phase, TransportError};

/// Bytes one sender may have waiting on one stream before its `send` waits (in real time).
const QUEUE_BYTES: usize = 256 << 20;

/// Simulated networks of all peers, P0 first, clients last.
pub fn network(options: Options) -> Vec<SimNetwork> {
    let count = options.parties + options.clients;
    let names: Vec<(PeerId, String)> = (0..count).map(|id| (id, String::new())).collect();
    let failure: Failure = Arc::new(OnceLock::new());
    let timeout = options.timeout;
    let parties = options.parties;
    // Nobody waits to send where waits end at rest: what is sent ends a wait at once.
    let bound = if options.at_rest { usize::MAX } else { QUEUE_BYTES };
    let hub = Arc::new(Hub {
        inboxes: (0..count).map(|_| Inbox::new(bound, failure.clone())).collect(),
        failure,
        clocks: (0..count).map(|_| Mutex::new(0)).collect(),
        senders: (0..count).map(|_| Mutex::new(Sender::default())).collect(),
        standing: Mutex::new(Standing::default()),
        expected: (0..count).map(|_| Mutex::new(HashMap::new())).collect(),
        options,
    });
    (0..count)
        .map(|me| {
            let roster = Roster::new(me, parties, names.clone());
            let membership = Arc::new(Membership { roster, hub: hub.clone(), timeout });
            SimNetwork { membership, meter: Arc::new(Meter::new()) }
        })
        .collect()
}

/// A message on the simulated wire. The number reveals losses and repetitions, as TLS would.
struct Parcel {
    number: u64,
    arrival: u64,
    body: Vec<u8>,
}

/// What one peer has sent so far.
#[derive(Default)]
struct Sender {
    stalled: bool,
    /// For each receiver: when the link is free again, and how many messages it carried.
    links: HashMap<PeerId, (u64, u64)>,
    /// For each receiver and stream: how many messages it carried.
    streams: HashMap<(PeerId, u32), u64>,
}

struct Hub {
    options: Options,
    inboxes: Vec<Inbox<Parcel>>,
    failure: Failure,
    /// Virtual nanoseconds of each peer.
    clocks: Vec<Mutex<u64>>,
    senders: Vec<Mutex<Sender>>,
    /// For each receiver, by sender and stream: the number the next message should have.
    expected: Vec<Mutex<HashMap<(PeerId, u32), u64>>>,
    standing: Mutex<Standing>,
}

/// Who does not go on by itself.
#[derive(Default)]
struct Standing {
    /// Who waits for a message now, and on which stream.
    waits: BTreeMap<(PeerId, u32), Waiting>,
    /// The streams of all who have opened any, and have not closed them.
    open: HashMap<PeerId, BTreeSet<u32>>,
}

impl Standing {
    /// What `peer` waits for: on `stream` if it does so there.
    fn wait_of(&self, peer: PeerId, stream: u32) -> Option<Waiting> {
        let own = self.waits.get(&(peer, stream));
        own.or_else(|| self.waits.range((peer, 0)..=(peer, u32::MAX)).map(|(_, wait)| wait).next()).copied()
    }
}

/// A peer's wait: for whom, on which stream, since when in virtual time.
#[derive(Clone, Copy)]
struct Waiting {
    from: PeerId,
    stream: u32,
    since: u64,
}

impl Hub {
    fn fail(&self, error: TransportError) -> TransportError {
        let failure = self.failure.get_or_init(|| error).clone();
        self.inboxes.iter().for_each(Inbox::wake);
        failure
    }

    fn line(&self, from: PeerId, to: PeerId) -> Line {
        self.options.links.get(&(from, to)).copied().unwrap_or(self.options.line)
    }

    /// The wait that explains why `waiter` waits in vain: peers wait for each other in a chain. Its end is the last
    /// wait, for a peer that waits for nobody; of a circle, the wait that began first in virtual time, which does not
    /// depend on whose real time-out fires first.
    fn root_of(&self, waiter: PeerId, mut wait: Waiting) -> Waiting {
        let standing = lock(&self.standing);
        let mut seen = vec![(waiter, wait)];
        while let Some(next) = standing.wait_of(wait.from, wait.stream) {
            if let Some(start) = seen.iter().position(|(peer, _)| *peer == wait.from) {
                let first = seen[start..].iter().min_by_key(|(peer, wait)| (wait.since, *peer));
                return first.map_or(wait, |(_, wait)| *wait);
            }
            seen.push((wait.from, next));
            wait = next;
        }
        wait
    }

    /// Whether nobody can send any more. Who waits for what has been sent does not wait: [`Options::at_rest`].
    fn is_at_rest(&self, standing: &Standing) -> bool {
        let stands = |peer: PeerId| {
            let streams = standing.open.get(&peer);
            streams.is_some_and(|streams| streams.iter().all(|stream| standing.waits.contains_key(&(peer, *stream))))
        };
        self.options.at_rest && (0..self.inboxes.len()).all(stands)
    }

    fn has_left(&self, peer: PeerId) -> bool {
        self.inboxes.iter().any(|inbox| inbox.has_ended(peer))
    }
}

struct Membership {
    roster: Roster,
    hub: Arc<Hub>,
    timeout: Duration,
}

impl Membership {
    fn me(&self) -> PeerId {
        self.roster.me
    }

    fn give_up(&self, peer: PeerId, wait: Wait, stalled: impl FnOnce(String) -> String) -> TransportError {
        let (kind, detail) = match wait {
            Wait::Failed(failure) => return failure,
            Wait::Ended if self.hub.has_left(self.me()) => return TransportError::local("this session is closed"),
            Wait::Ended => (ErrorKind::Left, "left the session before it was over".to_string()),
            Wait::TimedOut if self.hub.options.at_rest => (ErrorKind::Stalled, stalled("while all waited".into())),
            Wait::TimedOut => (ErrorKind::Stalled, stalled(format!("for {}", spoken(self.timeout)))),
        };
        self.hub.fail(self.roster.error(peer, kind, detail))
    }

    /// A message that this peer sent, into the queue of who receives it.
    fn deliver(&self, to: PeerId, stream: u32, parcel: Parcel) -> Result<(), TransportError> {
        let queue = self.hub.inboxes[to].queue(self.me(), stream);
        // Under one lock, lest its receiver count as waiting for what is there.
        let mut standing = self.hub.options.at_rest.then(|| lock(&self.hub.standing));
        if let Some(standing) = &mut standing
            && standing.waits.get(&(to, stream)).is_some_and(|wait| wait.from == self.me())
        {
            standing.waits.remove(&(to, stream));
        }
        let len = parcel.body.len();
        let pushed = queue.push(parcel, len, Instant::now() + self.timeout);
        drop(standing);
        pushed.map_err(|wait| self.give_up(to, wait, |time| format!("took no message {time}")))
    }

    /// The next message, or why none comes.
    fn await_parcel(&self, from: PeerId, stream: u32) -> Result<Parcel, TransportError> {
        let (hub, me) = (&*self.hub, self.me());
        let queue = hub.inboxes[me].queue(from, stream);
        let wait = Waiting { from, stream, since: *lock(&hub.clocks[me]) };
        let popped = self.stand(&queue, wait).unwrap_or_else(|| queue.pop(Instant::now() + self.timeout));
        if popped.is_ok() && !hub.options.at_rest {
            lock(&hub.standing).waits.remove(&(me, stream));
        }
        popped.map_err(|ended| match ended {
            Wait::TimedOut => self.in_vain(me, wait),
            ended => self.give_up(from, ended, |_| String::new()),
        })
    }

    /// Notes that this peer waits. Where waits end at rest: what is there already, or that nothing will come.
    fn stand(&self, queue: &Queue<Parcel>, wait: Waiting) -> Option<Result<Parcel, Wait>> {
        let mut standing = lock(&self.hub.standing);
        if self.hub.options.at_rest {
            let there = queue.pop(Instant::now());
            if !matches!(there, Err(Wait::TimedOut)) {
                return Some(there);
            }
        }
        standing.waits.insert((self.me(), wait.stream), wait);
        self.hub.is_at_rest(&standing).then_some(Err(Wait::TimedOut))
    }

    /// The end of `waiter`'s wait for what never came.
    fn in_vain(&self, waiter: PeerId, wait: Waiting) -> TransportError {
        let root = self.hub.root_of(waiter, wait);
        self.give_up(root.from, Wait::TimedOut, |time| format!("sent nothing on stream {} {time}", root.stream))
    }

    /// Puts a message on the wire; returns what reaches the other side, if anything does.
    fn ship(&self, to: PeerId, stream: u32, mut body: Vec<u8>) -> Result<Vec<Parcel>, TransportError> {
        let me = self.me();
        let line = self.hub.line(me, to);
        let now = *lock(&self.hub.clocks[me]);
        let mut sender = lock(&self.hub.senders[me]);
        let (free, on_link) = sender.links.get(&to).copied().unwrap_or_default();
        let on_stream = sender.streams.get(&(to, stream)).copied().unwrap_or_default();
        let left = now.max(free) + line.busy(body.len());
        sender.links.insert(to, (left, on_link + 1));
        sender.streams.insert((to, stream), on_stream + 1);

        let mut arrival = left + line.latency.as_nanos() as u64;
        let mut copies = 1;
        let due = |fault: &&Fault| {
            let number = match fault.stream {
                Some(only) if only != stream => return false,
                Some(_) => on_stream,
                None => on_link,
            };
            fault.from == me && fault.to == to && fault.at == number
        };
        for fault in self.hub.options.faults.iter().filter(due) {
            match &fault.what {
                Trigger::Drop => copies = 0,
                Trigger::Duplicate => copies = 2,
                Trigger::Corrupt => corrupt(&mut body, self.hub.options.seed, me, to, on_link),
                Trigger::Truncate(len) => body.truncate(*len),
                Trigger::Delay(time) => arrival += time.as_nanos() as u64,
                Trigger::Rewrite(rewrite) => rewrite(&mut body),
                Trigger::Cut => {
                    // Both ends see the break; the lower id is named so that everyone names the same.
                    let (low, high) = (me.min(to), me.max(to));
                    let detail = format!("connection to {} lost", self.roster.label(high));
                    return Err(self.hub.fail(self.roster.error(low, ErrorKind::ConnectionLost, detail)));
                }
                Trigger::Stall => sender.stalled = true,
            }
        }
        if sender.stalled {
            copies = 0;
        }
        Ok((0..copies).map(|_| Parcel { number: on_stream, arrival, body: body.clone() }).collect())
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let alone = self.roster.peers().iter().all(|peer| self.hub.has_left(*peer));
        if !alone && !self.hub.has_left(self.me()) {
            self.hub.fail(self.roster.error(self.me(), ErrorKind::ConnectionLost, "connection lost"));
        }
    }
}

/// One peer of a simulated session.
pub struct SimNetwork {
    membership: Arc<Membership>,
    meter: Arc<Meter>,
}

impl SimNetwork {
    /// This peer's virtual time since the start.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(*lock(&self.membership.hub.clocks[self.membership.me()]))
    }

    /// Lets this peer's virtual time pass, as local computation would.
    pub fn compute(&self, time: Duration) {
        *lock(&self.membership.hub.clocks[self.membership.me()]) += time.as_nanos() as u64;
    }
}

impl Network for SimNetwork {
    fn me(&self) -> PeerId {
        self.membership.me()
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
        if !self.membership.hub.inboxes[self.me()].open(stream) {
            return Err(TransportError::local(format!("stream {stream} is open already")));
        }
        lock(&self.membership.hub.standing).open.entry(self.me()).or_default().insert(stream);
        let meter = Arc::new(self.meter.view());
        Ok(Box::new(SimEndpoint { stream, membership: self.membership.clone(), meter }))
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
        self.membership.hub.inboxes.iter().for_each(|inbox| inbox.end(self.me()));
    }
}

struct SimEndpoint {
    stream: u32,
    membership: Arc<Membership>,
    meter: Arc<Meter>,
}

impl Endpoint for SimEndpoint {
    fn me(&self) -> PeerId {
        self.membership.me()
    }

    fn parties(&self) -> usize {
        self.membership.roster.parties
    }

    fn stream(&self) -> u32 {
        self.stream
    }

    fn send(&mut self, to: PeerId, phase: Phase, message: Vec<u8>) -> Result<(), TransportError> {
        let membership = &self.membership;
        membership.roster.check(to)?;
        if let Some(failure) = membership.hub.failure.get() {
            return Err(failure.clone());
        }
        if membership.hub.has_left(to) {
            return Err(membership.give_up(to, Wait::Ended, |_| String::new()));
        }
        let len = message.len();
        for parcel in membership.ship(to, self.stream, message)? {
            membership.deliver(to, self.stream, parcel)?;
        }
        self.meter.count(phase, self.me(), to, len);
        Ok(())
    }

    fn recv(&mut self, from: PeerId, phase: Phase, len: usize) -> Result<Vec<u8>, TransportError> {
        let (membership, stream) = (&self.membership, self.stream);
        membership.roster.check(from)?;
        let parcel = membership.await_parcel(from, stream)?;
        let broke = |what: String| {
            let detail = format!("broke the format: {what}");
            Err(membership.hub.fail(membership.roster.error(from, ErrorKind::Format, detail)))
        };
        let expected = {
            let mut expected = lock(&membership.hub.expected[membership.me()]);
            let next = expected.entry((from, stream)).or_insert(0);
            *next += 1;
            *next - 1
        };
        if parcel.number != expected {
            let what = if parcel.number > expected { "was lost" } else { "came twice" };
            return broke(format!("message {} of stream {stream} {what}", parcel.number.min(expected)));
        }
        if parcel.body.len() != len {
            return broke(format!("{} bytes on stream {stream} where {len} were due", parcel.body.len()));
        }
        let mut clock = lock(&membership.hub.clocks[membership.me()]);
        *clock = (*clock).max(parcel.arrival);
        drop(clock);
        self.meter.count(phase, from, self.me(), len);
        Ok(parcel.body)
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        let (hub, me) = (&*self.membership.hub, self.membership.me());
        hub.inboxes[me].release(self.stream);
        let waits_in_vain = {
            let mut standing = lock(&hub.standing);
            standing.waits.remove(&(me, self.stream));
            standing.open.entry(me).or_default().remove(&self.stream);
            let first = standing.waits.first_key_value();
            first.filter(|_| hub.is_at_rest(&standing)).map(|((peer, _), wait)| (*peer, *wait))
        };
        if let Some((waiter, wait)) = waits_in_vain {
            self.membership.in_vain(waiter, wait);
        }
    }
}
