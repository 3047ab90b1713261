//! Places for those who have shown who they are: connections of a key, sessions of a client, and who is awaited to join a session.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use covey_client::messages::{Hex, Infer, Key};
use covey_transport::{Connection, Fingerprint, Network, Session as Streams};

use crate::budget::{Charge, PartyBudget};
use crate::config::{AllowedClient, PartyConfig};
use crate::error::Failure;
use crate::handshake::Joined;

/// How long a client waits for the place of a session that is ended for it.
const VACATED: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(10);
/// Most connections of one key at once that are no part of another's session.
const CONNECTIONS_OF_KEY: usize = 32;
/// Most roles of a session.
const ROLES: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many of something each has: keys, or clients by name.
struct Counts<K>(Mutex<HashMap<K, usize>>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Counts(Mutex::default())
    }
}

impl<K: Eq + Hash> Counts<K> {
    /// One more of this key's, if that is not more than `most`, and not more than `most_of_all` keys have together.
    fn add(&self, key: K, most: usize, most_of_all: usize) -> Result<(), Full> {
        let mut counts = lock(&self.0);
        if counts.get(&key).is_some_and(|count| *count >= most) || most == 0 {
            return Err(Full::Key);
        }
        if counts.values().sum::<usize>() >= most_of_all {
            return Err(Full::All);
        }
        *counts.entry(key).or_insert(0) += 1;
        Ok(())
    }

    fn remove(&self, key: &K) {
        let mut counts = lock(&self.0);
        if let Some(count) = counts.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(key);
            }
        }
    }

    fn sum(&self) -> usize {
        lock(&self.0).values().sum()
    }
}

/// What there is no place in.
enum Full {
    Key,
    All,
}

/// The places of a party.
pub(crate) struct Places {
    connections: Counts<Fingerprint>,
    /// Of clients, by name.
    sessions: Counts<String>,
    /// Sessions and uploads at once, of all.
    most: usize,
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
pub(crate) struct Spot {
    places: Arc<Places>,
    key: Fingerprint,
}

/// A place among this party's sessions; dropped, it is free again.
pub(crate) struct Seat {
    places: Arc<Places>,
    client: String,
    session: Option<Hex<16>>,
    rests: Rest,
    memory: Charge,
}

impl Places {
    pub fn new(budget: &PartyBudget) -> Self {
        Places {
            connections: Counts::default(),
            sessions: Counts::default(),
            most: budget.sessions,
            idle: budget.idle,
            waiting: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// A place for one more connection of this key.
    pub fn spot(self: &Arc<Self>, key: Fingerprint) -> Result<Spot, Failure> {
        let added = self.connections.add(key, CONNECTIONS_OF_KEY, usize::MAX);
        let full = format!("{CONNECTIONS_OF_KEY} connections of this key are open already: close some");
        added.map(|()| Spot { places: self.clone(), key }).map_err(|_| Failure::refused(full))
    }

    /// A place for one more session or upload of a client's, which takes `memory`. Where all are taken, the session goes that has rested
    /// longest, if that is long enough.
    pub fn seat(self: &Arc<Self>, client: &AllowedClient, memory: Charge) -> Result<Seat, Failure> {
        let mut vacated: Option<Instant> = None;
        loop {
            let (all, most) = (self.most, client.budget.sessions);
            match self.sessions.add(client.name.clone(), most, all) {
                Ok(()) => break,
                Err(Full::All) if vacated.is_some_and(|since| since.elapsed() < VACATED) => sleep(TICK),
                Err(Full::All) if vacated.is_none() && self.vacate() => vacated = Some(Instant::now()),
                Err(Full::All) => {
                    return Err(Failure::refused(format!(
                        "it serves {all} sessions already: try again later, or have `sessions` of its [party] raised"
                    )));
                }
                Err(Full::Key) => {
                    return Err(Failure::refused(format!(
                        "it serves {most} sessions of '{}' already: close some, or have `sessions` of its [[client]] entry raised",
                        client.name
                    )));
                }
            }
        }
        Ok(Seat { places: self.clone(), client: client.name.clone(), session: None, rests: Rest::default(), memory })
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
        self.sessions.sum()
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

impl Seat {
    /// What it takes of its client's memory.
    pub fn memory(&mut self) -> &mut Charge {
        &mut self.memory
    }

    /// Parties that join the session of this request come from the receiver from now on: each with a key that `config` has for it. A
    /// session's id may be taken once.
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

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            lock(&self.places.waiting).remove(&session);
        }
        lock(&self.places.running).retain(|session| !Arc::ptr_eq(&session.rests, &self.rests));
        self.places.sessions.remove(&self.client);
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        self.places.connections.remove(&self.key);
    }
}
