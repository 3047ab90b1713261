//! `make adversary`: one of Quad's parties, or its client, does what it likes, in thousands of runs of a program that has every gate.
//!
//! - [`messages`]: every message of every gate is changed, replayed, swapped, withheld, cut, or taken from another session.
//! - [`strategies`]: named ways of cheating that fit together ([`ways`]).
//! - Both again in sessions of several lanes whose roles have turned: there a party has another role on each, and messages, keys and shares
//!   of all.
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::circuit::CHECKS;
    use super::judge::Due;
    use super::world::{PARTIES, World};

    /// Lanes draw nothing twice: with the same inputs and the same number of the run, what a role sends on one it sends on no other.
    #[test]
    fn no_message_of_a_lane_fits_another() {
        /// Shorter ones may be the same by chance.
        const LONG: usize = 12;
        let (_, runs) = Due::of(World { lanes: PARTIES + 1, ..World::new(32) }).unwrap();
        let mut seen = HashMap::new();
        for (spot, bytes) in runs.iter().flat_map(|run| &run.log).filter(|(_, bytes)| bytes.len() >= LONG) {
            // Digests of nothing are all the same.
            if spot.from < PARTIES && !CHECKS.contains(&spot.node) {
                let place = (spot.node, spot.offline, spot.from, spot.to, spot.number);
                let first = seen.entry((place, bytes)).or_insert(spot.lane);
                assert_eq!(*first, spot.lane, "{spot:?}");
            }
        }
        assert!(seen.len() > 1500, "{}", seen.len());
    }
}
