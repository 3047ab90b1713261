//! Keys that a lane's runs draw from and offline material they use up: the session's, or those of a stored run.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::{Phase, ProtocolError, Result};
use crate::randomness::{DrawKeys, Generators, SessionKeys};
use crate::scheduler::Scheduler;
use crate::served::StoredRun;

/// The runs of one lane.
pub(crate) struct Runs {
    keys: SessionKeys,
    /// What outlasts runs draws from it.
    lasting: DrawKeys,
    /// Runs are preprocessed for later sessions.
    kept: bool,
    /// The same of the current run's batch, if it was dealt in an earlier session.
    supplied: Option<DrawKeys>,
    /// The current run uses up a stored one.
    is_stored: bool,
    lane: u32,
    /// The dealer is not in the session, so that no run can be begun but those that were dealt before.
    alone: bool,
    /// Stored runs, for runs of these numbers.
    stored: VecDeque<(u64, StoredRun)>,
}

impl Runs {
    /// Those of lane number `lane`, under the keys of the session.
    pub fn new(keys: SessionKeys, lane: u32, alone: bool) -> Self {
        let lasting = keys.lasting();
        Runs { keys, lasting, kept: false, supplied: None, is_stored: false, lane, alone, stored: VecDeque::new() }
    }

    /// Says that the runs to come are preprocessed for later sessions.
    pub fn keep(&mut self) {
        self.kept = true;
    }

    /// Makes run `run`, begun in phase online, use up a stored run.
    pub fn supply(&mut self, run: u64, stored: StoredRun) {
        self.stored.push_back((run, stored));
    }

    /// The keys of what outlasts runs: of the current run's batch where it has some, else of the session.
    pub fn lasting(&self) -> &DrawKeys {
        self.supplied.as_ref().unwrap_or(&self.lasting)
    }

    /// The same for a weight that was prepared in a session whose keys of this kind are `prepared`: those, so that what is computed of
    /// the weight serves all sessions that it serves. The runs of a batch have the batch's: the weight may be prepared anew before they
    /// are used.
    pub fn lasting_for<'a>(&'a self, prepared: &'a DrawKeys) -> &'a DrawKeys {
        match &self.supplied {
            Some(batch) => batch,
            None if self.kept => &self.lasting,
            None => prepared,
        }
    }

    /// Whether the current run uses up one that an earlier session made.
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Whether this session has no dealer.
    pub fn are_alone(&self) -> bool {
        self.alone
    }

    /// What run `run` draws from under the keys of the session.
    pub fn generators(&self, run: u64) -> Generators {
        self.keys.generators(run, self.lane)
    }

    /// Starts run `run` in `phase`; what it draws from.
    pub fn begin(&mut self, scheduler: &mut Scheduler, phase: Phase, run: u64) -> Result<Arc<Generators>> {
        let is_due = phase == Phase::Online && self.stored.front().is_some_and(|(due, _)| *due == run);
        (self.supplied, self.is_stored) = (None, is_due);
        Ok(Arc::new(match if is_due { self.stored.pop_front() } else { None } {
            Some((_, StoredRun { keys, lasting, material })) => {
                scheduler.begin_supplied(run, material)?;
                self.supplied = lasting;
                keys.generators()
            }
            None if self.alone => return Err(ProtocolError::StoreEmpty),
            None => {
                scheduler.begin(phase, run)?;
                self.generators(run)
            }
        }))
    }
}
