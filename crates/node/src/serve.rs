//! The daemon: listens, learns who calls and what for, and gives every conversation a thread of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use covey_client::messages::{COVEY_VERSION, Hex, Infer, Join, PartyStatus, Reply, Request, TakePlace, one_line};
use covey_client::wire;
use covey_runtime::session::ProtocolKind;
use covey_transport::{Connection, Fingerprint, Incoming, Listener, Network, Session as Streams};
use tracing::{info, warn};

use crate::config::{AllowedClient, PartyConfig};
use crate::error::{Failure, NodeError};
use crate::handshake::Joined;
use crate::masks::MaskStore;
use crate::quota::Quotas;
use crate::runs::RunStore;
use crate::state::{Held, Store};
use crate::supply::Stores;
use crate::{place, session, sharing};

/// Most sessions and uploads at once.
const MAX_SESSIONS: usize = 16;
/// Most connections at once, those that have not said who they are included.
const MAX_CONNECTIONS: usize = 128;
/// How often the listener looks whether to stop.
const TICK: Duration = Duration::from_millis(100);
/// How long stopping waits for sessions to tell their peers.
const FAREWELL: Duration = Duration::from_secs(3);

/// What all conversations of a party share.
pub(crate) struct Party {
    pub config: PartyConfig,
    pub store: Store,
    pub quotas: Quotas,
    pub stores: Stores,
    pub runs: RunStore,
    pub masks: MaskStore,
    seats: Arc<Seats>,
    connections: AtomicUsize,
}

#[derive(Default)]
struct Seats {
    taken: AtomicUsize,
    /// Sessions that wait for other parties, by session id.
    waiting: Mutex<HashMap<Hex<16>, Sender<Joined>>>,
    /// Sessions under way, to be ended when this party stops.
    running: Mutex<Vec<Weak<Streams>>>,
}

/// A place among this party's sessions; dropped, it is free again.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    session: Option<Hex<16>>,
}

impl Seat {
    /// Parties that join this session are handed to `sender` from now on. A session's id may be taken once.
    fn await_joins(&mut self, session: Hex<16>, sender: Sender<Joined>) -> Result<(), Failure> {
        let mut waiting = lock(&self.seats.waiting);
        if waiting.contains_key(&session) {
            return Err(Failure::refused("a session of this id is open already: open a new one"));
        }
        waiting.insert(session, sender);
        self.session = Some(session);
        Ok(())
    }

    /// The session has started: it is ended when the party stops.
    pub fn enter(&self, streams: &Arc<Streams>) {
        let mut running = lock(&self.seats.running);
        running.retain(|session| session.strong_count() > 0);
        running.push(Arc::downgrade(streams));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            lock(&self.seats.waiting).remove(&session);
        }
        self.seats.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until `stop` is set, then ends all sessions, telling their peers. `ready` is told the address listened on.
///
/// # Errors
/// Before serving: the state folder, the certificate or the address. What goes wrong with a peer or client later ends
/// that conversation only and goes to the log.
pub fn serve(config: PartyConfig, ready: impl FnOnce(SocketAddr), stop: Arc<AtomicBool>) -> Result<(), NodeError> {
    covey_kernels::keep_freed_memory();
    let (store, damaged) = Store::open(&config.state)?;
    damaged.iter().for_each(|problem| warn!("{problem}"));
    let quotas = Quotas::open(&config.state)
        .map_err(|problem| NodeError::State { folder: config.state.display().to_string(), problem })?;
    let listener = Listener::bind(&config.listen, config.identity.clone(), config.timeout)?;
    let held = store.list().len();
    let stores = Stores::new(&config.state);
    let (runs, masks) = (RunStore::new(&config.state), MaskStore::new(&config.state));
    let (seats, connections) = (Arc::default(), AtomicUsize::new(0));
    let party = Arc::new(Party { config, store, quotas, stores, runs, masks, seats, connections });
    if let Some(address) = listener.address() {
        info!(party = party.config.name, %address, programs = held, "listening");
        ready(address);
    }
    while !stop.load(Ordering::Acquire) {
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
    info!(party = party.config.name, "stopped");
    Ok(())
}

impl Party {
    /// Gives a caller a thread.
    fn meet(self: Arc<Self>, incoming: Incoming) {
        if self.connections.fetch_add(1, Ordering::AcqRel) >= MAX_CONNECTIONS {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            warn!(address = %incoming.address(), "turned away: {MAX_CONNECTIONS} connections are open already");
            return;
        }
        let party = self.clone();
        let converse = move || {
            if let Err(failure) = party.converse(incoming) {
                warn!("{failure}");
            }
            party.connections.fetch_sub(1, Ordering::AcqRel);
        };
        if let Err(error) = std::thread::Builder::new().name("covey conversation".into()).spawn(converse) {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            warn!("cannot start a thread: {error}");
        }
    }

    fn converse(&self, incoming: Incoming) -> Result<(), Failure> {
        let mut connection = incoming.authenticate(&|key| self.config.pinned(key))?;
        match self.answer(&mut connection)? {
            Next::Over => Ok(()),
            Next::Share(upload, _seat) => {
                let received = sharing::receive(self, &mut connection, *upload);
                tell_refusal(&mut connection, received).map_err(|failure| about(&connection, failure))
            }
            Next::Infer(request, seat, joins) => {
                let name = connection.name().to_string();
                session::serve(self, &seat, connection, *request, &joins)
                    .map_err(|failure| Failure::Lost(format!("session of {name}: {failure}")))
            }
            Next::Join(join) => self.route(join, connection),
            Next::TakePlace(request) => {
                let handed = place::hand_out(self, &mut connection, &request);
                tell_refusal(&mut connection, handed).map_err(|failure| about(&connection, failure))
            }
        }
    }

    /// Reads what the caller wants, and whether it may.
    fn answer(&self, connection: &mut Connection) -> Result<Next, Failure> {
        let asked = self.ask(connection);
        tell_refusal(connection, asked).map_err(|failure| about(connection, failure))
    }

    fn ask(&self, connection: &mut Connection) -> Result<Next, Failure> {
        let request: Request = wire::receive(connection, self.config.timeout)?;
        let client = self.config.client(&connection.fingerprint());
        if let Request::Join(join) = request {
            // Whether a client may be one of the parties, the session it joins knows.
            let may =
                self.config.peer(&connection.fingerprint()).is_some() || client.is_some_and(|client| client.infer);
            return match may {
                true => Ok(Next::Join(join)),
                false => Err(Failure::refused("a client that may not infer cannot take a party's place")),
            };
        }
        let Some(client) = client else {
            return Err(Failure::refused("a party cannot ask as a client: use a client's own key"));
        };
        match request {
            Request::Status => {
                wire::send(connection, &Reply::Status(self.status()), self.config.timeout)?;
                Ok(Next::Over)
            }
            Request::ShareWeights(upload) => {
                permit(client, client.share_weights, "share-weights")?;
                Ok(Next::Share(Box::new(upload), self.seat()?))
            }
            Request::Infer(request) => {
                permit(client, client.infer, "infer")?;
                let (sender, joins) = channel();
                let mut seat = self.seat()?;
                seat.await_joins(request.terms.session, sender)?;
                Ok(Next::Infer(Box::new(request), seat, joins))
            }
            Request::TakePlace(request) => {
                permit(client, client.infer, "infer")?;
                Ok(Next::TakePlace(request))
            }
            Request::Join(_) => Ok(Next::Over),
        }
    }

    /// The weights of a program, shared for `protocol`.
    pub fn held(&self, program: &Hex<32>, protocol: &str) -> Result<Arc<Held>, Failure> {
        let short = program.short();
        let Some(held) = self.store.get(program) else {
            return Err(Failure::refused(match self.store.damaged_file(program) {
                Some(path) => {
                    format!("state file {} is corrupted: share the weights of this program again", path.display())
                }
                None => format!("it holds no weights of program {short}: share them first (`covey share-weights`)"),
            }));
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

    fn status(&self) -> PartyStatus {
        let (stores, problems) = self.stores.status();
        let (runs, problem) = self.runs.status();
        problems.iter().chain(&problem).for_each(|problem| warn!("{problem}"));
        PartyStatus {
            name: self.config.name.clone(),
            covey: COVEY_VERSION.into(),
            certificate_days_left: self.config.identity.days_left(),
            protocols: ProtocolKind::served().map(|kind| kind.name().into()).collect(),
            programs: self.store.list(),
            stores,
            runs,
            sessions: self.seats.taken.load(Ordering::Acquire),
        }
    }

    /// A place for one more session or upload.
    fn seat(&self) -> Result<Seat, Failure> {
        let taken = self.seats.taken.fetch_add(1, Ordering::AcqRel);
        let seat = Seat { seats: self.seats.clone(), session: None };
        match taken < MAX_SESSIONS {
            true => Ok(seat),
            false => Err(Failure::refused(format!("it serves {MAX_SESSIONS} sessions already: try again later"))),
        }
    }

    /// Hands another party's connection to the session it joins.
    fn route(&self, join: Join, mut connection: Connection) -> Result<(), Failure> {
        let waiting = lock(&self.seats.waiting).get(&join.session).cloned();
        let turned_away = match waiting {
            Some(session) => session.send((connection, join.role)).err().map(|back| back.0.0),
            None => {
                let reason = "no session of this id waits here: open a new one".to_string();
                let refused = covey_client::messages::PartyMessage::Refused { reason };
                let _ = wire::send(&mut connection, &refused, Duration::from_secs(1));
                Some(connection)
            }
        };
        match turned_away {
            None => Ok(()),
            Some(connection) => Err(Failure::Lost(format!("{}: no session waits for it", connection.name()))),
        }
    }

    /// Ends what is under way, so that the others learn why.
    fn end_sessions(&self) {
        let running: Vec<Arc<Streams>> = lock(&self.seats.running).iter().filter_map(Weak::upgrade).collect();
        for session in running {
            session.abort(Some(session.me()), "was stopped by its operator");
        }
        let patience = Instant::now() + FAREWELL;
        while self.seats.taken.load(Ordering::Acquire) > 0 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What a caller is there for.
enum Next {
    Over,
    Share(Box<covey_client::messages::ShareWeights>, Seat),
    Infer(Box<Infer>, Seat, std::sync::mpsc::Receiver<Joined>),
    Join(Join),
    TakePlace(TakePlace),
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

fn tell_refusal<T>(connection: &mut Connection, result: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(Failure::Refused(reason)) = &result {
        let _ = wire::send(connection, &Reply::Refused { reason: one_line(reason) }, Duration::from_secs(1));
    }
    result
}

/// For the log: whose conversation it was.
fn about(connection: &Connection, failure: Failure) -> Failure {
    Failure::Lost(format!("{}: {failure}", connection.name()))
}
