//! Stored runs are used in the order in which P0 sets them aside, although each session has connections of its own, on which a later
//! offer may arrive before an earlier one.
//!
//! A session enters before it tells P0 that its client's request is here, and P0 sets nothing aside before. So whatever P0 has set aside
//! before an offer, a session that is here takes, or nobody does: its session has ended. An offer with something before it waits for
//! these sessions, and no longer than its patience; then what is before it is lost. A session that was overtaken so gets other runs.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::runs::Purpose;

/// The sessions of this party that draw runs.
#[derive(Default)]
pub(crate) struct Turns {
    draws: Mutex<Draws>,
    /// Told whenever one of them has heard an offer, taken it, or ended.
    changed: Condvar,
}

#[derive(Default)]
struct Draws {
    /// The last number that was given to a draw, or, at P0, to an offer.
    last: u64,
    under_way: Vec<UnderWay>,
}

struct UnderWay {
    number: u64,
    purpose: Purpose,
    /// Of the offer, once it is heard.
    turn: Option<u64>,
    /// The latest turn that was taken for the same purpose meanwhile.
    overtaken_by: Option<u64>,
}

/// A session's draw. Dropped, it takes nothing any more.
pub(crate) struct Draw<'a> {
    turns: &'a Turns,
    number: u64,
}

/// Later runs were taken first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overtaken;

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Draws> {
        self.draws.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At P0: sets runs aside, and gives the offer its turn.
    pub fn next<T>(&self, set_aside: impl FnOnce() -> Option<T>) -> Option<(u64, T)> {
        let mut draws = self.lock();
        let set_aside = set_aside()?;
        draws.last += 1;
        Some((draws.last, set_aside))
    }

    /// From now on offers for `purpose` that have something before them wait for this draw.
    pub fn enter(&self, purpose: &Purpose) -> Draw<'_> {
        let mut draws = self.lock();
        draws.last += 1;
        let number = draws.last;
        draws.under_way.push(UnderWay { number, purpose: purpose.clone(), turn: None, overtaken_by: None });
        Draw { turns: self, number }
    }
}

impl Draw<'_> {
    /// Calls `take` at the offer's turn: at once if it `is_next`, else when no other draw can take what is before it, or after `patience`.
    ///
    /// # Errors
    /// If a later turn was taken first.
    pub fn take<T>(
        self,
        turn: u64,
        patience: Duration,
        is_next: impl Fn() -> bool,
        take: impl FnOnce() -> T,
    ) -> Result<T, Overtaken> {
        let deadline = Instant::now() + patience;
        let mut draws = self.turns.lock();
        draws.under_way.iter_mut().filter(|draw| draw.number == self.number).for_each(|draw| draw.turn = Some(turn));
        self.turns.changed.notify_all();
        loop {
            let Some(own) = draws.under_way.iter().find(|draw| draw.number == self.number) else {
                return Err(Overtaken);
            };
            if own.overtaken_by.is_some_and(|later| later > turn) {
                return Err(Overtaken);
            }
            let comes_first = |other: &UnderWay| {
                other.number != self.number
                    && other.purpose == own.purpose
                    && other.turn.is_none_or(|other| other < turn)
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || is_next() || !draws.under_way.iter().any(comes_first) {
                let purpose = own.purpose.clone();
                let taken = take();
                for other in draws.under_way.iter_mut().filter(|other| other.purpose == purpose) {
                    other.overtaken_by = other.overtaken_by.max(Some(turn));
                }
                return Ok(taken);
            }
            // Runs may also be removed, of which nobody is told here.
            let waited = self.turns.changed.wait_timeout(draws, left.min(Duration::from_millis(100)));
            draws = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(draws, _)| draws);
        }
    }
}

impl Drop for Draw<'_> {
    fn drop(&mut self) {
        self.turns.lock().under_way.retain(|draw| draw.number != self.number);
        self.turns.changed.notify_all();
    }
}
