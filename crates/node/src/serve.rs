//! The daemon: listens, learns who calls and what for, and gives every conversation a thread of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use covey_kernels::device::in_use;
use covey_messages::wire::WireError;
use covey_messages::{
    COVEY_VERSION, Deleted, Hex, Infer, Join, Key, PartyStatus, Problem, Reply, Request, STOPPED, TakeRole, one_line,
    wire,
};
use covey_protocols::kind::ProtocolKind;
use covey_transport::{Connection, ErrorKind, Fingerprint, Incoming, Listener, Network};
use signal_hook::consts::SIGHUP;
use signal_hook::low_level::unregister;
use tracing::{info, warn};

use crate::budget::Memory;
use crate::checkpoints::CheckpointStore;
use crate::claim::Claim;
use crate::config::{AllowedClient, PartyConfig};
use crate::data_sets::DataSetStore;
use crate::error::{Failure, INTERNAL, NodeError, caught};
use crate::holdings::Holdings;
use crate::masks::MaskStore;
use crate::monitor::{Answer, Monitor};
use crate::places::{Places, SessionPlace};
use crate::quota::Quotas;
use crate::records::Records;
use crate::runs::RunStore;
use crate::state::{PROGRAM_COPIES, Store, StoredWeights};
use crate::supply::Stores;
use crate::{admission, files, metrics, role, session, sharing};

/// How often the listener looks whether to stop.
const TICK: Duration = Duration::from_millis(100);
/// How long stopping waits for sessions to tell their peers.
const FAREWELL: Duration = Duration::from_secs(3);

/// What all conversations of a party share, and the configuration, which those keep that it was in force for when they began.
#[derive(Clone)]
pub(crate) struct Party {
    pub config: PartyConfig,
    pub store: Arc<Store>,
    pub quotas: Arc<Quotas>,
    pub stores: Arc<Stores>,
    pub runs: Arc<RunStore>,
    pub masks: Arc<MaskStore>,
    pub checkpoints: Arc<CheckpointStore>,
    pub data_sets: Arc<DataSetStore>,
    pub memory: Arc<Memory>,
    pub places: Arc<Places>,
    /// The configuration in force, also for conversations that began before it was.
    current: Arc<Mutex<Arc<PartyConfig>>>,
    pub records: Arc<Records>,
}

/// Serves until `stop` is set, then ends all sessions, telling their peers. `ready` is told the address listened on. At SIGHUP the
/// configuration's file is read again, and what changed of clients, peers and this party's key is taken up, without an end to any session.
///
/// # Errors
/// Before serving: the state folder, the certificate or the address. What goes wrong with a peer or client later ends
/// that conversation only and goes to the log.
pub fn serve(config: PartyConfig, ready: impl FnOnce(SocketAddr), stop: Arc<AtomicBool>) -> Result<(), NodeError> {
    let claim = Claim::alone(&config.state)?;
    let reload = Arc::new(AtomicBool::new(false));
    let registered = signal_hook::flag::register(SIGHUP, reload.clone());
    if let Err(error) = &registered {
        warn!("SIGHUP ends this process: {error}");
    }
    let ended = serve_in(claim, config, ready, (&*stop, &*reload));
    if let Ok(id) = registered {
        unregister(id);
    }
    ended
}

/// The same in a state folder that is claimed already; `reload` has the configuration read again.
pub(crate) fn serve_in(
    claim: Claim,
    config: PartyConfig,
    ready: impl FnOnce(SocketAddr),
    (stop, reload): (&AtomicBool, &AtomicBool),
) -> Result<(), NodeError> {
    covey_kernels::keep_freed_memory();
    let (store, damaged) = Store::open(&config.state)?;
    let store = Arc::new(store);
    damaged.iter().for_each(|problem| warn!("{problem}"));
    let quotas = Quotas::open(&config.state)
        .map_err(|problem| NodeError::State { folder: config.state.display().to_string(), problem })?;
    let mut listener = Listener::bind(&config.listen, config.identity.clone(), config.timeout)?;
    let held = store.list().len();
    let (quotas, stores) = (Arc::new(quotas), Arc::new(Stores::new(&config.state)));
    let (runs, masks) = (Arc::new(RunStore::new(&config.state)), Arc::new(MaskStore::new(&config.state)));
    let checkpoints = Arc::new(CheckpointStore::new(&config.state));
    let data_sets = Arc::new(DataSetStore::new(&config.state));
    let memory = Arc::new(Memory::new(&config.budget));
    let prepared = Arc::downgrade(&store);
    memory.reclaim_by(move || prepared.upgrade().is_some_and(|store| store.evict()));
    let (places, records) = (Arc::new(Places::new(&config.budget)), Arc::default());
    let current = Arc::new(Mutex::new(Arc::new(config.clone())));
    let mut party = Arc::new(Party {
        config,
        store,
        quotas,
        stores,
        runs,
        masks,
        checkpoints,
        data_sets,
        memory,
        places,
        current,
        records,
    });
    let monitor = party.config.metrics.map(|address| party.monitor(address)).transpose()?;
    if let Some(address) = listener.address() {
        let device = in_use().unwrap_or_else(|| "cpu".into());
        // Messages, which others hear too, do not say where it is.
        let state = std::path::absolute(&party.config.state).unwrap_or_else(|_| party.config.state.clone());
        info!(party = party.config.name, %address, programs = held, device, state = %state.display(), "listening");
        if files::open_to_others(&party.config.state) {
            warn!("{}", files::OPEN_TO_OTHERS);
        }
        ready(address);
    }
    while !stop.load(Ordering::Acquire) {
        party.records.journal.settle();
        if reload.swap(false, Ordering::AcqRel) {
            party = Arc::new(party.reloaded(&mut listener));
        }
        match listener.incoming(TICK) {
            Ok(Some(incoming)) => party.clone().meet(incoming),
            Ok(None) => {}
            Err(error) => {
                // Out of file descriptors, say: it may pass.
                warn!("{error}");
                std::thread::sleep(TICK);
            }
        }
    }
    drop(listener);
    party.end_sessions();
    drop(monitor);
    party.records.journal.settle();
    info!(party = party.config.name, "stopped");
    drop(claim);
    Ok(())
}

impl Party {
    /// The same with what its file says by now, as far as a running party can take it up.
    fn reloaded(&self, listener: &mut Listener) -> Self {
        let Some(file) = &self.config.file else { return self.clone() };
        let new = match PartyConfig::read(file) {
            Ok(new) => new,
            Err(problem) => {
                warn!("{problem}; the configuration stays as it was");
                return self.clone();
            }
        };
        let (config, restarts) = self.config.taking_up(new);
        // Conversations that have begun go on with the key they began with.
        if let Err(problem) = listener.set_identity(config.identity.clone()) {
            warn!("{problem}; the configuration stays as it was");
            return self.clone();
        }
        if config.identity.fingerprint() != self.config.identity.fingerprint() {
            info!(fingerprint = %config.identity.fingerprint(), "has another key from now on");
        }
        restarts.iter().for_each(|key| warn!("`{key}` of [party] has changed: restart this party to have that"));
        info!(peers = config.peers.len(), clients = config.clients.len(), "configuration read again");
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config.clone());
        Party { config, ..self.clone() }
    }

    /// The configuration that is in force now. What takes long asks again before it has an effect, as a right may have been taken back.
    pub fn current(&self) -> Arc<PartyConfig> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells metrics and health to whoever asks at an address of this machine.
    fn monitor(self: &Arc<Self>, address: SocketAddr) -> Result<Monitor, NodeError> {
        let party = self.clone();
        let site = move |path: &str| match path {
            "/metrics" => {
                let problem = party.problem();
                let body = party.records.metrics.text(&party, problem.as_deref());
                Some(Answer { status: 200, format: metrics::FORMAT, body })
            }
            "/health" => Some(match party.problem() {
                None => Answer::line(200, "ok"),
                Some(problem) => Answer::line(503, &problem),
            }),
            _ => None,
        };
        let monitor = Monitor::start(address, Arc::new(site));
        let monitor = monitor.map_err(|error| NodeError::Metrics { address, problem: error.to_string() })?;
        info!(address = %monitor.address, "metrics and health");
        Ok(monitor)
    }

    /// Why it should be sent no clients, in one line, if it should not.
    fn problem(&self) -> Option<String> {
        if !self.places.is_open() {
            return Some("it is being stopped".into());
        }
        // What could be written when the party began may be full, gone or read-only by now.
        files::unwritable(&self.config.state)
    }

    /// Gives a caller a thread. There are no more of them than places for callers and for connections of the keys that are pinned.
    fn meet(self: Arc<Self>, incoming: Incoming) {
        let converse =
            move || match incoming.authenticate(&|key| self.config.pinned(key).or_else(|| self.operator(key))) {
                Ok(connection) => self.converse(connection),
                Err(problem) => self.records.stranger(&problem.to_string()),
            };
        if let Err(error) = std::thread::Builder::new().name("covey conversation".into()).spawn(converse) {
            warn!("cannot start a thread: {error}");
        }
    }

    fn converse(&self, mut connection: Connection) {
        let name = connection.name().to_string();
        let panicked = || Failure::refused(INTERNAL);
        let place = self.places.of_connection(connection.fingerprint());
        let begun = tell_refusal(&mut connection, place).and_then(|place| {
            let asked = caught(|| self.ask(&mut connection), panicked);
            Ok((place, tell_refusal(&mut connection, asked)?))
        });
        let ended = begun.and_then(|(_place, next)| match next {
            Next::Over => Ok(()),
            Next::Share(upload, _place) => {
                let received = caught(|| sharing::receive(self, &mut connection, *upload), panicked);
                tell_refusal(&mut connection, received)
            }
            Next::Infer(request) => {
                session::serve(self, connection, *request);
                Ok(())
            }
            Next::Join(join) => self.route(join, connection),
            Next::TakeRole(request, mut place) => {
                let handed = || role::hand_out(self, &mut connection, &request, place.memory());
                let handed = caught(handed, panicked);
                tell_refusal(&mut connection, handed)
            }
        });
        if let Err(failure) = ended {
            self.records.refused(&name, None, &failure.to_string());
        }
    }

    /// Reads what the caller wants, and whether it may.
    fn ask(&self, connection: &mut Connection) -> Result<Next, Failure> {
        let request: Request = match wire::receive(connection, self.config.timeout) {
            // It wanted nothing, as when it measures a round trip.
            Err(WireError::Transport(error)) if error.kind() == ErrorKind::ConnectionLost => return Ok(Next::Over),
            received => received?,
        };
        let client = self.config.client(&connection.fingerprint());
        if let Request::Join(join) = request {
            // Which role, the session it joins knows.
            if self.config.peer(&connection.fingerprint()).is_none() {
                let taker = client.ok_or_else(|| Failure::refused("it is neither a party nor a client here"))?;
                permit(taker, taker.take_role, "take-role")?;
            }
            return Ok(Next::Join(join));
        }
        if matches!(request, Request::Status) && client.is_none() && self.operator(&connection.fingerprint()).is_some()
        {
            return self.tell(connection, &Reply::Status(Box::new(self.status(None))));
        }
        if let (Request::DataSets(from), None, Some(_)) = (&request, client, self.operator(&connection.fingerprint())) {
            return self.tell(connection, &Reply::DataSets(self.data_sets.told(None, *from)));
        }
        let Some(client) = client else {
            let reason = "a party cannot ask as a client: use a client's own key";
            return match request {
                // Whether this party answers at all, which is no failure.
                Request::Status => self.tell(connection, &Reply::Refused { reason: reason.into() }),
                _ => Err(Failure::refused(reason)),
            };
        };
        match request {
            Request::DataSets(from) => self.tell(connection, &Reply::DataSets(self.data_sets.told(Some(client), from))),
            Request::Status => {
                let status = self.status(Some((client, &connection.fingerprint())));
                self.tell(connection, &Reply::Status(Box::new(status)))
            }
            Request::Check(check) => {
                let held = self.store.get(&check.program);
                let owns = client.share_weights && held.is_some_and(|held| held.head.belongs_to(client));
                permit(client, client.infer || owns, "infer")?;
                let checked = session::check(self, client, connection.fingerprint(), check)?;
                self.tell(connection, &Reply::Checked(checked))
            }
            Request::DeleteWeights(program) => {
                permit(client, client.share_weights, "share-weights")?;
                let deleted = self.holdings().delete_weights(&program, Some(client)).map_err(Failure::Refused)?;
                // A deletion that had an effect is always told of: each undoes work of somebody's.
                if deleted != Deleted::default() || self.records.admits(&client.name) {
                    info!(
                        client = client.name,
                        program = program.short(),
                        deleted.weights,
                        deleted.runs,
                        "weights deleted"
                    );
                }
                self.tell(connection, &Reply::Deleted(deleted))
            }
            Request::DeleteStore(program) => {
                permit(client, client.fill_store, "fill-store")?;
                let of_client = connection.fingerprint();
                let with = |peer: &Key| self.sees(Some(&of_client), peer);
                let deleted = self.holdings().delete_store(program.as_ref(), with).map_err(Failure::Refused)?;
                let Deleted { runs, ots, damaged, .. } = deleted;
                if deleted != Deleted::default() || self.records.admits(&client.name) {
                    info!(client = client.name, runs, ots, damaged, "stored offline material is deleted");
                }
                self.tell(connection, &Reply::Deleted(deleted))
            }
            Request::DeleteData(program, name) => {
                permit(client, client.share_data, "share-data")?;
                let deleted = self.holdings().delete_data(&program, &name, Some(client)).map_err(Failure::Refused)?;
                self.tell(connection, &Reply::Deleted(deleted))
            }
            Request::ShareWeights(upload) => {
                permit(client, client.share_weights, "share-weights")?;
                // A longer one is refused before any of it is received.
                let length = Some(upload.program_bytes).filter(|length| *length <= sharing::MAX_PROGRAM);
                let bytes = length.unwrap_or(0) * PROGRAM_COPIES;
                Ok(Next::Share(Box::new(upload), self.place(client, bytes, "an upload")?))
            }
            Request::Infer(request) => {
                permit(client, client.infer, "infer")?;
                Ok(Next::Infer(Box::new(request)))
            }
            Request::TakeRole(request) => {
                permit(client, client.take_role, "take-role")?;
                Ok(Next::TakeRole(request, self.place(client, 0, "a party's place")?))
            }
            Request::Join(_) => Ok(Next::Over),
        }
    }

    /// The weights of a program, shared for `protocol`.
    pub fn held(&self, program: &Hex<32>, protocol: &str) -> Result<Arc<StoredWeights>, Failure> {
        let short = program.short();
        let Some(held) = self.store.get(program) else {
            let none = || format!("it holds no weights of program {short}: share them first (`covey share-weights`)");
            return Err(Failure::refused(self.store.problem(program).unwrap_or_else(none)));
        };
        let theirs = &held.head.upload.protocol;
        if theirs != protocol {
            return Err(Failure::refused(format!(
                "it holds the weights of program {short} for {theirs}, not {protocol}: share them again"
            )));
        }
        Ok(held)
    }

    /// Low bits that outputs lose before they open to a client.
    pub fn round_bits(&self, client: &Fingerprint) -> u32 {
        self.config.client(client).map_or(0, |client| client.round_bits)
    }

    /// Whoever has this party's own key and is no client is who runs it, and may ask how it is.
    fn operator(&self, key: &Fingerprint) -> Option<String> {
        (*key == self.config.identity.fingerprint()).then(|| "the operator".into())
    }

    /// Answers a request that this ends.
    fn tell(&self, connection: &mut Connection, reply: &Reply) -> Result<Next, Failure> {
        wire::send(connection, reply, self.config.timeout)?;
        Ok(Next::Over)
    }

    /// All that this party keeps for sessions to come.
    fn holdings(&self) -> Holdings {
        Holdings {
            store: self.store.clone(),
            stores: self.stores.clone(),
            runs: self.runs.clone(),
            masks: self.masks.clone(),
            checkpoints: self.checkpoints.clone(),
            data_sets: self.data_sets.clone(),
            memory: Some(self.memory.clone()),
        }
    }

    /// Whether offline material with a peer is a client's business: its own, and that with other parties. The operator's all is.
    fn sees(&self, client: Option<&Fingerprint>, peer: &Key) -> bool {
        let mine = || peer.0 == self.config.identity.fingerprint();
        client.is_none_or(|client| peer.0 == *client) || self.config.peer(&peer.0).is_some() || mine()
    }

    /// What a client, or with none the operator, is told of this party. A client is told nothing of other clients, but of programs that it
    /// may infer with, and of stored runs that it may use up or delete.
    fn status(&self, client: Option<(&AllowedClient, &Fingerprint)>) -> PartyStatus {
        let (mut stores, problems) = self.stores.status();
        let sees = |peer: &Key| self.sees(client.map(|(_, key)| key), peer);
        stores.retain(|store| sees(&store.peer));
        let (mut runs, problem) = self.runs.status(sees);
        runs.retain(|runs| {
            client.is_none_or(|(client, _)| client.fill_store || (client.infer && runs.round_bits == client.round_bits))
        });
        let asking = client.map_or("the operator", |(client, _)| client.name.as_str());
        let said = problems.iter().chain(&problem).filter(|_| self.records.admits(asking));
        said.for_each(|problem| warn!("{problem}"));
        let closed = !problems.is_empty() || problem.is_some();
        let holdings = self.holdings();
        let usage = client.map_or_else(|| holdings.usage(), |(client, _)| holdings.usage_by(client));
        let mut programs = self.store.list();
        programs.retain(|held| {
            client.is_none_or(|(client, _)| client.infer) || usage.iter().any(|own| own.program == held.program)
        });
        PartyStatus {
            dealer: self.config.dealer,
            may: client.map(|(client, _)| client.rights()).unwrap_or_default(),
            problems: self.problems(closed, &holdings, client.is_none()),
            usage,
            name: self.config.name.clone(),
            covey: COVEY_VERSION.into(),
            certificate_days_left: self.config.identity.days_left(),
            protocols: ProtocolKind::all_served().map(|kind| kind.name().into()).collect(),
            programs,
            stores,
            runs,
            sessions: client.map_or_else(|| self.places.sessions(), |(client, _)| self.places.sessions_of(client)),
        }
    }

    /// What is wrong with the state folder; `closed`: some offline material cannot be opened. The operator alone is told which files are
    /// damaged, which may be anybody's.
    fn problems(&self, closed: bool, holdings: &Holdings, to_operator: bool) -> Vec<Problem> {
        let gone = "its state folder is gone: restore it and restart the party, or share all weights again";
        let closed_store = "some of its offline material cannot be opened, as its log says: correct that and restart the party, or empty the store \
             (`covey store delete`)";
        let open = files::OPEN_TO_OTHERS;
        let state = &self.config.state;
        let all =
            [(!state.is_dir(), true, gone), (closed, false, closed_store), (files::open_to_others(state), false, open)];
        let found = all.into_iter().filter(|(found, ..)| *found);
        let mut problems: Vec<Problem> = found.map(|(_, grave, what)| Problem { grave, what: what.into() }).collect();
        if state.is_dir() {
            problems.extend(self.problem().map(|what| Problem { grave: true, what }));
        }
        let damage = holdings.damage();
        let told = match to_operator {
            true => damage,
            false if damage.is_empty() => Vec::new(),
            false => vec![format!(
                "{} of the files and folders that it keeps cannot be read: `covey doctor` on its host says which",
                damage.len()
            )],
        };
        problems.extend(told.into_iter().map(|what| Problem { grave: false, what }));
        problems
    }

    /// A place for one more upload of a client's, or what else takes none for long, for which `bytes` of memory are set aside.
    fn place(&self, client: &AllowedClient, bytes: u64, what: &str) -> Result<SessionPlace, Failure> {
        let mut place = self.places.at_once(client, self.memory.nothing(client), self.config.timeout)?;
        admission::furnish(&mut place, bytes, what)?;
        Ok(place)
    }

    /// Hands another party's connection to the session it joins.
    fn route(&self, join: Join, connection: Connection) -> Result<(), Failure> {
        let turned_away = self.places.join(&join.session, join.role, connection).map(|mut connection| {
            let reason = "no session of this id waits here for this role: open a new one".to_string();
            let refused = covey_messages::PartyMessage::Refused { reason };
            let _ = wire::send(&mut connection, &refused, Duration::from_secs(1));
            connection
        });
        match turned_away {
            None => Ok(()),
            Some(_) => Err(Failure::Lost("no session waits for it".into())),
        }
    }

    /// Ends what is under way, so that the others learn why.
    fn end_sessions(&self) {
        self.places.close();
        for session in self.places.running() {
            session.abort(Some(session.me()), STOPPED);
        }
        let patience = Instant::now() + FAREWELL;
        while self.places.sessions() > 0 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What a caller is there for.
enum Next {
    Over,
    Share(Box<covey_messages::ShareWeights>, SessionPlace),
    Infer(Box<Infer>),
    Join(Join),
    TakeRole(TakeRole, SessionPlace),
}

fn permit(client: &AllowedClient, may: bool, what: &str) -> Result<(), Failure> {
    match may {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "client '{}' may not {what} here: add it to `may` in the party's configuration",
            client.name
        ))),
    }
}

/// Tells the caller why it is refused, if it is.
pub(crate) fn tell_refusal<T>(connection: &mut Connection, result: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(Failure::Refused(reason)) = &result {
        let _ = wire::send(connection, &Reply::Refused { reason: one_line(reason) }, Duration::from_secs(1));
    }
    result
}
