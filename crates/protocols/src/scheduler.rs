//! The one scheduler of all gates: tiles in flight, phases, the store and the meter.

use covey_transport::{Endpoint, Phase as StepKind};

use crate::api::{Phase, ProtocolError, Result};
use crate::machine::{Inbox, Machine, Outbox, Step};
use crate::store::Store;

/// Runs machines over one endpoint.
pub struct Scheduler {
    endpoint: Box<dyn Endpoint>,
    peers: usize,
    window: usize,
    phase: Phase,
    store: Store,
    last_run: Option<u64>,
    node: u32,
}

impl Scheduler {
    /// A scheduler over `endpoint`, whose peers are numbered below `peers` (parties, then the client), with up to
    /// `window` tiles of a gate in flight.
    pub fn new(endpoint: Box<dyn Endpoint>, peers: usize, window: usize) -> Self {
        let (phase, store) = (Phase::Joint, Store::default());
        let node = endpoint.meter().node();
        Scheduler { endpoint, peers, window: window.max(1), phase, store, last_run: None, node }
    }

    /// This party's number.
    pub fn me(&self) -> usize {
        self.endpoint.me()
    }

    /// The phase of the current run.
    pub fn phase(&self) -> Phase {
        self.phase
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

    /// Inferences with offline material left.
    pub fn stored(&self) -> usize {
        self.store.len()
    }

    /// Files what follows under `node` in the meter.
    pub fn enter(&mut self, node: u32) {
        self.node = node;
        self.endpoint.meter().set_node(node);
    }

    /// Runs one gate's tiles and returns their outputs in order. Tiles in flight together share their rounds; the next
    /// `window` of them starts when these are done.
    pub fn run<M: Machine>(&mut self, machines: impl IntoIterator<Item = M>) -> Result<Vec<M::Output>> {
        let mut machines = machines.into_iter();
        let mut outputs = Vec::with_capacity(machines.size_hint().0);
        let mut rounds = 0;
        loop {
            let mut group: Vec<M> = machines.by_ref().take(self.window).collect();
            if group.is_empty() {
                break;
            }
            rounds += self.run_group(&mut group)?;
            outputs.extend(group.into_iter().map(M::finish));
        }
        self.endpoint.meter().add_rounds(self.node, StepKind::Online, rounds as u64);
        Ok(outputs)
    }

    /// Runs a single machine.
    pub fn run_one<M: Machine>(&mut self, machine: M) -> Result<M::Output> {
        self.run([machine])?.pop().ok_or(ProtocolError::Internal("scheduler"))
    }

    fn run_group<M: Machine>(&mut self, group: &mut [M]) -> Result<usize> {
        self.step(group, Step::Offline)?;
        if self.phase == Phase::Preprocess {
            return Ok(0);
        }
        let rounds = group.iter().map(|m| m.layout().rounds()).max().unwrap_or(0);
        for round in 0..rounds {
            self.step(group, Step::Online(round))?;
        }
        Ok(rounds)
    }

    /// One step of every machine of the group: all local parts and sends first, then all receives.
    fn step<M: Machine>(&mut self, group: &mut [M], step: Step) -> Result<()> {
        let me = self.me();
        // Material already sent in the preprocessing run is not sent again.
        let sent_before = step == Step::Offline && self.phase == Phase::Online;
        let mut outbox = Outbox::new(self.peers);
        for machine in group.iter_mut() {
            machine.local(step, &mut outbox);
            for message in machine.layout().messages().iter().filter(|m| m.step == step && m.from == me) {
                let bytes = outbox.take(message.to);
                if bytes.len() != message.len {
                    return Err(ProtocolError::Internal("a gate's message length"));
                }
                if !sent_before {
                    self.endpoint.send(message.to, step.kind(), bytes)?;
                }
            }
        }
        for machine in group.iter_mut() {
            let due: Vec<_> =
                machine.layout().messages().iter().filter(|m| m.step == step && m.to == me).copied().collect();
            if due.is_empty() {
                continue;
            }
            let mut inbox = Inbox::new(self.peers);
            for message in due {
                let bytes = if sent_before {
                    self.store.take(message.len).ok_or(ProtocolError::StoreEmpty)?
                } else {
                    self.endpoint.recv(message.from, step.kind(), message.len)?
                };
                if step == Step::Offline && self.phase == Phase::Preprocess {
                    self.store.put(bytes);
                } else {
                    inbox.put(message.from, bytes);
                }
            }
            if !(step == Step::Offline && self.phase == Phase::Preprocess) {
                machine.absorb(step, &mut inbox);
            }
        }
        Ok(())
    }
}
