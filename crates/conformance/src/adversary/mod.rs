//! `make adversary`: one of Quad's parties, or its client, does what it likes, in thousands of runs of a program that has every gate.
//!
//! - [`messages`]: every message of every gate is changed, replayed, swapped, withheld, cut, or taken from another session.
//! - [`strategies`]: named ways of cheating that fit together ([`ways`]).
//! - [`checks`]: the strategies again with each check left out in turn, which some of them must then get past.
//!
//! An honest peer has the right output or none; nothing is opened before the check has passed at all honest parties; the check passes
//! at all of them or at none; what they tell of it depends on no secret; and all end.

pub mod checks;
pub mod circuit;
pub mod judge;
pub mod messages;
pub mod report;
pub mod strategies;
pub mod ways;
pub mod wire;
pub mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs at a time, and beside them runs in which somebody waits in vain for a message, which take a second and next to no computation.
const AT_ONCE: usize = 8;
const WAITING: usize = 48;

/// `job` of every item, several at a time; results in the order of items.
fn each<T: Sync, R: Send>(items: &[T], waits: impl Fn(&T) -> bool, job: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (waiting, busy): (Vec<_>, Vec<_>) = items.iter().enumerate().partition(|(_, item)| waits(item));
    let next = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let work = |items: &[(usize, &T)], next: &AtomicUsize| {
        while let Some((index, item)) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = job(item);
            results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((*index, result));
        }
    };
    thread::scope(|scope| {
        (0..WAITING).for_each(|_| drop(scope.spawn(|| work(&waiting, &next[0]))));
        (0..AT_ONCE).for_each(|_| drop(scope.spawn(|| work(&busy, &next[1]))));
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
