//! What a client asks for in a running session: runs of the program, and what later sessions will use up.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use covey_messages::{CONTROL_STREAM, Hex, Key, PhaseMessage, Resumed, Run, SessionReply, SessionRequest, wire};
use covey_protocols::any_party::AnyParty;
use covey_protocols::cost::OtCount;
use covey_protocols::kind::{Properties, ServedProtocol};
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::Part;
use covey_protocols::{Options, Phase, Roles, turned};
use covey_ring::{Ring, Word};
use covey_runtime::CarriedShares;
use covey_runtime::plan::plan_rounded;
use covey_runtime::session::Visitor;
use covey_store::BatchName;
use covey_transport::{Endpoint, Network, PeerId, Session as Streams};
use tracing::warn;

use crate::budget::{self, Memory};
use crate::checkpoints::{self, CheckpointStore};
use crate::config::{AllowedClient, PartyConfig};
use crate::data_sets::DataSetStore;
use crate::history::History;
use crate::lanes::{Held, Lanes, Request, guarded};
use crate::masks::MaskStore;
use crate::numbers::{MAX_COUNT, Numbers};
use crate::others::Others;
use crate::places::SessionPlace;
use crate::quota::{Counted, Quotas};
use crate::records::{self, Job, Kind, Records};
use crate::reports::{Counts, REPORTER, Reporter, request_of, samples};
use crate::resuming::Checkpoints;
use crate::runs::{Purpose, RunStore};
use crate::shared_data::SharedData;
use crate::state::{Store, StoredWeights};
use crate::stored_runs::{Kept, Setting, StoredRuns};
use crate::supply::{Stores, Supplies};
use crate::trained::Serving;
use crate::usage;
use crate::weights::{self, LISTED, Prepared};

/// What an element of a data set takes in memory while it is received.
const PIECE_BYTES: u64 = 64;

/// The running session, for the protocol and ring chosen.
pub(crate) struct Runs<'a> {
    pub streams: &'a Streams,
    pub keys: SessionKeys,
    /// The session's own name, which no other ever has. `job` has the client's id for it.
    pub session: Hex<16>,
    pub options: Options,
    pub ring: Ring,
    pub held: &'a StoredWeights,
    pub store: &'a Store,
    /// The party's configuration in force now.
    pub current: &'a dyn Fn() -> Arc<PartyConfig>,
    pub job: &'a Job,
    pub records: &'a Records,
    /// The working form of the weights, if all parties have it from the same session.
    pub common: Option<Prepared>,
    /// Where their masks are kept.
    pub masks: &'a MaskStore,
    pub checkpoints: &'a CheckpointStore,
    pub data_sets: &'a DataSetStore,
    pub client: PeerId,
    /// Counts what the client asks for, where it may not ask for everything.
    pub quotas: &'a Quotas,
    pub round_bits: u32,
    /// Stored correlated OTs.
    pub stores: &'a Stores,
    /// Stored runs.
    pub stored_runs: &'a RunStore,
    /// Which of them serve.
    pub purpose: Purpose,
    /// The batches of them that were here before the parties met.
    pub batches: Vec<BatchName>,
    /// There is no dealer.
    pub alone: bool,
    /// The client is one of the parties.
    pub client_computes: bool,
    pub parties: &'a [Key],
    pub config: &'a PartyConfig,
    /// The key by which the client came.
    pub key: Key,
    pub memory: &'a Arc<Memory>,
    /// The client, and what it may ask for.
    pub asking: &'a AllowedClient,
    pub place: &'a SessionPlace,
}

/// Why a session ends that its client has not closed.
pub(crate) struct Ended {
    pub reason: String,
    /// What it was working on, and for how long.
    pub request: Option<(records::Request, Duration)>,
}

/// What is being worked on, since when.
type UnderWay = Option<(records::Request, Instant)>;

impl Visitor for Runs<'_> {
    type Output = Result<(), Ended>;

    fn clear(self) -> Self::Output {
        Err(Ended { reason: "clear computes in the open and has no sessions".into(), request: None })
    }

    fn served<W: Word>(self, protocol: &dyn ServedProtocol<W>) -> Self::Output {
        let (mut under_way, counts) = (None, Counts { streams: self.streams, records: self.records });
        // A panic outside of a lane ends the session for all, too.
        let ended = guarded(self.streams, || self.serve(protocol, &mut under_way, counts));
        counts.take();
        let request = under_way.map(|(request, since)| (request, since.elapsed()));
        ended.map_err(|reason| Ended { reason, request })
    }
}

impl Runs<'_> {
    /// Counts samples against what the client may have predicted, and apart from that those whose products with the weights are
    /// preprocessed.
    fn charge(&self, phase: PhaseMessage, batch: usize, count: u32) -> Result<(), String> {
        let counted = match phase {
            PhaseMessage::Preprocess if !self.options.preprocess_linear => return Ok(()),
            PhaseMessage::Preprocess => Counted::Preprocessed,
            _ => Counted::Predicted,
        };
        let Some(limit) = self.asking.queries else { return Ok(()) };
        self.quotas.charge(self.asking, (counted, &self.job.program), samples(batch, count), limit)
    }

    /// Serves requests until the client closes the session; `under_way` is the one that is being served.
    fn serve<W: Word>(
        mut self,
        protocol: &dyn ServedProtocol<W>,
        under_way: &mut UnderWay,
        counts: Counts,
    ) -> Result<(), String> {
        let Properties { costs, stocked, keeps_runs, .. } = protocol.properties();
        let spoken = |error: covey_transport::TransportError| error.to_string();
        let mut control = self.streams.endpoint(CONTROL_STREAM).map_err(spoken)?;
        let mask_store = self.masks;
        let kept = Kept { held: self.held, masks: self.masks, runs: self.stored_runs };
        let mut lanes = Lanes::start(protocol, self.streams, &self.keys, self.ring, self.options)?;
        let sharing = (protocol.properties().sharing)(self.options.parties);
        let setting = weights::Setting {
            held: self.held,
            streams: self.streams,
            session: self.session,
            options: self.options,
            memory: self.memory,
            masks: self.masks,
            alone: self.alone,
        };
        // Others may wait for these weights, who did not ask for a slow line.
        self.streams.emulate(false);
        let mut prepared = Vec::new();
        for lane in lanes.preparing() {
            let weights = setting.prepared(protocol, lane, &mut *control, self.common.take());
            prepared.push(weights.inspect_err(|problem| warn!("{problem}"))?);
        }
        self.streams.emulate(true);
        let (executor, masks) = (&prepared[LISTED].executor, &prepared[LISTED].masks);
        let client_name = self.streams.name(self.client);
        wire::send_control(&mut *control, self.client, &SessionReply::Opened).map_err(|error| error.to_string())?;
        let mut numbers = Numbers::default();
        let mut supplies = match stocked {
            true => Some(Supplies::start(self.stores, self.streams, self.parties, &mut *control)?),
            false => None,
        };
        let purpose = Purpose { masks: masks.as_ref().map(|masks| masks.session), ..self.purpose.clone() };
        self.stored_runs.retire(&purpose);
        let roles_turn = self.options.roles == Roles::Turned;
        // A stored run serves a lane of the assignment that it was dealt in, and the listed one is the only one that is stored.
        let mut stored_runs = match keeps_runs(&self.options) && !roles_turn {
            true => {
                let setting = Setting {
                    store: self.stored_runs,
                    streams: self.streams,
                    session: self.session,
                    keys: self.keys.clone(),
                    purpose,
                    deals: sharing.roles.get(self.streams.me()) == Some(&Part::Dealer),
                    alone: self.alone,
                    client_computes: self.client_computes,
                };
                Some(StoredRuns::start(setting, &self.batches, &mut *control)?)
            }
            false => None,
        };
        let upload = &self.held.head.upload;
        let job = checkpoints::Job {
            name: Hex([0; 16]),
            client: self.asking.name.clone(),
            program: upload.program,
            weights_version: upload.weights_version,
            protocol: upload.protocol.clone(),
            ring: self.ring.into(),
            role: self.streams.me(),
        };
        let mut history = History::new(&self.session);
        let mut checkpoints = Checkpoints::new(self.checkpoints, self.streams, job, self.asking.budget.checkpoints);
        let mut shared_data = SharedData {
            store: self.data_sets,
            streams: self.streams,
            client: self.asking,
            key: self.key,
            parties: self.parties,
            config: self.config,
            client_computes: self.client_computes,
            program: upload.program,
            protocol: upload.protocol.clone(),
            ring: self.ring,
            attached: Vec::new(),
        };
        let (options, round_bits) = (self.options, self.round_bits);
        let (role, of) = (self.streams.me(), (executor.program(), costs, options));
        let roles = (0..prepared.len()).map(|turn| turned::role_of(role, turn, self.streams.parties())).collect();
        let mut taken = budget::Runs::new(self.memory, self.asking, of, round_bits, (roles, self.held.trained()))?;
        let asked = |problem: String| format!("{client_name} asked for {problem}");
        let client = self.client;
        let reply = |control: &mut dyn Endpoint, reply: &SessionReply| {
            wire::send_control(control, client, reply).map_err(|error| error.to_string())
        };
        // What `count` inferences of `batch` samples use up; requests of a session most often have one batch.
        let planned = Cell::new(None);
        let ot_count = |batch: usize, count: u32| -> Result<[u64; 2], String> {
            let correlated_ots = match planned.get() {
                Some((of, correlated_ots)) if of == batch => correlated_ots,
                _ => {
                    let plan = plan_rounded(executor.program(), costs, options, batch, round_bits);
                    plan.map_err(|error| error.to_string())?.correlated_ots
                }
            };
            planned.set(Some((batch, correlated_ots)));
            let times = |one: u64| one.checked_mul(count.into()).ok_or("more correlated OTs than can be counted");
            Ok([times(correlated_ots[0])?, times(correlated_ots[1])?])
        };
        loop {
            self.place.rest(true);
            let request = wire::receive_control(&mut *control, self.client, &client_name);
            self.place.rest(false);
            let request = request.map_err(|error| error.to_string())?;
            let begun = Instant::now();
            *under_way = request_of(&request).map(|request| (request, begun));
            history.add(&request);
            let (mut run, rows) = match request {
                SessionRequest::Run(run) => (run, None),
                SessionRequest::RunRows(asked) => (asked.run, Some(asked)),
                SessionRequest::Close => return Ok(()),
                SessionRequest::Keep(name) => {
                    kept.check()?;
                    self.held.check(false)?;
                    let (party, carried) = lanes.carrying();
                    let checkpoint =
                        checkpoints.keep(name, (&mut *control, &mut history), party, carried, executor.program())?;
                    // Deleted or shared again meanwhile, the weights leave none behind.
                    let still = kept.check().and_then(|()| self.held.check(false));
                    if let Err(problem) = still {
                        checkpoints.forget(name)?;
                        return Err(problem);
                    }
                    reply(&mut *control, &SessionReply::Kept(checkpoint))?;
                    continue;
                }
                SessionRequest::Resume(name) => {
                    let chosen = checkpoints.choose(name, &mut *control)?;
                    if let Resumed::From(checkpoint) = chosen {
                        let (phase, batch) = (PhaseMessage::Joint, checkpoint.batch);
                        let run = Run { phase, batch, inference: 0, count: 1, continues: true, ends: false };
                        let _memory = taken.take(&run, false).map_err(asked)?;
                        let (party, carried) = lanes.carrying();
                        *carried = CarriedShares::default();
                        *carried = checkpoints.load(
                            name,
                            &checkpoint,
                            (&mut *control, &mut history),
                            party,
                            executor.program(),
                        )?;
                    }
                    reply(&mut *control, &SessionReply::Resumed(chosen))?;
                    continue;
                }
                asked_for @ (SessionRequest::MayServeWeights | SessionRequest::ServeWeights) => {
                    // It takes long until then, and the right may be taken back.
                    let may = || {
                        let asking = (self.current)();
                        if !asking.client(&self.key.0).is_some_and(|client| client.serve_weights) {
                            return Err(format!("'{client_name}' may not serve-weights here: add it to `may`"));
                        }
                        kept.check()?;
                        self.held.check(false)
                    };
                    let serving = Serving {
                        store: self.store,
                        masks: self.masks,
                        stored_runs: self.stored_runs,
                        checkpoints: self.checkpoints,
                        others: Others(self.streams),
                        config: self.config,
                        began_with: self.held,
                        job: &checkpoints.job,
                        sharing: &sharing,
                        memory: self.memory,
                    };
                    if asked_for == SessionRequest::MayServeWeights {
                        let problem = may().and_then(|()| serving.check(executor.program())).err();
                        reply(&mut *control, &SessionReply::MayServe(problem))?;
                        continue;
                    }
                    may()?;
                    let (party, carried) = lanes.carrying();
                    let made = (&*carried, checkpoints.runs());
                    let program = executor.program();
                    let version = serving.serve((&mut *control, &mut history), party, made, program, &may)?;
                    reply(&mut *control, &SessionReply::WeightsServed(version))?;
                    continue;
                }
                SessionRequest::Forget(name) => {
                    checkpoints.forget(name)?;
                    reply(&mut *control, &SessionReply::Forgotten)?;
                    continue;
                }
                SessionRequest::ShareData(data) => {
                    if !self.asking.share_data {
                        return Err(format!("'{client_name}' may not share-data here: add it to `may`"));
                    }
                    let admitted = shared_data.admit_data(&data, executor.program(), lanes.carrying().0);
                    let (elements, room) = admitted.map_err(asked)?;
                    stored_runs.iter().try_for_each(StoredRuns::need_dealer)?;
                    let number = Run::joint(data.inference, 1);
                    numbers.admit(&number).map_err(asked)?;
                    let bytes = (elements as u64).saturating_mul(PIECE_BYTES);
                    let _memory = self.memory.take(self.asking, bytes, "a piece of a data set").map_err(asked)?;
                    let (party, _) = lanes.carrying();
                    counts.take();
                    let keep = || {
                        let (control, history) = (&mut *control, &mut history);
                        shared_data.keep((&data, room), (control, history), party, executor.program())
                    };
                    let kept = guarded(self.streams, keep)?;
                    let (_, traffic) = counts.report(Vec::new(), 0, None);
                    reply(&mut *control, &SessionReply::DataShared(kept))?;
                    if let Some((request, since)) = under_way.take() {
                        self.records.done(self.job, &request, since.elapsed(), &traffic);
                    }
                    continue;
                }
                SessionRequest::Attach(names) => {
                    let attached = shared_data.attach(&names, &mut *control, &mut history)?;
                    reply(&mut *control, &attached)?;
                    continue;
                }
                SessionRequest::Fill(fill) => {
                    if !self.asking.fill_store {
                        return Err(format!("'{client_name}' may not fill-store here: add it to `may`"));
                    }
                    if roles_turn {
                        return Err(asked("runs to be stored in a session with turned roles".into()));
                    }
                    if !(1..=MAX_COUNT).contains(&fill.count) {
                        return Err(asked(format!("{} runs to be stored: 1 to {MAX_COUNT} go", fill.count)));
                    }
                    let _memory = taken.take_one(fill.batch).map_err(asked)?;
                    if supplies.is_none() && stored_runs.is_none() {
                        return Err(format!("{} keeps no offline material between sessions", costs.name));
                    }
                    if let Some(stored_runs) = &stored_runs {
                        stored_runs.need_dealer()?;
                        kept.check()?;
                        self.charge(PhaseMessage::Preprocess, fill.batch, fill.count).map_err(asked)?;
                    }
                    counts.take();
                    let cpu = usage::cpu_seconds();
                    if let Some(supplies) = &mut supplies {
                        match ot_count(fill.batch, fill.count)? {
                            [0, 0] if stored_runs.is_some() => {}
                            [0, 0] => {
                                return Err("this program takes no correlated OTs, so none can be stored".into());
                            }
                            wanted => supplies.fill(wanted)?,
                        }
                    }
                    if let Some(stored_runs) = &mut stored_runs {
                        // The masks that the runs are dealt under must outlive this process as the runs do.
                        masks.iter().try_for_each(|masks| mask_store.put(&self.held.head.upload, masks))?;
                        stored_runs.fill(&mut *control, protocol, executor, fill)?;
                        kept.check()?;
                    }
                    let (done, traffic) = counts.report(Vec::new(), 0, cpu);
                    reply(&mut *control, &SessionReply::Done(done))?;
                    if let Some((request, since)) = under_way.take() {
                        self.records.done(self.job, &request, since.elapsed(), &traffic);
                    }
                    continue;
                }
            };
            numbers.admit(&run).map_err(asked)?;
            let asked_for = run;
            if run.ends && (run.count != 1 || run.phase != PhaseMessage::Joint) {
                return Err(asked(format!("a sequence to end {} times, or ahead of its runs", run.count)));
            }
            if rows.is_some() && (run.ends || run.phase != PhaseMessage::Joint) {
                return Err(asked("runs on rows in another phase than joint".into()));
            }
            // What a stored run was dealt is for inputs that the client shares.
            let draws =
                |stored_runs: &StoredRuns| rows.is_none() && !run.ends && stored_runs.may_draw(run.batch, run.count);
            let reads = run.phase == PhaseMessage::Joint && stored_runs.as_ref().is_some_and(draws);
            let memory = taken.take(&run, reads).map_err(asked)?;
            if let Some(rows) = &rows {
                stored_runs.iter().try_for_each(StoredRuns::need_dealer)?;
                shared_data.admit(rows, executor.program()).map_err(asked)?;
            }
            self.charge(run.phase, run.batch, run.count).map_err(asked)?;
            // Shares that a client did not give the parties for this run are computed with: they must be asked for the same.
            if rows.is_some() || !executor.program().carried().is_empty() {
                shared_data.compare(&mut *control, &history)?;
            }
            if let Some(stored_runs) = stored_runs.as_ref().filter(|_| run.phase == PhaseMessage::Preprocess) {
                stored_runs.need_dealer()?;
            }
            let mut supplied = false;
            if let Some(supplies) = supplies.as_mut().filter(|_| run.phase != PhaseMessage::Online && !run.ends) {
                let runs = run.inference..run.inference + u64::from(run.count);
                for (party, count) in lanes.of(runs.clone()) {
                    let due = ot_count(run.batch, count)?;
                    match supplies.draw(&mut *control, (run.batch, count), due)? {
                        Some(ots) => {
                            party.supply(runs.clone(), ots);
                            supplied = true;
                        }
                        None => party.expect(OtCount { by_sender: due }),
                    }
                }
            }
            if run.phase == PhaseMessage::Joint
                && !run.ends
                && rows.is_none()
                && let Some(stored_runs) = &mut stored_runs
                && let Some(dealt) = stored_runs.draw(&mut *control, run.batch, run.count)?
            {
                lanes.supply_runs(run.inference, dealt);
                (run.phase, supplied) = (PhaseMessage::Online, true);
            }
            if let Some((request, _)) =
                under_way.as_mut().filter(|_| supplied && asked_for.phase == PhaseMessage::Joint)
            {
                request.kind = if run.phase == PhaseMessage::Online { Kind::OnlineStored } else { Kind::JointStored };
            }
            let mut reporter = Reporter {
                control: &mut *control,
                client: self.client,
                reports: self.streams.me() == REPORTER,
                last: Instant::now(),
            };
            let phase = match run.phase {
                PhaseMessage::Joint => Phase::Joint,
                PhaseMessage::Preprocess => Phase::Preprocess,
                PhaseMessage::Online => Phase::Online,
            };
            let streams = self.streams;
            let of_rows = rows.as_ref().map(|rows| {
                |index: usize, (turn, party): (usize, &AnyParty<W>)| {
                    shared_data.inputs(rows, index, (protocol, turn, party), executor.program())
                }
            });
            let inputs = of_rows.as_ref().map(|of_rows| of_rows as &Held<W>);
            let executors = prepared.iter().map(|weights| &*weights.executor).collect();
            let request = Request { streams, executors, phase, run, round_bits, inputs };
            counts.take();
            let cpu = usage::cpu_seconds();
            let timings = lanes.run(&request, &mut reporter)?;
            taken.used(&asked_for);
            drop(memory);
            checkpoints.ran(&asked_for);
            let (mut done, traffic) = counts.report(timings, lanes.stored(), cpu);
            if supplied {
                done.profile.add_from_store();
            }
            reply(&mut *control, &SessionReply::Done(done))?;
            if let Some((request, since)) = under_way.take() {
                self.records.done(self.job, &request, since.elapsed(), &traffic);
            }
        }
    }
}
