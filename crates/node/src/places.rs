//! Places for those who have shown who they are: connections of a key, sessions of a client, and who is awaited to join a session.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use covey_messages::{Hex, Infer, Key};
use covey_transport::{Connection, Fingerprint, Network, Session as Streams};

use crate::budget::{Charge, PartyBudget};
use crate::config::{AllowedClient, PartyConfig};
use crate::error::Failure;
use crate::handshake::Joined;
use crate::queue::{Full, Queue, Turn};

/// How long an upload waits for a place, at most: the other parties have set one aside for it.
const MOMENTS: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(10);
/// Most connections of one key at once that are no part of another's session.
const CONNECTIONS_OF_KEY: usize = 32;
/// Most roles of a session.
const ROLES: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The places of a party.
pub(crate) struct Places {
    connections: Mutex<HashMap<Fingerprint, usize>>,
    /// Sessions and uploads, and who waits for a place.
    queue: Mutex<Queue>,
    /// Places.
    most: usize,
    /// Nobody is given a place any more.
    closed: AtomicBool,
    /// How long a session may rest that another's place depends on.
    idle: Duration,
    /// Sessions that wait for other parties, by session id.
    waiting: Mutex<HashMap<Hex<16>, Awaited>>,
    /// Sessions under way, to be ended when this party stops or, at rest, when another client has no place.
    running: Mutex<Vec<Running>>,
}

/// A session under way.
struct Running {
    streams: Weak<Streams>,
    rests: Rest,
}

/// Since when a session has been waiting for its client to ask for something, if it is.
type Rest = Arc<Mutex<Option<Instant>>>;

/// The parties that a session waits for.
struct Awaited {
    /// The keys of each role that has not joined yet, any of which serves.
    roles: BTreeMap<usize, Vec<Fingerprint>>,
    session: Sender<Joined>,
}

/// A place among the connections of a key; dropped, it is free again.
pub(crate) struct ConnectionPlace {
    places: Arc<Places>,
    key: Fingerprint,
}

/// A place among this party's sessions; dropped, it is free again.
pub(crate) struct SessionPlace {
    places: Arc<Places>,
    client: String,
    session: Option<Hex<16>>,
    rests: Rest,
    memory: Charge,
}

/// A place in the queue; dropped, it is given up.
pub(crate) struct QueuePlace {
    places: Arc<Places>,
    client: String,
    number: u64,
    /// For the place among the sessions to come.
    memory: Option<Charge>,
    /// Its place and how many there are, as it was last.
    position: (usize, usize),
}

impl Places {
    pub fn new(budget: &PartyBudget) -> Self {
        Places {
            connections: Mutex::default(),
            queue: Mutex::new(Queue::new(budget.sessions, budget.waiting)),
            most: budget.sessions,
            closed: AtomicBool::new(false),
            idle: budget.idle,
            waiting: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// A place for one more connection of this key.
    pub fn of_connection(self: &Arc<Self>, key: Fingerprint) -> Result<ConnectionPlace, Failure> {
        let mut connections = lock(&self.connections);
        let count = connections.entry(key).or_insert(0);
        if *count >= CONNECTIONS_OF_KEY {
            let full = format!("{CONNECTIONS_OF_KEY} connections of this key are open already: close some");
            return Err(Failure::refused(full));
        }
        *count += 1;
        Ok(ConnectionPlace { places: self.clone(), key })
    }

    /// A place for one more session of a client's, which takes `memory`, if one is free and nobody waits for it.
    pub fn free(self: &Arc<Self>, client: &AllowedClient, memory: Charge) -> Result<Option<SessionPlace>, Failure> {
        self.check_open()?;
        let taken = lock(&self.queue).take(&client.name, client.budget.sessions);
        match taken {
            Ok(()) => Ok(Some(self.of_session(&client.name, memory))),
            Err(Full::Client) => Err(self.refusal(client, Full::Client)),
            Err(_) => Ok(None),
        }
    }

    /// A place in the queue for one more session of a client's, which is going to take `memory`.
    pub fn join_queue(self: &Arc<Self>, client: &AllowedClient, memory: Charge) -> Result<QueuePlace, Failure> {
        self.check_open()?;
        let joined = lock(&self.queue).join(&client.name, client.budget.sessions);
        joined.map(|number| self.in_queue(client, number, memory)).map_err(|full| self.refusal(client, full))
    }

    /// Why there is no place where nobody may wait for one. The session that has rested for too long makes room for the next to ask.
    pub fn no_queue(&self, client: &AllowedClient) -> Failure {
        self.vacate();
        self.refusal(client, Full::Places)
    }

    /// A place for an upload, or what else takes none for long. It waits for moments, before all sessions.
    pub fn at_once(
        self: &Arc<Self>,
        client: &AllowedClient,
        memory: Charge,
        timeout: Duration,
    ) -> Result<SessionPlace, Failure> {
        let patience = Instant::now() + MOMENTS.min(timeout / 2);
        let joined = lock(&self.queue).join_first(&client.name, client.budget.sessions);
        let number = joined.map_err(|full| self.refusal(client, full))?;
        let mut waiting = self.in_queue(client, number, memory);
        loop {
            if let Some(place) = waiting.turn()? {
                return Ok(place);
            }
            if Instant::now() >= patience {
                return Err(self.refusal(client, Full::Places));
            }
            sleep(TICK);
        }
    }

    /// Gives nobody a place any more: whoever waits for one is told so.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether sessions are given places.
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    fn check_open(&self) -> Result<(), Failure> {
        match self.is_open() {
            true => Ok(()),
            false => Err(Failure::refused("it is being stopped by its operator: try again later")),
        }
    }

    fn of_session(self: &Arc<Self>, client: &str, memory: Charge) -> SessionPlace {
        SessionPlace { places: self.clone(), client: client.into(), session: None, rests: Rest::default(), memory }
    }

    fn in_queue(self: &Arc<Self>, client: &AllowedClient, number: u64, memory: Charge) -> QueuePlace {
        QueuePlace { places: self.clone(), client: client.name.clone(), number, memory: Some(memory), position: (1, 1) }
    }

    fn refusal(&self, client: &AllowedClient, full: Full) -> Failure {
        let (AllowedClient { name, budget, .. }, all) = (client, self.most);
        let (taken, later) = (format!("it serves {all} sessions already"), "try again later, or have");
        Failure::refused(match full {
            Full::Client => format!(
                "it serves {} sessions of '{name}' already, or they wait for a place: close some, or have `sessions` of its [[client]] \
                 entry raised",
                budget.sessions
            ),
            Full::Places => format!("{taken}: {later} `sessions` of its [party] raised"),
            Full::Queue => {
                let waiting = lock(&self.queue).waiting();
                format!(
                    "{taken}, and {waiting} wait for a place: {later} `sessions` or `waiting` of its [party] raised"
                )
            }
            Full::Share => format!(
                "{taken}, and sessions of '{name}' fill their half of its queue: {later} `sessions` or `waiting` of its \
                 [party] raised"
            ),
        })
    }

    /// Ends the session that has rested longest, unless one is ending already. False if none has rested for as long as it may.
    fn vacate(&self) -> bool {
        let mut longest: Option<(Instant, Arc<Streams>)> = None;
        for Running { streams, rests } in lock(&self.running).iter() {
            let Some(streams) = streams.upgrade().filter(|streams| streams.failure().is_none()) else { return true };
            let since = lock(rests).filter(|since| since.elapsed() >= self.idle);
            if let Some(since) = since.filter(|since| longest.as_ref().is_none_or(|(other, _)| since < other)) {
                longest = Some((since, streams));
            }
        }
        let Some((since, streams)) = longest else { return false };
        let reason = format!("asked for nothing for {} s, and others have no place", since.elapsed().as_secs());
        streams.abort(streams.peers().into_iter().find(|peer| *peer >= streams.parties()), &reason);
        true
    }

    /// Sessions and uploads.
    pub fn sessions(&self) -> usize {
        lock(&self.queue).taken()
    }

    /// Of them, a client's.
    pub fn sessions_of(&self, client: &AllowedClient) -> usize {
        lock(&self.queue).taken_by(&client.name)
    }

    /// Sessions that wait for a place.
    pub fn waiting(&self) -> usize {
        lock(&self.queue).waiting()
    }

    /// Sessions under way.
    pub fn running(&self) -> Vec<Arc<Streams>> {
        lock(&self.running).iter().filter_map(|session| session.streams.upgrade()).collect()
    }

    /// Hands a connection to the session it joins, which waits for this role with this key and for no other. Gives it back where
    /// none does.
    pub fn join(&self, session: &Hex<16>, role: usize, connection: Connection) -> Option<Connection> {
        let mut waiting = lock(&self.waiting);
        let key = connection.fingerprint();
        let waits = |awaited: &&mut Awaited| awaited.roles.get(&role).is_some_and(|keys| keys.contains(&key));
        let awaited = waiting.get_mut(session).filter(waits);
        let Some(awaited) = awaited else { return Some(connection) };
        awaited.roles.remove(&role);
        awaited.session.send((connection, role)).err().map(|back| back.0.0)
    }
}

impl SessionPlace {
    /// What it takes of its client's memory.
    pub fn memory(&mut self) -> &mut Charge {
        &mut self.memory
    }

    /// Parties that join the session of this request come from the receiver from now on: each with a key that `config` has for it. A
    /// session's id may be taken once at a time.
    pub fn await_joins(
        &mut self,
        Infer { role, terms }: &Infer,
        config: &PartyConfig,
    ) -> Result<Receiver<Joined>, Failure> {
        let mut waiting = lock(&self.places.waiting);
        if waiting.contains_key(&terms.session) {
            return Err(Failure::refused("a session of this id is open already: open a new one"));
        }
        // A client that takes an open role is no peer.
        let keys_of = |Key(key): &Key| config.peer(key).map_or_else(|| vec![*key], |peer| peer.fingerprints.clone());
        let others = terms.parties.iter().enumerate().take(ROLES).filter(|(other, _)| other != role);
        let roles = others.map(|(other, key)| (other, keys_of(key))).collect();
        let (session, joins) = channel();
        waiting.insert(terms.session, Awaited { roles, session });
        self.session = Some(terms.session);
        Ok(joins)
    }

    /// The session has started: nobody joins any more, and it is ended when the party stops.
    pub fn enter(&self, streams: &Arc<Streams>) {
        lock(&self.places.running).push(Running { streams: Arc::downgrade(streams), rests: self.rests.clone() });
    }

    /// The session waits for its client to ask for something, or does no more.
    pub fn rest(&self, rests: bool) {
        *lock(&self.rests) = rests.then(Instant::now);
    }
}

impl QueuePlace {
    /// The place among the sessions, once it is this one's turn. While it is not, the session goes that has rested longest, if that is
    /// long enough.
    pub fn turn(&mut self) -> Result<Option<SessionPlace>, Failure> {
        self.places.check_open()?;
        let turn = lock(&self.places.queue).turn(self.number);
        if let Turn::Waits { place, of } = turn {
            self.position = (place, of);
            self.places.vacate();
            return Ok(None);
        }
        Ok(self.memory.take().map(|memory| self.places.of_session(&self.client, memory)))
    }

    /// Its place in the queue, 1 being next, and how many there are.
    pub fn position(&self) -> (usize, usize) {
        self.position
    }

    /// It has waited for so long as it may.
    pub fn too_long(&self, waited: Duration) -> Failure {
        Failure::refused(format!(
            "it serves {} sessions already, and this one has place {} of {} in its queue after {} s: try again later, or have `sessions` \
             or `wait` of its [party] raised",
            self.places.most,
            self.position.0,
            self.position.1,
            waited.as_secs_f64()
        ))
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        lock(&self.places.queue).leave(self.number);
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            lock(&self.places.waiting).remove(&session);
        }
        lock(&self.places.running).retain(|session| !Arc::ptr_eq(&session.rests, &self.rests));
        lock(&self.places.queue).give_back(&self.client);
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut connections = lock(&self.places.connections);
        if let Some(count) = connections.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.key);
            }
        }
    }
}
