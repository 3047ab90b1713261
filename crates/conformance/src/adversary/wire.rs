//! Between a party and its endpoint: at an honest one what it sends is noted, at the cheater rules change it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use covey_transport::{Endpoint, Meter, PeerId, Phase, TransportError};

/// Which message: its lane, the gate's node, offline or online, its link, and its number among those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The number of the lane.
    pub lane: usize,
    /// The gate's.
    pub node: u32,
    /// Offline or online.
    pub offline: bool,
    /// The sender's role on the lane.
    pub from: PeerId,
    /// The receiver's.
    pub to: PeerId,
    /// From 0.
    pub number: u32,
}

/// What the cheater does with a message that it sends, or with one that it receives before it reads it.
#[derive(Clone, Debug)]
pub enum Act {
    /// Flips one bit.
    Flip(usize),
    /// Flips all bits.
    Invert,
    /// Adds to the word at this byte.
    Add(usize, u64),
    /// Adds to the word that starts so many bytes before the end.
    AddBack(usize, u64),
    /// Sends this in its place.
    Replace(Vec<u8>),
    /// Sends in its place the last one of the same length that it sent.
    Replay,
    /// Sends the link's next message first.
    Swap,
    /// Sends nothing.
    Withhold,
    /// Sends it less its last byte.
    Truncate,
    /// Sends it, and what follows it on its link, only once something else has been received.
    Wait,
    /// Sends nothing from here on.
    Stop,
    /// Sends it once this party is done with that lane.
    Until(usize),
}

/// A message and what becomes of it.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The message.
    pub spot: Spot,
    /// Whether the cheater receives it.
    pub received: bool,
    /// What becomes of it.
    pub act: Act,
}

/// What was sent, in order, by all that are listened to.
pub type Log = Arc<Mutex<Vec<(Spot, Vec<u8>)>>>;

/// The lanes that a party is done with.
#[derive(Default)]
pub struct Done {
    lanes: Mutex<BTreeSet<usize>>,
    changed: Condvar,
}

impl Done {
    /// It is done with this one.
    pub fn add(&self, lane: usize) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).insert(lane);
        self.changed.notify_all();
    }

    fn wait_for(&self, lane: usize) {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(lanes, |lanes| !lanes.contains(&lane)));
    }
}

/// What the wires of a party's lanes have in common.
#[derive(Clone)]
pub struct Common {
    /// Bytes of a word.
    pub word: usize,
    /// What becomes of messages.
    pub rules: Arc<Vec<Rule>>,
    /// What was sent.
    pub log: Log,
    /// What the party is done with.
    pub done: Arc<Done>,
}

/// A lane's endpoint that notes, and follows rules.
pub struct Wire {
    inner: Box<dyn Endpoint>,
    lane: usize,
    common: Common,
    sent: HashMap<(u32, bool, PeerId), u32>,
    received: HashMap<(u32, bool, PeerId), u32>,
    history: Vec<Vec<u8>>,
    /// What waits for the next message of its link, or for one to be received.
    held: Vec<(PeerId, Phase, Vec<u8>)>,
    waiting: Vec<(PeerId, Phase, Vec<u8>)>,
    /// Whether any rule has changed anything.
    changed: Arc<Mutex<bool>>,
    stopped: bool,
}

impl Wire {
    /// `inner`, of lane number `lane`, at which peers are numbered by their roles there.
    pub fn new(inner: Box<dyn Endpoint>, lane: usize, common: Common, changed: Arc<Mutex<bool>>) -> Self {
        Wire {
            inner,
            lane,
            common,
            changed,
            sent: HashMap::new(),
            received: HashMap::new(),
            history: Vec::new(),
            held: Vec::new(),
            waiting: Vec::new(),
            stopped: false,
        }
    }

    fn change(&self) {
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn altered(&self, act: &Act, message: &[u8]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        match act {
            Act::Flip(bit) => {
                let bit = bit % (8 * bytes.len());
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            Act::Invert => bytes.iter_mut().for_each(|byte| *byte = !*byte),
            Act::Add(at, delta) => {
                add(&mut bytes, self.common.word, *at, *delta);
            }
            Act::AddBack(back, delta) => {
                let at = bytes.len().saturating_sub(*back);
                add(&mut bytes, self.common.word, at, *delta);
            }
            Act::Replace(other) => bytes.clone_from(other),
            Act::Replay => {
                if let Some(earlier) = self.history.iter().rev().find(|m| m.len() == message.len()) {
                    bytes.clone_from(earlier);
                }
            }
            Act::Truncate => {
                bytes.pop();
            }
            Act::Swap | Act::Withhold | Act::Wait | Act::Stop | Act::Until(_) => {}
        }
        if bytes != message {
            self.change();
        }
        bytes
    }

    fn rule(&self, spot: Spot, received: bool) -> Option<Act> {
        let rule = self.common.rules.iter().find(|rule| rule.spot == spot && rule.received == received);
        rule.map(|rule| rule.act.clone())
    }

    fn spot(&mut self, phase: Phase, peer: PeerId, received: bool) -> Spot {
        let (node, offline, me) = (self.inner.meter().node(), phase == Phase::Offline, self.inner.me());
        let counts = if received { &mut self.received } else { &mut self.sent };
        let count = counts.entry((node, offline, peer)).or_insert(0);
        let number = *count;
        *count += 1;
        let (from, to) = if received { (peer, me) } else { (me, peer) };
        Spot { lane: self.lane, node, offline, from, to, number }
    }
}

impl Endpoint for Wire {
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
        let spot = self.spot(phase, to, false);
        self.common.log.lock().unwrap_or_else(PoisonError::into_inner).push((spot, message.clone()));
        if self.stopped {
            return Ok(());
        }
        let act = self.rule(spot, false);
        let own = if self.common.rules.is_empty() {
            message
        } else {
            let altered = act.as_ref().map_or_else(|| message.clone(), |act| self.altered(act, &message));
            self.history.push(message);
            altered
        };
        if let Some(act @ (Act::Withhold | Act::Stop | Act::Swap | Act::Wait)) = act {
            match act {
                Act::Stop => self.stopped = true,
                Act::Swap => self.held.push((to, phase, own)),
                Act::Wait => self.waiting.push((to, phase, own)),
                _ => {}
            }
            // What waits counts once it has waited for something.
            if !matches!(act, Act::Wait) {
                self.change();
            }
            return Ok(());
        }
        if let Some(Act::Until(lane)) = act {
            self.common.done.wait_for(lane);
            self.change();
        }
        if self.waiting.iter().any(|(peer, ..)| *peer == to) {
            self.waiting.push((to, phase, own));
            return Ok(());
        }
        self.inner.send(to, phase, own)?;
        if let Some(at) = self.held.iter().position(|(peer, ..)| *peer == to) {
            let (to, phase, message) = self.held.swap_remove(at);
            self.inner.send(to, phase, message)?;
        }
        Ok(())
    }

    fn recv(&mut self, from: PeerId, phase: Phase, len: usize) -> Result<Vec<u8>, TransportError> {
        let bytes = self.inner.recv(from, phase, len)?;
        for (to, phase, message) in std::mem::take(&mut self.waiting) {
            self.change();
            self.inner.send(to, phase, message)?;
        }
        let spot = self.spot(phase, from, true);
        Ok(match self.rule(spot, true) {
            Some(act) => self.altered(&act, &bytes),
            None => bytes,
        })
    }

    fn meter(&self) -> &Arc<Meter> {
        self.inner.meter()
    }
}

/// Adds to the word at byte `at`, or to what there is of one.
fn add(bytes: &mut [u8], word: usize, at: usize, delta: u64) {
    let at = if at < bytes.len() { at } else { 0 };
    let part = &mut bytes[at..];
    let len = part.len().min(word);
    let mut own = [0; 8];
    own[..len].copy_from_slice(&part[..len]);
    let sum = u64::from_le_bytes(own).wrapping_add(delta).to_le_bytes();
    part[..len].copy_from_slice(&sum[..len]);
}
