//! The threads that parties compute on, which the tests of a process share.

use std::sync::{Mutex, PoisonError};

use covey_protocols::threads::use_threads;

/// Guards that live.
static LIVE: Mutex<usize> = Mutex::new(0);

/// Has parties compute on several threads. Once no guard is left they compute on as many as `COVEY_THREADS` says, or on one: on more
/// threads than processors, other tests would take twice as long.
pub struct Threads(());

impl Threads {
    /// Parties compute on `count` threads from now on, unless another guard is made.
    ///
    /// # Panics
    /// If there cannot be as many.
    pub fn new(count: usize) -> Self {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        use_threads(Some(count)).expect("threads");
        *live += 1;
        Threads(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        *live -= 1;
        if *live == 0 {
            use_threads(Some(from_environment().unwrap_or(1))).expect("threads");
        }
    }
}

/// What `COVEY_THREADS` says.
///
/// # Panics
/// If it is no number.
pub(crate) fn from_environment() -> Option<usize> {
    Some(std::env::var("COVEY_THREADS").ok()?.parse().expect("a number of threads"))
}
