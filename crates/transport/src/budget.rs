//! The memory that one peer may fill here with messages nobody has received yet, over all its streams.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::inbox::{Failure, Wait, lock};

/// What a message takes beside its payload: its place in a queue and the allocator's part. An empty message takes it too.
const OVERHEAD: usize = 128;

/// What a message takes whose buffer holds `bytes`.
pub(crate) fn cost(bytes: usize) -> usize {
    bytes.saturating_add(OVERHEAD)
}

pub(crate) struct Budget {
    bound: usize,
    used: AtomicUsize,
    /// Threads that wait for room: a wake-up is a system call, saved where nobody waits.
    waiting: AtomicUsize,
    turn: Mutex<()>,
    freed: Condvar,
    /// Nobody will receive any more.
    ended: AtomicBool,
    failure: Failure,
}

impl Budget {
    pub fn new(bound: usize, failure: Failure, ended: bool) -> Self {
        Self {
            bound,
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            turn: Mutex::new(()),
            freed: Condvar::new(),
            ended: AtomicBool::new(ended),
            failure,
        }
    }

    /// Takes `bytes` for a message that has taken `own` already, waiting until `deadline` while they do not fit. Where nothing else
    /// waits they fit always, so that a message larger than the bound passes alone.
    pub fn take(&self, bytes: usize, own: usize, deadline: Instant) -> Result<(), Wait> {
        if self.try_take(bytes, own) {
            return Ok(());
        }
        let mut turn = lock(&self.turn);
        // Counted before the next look: who gives back after that look sees that somebody waits.
        self.waiting.fetch_add(1, SeqCst);
        let taken = loop {
            if self.try_take(bytes, own) {
                break Ok(());
            }
            if let Some(failure) = self.failure.get() {
                break Err(Wait::Failed(failure.clone()));
            }
            if self.ended.load(SeqCst) {
                break Err(Wait::Ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Wait::TimedOut);
            }
            turn = self.freed.wait_timeout(turn, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        self.waiting.fetch_sub(1, SeqCst);
        taken
    }

    fn try_take(&self, bytes: usize, own: usize) -> bool {
        let fits = |used: usize| (used <= own || used.saturating_add(bytes) <= self.bound).then(|| used + bytes);
        self.used.fetch_update(SeqCst, SeqCst, fits).is_ok()
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, SeqCst);
        if self.waiting.load(SeqCst) > 0 {
            self.wake();
        }
    }

    /// Whoever waits for room, waits in vain.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
        self.wake();
    }

    pub fn wake(&self) {
        // Taking the lock makes sure that a waiter has either seen what changed or is asleep and hears the call.
        drop(lock(&self.turn));
        self.freed.notify_all();
    }
}
