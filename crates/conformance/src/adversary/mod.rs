//! `make adversary`: one of Quad's parties, or its client, does what it likes, in thousands of runs of a program that has every gate.
//!
//! - [`messages`]: every message of every gate is changed, replayed, swapped, withheld, cut, or taken from another session.
//! - [`strategies`]: named ways of cheating that fit together ([`ways`]).
//! - [`keys`]: ways to choose a key of three.
//! - [`checks`]: the strategies again with each check left out in turn, which some of them must then get past.
//!
//! An honest peer has the right output or none; nothing is opened before the check has passed at all honest parties; the check passes
//! at all of them or at none; what they tell of it depends on no secret; and all end.

pub mod checks;
pub mod circuit;
pub mod judge;
pub mod keys;
pub mod messages;
pub mod report;
pub mod strategies;
pub mod ways;
pub mod wire;
pub mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Runs at a time: more than cores, since peers wait for each other.
const AT_ONCE: usize = 8;

/// `job` of every item, several at a time; results in the order of items.
fn each<T: Sync, R: Send>(items: &[T], job: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            let result = job(item);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
