//! The one scheduler of all gates: tiles in flight, phases, the store and the meter.

use std::sync::Arc;

use covey_kernels::threads::{self, ThreadPool};
use covey_transport::{Endpoint, PeerId, Phase as StepKind};
use zeroize::Zeroizing;

use crate::api::{Phase, ProtocolError, Result};
use crate::arrivals::{Arrivals, Of, TELLING};
use crate::flight::Work;
use crate::machine::{Ends, Layout, Machine, Planned, Step, TileMachine};
use crate::store::{Material, Store};
use crate::timed::Timed;

/// Runs machines over one endpoint.
pub struct Scheduler {
    pub(crate) endpoint: Timed,
    pub(crate) peers: usize,
    pub(crate) window: usize,
    /// The threads that jobs run on; none where this one does them.
    pub(crate) pool: Option<Arc<ThreadPool>>,
    /// What is to be sent waits for the end of the pass.
    pub(crate) in_step: bool,
    pub(crate) held: Vec<(PeerId, StepKind, Vec<u8>)>,
    pub(crate) works_ahead: bool,
    pub(crate) phase: Phase,
    /// All messages are offline ones ([`Scheduler::ahead`]).
    is_ahead: bool,
    pub(crate) store: Store,
    last_run: Option<u64>,
    node: u32,
    pub(crate) arrivals: Arrivals,
    pub(crate) spare: Vec<Work>,
}

impl Scheduler {
    /// A scheduler over `endpoint`, whose peers are numbered below `peers` (parties, then the client), with up to
    /// `window` tiles of a gate in flight, on the threads that the process uses by now.
    pub fn new(endpoint: Box<dyn Endpoint>, peers: usize, window: usize) -> Self {
        let node = endpoint.meter().node();
        Scheduler {
            endpoint: Timed(endpoint),
            peers,
            window: window.max(1),
            pool: threads::pool(),
            in_step: false,
            held: Vec::new(),
            works_ahead: false,
            phase: Phase::Joint,
            is_ahead: false,
            store: Store::default(),
            last_run: None,
            node,
            arrivals: Arrivals::new(peers),
            spare: Vec::new(),
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

    /// On other threads than the process's.
    #[cfg(test)]
    fn on_threads(mut self, pool: Option<Arc<ThreadPool>>) -> Self {
        self.pool = pool;
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
    pub fn run_each<M, I>(&mut self, machines: I, done: impl FnMut(usize, M::Output) + Send) -> Result<()>
    where
        M: Machine,
        I: IntoIterator<Item = M, IntoIter: ExactSizeIterator>,
    {
        self.try_run_each(machines.into_iter().map(Ok), done)
    }

    /// [`Scheduler::run_each`] of machines that may fail to be made.
    pub fn try_run_each<M, I>(&mut self, machines: I, done: impl FnMut(usize, M::Output) + Send) -> Result<()>
    where
        M: Machine,
        I: IntoIterator<Item = Result<M>, IntoIter: ExactSizeIterator>,
    {
        let (machines, ends) = (machines.into_iter(), Ends::new(|_, output| output, done));
        let count = machines.len();
        let mut tiles = machines
            .enumerate()
            .map(|(index, machine)| Ok(TileMachine::<_, fn() -> M, _, _, _>::running(machine?, index, &ends)));
        self.run_tiles(count, &mut tiles)
    }

    /// [`Scheduler::run_each`] of machines that are made on the threads that compute, from a tile's tensor and length and what makes its
    /// machine; all of one tensor and length have one layout. `place` takes a machine's output there, and `done` what that returns.
    pub fn run_made<M, Make, T: Send>(
        &mut self,
        makers: impl ExactSizeIterator<Item = ((usize, usize), Make)>,
        place: impl Fn(usize, M::Output) -> T + Sync,
        done: impl FnMut(usize, T) + Send,
    ) -> Result<()>
    where
        M: Machine,
        Make: FnOnce() -> M + Send,
    {
        let (count, ends) = (makers.len(), Ends::new(place, done));
        // A gate's tiles have few lengths.
        let mut layouts: Vec<((usize, usize), Arc<Layout>)> = Vec::new();
        let mut tiles = makers.enumerate().map(|(index, (kind, make))| {
            if let Some((_, layout)) = layouts.iter().find(|(known, _)| *known == kind) {
                return Ok(TileMachine::to_make(make, layout.clone(), index, &ends));
            }
            let planned: Planned = TileMachine::<_, Make, _, _, _>::running(make(), index, &ends);
            layouts.push((kind, planned.layout.clone()));
            Ok(planned)
        });
        self.run_tiles(count, &mut tiles)
    }

    pub(crate) fn kind(&self, step: Step) -> StepKind {
        if self.is_ahead { StepKind::Offline } else { step.kind() }
    }

    pub(crate) fn send_held(&mut self) -> Result<()> {
        for (to, kind, bytes) in self.held.drain(..) {
            self.endpoint.send(to, kind, bytes)?;
        }
        Ok(())
    }

    /// Receives all that the others have sent or will have sent by now.
    pub(crate) fn receive_all(&mut self) -> Result<()> {
        self.arrivals.receive_all(&mut self.endpoint)
    }

    pub(crate) fn count_rounds(&mut self, rounds: u64) {
        if !self.is_ahead {
            self.endpoint.meter().add_rounds(self.node, StepKind::Online, rounds);
        }
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
