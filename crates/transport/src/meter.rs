//! Counts what crosses the channel: payload bytes and messages per node, phase and directed link. Framing, heartbeats
//! and TLS are counted apart, at the socket.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{PeerId, Phase};

/// Payload over one directed link for one node and phase, as counted by one of the link's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The node's index in the program, or [`Meter::NO_NODE`].
    pub node: u32,
    /// Offline or online.
    pub phase: Phase,
    /// The sender.
    pub from: PeerId,
    /// The receiver.
    pub to: PeerId,
    /// Payload bytes.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
}

/// Rounds of one node and phase, as the scheduler reported them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rounds {
    /// The node's index in the program, or [`Meter::NO_NODE`].
    pub node: u32,
    /// Offline or online.
    pub phase: Phase,
    /// How many.
    pub count: u64,
}

/// How long this peer waited for others under one node: in `recv`, and in `send` while a queue was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// The node's index in the program, or [`Meter::NO_NODE`].
    pub node: u32,
    /// How long, in nanoseconds.
    pub nanoseconds: u64,
}

/// All bytes through the socket to one peer, payload included: framing, heartbeats and TLS records. Empty for
/// transports without a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketTotals {
    /// The other end.
    pub peer: PeerId,
    /// Bytes written.
    pub sent: u64,
    /// Bytes read.
    pub received: u64,
}

/// Everything counted so far, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Payload, sent rows (`from` is this peer) and received rows (`to` is this peer).
    pub rows: Vec<Row>,
    /// Rounds.
    pub rounds: Vec<Rounds>,
    /// Waits.
    pub waits: Vec<Wait>,
    /// The sockets.
    pub sockets: Vec<SocketTotals>,
}

#[derive(Default)]
struct Table {
    rows: HashMap<(u32, Phase, PeerId, PeerId), (u64, u64)>,
    rounds: HashMap<(u32, Phase), u64>,
    waits: HashMap<u32, u64>,
    sockets: BTreeMap<PeerId, SocketTotals>,
}

/// A view on one session's counts with a current node of its own. Every endpoint has its own view, so lanes working on
/// different nodes do not disturb each other.
pub struct Meter {
    node: AtomicU32,
    table: Arc<Mutex<Table>>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { node: AtomicU32::new(Self::NO_NODE), table: Arc::default() }
    }
}

impl Meter {
    /// The node index of traffic outside any node: control, inputs, outputs.
    pub const NO_NODE: u32 = u32::MAX;

    /// An empty meter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another view on the same counts.
    pub fn view(&self) -> Self {
        Self { node: AtomicU32::new(Self::NO_NODE), table: self.table.clone() }
    }

    /// Counts what follows on this view under this node.
    pub fn set_node(&self, index: u32) {
        self.node.store(index, Ordering::Relaxed);
    }

    /// The node this view counts under.
    pub fn node(&self) -> u32 {
        self.node.load(Ordering::Relaxed)
    }

    /// Adds one message of `bytes` payload bytes under the current node.
    pub fn count(&self, phase: Phase, from: PeerId, to: PeerId, bytes: usize) {
        let key = (self.node(), phase, from, to);
        let mut table = self.lock();
        let (total, messages) = table.rows.entry(key).or_default();
        *total += bytes as u64;
        *messages += 1;
    }

    /// Adds rounds to a node.
    pub fn add_rounds(&self, node: u32, phase: Phase, count: u64) {
        *self.lock().rounds.entry((node, phase)).or_default() += count;
    }

    /// Adds a wait under the current node.
    pub fn add_wait(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        *self.lock().waits.entry(self.node()).or_default() += nanoseconds;
    }

    /// Adds bytes that went through the socket to or from `peer`.
    pub fn count_socket(&self, peer: PeerId, sent: usize, received: usize) {
        let mut table = self.lock();
        let totals = table.sockets.entry(peer).or_insert(SocketTotals { peer, ..Default::default() });
        totals.sent += sent as u64;
        totals.received += received as u64;
    }

    /// What has been counted so far.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().sorted()
    }

    /// What has been counted so far, and starts again from nothing.
    pub fn take(&self) -> Snapshot {
        std::mem::take(&mut *self.lock()).sorted()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // Counters stay whole even if a thread died holding the lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn sorted(&self) -> Snapshot {
        let mut rows: Vec<Row> = self
            .rows
            .iter()
            .map(|(&(node, phase, from, to), &(bytes, messages))| Row { node, phase, from, to, bytes, messages })
            .collect();
        let mut rounds: Vec<Rounds> =
            self.rounds.iter().map(|(&(node, phase), &count)| Rounds { node, phase, count }).collect();
        let mut waits: Vec<Wait> = self.waits.iter().map(|(&node, &nanoseconds)| Wait { node, nanoseconds }).collect();
        rows.sort_unstable();
        rounds.sort_unstable();
        waits.sort_unstable();
        Snapshot { rows, rounds, waits, sockets: self.sockets.values().copied().collect() }
    }
}

impl Snapshot {
    /// Payload bytes sent by `peer` in a phase, over all nodes and links.
    pub fn sent(&self, peer: PeerId, phase: Phase) -> u64 {
        self.rows.iter().filter(|row| row.from == peer && row.phase == phase).map(|row| row.bytes).sum()
    }
}
