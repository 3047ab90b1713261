//! The data owner's part: one session with all parties, many inferences.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use covey_messages::{
    CONTROL_STREAM, Done, PhaseMessage, Run, SessionReply, SessionRequest, Terms, Usage, lane_of, lane_stream, wire,
};
use covey_program::Program;
use covey_protocols::kind::ProtocolKind;
use covey_protocols::{Options, Roles, turned};
use covey_runtime::session::{choose, supports};
use covey_runtime::{INPUTS, Input, OUTPUTS, Output, Profile, RuntimeError};
use covey_transport::{Endpoint, Network, Options as TransportOptions, PeerId, Session as Streams};

use crate::half::{Half, Opening};
use crate::opening::{AbsentDealer, Opened, open, while_shared};
use crate::parties::check_all;
use crate::preprocessing::KeepsRuns;
use crate::queue::Waiting;
use crate::reports::{Due, Progress, Told, reports};
use crate::{ClientConfig, ClientError};

/// Most inferences of one request.
pub(crate) const MAX_COUNT: u32 = 1 << 16;

/// What a session is opened with.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// The protocol.
    pub protocol: ProtocolKind,
    /// Its run-time choices. How many parties compute follows from the configuration.
    pub options: Options,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions { protocol: ProtocolKind::Trio, options: Options::default() }
    }
}

/// The result of one inference.
#[derive(Clone, Debug)]
pub struct Inference {
    /// The outputs in the program's order.
    pub outputs: Vec<Output>,
    /// Each party's times and sent payload, in role order, then the client's; see [`Profile::merged`].
    pub profiles: Vec<Profile>,
    /// Bytes each party wrote to its sockets, framing and TLS included.
    pub socket_bytes_sent: Vec<u64>,
    /// What each party used of its machine, in role order.
    pub usage: Vec<Usage>,
    /// Payload bytes this client sent for the inference.
    pub client_bytes_sent: u64,
    /// Payload bytes this client received for the inference.
    pub client_bytes_received: u64,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// The results of several inferences, as many of them at a time as the session has lanes.
#[derive(Clone, Debug)]
pub struct Inferences {
    /// The outputs of each inference, in the order they were asked for.
    pub outputs: Vec<Vec<Output>>,
    /// Wall-clock seconds of each: from its first message to its last, beside others.
    pub latencies: Vec<f64>,
    /// All of them together: `outputs` is empty there, times of steps are added up over inferences and lanes, `seconds` is from the
    /// request to the last result.
    pub together: Inference,
}

/// A running session. Dropped or closed, it ends for the parties too.
pub struct Session {
    pub(crate) program: Arc<Program>,
    pub(crate) streams: Streams,
    pub(crate) control: Box<dyn Endpoint>,
    pub(crate) lanes: Vec<Box<dyn Half>>,
    /// Role assignments that the lanes have in turn.
    pub(crate) assignments: usize,
    pub(crate) names: Vec<String>,
    absent_dealer: Option<AbsentDealer>,
    /// Number of the next preprocessing or joint run.
    pub(crate) next: u64,
    /// Preprocessed runs and their batch sizes.
    pub(crate) stored: VecDeque<(u64, usize)>,
    /// Samples of the run before, whose carried values the parties hold.
    pub(crate) carries: Option<usize>,
    /// Rows that runs may name: all of the data sets attached.
    pub(crate) rows: u32,
    /// The protocol stores runs for later sessions.
    pub(crate) keeps_runs: bool,
    left: bool,
}

impl Session {
    /// Opens a session for `program` with all parties; without the dealer, where it cannot be reached and the parties have stored runs.
    ///
    /// # Errors
    /// Before anything is sent: a program the protocol cannot run, a wrong number of parties. Then: a party that cannot be
    /// reached or refuses (it holds no weights of the program, or others; the parties disagree), each with the way out.
    pub fn open(config: &ClientConfig, program: &Program, options: SessionOptions) -> Result<Self, ClientError> {
        Session::open_telling(config, program, options, &mut |_| {})
    }

    /// The same; where a party is full, `tell` hears of the session's place in its queue, whenever that changes.
    ///
    /// # Errors
    /// As [`Session::open`], and a queue that is full or in which the session waited for too long.
    pub fn open_telling(
        config: &ClientConfig,
        program: &Program,
        options: SessionOptions,
        tell: &mut dyn FnMut(&Waiting),
    ) -> Result<Self, ClientError> {
        let SessionOptions { protocol, mut options } = options;
        options.parties = check_all(config, protocol)?;
        supports(protocol, program)?;
        if options.lanes > 1 && !program.carried().is_empty() {
            let name = program.name();
            return Err(ClientError::Request(format!("'{name}' carries values from run to run: use 1 lane")));
        }
        if options.roles == Roles::Turned && protocol.assignments() == 1 {
            return Err(ClientError::Request(format!(
                "roles do not turn in {protocol}: use roles fixed, or trio or quad"
            )));
        }
        let since = Instant::now();
        while_shared(|| Session::begin(config, program, (protocol, options), since, tell))
    }

    fn begin(
        config: &ClientConfig,
        program: &Program,
        (protocol, options): (ProtocolKind, Options),
        since: Instant,
        tell: &mut dyn FnMut(&Waiting),
    ) -> Result<Self, ClientError> {
        let assignments = options.assignments(protocol.assignments());
        let (terms, Opened { connections, names, absent_dealer }) =
            open(config, program, protocol, options, since, tell)?;
        // An absent dealer keeps its place.
        let parties = config.parties.len();
        let peers = connections.into_iter().zip(&names).enumerate();
        let peers = peers.map(|(role, (connection, name))| (role, name.clone(), connection)).collect();
        let streams = Streams::start((parties, &config.name), parties, peers, transport_options(&terms))?;
        let mut control = streams.endpoint(CONTROL_STREAM)?;
        let lane = |lane: usize| {
            let endpoint = turned::endpoint(streams.endpoint(lane_stream(lane))?, lane % assignments);
            let opening = Opening { endpoint, program, options };
            choose(protocol, program.ring(), opening)?
        };
        let lanes = (0..options.lanes).map(lane).collect::<Result<Vec<_>, ClientError>>()?;
        for role in present(&streams) {
            match wire::receive_control(&mut *control, role, &streams.name(role))? {
                SessionReply::Opened => {}
                _ => return Err(ClientError::Unexpected(streams.name(role))),
            }
        }
        let program = Arc::new(program.clone());
        let stored = VecDeque::new();
        let keeps_runs = choose(protocol, program.ring(), KeepsRuns(options))?;
        let (next, carries, rows, left) = (1, None, 0, false);
        Ok(Session {
            program,
            streams,
            control,
            lanes,
            assignments,
            names,
            absent_dealer,
            next,
            stored,
            carries,
            rows,
            keeps_runs,
            left,
        })
    }

    /// The dealer, if the session goes on without it.
    pub fn absent_dealer(&self) -> Option<&AbsentDealer> {
        self.absent_dealer.as_ref()
    }

    /// The names of the parties that take part, in role order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// One inference: shares `inputs`, has the parties run the program, and opens the outputs to this client alone. In phase
    /// online the inference uses up preprocessed material.
    ///
    /// # Errors
    /// Before anything is sent: inputs that do not fit the program, a phase without inference, no material of this batch
    /// size. Then: the session's failure.
    pub fn infer(
        &mut self,
        phase: PhaseMessage,
        inputs: &[Input],
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Inference, ClientError> {
        let mut done = self.infer_all(phase, &[inputs], progress)?;
        let outputs = done.outputs.pop().unwrap_or_default();
        Ok(Inference { outputs, ..done.together })
    }

    /// One inference for each of `requests`, all of one batch size, as many at a time as the session has lanes. Of a program that
    /// carries values from run to run they begin a sequence, one after the other.
    ///
    /// # Errors
    /// As [`Session::infer`], for any of them.
    pub fn infer_all(
        &mut self,
        phase: PhaseMessage,
        requests: &[impl AsRef<[Input]>],
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Inferences, ClientError> {
        self.infer_from(phase, requests, false, progress)
    }

    /// [`Session::infer_all`] in phase joint, going on with the sequence of the runs before.
    ///
    /// # Errors
    /// Before anything is sent: a program that carries no values, no run before, another number of samples than it had. Then
    /// as [`Session::infer`].
    pub fn infer_next(
        &mut self,
        requests: &[impl AsRef<[Input]>],
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Inferences, ClientError> {
        if self.program.carried().is_empty() {
            let name = self.program.name();
            return Err(ClientError::Request(format!("'{name}' carries nothing from run to run: run it anew")));
        }
        self.infer_from(PhaseMessage::Joint, requests, true, progress)
    }

    fn infer_from(
        &mut self,
        phase: PhaseMessage,
        requests: &[impl AsRef<[Input]>],
        continues: bool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Inferences, ClientError> {
        let count = u32::try_from(requests.len()).ok().filter(|count| (1..=MAX_COUNT).contains(count));
        let Some(count) = count else {
            return Err(ClientError::Request(format!("{} inferences: ask for 1 to {MAX_COUNT}", requests.len())));
        };
        let first = self.due(phase)?;
        let loaded = self.load(first, requests).and_then(|batch| {
            if continues && self.carries != Some(batch) {
                return Err(RuntimeError::NotCarried { batch, before: self.carries }.into());
            }
            self.take(phase, batch, first, count).map(|()| batch)
        });
        let batch = loaded.inspect_err(|_| self.lanes.iter_mut().for_each(|lane| lane.clear()))?;
        let run = Run { phase, batch, inference: first, count, continues, ends: false };
        self.run(run, &SessionRequest::Run(run), progress)
    }

    /// Has the parties do `run`, for which they are asked by `request`, and opens the outputs.
    pub(crate) fn run(
        &mut self,
        run: Run,
        request: &SessionRequest,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Inferences, ClientError> {
        let Run { batch, inference: first, count, .. } = run;
        let start = Instant::now();
        self.streams.meter().take();
        self.request(request)?;
        self.carries = Some(batch);
        // The protocol runs beside the control stream, on which the parties report. Where one half fails the others must
        // not wait on.
        let (program, streams) = (&self.program, &self.streams);
        let (lanes, control) = (&mut self.lanes, &mut self.control);
        let many = lanes.len();
        let (running, ended) = (AtomicUsize::new(many), OnceLock::new());
        let numbers = move |lane: usize| (first..).take(count as usize).filter(move |run| lane_of(*run, many) == lane);
        let assignments = self.assignments;
        let run = |lane: usize, half: &mut Box<dyn Half>| -> Result<(Vec<Output>, f64), ClientError> {
            let start = Instant::now();
            let outputs =
                half.run(program, batch).map_err(|error| lane_failure((streams, lane % assignments), error))?;
            Ok((outputs, start.elapsed().as_secs_f64()))
        };
        let (opened, reports) = std::thread::scope(|scope| {
            let (running, ended) = (&running, &ended);
            let lanes = lanes.iter_mut().enumerate().map(|(lane, half)| {
                let each = move || {
                    let opened: Result<Vec<_>, _> =
                        numbers(lane).map(|number| Ok((number, run(lane, half)?))).collect();
                    if running.fetch_sub(1, Ordering::AcqRel) == 1 {
                        let _ = ended.set(Instant::now());
                    }
                    opened
                };
                scope.spawn(each)
            });
            let lanes: Vec<_> = lanes.collect();
            let due = Due { told: Told::of(program, count), ended, by_themselves: false };
            let reports =
                reports(&mut **control, streams, due, progress).map_err(|error| session_failure(streams, error));
            let vanished = |_| Err(ClientError::Unexpected("this process".into()));
            let opened = lanes.into_iter().map(|lane| lane.join().unwrap_or_else(vanished));
            (opened.collect::<Result<Vec<_>, ClientError>>(), reports)
        });
        let seconds = start.elapsed().as_secs_f64();
        let (mut opened, reports) = (opened?.concat(), reports?);
        opened.sort_by_key(|(number, _)| *number);
        let (outputs, latencies) = opened.into_iter().map(|(_, opened)| opened).unzip();
        Ok(Inferences { outputs, latencies, together: self.account(reports, seconds) })
    }

    /// Ends the sequence of the runs before: opens what the program says opens then to this client alone. The next run begins a new
    /// one.
    ///
    /// # Errors
    /// Before anything is sent: a program that opens nothing then, no run before. Then: the session's failure.
    pub fn end(&mut self, progress: &mut dyn FnMut(&Progress)) -> Result<Inference, ClientError> {
        let program = self.program.clone();
        if program.opened_at_end().next().is_none() {
            return Err(RuntimeError::NothingOpens(program.name().into()).into());
        }
        let batch = self.carries.take().ok_or(RuntimeError::NotCarried { batch: 1, before: None })?;
        let start = Instant::now();
        self.streams.meter().take();
        let run =
            Run { phase: PhaseMessage::Joint, batch, inference: self.next, count: 1, continues: true, ends: true };
        self.next += 1;
        self.request(&SessionRequest::Run(run))?;
        let opened = match self.lanes.first_mut() {
            Some(half) => half.end(&program, batch).map_err(|error| session_failure(&self.streams, error)),
            None => Err(ClientError::Unexpected("this process".into())),
        };
        let (outputs, reports) = (opened?, self.reports(0, progress)?);
        Ok(Inference { outputs, ..self.account(reports, start.elapsed().as_secs_f64()) })
    }

    /// What inferences took, from the parties' reports and this client's own meter.
    fn account(&self, reports: Vec<Done>, seconds: f64) -> Inference {
        let mut snapshot = self.streams.meter().take();
        // Control messages belong to no node and to no protocol.
        snapshot.rows.retain(|row| row.node == INPUTS || row.node == OUTPUTS);
        let me = self.streams.me();
        let payload =
            |sent: bool| snapshot.rows.iter().filter(|row| (row.from == me) == sent).map(|row| row.bytes).sum();
        Inference {
            outputs: Vec::new(),
            client_bytes_sent: payload(true),
            client_bytes_received: payload(false),
            socket_bytes_sent: reports.iter().map(|report| report.socket_bytes_sent).collect(),
            usage: reports.iter().map(|report| report.usage).collect(),
            profiles: reports
                .into_iter()
                .map(|report| report.profile)
                .chain([Profile::new(Vec::new(), me, &snapshot)])
                .collect(),
            seconds,
        }
    }

    /// Gives each lane the inputs of its runs, of which `first` is the first. Returns the batch size.
    fn load(&mut self, first: u64, requests: &[impl AsRef<[Input]>]) -> Result<usize, ClientError> {
        let lanes = self.lanes.len();
        let mut batch = None;
        for (number, inputs) in (first..).zip(requests) {
            let size = self.lanes[lane_of(number, lanes)].load(&self.program, inputs.as_ref())?;
            let batch = *batch.get_or_insert(size);
            if batch != size {
                let sizes = format!("{batch} and of {size} samples");
                return Err(ClientError::Request(format!("inferences of {sizes} in one request: give all as many")));
            }
        }
        Ok(batch.unwrap_or_default())
    }

    /// Ends the session for all.
    pub fn close(mut self) {
        self.leave();
    }

    fn leave(&mut self) {
        if std::mem::replace(&mut self.left, true) {
            return;
        }
        if self.streams.failure().is_none() {
            let _ = self.request(&SessionRequest::Close);
        }
        self.streams.close();
    }

    pub(crate) fn request(&mut self, request: &SessionRequest) -> Result<(), ClientError> {
        ask(&mut *self.control, &self.streams, request)
    }

    /// The parties' reports of so many runs that they do by themselves, or of what ended before.
    pub(crate) fn reports(&mut self, runs: u32, progress: &mut dyn FnMut(&Progress)) -> Result<Vec<Done>, ClientError> {
        let due = Due { told: Told::of(&self.program, runs), ended: &OnceLock::new(), by_themselves: true };
        reports(&mut *self.control, &self.streams, due, progress).map_err(|error| session_failure(&self.streams, error))
    }
}

/// The session's failure, which all peers know, rather than how it showed here. What one side cannot go on with ends the
/// session for all.
pub(crate) fn session_failure(streams: &Streams, error: ClientError) -> ClientError {
    lane_failure((streams, 0), error)
}

/// The same on a lane of this role assignment.
fn lane_failure((streams, turn): (&Streams, usize), error: ClientError) -> ClientError {
    if let Some(failure) = streams.failure() {
        return failure.into();
    }
    // What the protocol says of roles, a reader takes for the listed ones.
    let who = turned::who_is_who(turn, streams.parties(), |party| streams.name(party));
    let failure = streams.abort(Some(streams.me()), &format!("{error}{who}"));
    if who.is_empty() { error } else { failure.into() }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Sends all parties the same request.
pub(crate) fn ask(control: &mut dyn Endpoint, streams: &Streams, request: &SessionRequest) -> Result<(), ClientError> {
    let sent = present(streams).into_iter().try_for_each(|role| wire::send_control(control, role, request));
    sent.map_err(|error| session_failure(streams, error.into()))
}

/// The roles that take part in a session.
pub(crate) fn present(streams: &dyn Network) -> Vec<PeerId> {
    streams.peers().into_iter().filter(|peer| *peer < streams.parties()).collect()
}

/// How a session's streams are set, from what all peers know.
fn transport_options(terms: &Terms) -> TransportOptions {
    TransportOptions {
        silence: Duration::from_millis(terms.silence_ms),
        latency: Duration::from_micros(terms.network.latency_us),
        bandwidth: terms.network.bandwidth,
        ..TransportOptions::default()
    }
}
