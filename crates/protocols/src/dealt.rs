//! Where a lane's runs draw from and what they use up: the session's keys, or what a run of an earlier session was dealt.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::{Phase, ProtocolError, Result};
use crate::randomness::{Generators, SessionKeys};
use crate::scheduler::Scheduler;
use crate::served::Dealt;

/// The runs of one lane.
pub(crate) struct Runs {
    keys: SessionKeys,
    /// Of the current run, if it was dealt in an earlier session.
    supplied: Option<SessionKeys>,
    lane: u32,
    /// The dealer is not in the session, so that no run can be begun but those that were dealt before.
    alone: bool,
    /// What earlier sessions were dealt, for runs of these numbers.
    dealt: VecDeque<(u64, Dealt)>,
}

impl Runs {
    /// Those of lane number `lane`, under the keys of the session.
    pub fn new(keys: SessionKeys, lane: u32, alone: bool) -> Self {
        Runs { keys, supplied: None, lane, alone, dealt: VecDeque::new() }
    }

    /// Makes run `run`, begun in phase online, use up what a run of an earlier session was dealt.
    pub fn supply(&mut self, run: u64, dealt: Dealt) {
        self.dealt.push_back((run, dealt));
    }

    /// The keys that the current run draws from.
    pub fn keys(&self) -> &SessionKeys {
        self.supplied.as_ref().unwrap_or(&self.keys)
    }

    /// Starts run `run` in `phase`; what it draws from.
    pub fn begin(&mut self, scheduler: &mut Scheduler, phase: Phase, run: u64) -> Result<Arc<Generators>> {
        let is_due = phase == Phase::Online && self.dealt.front().is_some_and(|(due, _)| *due == run);
        self.supplied = None;
        Ok(Arc::new(match if is_due { self.dealt.pop_front() } else { None } {
            Some((_, Dealt { keys, run: number, material })) => {
                scheduler.begin_supplied(run, material)?;
                // Dealt on one lane, whichever it is used on.
                let generators = keys.generators(number, 0);
                self.supplied = Some(keys);
                generators
            }
            None if self.alone => return Err(ProtocolError::StoreEmpty),
            None => {
                scheduler.begin(phase, run)?;
                self.keys.generators(run, self.lane)
            }
        }))
    }
}
