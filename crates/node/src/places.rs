//! Places for those who have shown who they are: connections of a key, sessions of a client, and who is awaited to join a session.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use covey_client::messages::{Hex, Infer, Key};
use covey_transport::{Connection, Fingerprint, Session as Streams};

use crate::budget::Charge;
use crate::config::AllowedClient;
use crate::error::Failure;
use crate::handshake::Joined;

/// Most sessions and uploads at once.
const SESSIONS: usize = 16;
/// Most connections of one key at once that are no part of another's session.
const CONNECTIONS_OF_KEY: usize = 32;
/// Most roles of a session.
const ROLES: usize = 16;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many of something each key has.
#[derive(Default)]
struct Counts(Mutex<HashMap<Fingerprint, usize>>);

impl Counts {
    /// One more for this key, if that is not more than `most`, and not more than `most_of_all` keys have together.
    fn add(&self, key: Fingerprint, most: usize, most_of_all: usize) -> Result<(), Full> {
        let mut counts = lock(&self.0);
        if counts.values().sum::<usize>() >= most_of_all {
            return Err(Full::All);
        }
        let count = counts.entry(key).or_insert(0);
        if *count >= most {
            return Err(Full::Key);
        }
        *count += 1;
        Ok(())
    }

    fn remove(&self, key: &Fingerprint) {
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
#[derive(Default)]
pub(crate) struct Places {
    connections: Counts,
    sessions: Counts,
    /// Sessions that wait for other parties, by session id.
    waiting: Mutex<HashMap<Hex<16>, Awaited>>,
    /// Sessions under way, to be ended when this party stops.
    running: Mutex<Vec<Weak<Streams>>>,
}

/// The parties that a session waits for.
struct Awaited {
    /// The key of each role that has not joined yet.
    roles: BTreeMap<usize, Key>,
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
    key: Fingerprint,
    session: Option<Hex<16>>,
    _memory: Charge,
}

impl Places {
    /// A place for one more connection of this key.
    pub fn spot(self: &Arc<Self>, key: Fingerprint) -> Result<Spot, Failure> {
        let added = self.connections.add(key, CONNECTIONS_OF_KEY, usize::MAX);
        let full = format!("{CONNECTIONS_OF_KEY} connections of this key are open already: close some");
        added.map(|()| Spot { places: self.clone(), key }).map_err(|_| Failure::refused(full))
    }

    /// A place for one more session or upload of a client's, which takes `memory`.
    pub fn seat(self: &Arc<Self>, client: &AllowedClient, memory: Charge) -> Result<Seat, Failure> {
        let (key, most) = (client.fingerprint, client.budget.sessions);
        self.sessions.add(key, most, SESSIONS).map_err(|full| {
            Failure::refused(match full {
                Full::All => format!("it serves {SESSIONS} sessions already: try again later"),
                Full::Key => format!(
                    "it serves {most} sessions of '{}' already: close some, or have `sessions` of its [[client]] entry raised",
                    client.name
                ),
            })
        })?;
        Ok(Seat { places: self.clone(), key, session: None, _memory: memory })
    }

    /// Sessions and uploads.
    pub fn sessions(&self) -> usize {
        self.sessions.sum()
    }

    /// Sessions under way.
    pub fn running(&self) -> Vec<Arc<Streams>> {
        lock(&self.running).iter().filter_map(Weak::upgrade).collect()
    }

    /// Hands a connection to the session it joins, which waits for this role with this key and for no other. Gives it back where
    /// none does.
    pub fn join(&self, session: &Hex<16>, role: usize, connection: Connection) -> Option<Connection> {
        let mut waiting = lock(&self.waiting);
        let key = Key(connection.fingerprint());
        let awaited = waiting.get_mut(session).filter(|awaited| awaited.roles.get(&role) == Some(&key));
        let Some(awaited) = awaited else { return Some(connection) };
        awaited.roles.remove(&role);
        awaited.session.send((connection, role)).err().map(|back| back.0.0)
    }
}

impl Seat {
    /// Parties that join the session of this request come from the receiver from now on. A session's id may be taken once.
    pub fn await_joins(&mut self, Infer { role, terms }: &Infer) -> Result<Receiver<Joined>, Failure> {
        let mut waiting = lock(&self.places.waiting);
        if waiting.contains_key(&terms.session) {
            return Err(Failure::refused("a session of this id is open already: open a new one"));
        }
        let roles = terms.parties.iter().copied().enumerate().take(ROLES).filter(|(other, _)| other != role).collect();
        let (session, joins) = channel();
        waiting.insert(terms.session, Awaited { roles, session });
        self.session = Some(terms.session);
        Ok(joins)
    }

    /// The session has started: nobody joins any more, and it is ended when the party stops.
    pub fn enter(&self, streams: &Arc<Streams>) {
        let mut running = lock(&self.places.running);
        running.retain(|session| session.strong_count() > 0);
        running.push(Arc::downgrade(streams));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(session) = self.session {
            lock(&self.places.waiting).remove(&session);
        }
        self.places.sessions.remove(&self.key);
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        self.places.connections.remove(&self.key);
    }
}
