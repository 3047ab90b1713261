//! Gates as round machines: what each exchanges is declared up front, what it computes is cut at its messages.

use std::sync::{Arc, Mutex, PoisonError};

use covey_kernels::{Buffer, packing};
use covey_ring::{BitTensor, Ring, Word, wire};
use covey_transport::Phase as StepKind;

use crate::cost::{Exposure, OtCount};

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
    ot_count: OtCount,
    public_keys: u32,
    exposure: Exposure,
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

    /// Adds correlated oblivious transfers, by the party that holds the correlation.
    pub fn correlated_ots(&mut self, counts: [usize; 2]) {
        self.ot_count += OtCount { by_sender: counts.map(|count| count as u64) };
    }

    /// Says that the gate needs the public key of that number.
    pub fn public_key(&mut self, number: u32) {
        self.public_keys |= 1 << number;
    }

    /// Adds what results that are sent encrypted show of the weights.
    pub fn exposes(&mut self, exposure: Exposure) {
        self.exposure += exposure;
    }

    /// What results that are sent encrypted show of the weights.
    pub fn exposure(&self) -> Exposure {
        self.exposure
    }

    /// The public keys that the gate needs, a bit each.
    pub fn public_keys(&self) -> u32 {
        self.public_keys
    }

    /// Correlated randomness used up.
    pub fn ot_count(&self) -> OtCount {
        self.ot_count
    }

    /// All messages, in the order they were declared.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Online rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// The messages of `step` that `party` sends.
    pub(crate) fn sent(&self, step: Step, party: usize) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |m| m.step == step && m.from == party)
    }

    /// The messages of `step` due at `party`.
    pub(crate) fn due(&self, step: Step, party: usize) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |m| m.step == step && m.to == party)
    }

    /// Whether `party` sends or receives anything online.
    pub(crate) fn is_online_at(&self, party: usize) -> bool {
        self.messages.iter().any(|m| m.step != Step::Offline && (m.from == party || m.to == party))
    }

    /// Whether the part of `party` is over once it has done its local part of online round `round`.
    pub(crate) fn is_over_at(&self, party: usize, round: usize) -> bool {
        !self.messages.iter().any(|m| match m.step {
            Step::Offline => false,
            Step::Online(r) => (m.from == party && r > round) || (m.to == party && r >= round),
        })
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
        packing::pack_words(values, ring, &mut self.buffers[to]);
    }

    /// Appends one bit plane of `len` bits to the message for `to`.
    pub fn plane(&mut self, to: usize, words: &[u64], len: usize) {
        packing::pack_plane(words, len, &mut self.buffers[to]);
    }

    /// Appends bit planes of `len` bits, one after the other in `words`, to the message for `to`.
    pub fn planes(&mut self, to: usize, words: &[u64], len: usize) {
        for plane in words.chunks_exact(BitTensor::words_per_plane(len).max(1)) {
            packing::pack_plane(plane, len, &mut self.buffers[to]);
        }
    }

    /// Appends raw bytes to the message for `to`.
    pub fn bytes(&mut self, to: usize, bytes: &[u8]) {
        self.buffers[to].extend_from_slice(bytes);
    }

    /// Gives the message for `to` a buffer to be written to.
    pub(crate) fn supply(&mut self, to: usize, buffer: Vec<u8>) {
        self.buffers[to] = buffer;
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

    /// Takes back the buffer of what came from `from`.
    pub(crate) fn take(&mut self, from: usize) -> Vec<u8> {
        std::mem::take(&mut self.buffers[from].0)
    }

    /// All that came from `from`, read or not.
    pub(crate) fn peek(&self, from: usize) -> &[u8] {
        &self.buffers[from].0
    }

    /// The next `len` bytes from `from`.
    pub fn bytes(&mut self, from: usize, len: usize) -> &[u8] {
        let (buffer, next) = &mut self.buffers[from];
        let start = *next;
        *next += len;
        &buffer[start..start + len]
    }

    /// The next `count` ring elements from `from`, for one tile's time.
    pub fn elements<W: Word>(&mut self, from: usize, count: usize, ring: Ring) -> Buffer<W> {
        let mut words = Buffer::stale(count);
        self.words_into(from, ring, &mut words);
        words
    }

    /// The next `planes` bit planes of `len` bits from `from`, one after the other, for one tile's time.
    pub fn bit_planes(&mut self, from: usize, len: usize, planes: usize) -> Buffer<u64> {
        let width = BitTensor::words_per_plane(len);
        let mut words = Buffer::stale(width * planes);
        words.chunks_exact_mut(width.max(1)).for_each(|plane| self.plane_into(from, len, plane));
        words
    }

    /// The next `count` ring elements from `from`.
    pub fn words<W: Word>(&mut self, from: usize, count: usize, ring: Ring) -> Vec<W> {
        let mut words = vec![W::ZERO; count];
        self.words_into(from, ring, &mut words);
        words
    }

    /// The next `out.len()` ring elements from `from`.
    pub fn words_into<W: Word>(&mut self, from: usize, ring: Ring, out: &mut [W]) {
        packing::unpack_words_into(self.bytes(from, wire::words_len(out.len(), ring)), ring, out);
        #[cfg(test)]
        self.read.push(out.iter().map(|w| w.to_u64()).collect());
    }

    /// The next bit plane of `len` bits from `from`, into the words that hold it; bits past `len` are 0.
    pub fn plane_into(&mut self, from: usize, len: usize, out: &mut [u64]) {
        packing::unpack_plane_into(self.bytes(from, wire::planes_len(len, 1)), out);
        #[cfg(test)]
        self.read.push((0..len).map(|i| out[i / 64] >> (i % 64) & 1).collect());
    }

    /// The next `planes` bit planes of `len` bits from `from`, one after the other.
    pub fn planes(&mut self, from: usize, len: usize, planes: usize) -> Vec<u64> {
        let width = BitTensor::words_per_plane(len);
        let mut words = vec![0; width * planes];
        words.chunks_exact_mut(width.max(1)).for_each(|plane| self.plane_into(from, len, plane));
        words
    }

    /// The next bit plane of `len` bits from `from`.
    pub fn plane(&mut self, from: usize, len: usize) -> Vec<u64> {
        let mut words = vec![0; BitTensor::words_per_plane(len)];
        self.plane_into(from, len, &mut words);
        words
    }
}

/// One gate over one tile, seen from one party.
///
/// The scheduler calls, in order: `local(Offline)`, `absorb(Offline)` if offline messages are due, then for each round
/// `local(Online(r))`, `absorb(Online(r))` if messages are due, then `finish`. A machine never knows the phase:
///
/// - A party that works ahead of the inputs (a dealer) computes in the preprocessing run: `local(Offline)`, then `keep` if the gate
///   needs it online, then `finish`. In the online run a gate it takes part in goes `local(Offline)`, `restore`, then its
///   rounds; of all others nothing but `finish` is called.
/// - The other parties store in the preprocessing run what is sent to them and call `finish`; `local(Offline)` runs online,
///   or in both if it has offline messages to send.
///
/// Where not all was called, `finish` still yields the right shape; the values are meaningless and never leave the party.
pub trait Machine: Send {
    /// What the gate yields.
    type Output: Send;
    /// Every message of the gate, for all parties.
    fn layout(&self) -> &Layout;
    /// Computes this party's part of `step` and emits its messages.
    fn local(&mut self, step: Step, out: &mut Outbox);
    /// Takes in the messages of `step`.
    fn absorb(&mut self, step: Step, inbox: &mut Inbox);
    /// The gate's result.
    fn finish(self) -> Self::Output;
    /// At a party that works ahead: appends what its online part needs of the operands, which it will not have then.
    fn keep(&self, _kept: &mut Vec<u8>) {}
    /// Takes in what `keep` wrote in the preprocessing run.
    fn restore(&mut self, _kept: &[u8]) {}
}

/// A machine without its type and that of its output, so that the scheduler is compiled once and not for every gate.
pub(crate) trait AnyMachine: Send {
    fn local(&mut self, step: Step, out: &mut Outbox);
    fn absorb(&mut self, step: Step, inbox: &mut Inbox);
    /// Makes the result, after its last part, and puts it in place.
    fn conclude(&mut self);
    /// Hands out what that left.
    fn finish(self: Box<Self>);
    fn keep(&mut self, kept: &mut Vec<u8>);
    fn restore(&mut self, kept: &[u8]);
}

/// A machine that is made with its first part, or was made before.
pub(crate) type BoxedMachine<'a> = Box<dyn AnyMachine + 'a>;

/// A tile whose turn has come.
pub(crate) struct Planned<'a> {
    pub layout: Arc<Layout>,
    pub machine: BoxedMachine<'a>,
}

/// What becomes of the results of a gate's tiles. `place` takes one on the thread that computed it, and `done` what that returns, in the
/// order of the tiles where all have the same rounds.
pub(crate) struct Ends<Place, Done> {
    place: Place,
    done: Mutex<Done>,
}

impl<Place, Done> Ends<Place, Done> {
    pub(crate) fn new(place: Place, done: Done) -> Self {
        Ends { place, done: Mutex::new(done) }
    }
}

/// A machine from before it is made until its result is handed out.
pub(crate) struct TileMachine<'a, M, Make, T, Place, Done> {
    state: State<M, Make, T>,
    layout: Arc<Layout>,
    /// Its tile's.
    index: usize,
    ends: &'a Ends<Place, Done>,
}

enum State<M, Make, T> {
    ToMake(Make),
    Running(M),
    Concluded(T),
    /// Between two of them, or where one failed.
    Gone,
}

impl<'a, M, Make, T, Place, Done> TileMachine<'a, M, Make, T, Place, Done>
where
    M: Machine,
    Make: FnOnce() -> M,
    Self: AnyMachine + 'a,
{
    /// The tile of a machine that there is.
    pub(crate) fn running(machine: M, index: usize, ends: &'a Ends<Place, Done>) -> Planned<'a> {
        let layout = Arc::new(machine.layout().clone());
        Self::planned(State::Running(machine), layout, index, ends)
    }

    /// The tile of a machine that `make` makes, of this layout.
    pub(crate) fn to_make(make: Make, layout: Arc<Layout>, index: usize, ends: &'a Ends<Place, Done>) -> Planned<'a> {
        Self::planned(State::ToMake(make), layout, index, ends)
    }

    fn planned(
        state: State<M, Make, T>,
        layout: Arc<Layout>,
        index: usize,
        ends: &'a Ends<Place, Done>,
    ) -> Planned<'a> {
        Planned { layout: layout.clone(), machine: Box::new(TileMachine { state, layout, index, ends }) }
    }

    /// Called from all below, and compiled once.
    #[inline(never)]
    fn machine(&mut self) -> &mut M {
        if let State::ToMake(_) = self.state {
            let State::ToMake(make) = std::mem::replace(&mut self.state, State::Gone) else {
                unreachable!("just seen")
            };
            let machine = make();
            debug_assert_eq!(*machine.layout(), *self.layout, "tiles of a length have one layout");
            self.state = State::Running(machine);
        }
        match &mut self.state {
            State::Running(machine) => machine,
            _ => unreachable!("a machine that has its result is asked for no more"),
        }
    }
}

impl<'a, M, Make, T, Place, Done> AnyMachine for TileMachine<'a, M, Make, T, Place, Done>
where
    M: Machine + 'a,
    Make: FnOnce() -> M + Send + 'a,
    T: Send + 'a,
    Place: Fn(usize, M::Output) -> T + Sync,
    Done: FnMut(usize, T) + Send,
{
    fn local(&mut self, step: Step, out: &mut Outbox) {
        self.machine().local(step, out);
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        self.machine().absorb(step, inbox);
    }

    fn conclude(&mut self) {
        self.machine();
        if let State::Running(machine) = std::mem::replace(&mut self.state, State::Gone) {
            self.state = State::Concluded((self.ends.place)(self.index, machine.finish()));
        }
    }

    fn finish(self: Box<Self>) {
        if let State::Concluded(left) = self.state {
            // One thread at a time hands out results, and where it fails the gate does.
            self.ends.done.lock().unwrap_or_else(PoisonError::into_inner)(self.index, left);
        }
    }

    fn keep(&mut self, kept: &mut Vec<u8>) {
        self.machine().keep(kept);
    }

    fn restore(&mut self, kept: &[u8]) {
        self.machine().restore(kept);
    }
}
