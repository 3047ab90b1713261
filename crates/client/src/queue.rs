//! A session's way to a place at every party, where some are full.
//!
//! All parties are asked at once, and set a place aside if they have one. If one is full, the places are given back and taken anew, one
//! party after the other in the order of the parties' keys, with a wait at each for the session's turn. Why that ends is told where the
//! parties' side of it is (`admission` in the crate `node`).

use std::fmt;
use std::time::{Duration, Instant};

use covey_messages::{Proceed, Reply, wire};
use covey_transport::Connection;

use crate::parties::{expect, unexpected};
use crate::{ClientConfig, ClientError};

/// The place of a session in a party's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The party that is full.
    pub party: String,
    /// 1 is next.
    pub place: usize,
    /// Sessions in the queue.
    pub of: usize,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waiting: place {} of {} at party {}", self.place, self.of, self.party)
    }
}

/// Makes sure of a place at all parties, whose `answers` to the request are here. The client has been
/// waiting `since` then. `tell` hears of every change of place.
pub(crate) fn take_places(
    config: &ClientConfig,
    connections: &mut [Connection],
    answers: &[Reply],
    since: Instant,
    tell: &mut dyn FnMut(&Waiting),
) -> Result<(), ClientError> {
    for (connection, answer) in connections.iter().zip(answers) {
        if !matches!(answer, Reply::Ready { .. } | Reply::Full) {
            return Err(unexpected(connection));
        }
    }
    let full = |answer: &Reply| matches!(answer, Reply::Full);
    if !answers.iter().any(full) {
        return Ok(());
    }
    for (connection, _) in connections.iter_mut().zip(answers).filter(|(_, answer)| !full(answer)) {
        wire::send(connection, &Proceed::Release, config.timeout)?;
    }
    let mut order: Vec<usize> = (0..connections.len()).collect();
    order.sort_by_key(|role| connections[*role].fingerprint());
    order.into_iter().try_for_each(|role| queue(config, connections, role, since, tell))
}

/// Waits for a place at one party; the others are told that the session is still there.
fn queue(
    config: &ClientConfig,
    connections: &mut [Connection],
    role: usize,
    since: Instant,
    tell: &mut dyn FnMut(&Waiting),
) -> Result<(), ClientError> {
    wire::send(&mut connections[role], &Proceed::Queue, config.timeout)?;
    let mut told = None;
    loop {
        let (place, of) = match expect(&mut connections[role], config.timeout)? {
            Reply::Ready { .. } => return Ok(()),
            Reply::Waiting { place, of } => (place, of),
            _ => return Err(unexpected(&connections[role])),
        };
        let waiting = Waiting { party: connections[role].name().to_string(), place, of };
        if let Some(longest) = config.wait.filter(|longest| since.elapsed() > *longest) {
            return Err(too_long(&waiting, longest));
        }
        if told.as_ref() != Some(&waiting) {
            tell(&waiting);
            told = Some(waiting);
        }
        for (_, other) in connections.iter_mut().enumerate().filter(|(other, _)| *other != role) {
            wire::send(other, &Proceed::Wait, config.timeout)?;
        }
    }
}

fn too_long(Waiting { party, place, of }: &Waiting, longest: Duration) -> ClientError {
    ClientError::Request(format!(
        "{party} is full, and the session has place {place} of {of} in its queue after {} s: try again later, or raise `wait` of [client]",
        longest.as_secs_f64()
    ))
}
