//! A session's way to a place at this party, and the queue where there is none.
//!
//! The client asks all parties at once. Who has a free place for which nobody waits sets it aside; where all have one, the session goes
//! on at once, as no session ever waits while it holds a place that it got in this way. If a party is full, the client has all places given
//! back. Then it takes them anew, one party after the other in the order of the parties' keys, and waits at each for its turn.
//!
//! *No deadlock.* A session that waits at a party holds places only at parties whose keys come before that party's. So among sessions that
//! wait for each other, one that waits at the party with the last key waits for sessions that wait for nobody: these run, or are ended
//! when they have been idle. All clients sort the same keys, whatever roles the parties have in their sessions. A client that takes places
//! in another order, or that knows a party by a former key, can close a circle; it breaks when the first of them has waited for the `wait`
//! of the party that it waits at, or has held its place for that time and the time-out.
//!
//! *No starvation.* Whoever has joined a queue is overtaken by no session: free places go to the queue's first, and a place is set aside
//! without waiting only where nobody waits. Uploads go before, for moments each, and count among the places of their client. How often the
//! first is served depends on the sessions that run: one that asks for nothing for `idle` makes room while somebody waits.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use covey_messages::wire::{self, WireError};
use covey_messages::{Infer, Proceed, Reply, one_line};
use covey_transport::{Connection, ErrorKind};

use crate::config::AllowedClient;
use crate::error::Failure;
use crate::handshake::Joined;
use crate::places::SessionPlace;
use crate::serve::Party;
use crate::session::{self, Admitted};

/// How often a client that waits is told its place, also where that has not changed.
const EVERY: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_millis(10);
/// How long a client may wait at other parties while it has no place here.
const LONGEST: Duration = Duration::from_secs(3600);

/// A place that is set aside for a session.
pub(crate) struct Reservation {
    pub place: SessionPlace,
    /// Parties that join the session.
    pub joins: Receiver<Joined>,
    /// The request, checked against what is held now.
    pub admitted: Admitted,
}

/// Checks the request, makes sure of a place, and returns when the client says that all parties have one.
pub(crate) fn admit(party: &Party, client: &mut Connection, request: &Infer) -> Result<Reservation, Failure> {
    let asking = party.config.client(&client.fingerprint());
    let asking = asking.ok_or_else(|| Failure::refused("its key is no client's any more"))?;
    let timeout = party.config.timeout;
    let mut reservation = match party.places.free(asking, party.memory.nothing(asking))? {
        Some(place) => {
            let reservation = set_aside(party, client, request, asking, place)?;
            wire::send(client, &Reply::Ready { name: party.config.name.clone() }, timeout)?;
            Some(reservation)
        }
        None => {
            // What is refused anyway need not wait for it.
            session::admit(party, client.fingerprint(), request.clone())?;
            if party.config.budget.wait.is_zero() || party.config.budget.waiting == 0 {
                return Err(party.places.no_queue(asking));
            }
            wire::send(client, &Reply::Full, timeout)?;
            None
        }
    };
    let (asked, mut since, mut waited) = (Instant::now(), Instant::now(), false);
    loop {
        // The client may be waiting for the slowest of the others.
        match wire::receive(client, 2 * timeout)? {
            Proceed::Proceed => {
                let mut reservation =
                    reservation.ok_or_else(|| Failure::refused("broke the format: a session without a place"))?;
                let current = party.current();
                let rights = current.client(&client.fingerprint());
                let approximate = request.terms.options.key_bits.is_some();
                if !rights.is_some_and(|client| client.infer && (client.approximate || !approximate)) {
                    return Err(Failure::refused("the right to open it was taken back while it waited"));
                }
                if waited {
                    // Weights may be other ones by now.
                    reservation.admitted = session::admit(party, client.fingerprint(), request.clone())?;
                }
                return Ok(reservation);
            }
            Proceed::Cancel { reason } => return Err(gave_up(&reason)),
            Proceed::Release => reservation = None,
            Proceed::Queue if reservation.is_none() => {
                let place = queue(party, client, asking)?;
                reservation = Some(set_aside(party, client, request, asking, place)?);
                since = Instant::now();
                wire::send(client, &Reply::Ready { name: party.config.name.clone() }, timeout)?;
            }
            Proceed::Queue | Proceed::Wait => {}
        }
        waited = true;
        let (time, longest) = match reservation {
            Some(_) => (since.elapsed(), party.config.budget.wait + 2 * timeout),
            None => (asked.elapsed(), LONGEST),
        };
        if time > longest {
            let seconds = time.as_secs();
            return Err(Failure::refused(format!(
                "the session has waited at other parties for {seconds} s, and others need its place: try again later"
            )));
        }
    }
}

/// What a session with a place takes of this party.
fn set_aside(
    party: &Party,
    client: &Connection,
    request: &Infer,
    asking: &AllowedClient,
    mut place: SessionPlace,
) -> Result<Reservation, Failure> {
    furnish(&mut place, asking.budget.queue, "a session")?;
    let joins = place.await_joins(request, &party.config)?;
    let admitted = session::admit(party, client.fingerprint(), request.clone())?;
    Ok(Reservation { place, joins, admitted })
}

/// Counts `bytes` as what a place takes of its client's memory.
pub(crate) fn furnish(place: &mut SessionPlace, bytes: u64, what: &str) -> Result<(), Failure> {
    place.memory().grow(bytes, what).map_err(|problem| Failure::Refused(format!("no room for {problem}")))
}

/// Waits for a place and tells the client how long the queue before it is.
fn queue(party: &Party, client: &mut Connection, asking: &AllowedClient) -> Result<SessionPlace, Failure> {
    let mut waiting = party.places.join_queue(asking, party.memory.nothing(asking))?;
    let (since, longest) = (Instant::now(), party.config.budget.wait);
    let mut told: Option<((usize, usize), Instant)> = None;
    loop {
        if let Some(place) = waiting.turn()? {
            return Ok(place);
        }
        if since.elapsed() >= longest {
            return Err(waiting.too_long(longest));
        }
        let now = waiting.position();
        if told.is_none_or(|(before, when)| before != now || when.elapsed() >= EVERY) {
            let (place, of) = now;
            wire::send(client, &Reply::Waiting { place, of }, party.config.timeout)?;
            told = Some((now, Instant::now()));
        }
        match wire::receive(client, TICK) {
            Ok(Proceed::Cancel { reason }) => return Err(gave_up(&reason)),
            Ok(_) => {}
            Err(WireError::Transport(error)) if error.kind() == ErrorKind::Silent => {}
            Err(gone) => return Err(gone.into()),
        }
    }
}

fn gave_up(reason: &str) -> Failure {
    Failure::Lost(format!("the client gave up: {}", one_line(reason)))
}
