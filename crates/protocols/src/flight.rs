//! The tiles of a gate in flight: what each computes, sends and waits for, on this thread or on several.
//!
//! What a tile computes between two waits is a job. With several threads jobs run beside each other, and beside this thread, which
//! receives, sends and hands out results: all in the order in which one thread would, so peers cannot tell how many there are. Where it
//! would wait for a job, it does others.
//! Nobody waits forever. A message depends on others that were sent one turn of the flight before it, and this party sends its own
//! material before it waits for any message.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use covey_kernels::threads::Scope;
use covey_transport::{Endpoint, PeerId};

use crate::api::{Phase, ProtocolError, Result};
use crate::arrivals::Of;
use crate::cadence;
use crate::machine::{BoxedMachine, Inbox, Layout, Outbox, Planned, Step};
use crate::scheduler::Scheduler;

/// Tiles in the order of their last jobs.
struct Flight<'t, 'a> {
    tiles: VecDeque<Tile<'a>>,
    /// Those whose last round is not over everywhere. The others wait for their results to be handed out.
    running: usize,
    /// The threads that take jobs; none where this thread does them all.
    threads: Option<&'t Scope<'a>>,
}

/// Its place in the flight stays until its last round is over everywhere, even where this party is done.
struct Tile<'a> {
    index: usize,
    layout: Arc<Layout>,
    /// The round whose messages it waits for.
    round: usize,
    rounds: usize,
    state: State<'a>,
}

impl Tile<'_> {
    fn is_running(&self) -> bool {
        self.round < self.rounds
    }
}

enum State<'a> {
    /// On a thread; whether it makes material for others.
    Computing(Receiver<Job<'a>>, bool),
    /// For messages of the others.
    Waiting(BoxedMachine<'a>),
    /// This party's part is over.
    Over,
}

/// What a machine does between two waits.
struct Job<'a> {
    machine: BoxedMachine<'a>,
    work: Work,
}

/// The parts of a job that the next one uses again.
pub(crate) struct Work {
    moves: Vec<Move>,
    inbox: Inbox,
    outbox: Outbox,
    messages: Vec<Outgoing>,
    /// What the machine keeps for its online part, or takes back.
    kept: Vec<u8>,
    keeps: bool,
    /// While preprocessing: the lengths of what others send it for its online part.
    stored: Vec<(PeerId, usize)>,
    /// Whether the machine has its result then.
    is_last: bool,
}

enum Move {
    Local(Step),
    Absorb(Step),
    Keep,
    Restore,
}

struct Outgoing {
    step: Step,
    to: PeerId,
    len: usize,
    bytes: Vec<u8>,
}

impl Work {
    fn new(peers: usize) -> Self {
        let (inbox, outbox) = (Inbox::new(peers), Outbox::new(peers));
        Work {
            moves: Vec::new(),
            inbox,
            outbox,
            messages: Vec::new(),
            kept: Vec::new(),
            keeps: false,
            stored: Vec::new(),
            is_last: false,
        }
    }
}

impl Job<'_> {
    fn run(&mut self) {
        let Work { moves, inbox, outbox, messages, kept, .. } = &mut self.work;
        for next in moves.drain(..) {
            match next {
                Move::Absorb(step) => self.machine.absorb(step, inbox),
                Move::Keep => {
                    kept.clear();
                    self.machine.keep(kept);
                }
                Move::Restore => self.machine.restore(kept),
                Move::Local(step) => {
                    for message in messages.iter_mut().filter(|message| message.step == step) {
                        outbox.supply(message.to, std::mem::take(&mut message.bytes));
                    }
                    self.machine.local(step, outbox);
                    for message in messages.iter_mut().filter(|message| message.step == step) {
                        message.bytes = outbox.take(message.to);
                    }
                }
            }
        }
        if self.work.is_last {
            self.machine.conclude();
        }
    }

    fn makes_material(&self) -> bool {
        self.work.messages.iter().any(|message| message.step == Step::Offline)
    }
}

impl Scheduler {
    /// Runs the `count` machines of one gate.
    pub(crate) fn run_tiles<'a>(
        &mut self,
        count: usize,
        machines: &mut dyn Iterator<Item = Result<Planned<'a>>>,
    ) -> Result<()> {
        let rounds = match self.pool.clone().filter(|_| count > 1) {
            None => self.fly(count, machines, None)?,
            Some(pool) => pool.scope(|scope| self.fly(count, machines, Some(scope)))?,
        };
        self.send_held()?;
        self.count_rounds(rounds);
        Ok(())
    }

    /// Returns the rounds it took.
    fn fly<'a>(
        &mut self,
        count: usize,
        machines: &mut dyn Iterator<Item = Result<Planned<'a>>>,
        threads: Option<&Scope<'a>>,
    ) -> Result<u64> {
        let mut flight = Flight { tiles: VecDeque::new(), running: 0, threads };
        let (mut next, mut starts, mut rounds) = (0, None, 0);
        loop {
            let mut started = 0;
            while flight.running < self.window && starts.is_none_or(|starts| started < starts) {
                self.send_computed(&mut flight)?;
                self.hand_out(&mut flight)?;
                let Some(machine) = machines.next() else { break };
                let planned = machine?;
                starts.get_or_insert_with(|| cadence::starts(count, self.window, planned.layout.rounds()));
                self.start(next, planned, &mut flight)?;
                next += 1;
                started += 1;
            }
            if flight.running == 0 {
                if next == count {
                    break;
                }
                continue;
            }
            rounds += 1;
            if self.in_step {
                self.settle_first(flight.tiles.len(), &mut flight)?;
                self.send_held()?;
                self.receive_all()?;
            }
            for _ in 0..flight.running {
                self.advance(&mut flight)?;
            }
        }
        self.settle_first(flight.tiles.len(), &mut flight)?;
        Ok(rounds)
    }

    /// A job that has yet to be planned.
    fn job<'a>(&mut self, machine: BoxedMachine<'a>) -> Job<'a> {
        let work = self.spare.pop().unwrap_or_else(|| Work::new(self.peers));
        Job { machine, work: Work { is_last: false, keeps: false, ..work } }
    }

    /// The offline step of a tile and its first online local part.
    fn start<'a>(
        &mut self,
        index: usize,
        Planned { layout, machine }: Planned<'a>,
        flight: &mut Flight<'_, 'a>,
    ) -> Result<()> {
        let (me, rounds) = (self.me(), layout.rounds());
        let is_online = layout.is_online_at(me);
        let deals = layout.sent(Step::Offline, me).next().is_some();
        let is_dealt = layout.due(Step::Offline, me).next().is_some();
        let mut job = self.job(machine);
        if self.phase == Phase::Preprocess {
            if self.works_ahead || deals {
                self.plan(index, &layout, &mut job, Step::Offline);
            }
            job.work.keeps = self.works_ahead && is_online;
            if job.work.keeps {
                job.work.moves.push(Move::Keep);
            }
            let due = layout.due(Step::Offline, me).map(|message| (message.from, message.len));
            job.work.stored.extend(due);
            job.work.is_last = true;
            let tile = Tile { index, layout, round: 0, rounds: 0, state: State::Over };
            return self.compute(tile, job, flight);
        }
        let rests = self.works_ahead && self.phase == Phase::Online;
        if is_online || !rests {
            self.plan(index, &layout, &mut job, Step::Offline);
        }
        if deals && is_dealt && self.phase == Phase::Joint {
            // What it is dealt may wait for what it deals.
            self.settle_first(flight.tiles.len(), flight)?;
            job.run();
            self.send(&mut job)?;
        }
        self.take_in(index, &layout, &mut job, Step::Offline, flight)?;
        if rests && is_online {
            if !self.store.take(&mut job.work.kept) {
                return Err(ProtocolError::StoreEmpty);
            }
            job.work.moves.push(Move::Restore);
        }
        let tile = Tile { index, layout, round: 0, rounds, state: State::Over };
        self.go_on(tile, job, rests && !is_online, flight)
    }

    /// Takes in what the oldest running tile waits for, then goes on.
    fn advance(&mut self, flight: &mut Flight<'_, '_>) -> Result<()> {
        self.send_computed(flight)?;
        let mut tile = loop {
            let Some(mut tile) = flight.tiles.pop_front() else { return Ok(()) };
            self.settle(&mut tile, flight.threads)?;
            if tile.is_running() {
                break tile;
            }
        };
        flight.running -= 1;
        let waited = tile.round;
        tile.round += 1;
        match std::mem::replace(&mut tile.state, State::Over) {
            State::Waiting(machine) => {
                let mut job = self.job(machine);
                self.take_in(tile.index, &tile.layout, &mut job, Step::Online(waited), flight)?;
                self.go_on(tile, job, false, flight)
            }
            _ => {
                if tile.is_running() {
                    flight.running += 1;
                    flight.tiles.push_back(tile);
                }
                Ok(())
            }
        }
    }

    /// The local part of the round a tile is at.
    fn go_on<'a>(&mut self, tile: Tile<'a>, mut job: Job<'a>, rests: bool, flight: &mut Flight<'_, 'a>) -> Result<()> {
        let mut over = rests || !tile.is_running();
        if !over {
            self.plan(tile.index, &tile.layout, &mut job, Step::Online(tile.round));
            over = tile.layout.is_over_at(self.me(), tile.round);
            // Nothing is left to wait for: what is left to compute is computed while its data is near.
            for round in (tile.round + 1..tile.rounds).take_while(|_| over) {
                self.plan(tile.index, &tile.layout, &mut job, Step::Online(round));
            }
        }
        job.work.is_last = over;
        self.compute(tile, job, flight)
    }

    /// Has a job done, here or on a thread.
    fn compute<'a>(&mut self, mut tile: Tile<'a>, mut job: Job<'a>, flight: &mut Flight<'_, 'a>) -> Result<()> {
        match flight.threads {
            Some(threads) => {
                let (done, computed) = channel();
                tile.state = State::Computing(computed, job.makes_material());
                threads.spawn(move || {
                    job.run();
                    // Who started it may have failed meanwhile.
                    let _ = done.send(job);
                });
            }
            None => {
                job.run();
                self.complete(&mut tile, job)?;
                if !tile.is_running() {
                    return Ok(());
                }
            }
        }
        flight.running += usize::from(tile.is_running());
        flight.tiles.push_back(tile);
        Ok(())
    }

    /// One local part to come: buffers for what it sends, and a note of what the others send in the same step.
    fn plan(&mut self, index: usize, layout: &Layout, job: &mut Job<'_>, step: Step) {
        let (me, work) = (self.me(), &mut job.work);
        for message in layout.sent(step, me) {
            let bytes = self.endpoint.buffer(message.len);
            work.messages.push(Outgoing { step, to: message.to, len: message.len, bytes });
        }
        work.moves.push(Move::Local(step));
        if !self.is_stored(step) && self.phase != Phase::Preprocess {
            let kind = self.kind(step);
            for message in layout.due(step, me) {
                self.arrivals.due[message.from].push_back((Of::Tile(index), step, kind, message.len));
            }
        }
    }

    /// Receives the messages of a step, if any are due, for the job to absorb.
    fn take_in<'a>(
        &mut self,
        index: usize,
        layout: &Layout,
        job: &mut Job<'a>,
        step: Step,
        flight: &mut Flight<'_, 'a>,
    ) -> Result<()> {
        let (me, work) = (self.me(), &mut job.work);
        let mut due = false;
        for message in layout.due(step, me) {
            let bytes = if self.is_stored(step) {
                let mut bytes = self.endpoint.buffer(message.len);
                if !self.store.take(&mut bytes) || bytes.len() != message.len {
                    return Err(ProtocolError::StoreEmpty);
                }
                bytes
            } else {
                let wanted = (Of::Tile(index), step, self.kind(step), message.len);
                if self.arrivals.is_due(message.from, wanted) {
                    self.send_material(flight)?;
                    self.relieve(flight)?;
                    self.send_held()?;
                }
                self.arrivals.receive(&mut self.endpoint, message.from, wanted)?
            };
            work.inbox.put(message.from, bytes);
            due = true;
        }
        if due {
            work.moves.push(Move::Absorb(step));
        }
        Ok(())
    }

    /// Sends what a job computed.
    fn send(&mut self, job: &mut Job<'_>) -> Result<()> {
        for Outgoing { step, to, len, bytes } in job.work.messages.drain(..) {
            if bytes.len() != len {
                return Err(ProtocolError::Internal("a gate's message length"));
            }
            let kind = self.kind(step);
            match self.is_stored(step) {
                true => self.endpoint.recycle(bytes),
                false if self.in_step => self.held.push((to, kind, bytes)),
                false => self.endpoint.send(to, kind, bytes)?,
            }
        }
        Ok(())
    }

    /// After a job: sends its messages, and hands out the machine's result if it has one.
    fn complete<'a>(&mut self, tile: &mut Tile<'a>, mut job: Job<'a>) -> Result<()> {
        self.send(&mut job)?;
        let Job { machine, mut work } = job;
        for from in 0..self.peers {
            let read = work.inbox.take(from);
            if read.capacity() > 0 {
                self.endpoint.recycle(read);
            }
        }
        if self.phase == Phase::Preprocess {
            self.store_due(&mut work.stored)?;
            if work.keeps {
                self.store.put(&work.kept);
            }
        }
        match work.is_last {
            true => machine.finish(),
            false => tile.state = State::Waiting(machine),
        }
        self.spare.push(work);
        Ok(())
    }

    /// Waits for a tile's job.
    fn settle<'a>(&mut self, tile: &mut Tile<'a>, threads: Option<&Scope<'a>>) -> Result<()> {
        match (std::mem::replace(&mut tile.state, State::Over), threads) {
            (State::Computing(computed, _), Some(threads)) => {
                let job = threads.receive(&computed).map_err(|_| ProtocolError::Internal("a thread"))?;
                self.complete(tile, job)
            }
            (state, _) => {
                tile.state = state;
                Ok(())
            }
        }
    }

    /// Waits for the jobs of the first `count` tiles.
    fn settle_first(&mut self, count: usize, flight: &mut Flight<'_, '_>) -> Result<()> {
        let Flight { tiles, threads, .. } = flight;
        tiles.iter_mut().take(count).try_for_each(|tile| self.settle(tile, *threads))
    }

    /// Sends what is computed, up to the first job that is not done.
    fn send_computed(&mut self, flight: &mut Flight<'_, '_>) -> Result<()> {
        for tile in &mut flight.tiles {
            if let State::Computing(computed, _) = &tile.state {
                let Ok(job) = computed.try_recv() else { break };
                tile.state = State::Over;
                self.complete(tile, job)?;
            }
        }
        Ok(())
    }

    /// Before a message is waited for: does jobs of which there are more than all threads will have taken soon.
    fn relieve(&mut self, flight: &mut Flight<'_, '_>) -> Result<()> {
        let (Some(threads), Some(pool)) = (flight.threads, self.pool.clone()) else { return Ok(()) };
        while threads.pending() > pool.count() && threads.help() {
            self.send_computed(flight)?;
        }
        Ok(())
    }

    /// Sends all material that is being computed: others may wait for it in their first step, as this party may for theirs.
    fn send_material(&mut self, flight: &mut Flight<'_, '_>) -> Result<()> {
        let last = flight.tiles.iter().rposition(|tile| matches!(tile.state, State::Computing(_, true)));
        self.settle_first(last.map_or(0, |last| last + 1), flight)
    }

    /// Hands out results of tiles that have ended, so that a tile that starts is at most the `window`th.
    fn hand_out(&mut self, flight: &mut Flight<'_, '_>) -> Result<()> {
        while flight.tiles.len() >= self.window {
            match flight.tiles.pop_front() {
                Some(mut tile) if !tile.is_running() => self.settle(&mut tile, flight.threads)?,
                Some(tile) => {
                    flight.tiles.push_front(tile);
                    break;
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Whether a step's messages are in the store, sent in the preprocessing run and not again.
    fn is_stored(&self, step: Step) -> bool {
        step == Step::Offline && self.phase == Phase::Online
    }

    /// Puts the offline messages for this party in the store.
    fn store_due(&mut self, due: &mut Vec<(PeerId, usize)>) -> Result<()> {
        self.send_held()?;
        for (from, len) in due.drain(..) {
            let bytes = self.endpoint.recv(from, Step::Offline.kind(), len)?;
            self.store.put(&bytes);
            self.endpoint.recycle(bytes);
        }
        Ok(())
    }
}
