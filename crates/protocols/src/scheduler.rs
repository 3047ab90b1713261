//! The one scheduler of all gates: tiles in flight, phases, the store and the meter.

use std::cell::RefCell;
use std::collections::VecDeque;

use covey_transport::{Endpoint, PeerId, Phase as StepKind};
use zeroize::Zeroizing;

use crate::api::{Phase, ProtocolError, Result};
use crate::cadence;
use crate::machine::{AnyMachine, BoxedMachine, Inbox, Layout, Machine, Outbox, Step, WithOutput};
use crate::store::{Material, Store};
use crate::timed::Timed;

/// Runs machines over one endpoint.
pub struct Scheduler {
    endpoint: Timed,
    window: usize,
    /// What is to be sent waits for the end of the pass.
    in_step: bool,
    held: Vec<(PeerId, StepKind, Vec<u8>)>,
    works_ahead: bool,
    phase: Phase,
    /// All messages are offline ones ([`Scheduler::ahead`]).
    is_ahead: bool,
    store: Store,
    last_run: Option<u64>,
    node: u32,
    outbox: Outbox,
    inbox: Inbox,
    arrivals: Arrivals,
    /// For what a machine keeps and takes back.
    kept: Vec<u8>,
}

/// A tile in flight. Its place in the queue stays until its last round is over everywhere, even where this party is done.
struct Tile<'a> {
    index: usize,
    /// None once this party's part is over.
    machine: Option<BoxedMachine<'a>>,
    /// The round whose messages it waits for.
    round: usize,
    rounds: usize,
}

impl Scheduler {
    /// A scheduler over `endpoint`, whose peers are numbered below `peers` (parties, then the client), with up to
    /// `window` tiles of a gate in flight.
    pub fn new(endpoint: Box<dyn Endpoint>, peers: usize, window: usize) -> Self {
        let node = endpoint.meter().node();
        Scheduler {
            endpoint: Timed(endpoint),
            window: window.max(1),
            in_step: false,
            held: Vec::new(),
            works_ahead: false,
            phase: Phase::Joint,
            is_ahead: false,
            store: Store::default(),
            last_run: None,
            node,
            outbox: Outbox::new(peers),
            inbox: Inbox::new(peers),
            arrivals: Arrivals { due: vec![VecDeque::new(); peers], early: Vec::new() },
            kept: Vec::new(),
        }
    }

    /// This party's values depend on no input: it computes while preprocessing and rests online.
    #[must_use]
    pub fn working_ahead(mut self) -> Self {
        self.works_ahead = true;
        self
    }

    /// Without overlap within a gate: a pass (`cadence.rs`) is computed in whole, then sent, and then received in whole. Where a
    /// party has to wait for a message within a pass, it sends what it has before that. Only this party's timing changes, and neither
    /// the messages nor their order on any link.
    #[must_use]
    pub fn in_step(mut self, in_step: bool) -> Self {
        self.in_step = in_step;
        self
    }

    /// This party's number.
    pub fn me(&self) -> usize {
        self.endpoint.me()
    }

    /// The phase of the current run.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether this party's values mean anything in the current run.
    pub fn computes(&self) -> bool {
        self.phase != if self.works_ahead { Phase::Online } else { Phase::Preprocess }
    }

    /// Starts run `run` in `phase`. A number is used once: its randomness masks one set of values. `Joint` and `Preprocess`
    /// take numbers above all earlier ones, `Online` one that was preprocessed and not used since.
    pub fn begin(&mut self, phase: Phase, run: u64) -> Result<()> {
        if phase == Phase::Online {
            if !self.store.open(run) {
                return Err(ProtocolError::StoreEmpty);
            }
        } else {
            if self.last_run.is_some_and(|last| run <= last) {
                return Err(ProtocolError::RunUsed { run });
            }
            self.last_run = Some(run);
        }
        if phase == Phase::Preprocess {
            self.store.begin(run);
        }
        self.phase = phase;
        Ok(())
    }

    /// Starts run `run`, above all earlier ones, online with what was stored for a run of an earlier session.
    pub fn begin_supplied(&mut self, run: u64, material: Material) -> Result<()> {
        if self.last_run.is_some_and(|last| run <= last) {
            return Err(ProtocolError::RunUsed { run });
        }
        self.last_run = Some(run);
        self.store.supply(material);
        self.phase = Phase::Online;
        Ok(())
    }

    /// Takes out what preprocessing stored for `run`, to be kept for a later session.
    pub fn take_stored(&mut self, run: u64) -> Option<Material> {
        self.store.remove(run)
    }

    /// Inferences with offline material left.
    pub fn stored(&self) -> usize {
        self.store.len()
    }

    /// Memory that offline material takes.
    pub fn stored_bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Exchanges messages outside of gates, filed under [`crate::cost::MATERIAL`]: correlated randomness for gates to come.
    pub fn make_material(&mut self, exchange: impl FnOnce(&mut dyn Endpoint) -> Result<()>) -> Result<()> {
        self.endpoint.meter().set_node(crate::cost::MATERIAL);
        let result = exchange(&mut self.endpoint);
        self.endpoint.meter().set_node(self.node);
        result
    }

    /// Runs gates whose every round depends on no input, in any phase: their messages count as offline ones, and their rounds not at all.
    pub fn ahead<T>(&mut self, gates: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let phase = std::mem::replace(&mut self.phase, Phase::Joint);
        self.is_ahead = true;
        let result = gates(self);
        self.is_ahead = false;
        self.phase = phase;
        result
    }

    /// Puts what a gate needs online in the store of the preprocessing run.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.store.put(bytes);
    }

    /// Takes what [`Scheduler::keep`] put there, in the same order.
    pub fn take_kept(&mut self, len: usize) -> Result<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(Vec::new());
        match self.store.take(&mut bytes) && bytes.len() == len {
            true => Ok(bytes),
            false => Err(ProtocolError::StoreEmpty),
        }
    }

    /// Sends `bytes` to `peer`, which tells this party as many in the same place. Neither waits for the other: what it tells is taken in
    /// by [`Scheduler::told`], after any number of gates, and filed under the node of now, which is returned.
    pub fn tell(&mut self, peer: PeerId, bytes: &[u8]) -> Result<u32> {
        self.endpoint.send(peer, StepKind::Online, bytes.to_vec())?;
        self.arrivals.due[peer].push_back((Of::Node(self.node), TELLING, StepKind::Online, bytes.len()));
        Ok(self.node)
    }

    /// The first `len` bytes that `peer` has told this party at `node` and that have not been taken in.
    pub fn told(&mut self, peer: PeerId, node: u32, len: usize) -> Result<Vec<u8>> {
        self.send_held()?;
        self.arrivals.receive(&mut self.endpoint, peer, (Of::Node(node), TELLING, StepKind::Online, len))
    }

    /// Files what follows under `node` in the meter.
    pub fn enter(&mut self, node: u32) {
        self.node = node;
        self.endpoint.meter().set_node(node);
    }

    /// Runs one gate's tiles and returns their outputs in order.
    pub fn run<M, I>(&mut self, machines: I) -> Result<Vec<M::Output>>
    where
        M: Machine,
        I: IntoIterator<Item = M, IntoIter: ExactSizeIterator>,
    {
        let machines = machines.into_iter();
        let mut outputs: Vec<Option<M::Output>> = (0..machines.len()).map(|_| None).collect();
        self.run_each(machines, |index, output| outputs[index] = Some(output))?;
        outputs.into_iter().collect::<Option<_>>().ok_or(ProtocolError::Internal("scheduler"))
    }

    /// Runs a single machine.
    pub fn run_one<M: Machine>(&mut self, machine: M) -> Result<M::Output> {
        self.run([machine])?.pop().ok_or(ProtocolError::Internal("scheduler"))
    }

    /// Runs one gate's tiles, at most `window` of them at a time, and hands out each one's index and output as soon as it is done:
    /// in order where all have the same rounds. A machine is taken from the iterator when its turn comes, so that making it
    /// may compute what it starts from.
    ///
    /// The order of what happens to the tiles, and so of the messages on every link, follows from their number, the window and
    /// the layouts (`cadence.rs`); a party that receives nothing never waits, but keeps to the order.
    pub fn run_each<M, I>(&mut self, machines: I, done: impl FnMut(usize, M::Output)) -> Result<()>
    where
        M: Machine,
        I: IntoIterator<Item = M, IntoIter: ExactSizeIterator>,
    {
        self.try_run_each(machines.into_iter().map(Ok), done)
    }

    /// [`Scheduler::run_each`] of machines that may fail to be made.
    pub fn try_run_each<M, I>(&mut self, machines: I, done: impl FnMut(usize, M::Output)) -> Result<()>
    where
        M: Machine,
        I: IntoIterator<Item = Result<M>, IntoIter: ExactSizeIterator>,
    {
        let (machines, done) = (machines.into_iter(), RefCell::new(done));
        let count = machines.len();
        let mut tiles = machines
            .enumerate()
            .map(|(index, machine)| Ok(Box::new(WithOutput { machine: machine?, index, done: &done }) as BoxedMachine));
        self.run_tiles(count, &mut tiles)
    }

    /// Runs the `count` machines of one gate.
    fn run_tiles<'a>(
        &mut self,
        count: usize,
        machines: &mut dyn Iterator<Item = Result<BoxedMachine<'a>>>,
    ) -> Result<()> {
        let mut flight: VecDeque<Tile<'a>> = VecDeque::with_capacity(self.window.min(count));
        let (mut next, mut starts) = (0, None);
        let mut rounds = 0;
        loop {
            let mut started = 0;
            while flight.len() < self.window && starts.is_none_or(|starts| started < starts) {
                let Some(machine) = machines.next() else { break };
                let machine = machine?;
                starts.get_or_insert_with(|| cadence::starts(count, self.window, machine.layout().rounds()));
                flight.extend(self.start(next, machine)?);
                next += 1;
                started += 1;
            }
            if flight.is_empty() {
                if next == count {
                    break;
                }
                continue;
            }
            rounds += 1;
            if self.in_step {
                self.send_held()?;
                self.arrivals.receive_all(&mut self.endpoint)?;
            }
            for _ in 0..flight.len() {
                if let Some(tile) = flight.pop_front() {
                    flight.extend(self.advance(tile)?);
                }
            }
        }
        self.send_held()?;
        if !self.is_ahead {
            self.endpoint.meter().add_rounds(self.node, StepKind::Online, rounds);
        }
        Ok(())
    }

    fn kind(&self, step: Step) -> StepKind {
        if self.is_ahead { StepKind::Offline } else { step.kind() }
    }

    fn send_held(&mut self) -> Result<()> {
        for (to, kind, bytes) in self.held.drain(..) {
            self.endpoint.send(to, kind, bytes)?;
        }
        Ok(())
    }

    /// The offline step of a tile and its first online local part.
    fn start<'a>(&mut self, index: usize, mut machine: BoxedMachine<'a>) -> Result<Option<Tile<'a>>> {
        let (me, rounds) = (self.me(), machine.layout().rounds());
        let is_online = machine.layout().is_online_at(me);
        if self.phase == Phase::Preprocess {
            if self.works_ahead || machine.layout().sent(Step::Offline, me).next().is_some() {
                self.local(index, &mut *machine, Step::Offline)?;
            }
            self.store_due(machine.layout())?;
            if self.works_ahead && is_online {
                self.kept.clear();
                machine.keep(&mut self.kept);
                self.store.put(&self.kept);
            }
            machine.finish();
            return Ok(None);
        }
        let rests = self.works_ahead && self.phase == Phase::Online;
        if is_online || !rests {
            self.local(index, &mut *machine, Step::Offline)?;
        }
        self.absorb(index, &mut *machine, Step::Offline)?;
        if rests && is_online {
            if !self.store.take(&mut self.kept) {
                return Err(ProtocolError::StoreEmpty);
            }
            machine.restore(&self.kept);
        }
        let tile = Tile { index, machine: Some(machine), round: 0, rounds };
        self.go_on(tile, rests && !is_online)
    }

    /// Takes in what the tile waits for, then goes on.
    fn advance<'a>(&mut self, mut tile: Tile<'a>) -> Result<Option<Tile<'a>>> {
        if let Some(machine) = &mut tile.machine {
            self.absorb(tile.index, &mut **machine, Step::Online(tile.round))?;
        }
        tile.round += 1;
        self.go_on(tile, false)
    }

    /// The local part of the round a tile is at. Returns the tile unless its last round is over.
    fn go_on<'a>(&mut self, mut tile: Tile<'a>, rests: bool) -> Result<Option<Tile<'a>>> {
        if let Some(mut machine) = tile.machine.take() {
            let mut over = rests || tile.round == tile.rounds;
            if !over {
                self.local(tile.index, &mut *machine, Step::Online(tile.round))?;
                over = machine.layout().is_over_at(self.me(), tile.round);
                // Nothing is left to wait for: what is left to compute is computed while its data is near.
                for round in (tile.round + 1..tile.rounds).take_while(|_| over) {
                    self.local(tile.index, &mut *machine, Step::Online(round))?;
                }
            }
            match over {
                true => machine.finish(),
                false => tile.machine = Some(machine),
            }
        }
        Ok((tile.round < tile.rounds).then_some(tile))
    }

    /// One local part: computes, sends, and notes what the others send in the same step.
    fn local(&mut self, index: usize, machine: &mut dyn AnyMachine, step: Step) -> Result<()> {
        let me = self.me();
        // Material already sent in the preprocessing run is not sent again.
        let stored = step == Step::Offline && self.phase == Phase::Online;
        let kind = self.kind(step);
        for message in machine.layout().sent(step, me) {
            self.outbox.supply(message.to, self.endpoint.buffer(message.len));
        }
        machine.local(step, &mut self.outbox);
        for message in machine.layout().sent(step, me) {
            let bytes = self.outbox.take(message.to);
            if bytes.len() != message.len {
                return Err(ProtocolError::Internal("a gate's message length"));
            }
            match stored {
                true => self.endpoint.recycle(bytes),
                false if self.in_step => self.held.push((message.to, kind, bytes)),
                false => self.endpoint.send(message.to, kind, bytes)?,
            }
        }
        if !stored && self.phase != Phase::Preprocess {
            for message in machine.layout().due(step, me) {
                self.arrivals.due[message.from].push_back((Of::Tile(index), step, kind, message.len));
            }
        }
        Ok(())
    }

    /// Takes in the messages of a step, if any are due.
    fn absorb(&mut self, index: usize, machine: &mut dyn AnyMachine, step: Step) -> Result<()> {
        let me = self.me();
        let mut due = false;
        for message in machine.layout().due(step, me) {
            let bytes = if step == Step::Offline && self.phase == Phase::Online {
                let mut bytes = self.endpoint.buffer(message.len);
                if !self.store.take(&mut bytes) || bytes.len() != message.len {
                    return Err(ProtocolError::StoreEmpty);
                }
                bytes
            } else {
                let wanted = (Of::Tile(index), step, self.kind(step), message.len);
                if self.arrivals.is_due(message.from, wanted) {
                    self.send_held()?;
                }
                self.arrivals.receive(&mut self.endpoint, message.from, wanted)?
            };
            self.inbox.put(message.from, bytes);
            due = true;
        }
        if due {
            machine.absorb(step, &mut self.inbox);
            for message in machine.layout().due(step, me) {
                self.endpoint.recycle(self.inbox.take(message.from));
            }
        }
        Ok(())
    }

    /// Puts the offline messages for this party in the store.
    fn store_due(&mut self, layout: &Layout) -> Result<()> {
        let me = self.me();
        self.send_held()?;
        for message in layout.due(Step::Offline, me) {
            let bytes = self.endpoint.recv(message.from, StepKind::Offline, message.len)?;
            self.store.put(&bytes);
            self.endpoint.recycle(bytes);
        }
        Ok(())
    }
}

/// A message of a tile's step, by its length.
type Arrival = (Of, Step, StepKind, usize);

/// What a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// A tile of the gate that runs.
    Tile(usize),
    /// No gate: it is told under this node.
    Node(u32),
}

/// The step of what is told.
const TELLING: Step = Step::Online(0);

/// What the others have sent or will have sent by now, in the order each sends it. A tile takes its offline message when it
/// starts, ahead of online messages of earlier tiles that may be before it on the same link.
struct Arrivals {
    due: Vec<VecDeque<Arrival>>,
    early: Vec<(usize, Arrival, Vec<u8>)>,
}

impl Arrivals {
    /// Whether the message has yet to be received.
    fn is_due(&self, from: usize, wanted: Arrival) -> bool {
        !self.early.iter().any(|(sender, arrival, _)| (*sender, *arrival) == (from, wanted))
    }

    /// Receives all that the others have sent or will have sent by now.
    fn receive_all(&mut self, endpoint: &mut dyn Endpoint) -> Result<()> {
        for (from, due) in self.due.iter_mut().enumerate() {
            while let Some(next) = due.pop_front() {
                self.early.push((from, next, arrival(endpoint, from, next)?));
            }
        }
        Ok(())
    }

    fn receive(&mut self, endpoint: &mut dyn Endpoint, from: usize, wanted: Arrival) -> Result<Vec<u8>> {
        if let Some(at) = self.early.iter().position(|(sender, arrival, _)| (*sender, *arrival) == (from, wanted)) {
            return Ok(self.early.remove(at).2);
        }
        while let Some(next) = self.due[from].pop_front() {
            let bytes = arrival(endpoint, from, next)?;
            if next == wanted {
                return Ok(bytes);
            }
            self.early.push((from, next, bytes));
        }
        Err(ProtocolError::Internal("the order of messages"))
    }
}

fn arrival(endpoint: &mut dyn Endpoint, from: usize, (of, _, kind, len): Arrival) -> Result<Vec<u8>> {
    let now = endpoint.meter().node();
    if let Of::Node(node) = of {
        endpoint.meter().set_node(node);
    }
    let bytes = endpoint.recv(from, kind, len);
    endpoint.meter().set_node(now);
    Ok(bytes?)
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
