//! One session: agreed with the client and the other parties, then runs of the program as the client asks for them.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use covey_client::messages::{
    CONTROL_STREAM, COVEY_VERSION, Check, Checked, Done, Fill, Hex, Infer, Key, NetworkMessage, PartyHello,
    PhaseMessage, Proceed, Reply, RingMessage, Run, SessionReply, SessionRequest, Terms, is_name, one_line,
};
use covey_client::wire;
use covey_ot::store::BatchName;
use covey_protocols::randomness::SessionKeys;
use covey_protocols::served::{Part, Served};
use covey_protocols::{Options, Phase, Protocol};
use covey_ring::Ring;
use covey_runtime::plan::plan_rounded;
use covey_runtime::profile::Timing;
use covey_runtime::session::{ProtocolKind, UnknownProtocol, Visitor, choose};
use covey_runtime::{Executor, Observer, Profile, Step};
use covey_transport::{
    Connection, Endpoint, Fingerprint, Meter, Network, Options as TransportOptions, PeerId, Session as Streams,
};
use tracing::{info, warn};

use crate::ahead::{Ahead, Setting};
use crate::budget::{self, Memory};
use crate::config::AllowedClient;
use crate::error::Failure;
use crate::handshake::{self, Agreement, Joined};
use crate::lanes::{Lanes, Request};
use crate::masks::{MaskStore, Masks};
use crate::numbers::{MAX_COUNT, Numbers};
use crate::places::Seat;
use crate::quota::Quotas;
use crate::runs::{Purpose, RunStore};
use crate::serve::Party;
use crate::state::Held;
use crate::supply::{Stores, Supplies};
use crate::usage;
use crate::weights::{self, Prepared};

/// How often a party reports progress, at most.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// The party that reports progress: it works through every step online, whatever the protocol.
const REPORTER: usize = 1;

/// What was checked of a client's request before the others are met.
struct Admitted {
    protocol: ProtocolKind,
    options: Options,
    ring: Ring,
    held: Arc<Held>,
    /// The working form of the weights that this party has.
    prepared: Option<Prepared>,
    /// The masks of the weights that it has kept.
    masks: Option<Masks>,
    /// Of stored runs, the batches that it has.
    batches: Vec<BatchName>,
    /// Without a dealer, the stored runs that are left for the session, and of how many samples they are.
    stored_runs: Vec<(usize, u64)>,
    hello: PartyHello,
}

impl Admitted {
    /// What stored runs serve the session, prepared under the masks of session `masks`.
    fn purpose(&self, masks: Option<Hex<16>>) -> Purpose {
        let PartyHello { sharing, round_bits, terms, .. } = &self.hello;
        Purpose {
            covey: COVEY_VERSION.into(),
            protocol: terms.protocol.clone(),
            program: terms.program,
            sharing: *sharing,
            masks,
            ring: terms.ring,
            // On which lane a run goes changes nothing of it.
            options: Options { lanes: 1, ..self.options }.into(),
            parties: terms.parties.clone(),
            round_bits: *round_bits,
            batch: 0,
        }
    }

    /// Without a dealer there must be stored runs, dealt under the masks that the weights are prepared under.
    fn check_alone(&mut self, party: &Party) -> Result<(), Failure> {
        let masks = self.prepared.as_ref().map(|prepared| prepared.session);
        let masks = masks.or(self.masks.as_ref().map(|masks| masks.session));
        self.stored_runs = party.runs.left(&self.purpose(masks));
        match masks.is_some() && !self.stored_runs.is_empty() {
            true => Ok(()),
            false => Err(Failure::refused(format!(
                "it has no stored runs of program {} for a session without the dealer: start the dealer",
                self.hello.terms.program.short()
            ))),
        }
    }
}

/// Serves one session from the client's request to its end.
pub(crate) fn serve(
    party: &Party,
    seat: &Seat,
    mut client: Connection,
    request: Infer,
    joins: &Receiver<Joined>,
) -> Result<(), Failure> {
    let timeout = party.config.timeout;
    let (agreement, admitted) = match set_up(party, &mut client, request, joins) {
        Ok(agreed) => agreed,
        Err(failure) => {
            if let Failure::Refused(reason) = &failure {
                let _ = wire::send(&mut client, &Reply::Refused { reason: one_line(reason) }, Duration::from_secs(1));
            }
            return Err(failure);
        }
    };
    let Agreement { names, connections, keys, prepared: same_form, .. } = agreement;
    let purpose = admitted.purpose(None);
    let Admitted { protocol, options, ring, held, prepared, batches, stored_runs, hello, .. } = admitted;
    let started = Reply::Started { names: names.clone(), stored_runs: stored_runs.clone() };
    wire::send(&mut client, &started, timeout)?;
    // A dealer that is absent keeps its place.
    let parties = hello.terms.parties.len();
    let mut peers: Vec<(PeerId, String, Connection)> =
        connections.into_iter().map(|(role, connection)| (role, names[role].clone(), connection)).collect();
    peers.push((parties, hello.terms.client.clone(), client));
    let asking = party.config.client(&hello.client.0);
    let asking = asking.ok_or_else(|| Failure::refused("its key is no client's any more"))?;
    let bytes = |budget: u64| usize::try_from(budget).unwrap_or(usize::MAX);
    let transport = TransportOptions {
        silence: Duration::from_millis(hello.terms.silence_ms),
        latency: Duration::from_micros(hello.terms.network.latency_us),
        bandwidth: hello.terms.network.bandwidth,
        peer_bytes: bytes(party.config.budget.queue.saturating_mul(options.lanes as u64)),
        client_bytes: bytes(asking.budget.queue),
        ..TransportOptions::default()
    };
    let streams = Arc::new(Streams::start((hello.role, &party.config.name), parties, peers, transport)?);
    seat.enter(&streams);
    info!(session = hello.terms.session.short(), client = hello.terms.client, role = hello.role, "session starts");
    if hello.terms.without_dealer {
        let left = stored_runs.iter().map(|(_, left)| left).sum::<u64>();
        warn!("the dealer is absent: the session can use {left} stored run(s), and fails when they end");
    }
    let quota = asking.queries.map(|limit| Quota {
        quotas: &party.quotas,
        client: asking,
        program: hello.terms.program,
        limit,
    });
    let round_bits = hello.round_bits;
    let runs = Runs {
        streams: &streams,
        keys,
        options,
        ring,
        held: &held,
        session: hello.terms.session,
        common: prepared.filter(|_| same_form),
        masks: &party.masks,
        client: parties,
        quota,
        round_bits,
        stores: &party.stores,
        stored_runs: &party.runs,
        purpose,
        batches,
        alone: hello.terms.without_dealer,
        parties: &hello.terms.parties,
        memory: &party.memory,
        asking,
        seat,
    };
    let ended = choose(protocol, ring, runs).map_err(|error| Failure::refused(error.to_string()))?;
    match ended {
        Ok(()) => {
            streams.close();
            info!(session = hello.terms.session.short(), "session ends");
            Ok(())
        }
        Err(reason) => {
            // The first failure holds; where it is this party's own, this tells all others.
            let failure = streams.failure().unwrap_or_else(|| streams.abort(Some(hello.role), &one_line(&reason)));
            Err(Failure::Lost(failure.to_string()))
        }
    }
}

/// Checks the request, tells the client, waits for all parties to be ready, and meets them.
fn set_up(
    party: &Party,
    client: &mut Connection,
    request: Infer,
    joins: &Receiver<Joined>,
) -> Result<(Agreement, Admitted), Failure> {
    let timeout = party.config.timeout;
    let admitted = admit(party, client.fingerprint(), request)?;
    wire::send(client, &Reply::Ready { name: party.config.name.clone() }, timeout)?;
    // The client may be waiting for the slowest of the others.
    match wire::receive(client, 2 * timeout)? {
        Proceed::Proceed => {}
        Proceed::Cancel { reason } => {
            return Err(Failure::Lost(format!("the client gave up: {}", one_line(&reason))));
        }
    }
    let agreement = handshake::meet(&party.config, admitted.protocol, &admitted.hello, joins)?;
    if admitted.hello.terms.without_dealer && !(agreement.prepared || agreement.masks) {
        return Err(Failure::refused(
            "not all parties have kept the masks of the weights that runs were dealt under: start the dealer",
        ));
    }
    Ok((agreement, admitted))
}

/// What opening a session would come to here: the same checks, and those that the session's weights and its first run meet.
pub(crate) fn check(
    party: &Party,
    asking: &AllowedClient,
    key: Fingerprint,
    request: Check,
) -> Result<Checked, Failure> {
    let Check { protocol, program, role, parties, client, without_dealer } = request;
    let kind: Option<ProtocolKind> = protocol.parse().ok();
    let computing = kind.and_then(|kind| kind.listed(parties.len())).map_or(2, |(computing, _)| computing);
    let terms = Terms {
        session: Hex([0; 16]),
        // The program's hash says which it is.
        ring: party.store.get(&program).map_or(RingMessage::Pow2(32), |held| held.head.ring),
        options: Options { parties: computing, ..Options::default() }.into(),
        silence_ms: party.config.timeout.as_millis() as u64,
        network: NetworkMessage::default(),
        protocol,
        program,
        parties,
        client,
        without_dealer,
    };
    let admitted = admit(party, key, Infer { role, terms })?;
    admitted.held.check(true).map_err(Failure::Refused)?;
    if let Some(limit) = asking.queries {
        let asked = |problem: String| Failure::Refused(format!("'{}' asked for {problem}", asking.name));
        party.quotas.check(asking, &program, limit).map_err(asked)?;
    }
    let PartyHello { sharing, public, round_bits, .. } = admitted.hello;
    Ok(Checked { sharing, public, round_bits })
}

fn admit(party: &Party, client: Fingerprint, request: Infer) -> Result<Admitted, Failure> {
    let Infer { role, terms } = request;
    let protocol: ProtocolKind =
        terms.protocol.parse().map_err(|error: UnknownProtocol| Failure::refused(error.to_string()))?;
    let asking = Key(client);
    let options = terms.options.checked().map_err(Failure::Refused)?;
    let sharing = handshake::check_parties(&party.config, protocol, role, &terms.parties, Some(asking))?;
    if terms.without_dealer && (!protocol.has_dealer() || sharing.roles.get(role) == Some(&Part::Dealer)) {
        return Err(Failure::refused(
            "a session without a dealer is not for a dealer, or for a protocol that has none",
        ));
    }
    if protocol.sharing(options.parties).is_none_or(|due| due != sharing) {
        let (listed, computing) = (terms.parties.len(), options.parties);
        let dealer = if protocol.has_dealer() { " and a dealer" } else { "" };
        return Err(Failure::refused(format!("{listed} parties are listed for a session of {computing}{dealer}")));
    }
    if !is_name(&terms.client) {
        return Err(Failure::refused("the client's name is empty, too long or not printable"));
    }
    if !(500..=600_000).contains(&terms.silence_ms)
        || terms.network.latency_us > 5_000_000
        || terms.network.bandwidth == Some(0)
    {
        return Err(Failure::refused(
            "the session's time-out is outside 0.5 to 600 s, or its emulated network has no bandwidth",
        ));
    }
    let short = terms.program.short();
    let held = party.held(&terms.program, &terms.protocol)?;
    // Who takes an open role does not matter to the others.
    let same = sharing.roles.iter().enumerate().all(|(index, part)| {
        let then = held.parties().get(index);
        let same = |then: &Key| index == role || party.config.same_peer(&then.0, &terms.parties[index].0);
        *part == Part::Open || then.is_some_and(same)
    });
    if held.role() != role || !same {
        return Err(Failure::refused(format!(
            "it holds the weights of program {short} as P{} of other roles or parties than the session's: list the parties as \
             when the weights were shared, have the former keys of those that changed them listed as `formerly` of their [[peer]], or \
             share the weights again",
            held.role()
        )));
    }
    let ring = held.ring().map_err(Failure::Refused)?;
    if RingMessage::from(ring) != terms.ring {
        return Err(Failure::refused(format!(
            "program {short} computes in {ring}, not in {}: use the program as compiled",
            terms.ring
        )));
    }
    held.check(false).map_err(Failure::Refused)?;
    let (prepared, masks) = (held.cache.get(), party.masks.get(&held.head.upload));
    let hello = PartyHello {
        covey: COVEY_VERSION.into(),
        role,
        name: party.config.name.clone(),
        client: asking,
        sharing: held.head.upload.sharing,
        public: weights::public_digest(&held, &sharing, &party.memory).map_err(Failure::Refused)?,
        prepared: prepared.as_ref().map(|prepared| prepared.session),
        masks: masks.as_ref().map(|masks| masks.session),
        round_bits: party.round_bits(&client),
        terms,
    };
    let (batches, stored_runs, alone) = (party.runs.names(), Vec::new(), hello.terms.without_dealer);
    let mut admitted = Admitted { protocol, options, ring, held, prepared, masks, batches, stored_runs, hello };
    if alone {
        admitted.check_alone(party)?;
    }
    Ok(admitted)
}

/// The running session, for the protocol and ring chosen.
struct Runs<'a> {
    streams: &'a Streams,
    keys: SessionKeys,
    options: Options,
    ring: Ring,
    held: &'a Held,
    session: Hex<16>,
    /// The working form of the weights, if all parties have it from the same session.
    common: Option<Prepared>,
    /// Where their masks are kept.
    masks: &'a MaskStore,
    client: PeerId,
    /// Counts what the client asks for, where it may not ask for everything.
    quota: Option<Quota<'a>>,
    round_bits: u32,
    /// Correlated OTs that were made ahead.
    stores: &'a Stores,
    /// Runs that were dealt ahead.
    stored_runs: &'a RunStore,
    /// Which of them serve.
    purpose: Purpose,
    /// The batches of them that were here before the parties met.
    batches: Vec<BatchName>,
    /// There is no dealer.
    alone: bool,
    parties: &'a [Key],
    memory: &'a Arc<Memory>,
    /// The client, and what it may ask for.
    asking: &'a AllowedClient,
    seat: &'a Seat,
}

/// What the session's client may have predicted.
struct Quota<'a> {
    quotas: &'a Quotas,
    client: &'a AllowedClient,
    program: Hex<32>,
    limit: u64,
}

impl Quota<'_> {
    fn charge(&self, run: &Run) -> Result<(), String> {
        match run.phase {
            PhaseMessage::Preprocess => Ok(()),
            _ => {
                let samples = (run.batch as u64).saturating_mul(run.count.into());
                self.quotas.charge(self.client, &self.program, samples, self.limit)
            }
        }
    }
}

/// Where what is made ahead for weights goes.
struct Kept<'a> {
    held: &'a Held,
    masks: &'a MaskStore,
    runs: &'a RunStore,
}

impl Kept<'_> {
    /// That the weights were not deleted since the session began: what is made ahead for them then serves nobody.
    fn check(&self) -> Result<(), String> {
        let upload = &self.held.head.upload;
        if !self.held.is_deleted() {
            return Ok(());
        }
        // Others may have been shared since.
        if self.masks.get(upload).is_some() {
            self.masks.delete(&upload.program)?;
        }
        self.runs.delete_of_version(&upload.sharing)?;
        let program = upload.program.short();
        Err(format!("the weights of program {program} were deleted here: nothing is made ahead for them"))
    }
}

impl Visitor for Runs<'_> {
    type Output = Result<(), String>;

    fn clear(self) -> Self::Output {
        Err("clear computes in the open and has no sessions".into())
    }

    fn served<P: Served>(self) -> Self::Output {
        let spoken = |error: covey_transport::TransportError| error.to_string();
        let mut control = self.streams.endpoint(CONTROL_STREAM).map_err(spoken)?;
        let (keys, mask_store) = (self.keys, self.masks);
        let kept = Kept { held: self.held, masks: self.masks, runs: self.stored_runs };
        let mut lanes = Lanes::<P>::start(self.streams, &keys, self.ring, self.options)?;
        let sharing = P::sharing(self.options.parties);
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
        let form = setting.prepared(lanes.first(), &mut *control, self.common);
        let form = form.inspect_err(|problem| warn!("{problem}"))?;
        self.streams.emulate(true);
        let (executor, masks) = (&form.executor, &form.masks);
        let client_name = self.streams.name(self.client);
        wire::send_control(&mut *control, self.client, &SessionReply::Opened).map_err(|error| error.to_string())?;
        let mut numbers = Numbers::default();
        let mut supplies = match P::STOCKED {
            true => Some(Supplies::start(self.stores, self.streams, self.parties, &mut *control)?),
            false => None,
        };
        let mut ahead = match P::KEEPS_RUNS {
            true => {
                let setting = Setting {
                    store: self.stored_runs,
                    streams: self.streams,
                    session: self.session,
                    keys,
                    purpose: Purpose { masks: masks.as_ref().map(|masks| masks.session), ..self.purpose },
                    deals: sharing.roles.get(self.streams.me()) == Some(&Part::Dealer),
                    alone: self.alone,
                };
                Some(Ahead::start(setting, &self.batches, &mut *control)?)
            }
            false => None,
        };
        let (options, round_bits) = (self.options, self.round_bits);
        let (role, of) = (self.streams.me(), (executor.program(), options));
        let mut taken = budget::Runs::new(self.memory, self.asking, of, round_bits, role)?;
        let asked = |problem: String| format!("{client_name} asked for {problem}");
        // What `count` inferences of `batch` samples use up.
        let demand = |batch: usize, count: u32| -> Result<[u64; 2], String> {
            let plan = plan_rounded::<P>(executor.program(), options, batch, round_bits);
            let transfers = plan.map_err(|error| error.to_string())?.transfers;
            let times = |one: u64| one.checked_mul(count.into()).ok_or("more correlated OTs than can be counted");
            Ok([times(transfers[0])?, times(transfers[1])?])
        };
        loop {
            self.seat.rest(true);
            let request = wire::receive_control(&mut *control, self.client, &client_name);
            self.seat.rest(false);
            let mut run = match request.map_err(|error| error.to_string())? {
                SessionRequest::Run(run) => run,
                SessionRequest::Close => return Ok(()),
                SessionRequest::Fill(fill) => {
                    if !self.asking.fill_store {
                        return Err(format!("'{client_name}' may not fill-store here: add it to `may`"));
                    }
                    if !(1..=MAX_COUNT).contains(&fill.count) {
                        return Err(asked(format!("{} runs to be made ahead: 1 to {MAX_COUNT} go", fill.count)));
                    }
                    let _memory = taken.take_one::<P>(fill.batch).map_err(asked)?;
                    let done = match (&mut supplies, &mut ahead) {
                        (Some(supplies), _) => {
                            fill_store(self.streams, supplies, &mut *control, || demand(fill.batch, fill.count))?
                        }
                        (None, Some(ahead)) => {
                            ahead.need_dealer()?;
                            kept.check()?;
                            // The masks that the runs are dealt under must outlive this process as the runs do.
                            masks.iter().try_for_each(|masks| mask_store.put(&self.held.head.upload, masks))?;
                            let done = store_runs(self.streams, ahead, &mut *control, executor, fill)?;
                            kept.check()?;
                            done
                        }
                        _ => {
                            return Err(format!("{} keeps nothing between sessions that could be made ahead", P::NAME));
                        }
                    };
                    wire::send_control(&mut *control, self.client, &SessionReply::Done(done))
                        .map_err(|error| error.to_string())?;
                    continue;
                }
            };
            numbers.admit(&run).map_err(asked)?;
            let asked_for = run;
            let draws = |ahead: &Ahead| ahead.may_draw(run.batch, run.count);
            let reads = run.phase == PhaseMessage::Joint && ahead.as_ref().is_some_and(draws);
            let memory = taken.take::<P>(&run, reads).map_err(asked)?;
            if let Some(quota) = &self.quota {
                quota.charge(&run).map_err(asked)?;
            }
            if let Some(ahead) = ahead.as_ref().filter(|_| run.phase == PhaseMessage::Preprocess) {
                ahead.need_dealer()?;
            }
            let mut supplied = false;
            if let Some(supplies) = supplies.as_mut().filter(|_| run.phase != PhaseMessage::Online) {
                let runs = run.inference..run.inference + u64::from(run.count);
                for (protocol, count) in lanes.of(runs.clone()) {
                    if let Some(ots) = supplies.draw(&mut *control, || demand(run.batch, count))? {
                        protocol.supply(runs.clone(), ots);
                        supplied = true;
                    }
                }
            }
            if run.phase == PhaseMessage::Joint
                && let Some(ahead) = &mut ahead
                && let Some(dealt) = ahead.draw(&mut *control, run.batch, run.count)?
            {
                lanes.supply_runs(run.inference, dealt);
                (run.phase, supplied) = (PhaseMessage::Online, true);
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
            let request = Request { streams, executor, phase, run, round_bits };
            streams.meter().take();
            let cpu = usage::cpu_seconds();
            let timings = lanes.run(&request, &mut reporter)?;
            taken.used(&asked_for);
            drop(memory);
            let mut done = report(streams, timings, lanes.stored(), cpu);
            if supplied {
                done.profile.add_from_store();
            }
            wire::send_control(&mut *control, self.client, &SessionReply::Done(done))
                .map_err(|error| error.to_string())?;
        }
    }
}

/// Makes correlated OTs for later sessions, and reports on it.
fn fill_store(
    streams: &Streams,
    supplies: &mut Supplies,
    control: &mut dyn Endpoint,
    demand: impl FnOnce() -> Result<[u64; 2], String>,
) -> Result<Done, String> {
    let wanted = demand()?;
    if wanted == [0; 2] {
        return Err("this program takes no correlated OTs, so that none can be made ahead".into());
    }
    streams.meter().take();
    let cpu = usage::cpu_seconds();
    supplies.fill(control, wanted)?;
    Ok(report(streams, Vec::new(), 0, cpu))
}

/// Deals runs for later sessions, and reports on it.
fn store_runs<P: Served>(
    streams: &Streams,
    ahead: &mut Ahead,
    control: &mut dyn Endpoint,
    executor: &Executor<P>,
    fill: Fill,
) -> Result<Done, String> {
    streams.meter().take();
    let cpu = usage::cpu_seconds();
    ahead.fill(control, executor, fill)?;
    Ok(report(streams, Vec::new(), 0, cpu))
}

/// What was exchanged and used since the meter was last taken.
fn report(streams: &Streams, timings: Vec<Timing>, stored: usize, cpu: Option<f64>) -> Done {
    streams.flush();
    let mut snapshot = streams.meter().take();
    // Control messages belong to no node and to no protocol.
    snapshot.rows.retain(|row| row.node != Meter::NO_NODE);
    let socket_bytes_sent = snapshot.sockets.iter().map(|socket| socket.sent).sum();
    let profile = Profile::new(timings, streams.me(), &snapshot);
    Done { profile, stored, socket_bytes_sent, usage: usage::since(cpu) }
}

/// Tells the client how far the run is.
struct Reporter<'a> {
    control: &'a mut dyn Endpoint,
    client: PeerId,
    reports: bool,
    last: Instant,
}

impl<P: Protocol> Observer<P> for Reporter<'_> {
    fn begins(&mut self, step: &Step, index: usize, count: usize) {
        if self.reports && self.last.elapsed() >= REPORT_EVERY {
            self.last = Instant::now();
            let progress = SessionReply::Progress { step: index, steps: count, name: step.name.clone() };
            // If this fails the session has failed, which the protocol's next message finds out.
            let _ = wire::send_control(self.control, self.client, &progress);
        }
    }
}
