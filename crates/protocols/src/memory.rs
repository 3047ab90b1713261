//! Memory a run will take at each party, from the shapes alone: what shares and weights weigh is added when they come to be and
//! taken off when they go, and the peak is noted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::{Geometry, WeightKind};
use crate::cost::Gate;

/// Something that takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held<'a> {
    /// A share of so many ring elements.
    Share(usize),
    /// A share of so many ring elements that products need not open any more.
    Opened(usize),
    /// A share of bit planes.
    Bits {
        /// Bits a plane.
        len: usize,
        /// Planes.
        planes: usize,
    },
    /// A prepared weight.
    Weight {
        /// Its map.
        geometry: &'a Geometry,
        /// Where it comes from.
        kind: WeightKind,
    },
    /// What a gate takes while it runs, beside its operands and its result.
    Gate(&'a Gate),
}

/// Where the allocator puts something, which decides what becomes of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// On a heap, which keeps what was freed for what follows.
    Heap,
    /// In a mapping of its own, which the system takes back.
    Mapping,
}

impl Room {
    /// Where blocks of so many bytes are.
    pub fn of(block: u64) -> Self {
        if block >= covey_kernels::MAPPED_AFRESH as u64 { Room::Mapping } else { Room::Heap }
    }
}

/// What is held now and was held at most, by party.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<Usage>>>);

#[derive(Clone, Copy, Default)]
struct Usage {
    mapped: u64,
    heap: u64,
    /// The most that was on the heap so far, which the process keeps.
    kept: u64,
    peak: u64,
}

impl Usage {
    fn change(&mut self, bytes: u64, room: Room, sign: i8) {
        let place = match room {
            Room::Heap => &mut self.heap,
            Room::Mapping => &mut self.mapped,
        };
        *place = if sign > 0 { *place + bytes } else { place.saturating_sub(bytes) };
        self.kept = self.kept.max(self.heap);
        self.peak = self.peak.max(self.mapped + self.kept);
    }
}

impl Ledger {
    fn change(&self, bytes: &[u64], room: Room, sign: i8) {
        let mut parties = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = parties.len().max(bytes.len());
        parties.resize(count, Usage::default());
        parties.iter_mut().zip(bytes).for_each(|(usage, &bytes)| usage.change(bytes, room, sign));
    }

    /// Adds something until the token goes.
    pub fn hold(&self, bytes: Vec<u64>, room: Room) -> Token {
        self.change(&bytes, room, 1);
        Token { ledger: self.clone(), bytes, room }
    }

    /// What is held, in role order.
    pub fn now(&self) -> Vec<u64> {
        let parties = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parties.iter().map(|usage| usage.mapped + usage.heap).collect()
    }

    /// The peak since the last call, in role order, with what heaps keep.
    pub fn take_peak(&self) -> Vec<u64> {
        let mut parties = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let peak = |usage: &mut Usage| std::mem::replace(&mut usage.peak, usage.mapped + usage.kept);
        parties.iter_mut().map(peak).collect()
    }
}

/// Peaks of a run, gate by gate, with what dealers may have sent ahead by then.
///
/// A dealer waits for nobody. While the others are in the middle of a run it may have sent all that it deals in the rest of it, as far
/// as they take messages in that they do not need yet.
#[derive(Default)]
pub(crate) struct Moments {
    /// What was held at most up to a gate's end, and what the gate's dealt messages take, by sender and receiver.
    gates: Vec<(Vec<u64>, Vec<Dealt>)>,
    /// The peak of what was before the run.
    before: Vec<u64>,
}

/// Who dealt to whom, and what the messages take.
pub(crate) type Dealt = (usize, usize, u64);

impl Moments {
    /// A gate ends.
    pub fn gate(&mut self, peak: Vec<u64>, dealt: Vec<Dealt>) {
        match self.gates.last_mut() {
            Some((most, none)) if none.is_empty() && dealt.is_empty() => raise(most, &peak),
            _ => self.gates.push((peak, dealt)),
        }
    }

    /// A run begins, and dealers begin with it: what was until now is over.
    pub fn begin(&mut self, peak: &[u64]) {
        raise(&mut self.before, peak);
        self.gates.drain(..).for_each(|(peak, _)| raise(&mut self.before, &peak));
    }

    /// The peak, where each peer may have `queue` bytes waiting, and `deals` tells dealers.
    pub fn peak(&self, queue: u64, deals: impl Fn(usize) -> bool) -> Vec<u64> {
        let mut most = self.before.clone();
        let mut waiting: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (peak, dealt) in self.gates.iter().rev() {
            for &(from, to, bytes) in dealt.iter().filter(|(from, ..)| deals(*from)) {
                *waiting.entry((to, from)).or_default() += bytes;
            }
            let mut peak = peak.clone();
            // Each peer has a place of its own.
            for (&(to, _), &bytes) in &waiting {
                if let Some(peak) = peak.get_mut(to) {
                    *peak += bytes.min(queue);
                }
            }
            raise(&mut most, &peak);
        }
        most
    }
}

fn raise(most: &mut Vec<u64>, peak: &[u64]) {
    most.resize(most.len().max(peak.len()), 0);
    most.iter_mut().zip(peak).for_each(|(most, &peak)| *most = (*most).max(peak));
}

/// Memory held as long as this lives. A copy holds as much again.
pub(crate) struct Token {
    ledger: Ledger,
    bytes: Vec<u64>,
    room: Room,
}

impl Clone for Token {
    fn clone(&self) -> Self {
        self.ledger.hold(self.bytes.clone(), self.room)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.change(&self.bytes, self.room, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_what_lived_together() {
        let ledger = Ledger::default();
        let hold = |bytes| ledger.hold(bytes, Room::Mapping);
        let x = hold(vec![10, 20]);
        {
            let y = hold(vec![5, 0]);
            let _copy = y.clone();
        }
        drop(hold(vec![3, 4]));
        let z = x.clone();
        drop((x, z));
        assert_eq!(ledger.take_peak(), [20, 40]);
        assert_eq!((ledger.now(), ledger.take_peak()), (vec![0, 0], vec![0, 0]));
    }

    #[test]
    fn a_heap_keeps_what_was_freed() {
        let ledger = Ledger::default();
        drop(ledger.hold(vec![100], Room::Heap));
        assert_eq!(ledger.now(), [0]);
        let x = ledger.hold(vec![30], Room::Heap);
        drop(ledger.hold(vec![7], Room::Mapping));
        assert_eq!((ledger.now(), ledger.take_peak()), (vec![30], vec![107]));
        let _y = ledger.hold(vec![90], Room::Heap);
        assert_eq!((ledger.now(), ledger.take_peak()), (vec![120], vec![120]));
        drop(x);
        assert_eq!(ledger.take_peak(), [120]);
        let bytes = covey_kernels::MAPPED_AFRESH as u64;
        assert_eq!([bytes - 1, bytes].map(Room::of), [Room::Heap, Room::Mapping]);
    }

    #[test]
    fn what_is_dealt_in_the_rest_of_a_run_may_wait_at_each_gate() {
        let deals = |role| role == 0;
        let mut moments = Moments::default();
        moments.gate(vec![50, 0], vec![(0, 1, 1000)]);
        // Of what was before, nothing waits any more.
        moments.begin(&[0, 7]);
        assert_eq!(moments.peak(30, deals), [50, 7]);
        moments.gate(vec![1, 20], vec![(0, 1, 10)]);
        moments.gate(vec![1, 5], vec![]);
        moments.gate(vec![1, 15], vec![(0, 1, 4), (1, 0, 90)]);
        moments.gate(vec![1, 16], vec![(0, 1, 3)]);
        moments.gate(vec![2, 18], vec![]);
        for (queue, peak) in [(0, 20), (9, 29), (17, 37), (100, 37)] {
            assert_eq!(moments.peak(queue, deals), [50, peak], "{queue}");
        }
        // Without dealers nothing waits.
        assert_eq!(moments.peak(100, |_| false), [50, 20]);
    }
}
