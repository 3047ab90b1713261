//! The threads that parties compute on, which the tests of a process share.

use std::sync::{Mutex, Once, PoisonError};

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
        begin();
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
            use_threads(Some(usual())).expect("threads");
        }
    }
}

/// Has parties compute on the usual number of threads. Once: guards choose others.
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| use_threads(Some(usual())).expect("threads"));
}

/// What `COVEY_THREADS` says, or one.
///
/// # Panics
/// If it is no number.
fn usual() -> usize {
    std::env::var("COVEY_THREADS").map_or(1, |threads| threads.parse().expect("a number of threads"))
}
