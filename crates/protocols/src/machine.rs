//! Gates as round machines: what each exchanges is declared up front, what it computes is cut at its messages.

use covey_ring::{BitTensor, Ring, Word, wire};
use covey_transport::Phase as StepKind;

/// A point in a gate at which parties exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Material that depends on no input.
    Offline,
    /// Round r of the online phase, from 0.
    Online(usize),
}

impl Step {
    /// How the meter files messages of this step.
    pub fn kind(self) -> StepKind {
        match self {
            Step::Offline => StepKind::Offline,
            Step::Online(_) => StepKind::Online,
        }
    }
}

/// One message of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// When.
    pub step: Step,
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// Payload bytes, at least 1.
    pub len: usize,
}

/// Every message of one gate over one tile: a pure function of its size, ring and options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    messages: Vec<Message>,
    rounds: usize,
}

impl Layout {
    /// Adds `len` bytes to the message of `step` from one party to another. A gate has at most one message per step and link.
    pub fn bytes(&mut self, step: Step, from: usize, to: usize, len: usize) {
        if let Step::Online(round) = step {
            self.rounds = self.rounds.max(round + 1);
        }
        if len == 0 {
            return;
        }
        let same = |m: &&mut Message| m.step == step && m.from == from && m.to == to;
        match self.messages.iter_mut().find(same) {
            Some(message) => message.len += len,
            None => self.messages.push(Message { step, from, to, len }),
        }
    }

    /// Adds `count` ring elements.
    pub fn words(&mut self, step: Step, from: usize, to: usize, count: usize, ring: Ring) {
        self.bytes(step, from, to, wire::words_len(count, ring));
    }

    /// Adds `planes` bit planes of `len` bits.
    pub fn planes(&mut self, step: Step, from: usize, to: usize, len: usize, planes: usize) {
        self.bytes(step, from, to, wire::planes_len(len, planes));
    }

    /// All messages, in the order they were declared.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Online rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }
}

/// What a machine has to send after one local step, by receiver.
pub struct Outbox {
    buffers: Vec<Vec<u8>>,
}

impl Outbox {
    /// Empty buffers for `peers` receivers.
    pub fn new(peers: usize) -> Self {
        Outbox { buffers: vec![Vec::new(); peers] }
    }

    /// Appends ring elements to the message for `to`.
    pub fn words<W: Word>(&mut self, to: usize, values: &[W], ring: Ring) {
        wire::pack_words(values, ring, &mut self.buffers[to]);
    }

    /// Appends one bit plane of `len` bits to the message for `to`.
    pub fn plane(&mut self, to: usize, words: &[u64], len: usize) {
        wire::pack_plane(words, len, &mut self.buffers[to]);
    }

    /// Appends raw bytes to the message for `to`.
    pub fn bytes(&mut self, to: usize, bytes: &[u8]) {
        self.buffers[to].extend_from_slice(bytes);
    }

    pub(crate) fn take(&mut self, to: usize) -> Vec<u8> {
        std::mem::take(&mut self.buffers[to])
    }
}

/// What arrived for a machine in one step, by sender. Blocks are read in the order they were written.
pub struct Inbox {
    buffers: Vec<(Vec<u8>, usize)>,
    /// Every block read, element by element: a party's view.
    #[cfg(test)]
    pub(crate) read: Vec<Vec<u64>>,
}

impl Inbox {
    pub(crate) fn new(peers: usize) -> Self {
        Inbox {
            buffers: vec![(Vec::new(), 0); peers],
            #[cfg(test)]
            read: Vec::new(),
        }
    }

    pub(crate) fn put(&mut self, from: usize, bytes: Vec<u8>) {
        self.buffers[from] = (bytes, 0);
    }

    /// The next `len` bytes from `from`.
    pub fn bytes(&mut self, from: usize, len: usize) -> &[u8] {
        let (buffer, next) = &mut self.buffers[from];
        let start = *next;
        *next += len;
        &buffer[start..start + len]
    }

    /// The next `count` ring elements from `from`.
    pub fn words<W: Word>(&mut self, from: usize, count: usize, ring: Ring) -> Vec<W> {
        let words = wire::unpack_words(self.bytes(from, wire::words_len(count, ring)), count, ring);
        #[cfg(test)]
        self.read.push(words.iter().map(|w: &W| w.to_u64()).collect());
        words
    }

    /// The next bit plane of `len` bits from `from`.
    pub fn plane(&mut self, from: usize, len: usize) -> Vec<u64> {
        let bits: BitTensor = wire::unpack_planes(self.bytes(from, wire::planes_len(len, 1)), len, 1);
        #[cfg(test)]
        self.read.push((0..len).map(|i| u64::from(bits.get(0, i))).collect());
        bits.words().to_vec()
    }
}

/// One gate over one tile, seen from one party.
///
/// The scheduler calls, in order: `local(Offline)`, `absorb(Offline)` if offline messages are due, then for each round
/// `local(Online(r))`, `absorb(Online(r))` if messages are due, then `finish`. In a preprocessing run only the offline
/// half happens before `finish`, whose output then has the right shape and, at parties that deal material, the
/// right masks; other parties' values are meaningless and never leave them.
pub trait Machine {
    /// What the gate yields.
    type Output;
    /// Every message of the gate, for all parties.
    fn layout(&self) -> &Layout;
    /// Computes this party's part of `step` and emits its messages.
    fn local(&mut self, step: Step, out: &mut Outbox);
    /// Takes in the messages of `step`.
    fn absorb(&mut self, step: Step, inbox: &mut Inbox);
    /// The gate's result.
    fn finish(self) -> Self::Output;
}
