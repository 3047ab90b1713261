//! Offline material held between a preprocessing run and the online run that uses it up.

use std::collections::VecDeque;

/// Bytes of a chunk, the first and the largest: material lies in few large buffers, given back as they are used up.
const FIRST_CHUNK: usize = 64 << 10;
const CHUNK: usize = 4 << 20;

/// Material of several runs, each a queue of messages in the order the gates take them. Used once: opening a run removes it
/// from the store, taking a message removes it from the run. Memory is overwritten before it is given back.
#[derive(Default)]
pub struct Store {
    runs: VecDeque<(u64, Material)>,
    open: Material,
}

/// Messages one after the other; none straddles two chunks.
#[derive(Default)]
struct Material {
    chunks: VecDeque<Chunk>,
    lengths: VecDeque<usize>,
    /// Bytes of the first chunk that have been taken.
    taken: usize,
}

struct Chunk(Vec<u8>);

impl Drop for Chunk {
    fn drop(&mut self) {
        // In words of whatever width the compiler likes: `Zeroize` writes byte by byte, which costs more than the gates that
        // use the material. Nothing is written past `len`.
        self.0.fill(0);
        zeroize::optimization_barrier(self.0.as_slice());
    }
}

impl Material {
    fn put(&mut self, message: &[u8]) {
        let fits = |chunk: &Chunk| chunk.0.capacity() - chunk.0.len() >= message.len();
        if !self.chunks.back().is_some_and(fits) {
            let size = self.chunks.back().map_or(FIRST_CHUNK, |chunk| (2 * chunk.0.capacity()).min(CHUNK));
            self.chunks.push_back(Chunk(Vec::with_capacity(message.len().max(size))));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            // Never grows, so no copy is left behind.
            chunk.0.extend_from_slice(message);
        }
        self.lengths.push_back(message.len());
    }

    fn take(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let len = self.lengths.pop_front()?;
        if self.chunks.front().is_some_and(|chunk| self.taken == chunk.0.len()) && len > 0 {
            self.chunks.pop_front();
            self.taken = 0;
        }
        out.clear();
        if len > 0 {
            out.extend_from_slice(self.chunks.front()?.0.get(self.taken..self.taken + len)?);
            self.taken += len;
        }
        Some(())
    }

    fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.0.capacity()).sum::<usize>() + self.lengths.capacity() * size_of::<usize>()
    }
}

impl Store {
    /// Starts filling for `run`; numbers only grow.
    pub fn begin(&mut self, run: u64) {
        self.runs.push_back((run, Material::default()));
    }

    /// Adds a message to the run being filled.
    pub fn put(&mut self, message: &[u8]) {
        if let Some((_, material)) = self.runs.back_mut() {
            material.put(message);
        }
    }

    /// Takes `run` out of the store for use, discarding earlier ones. False if it is not there (any more).
    pub fn open(&mut self, run: u64) -> bool {
        while self.runs.front().is_some_and(|(number, _)| *number < run) {
            self.runs.pop_front();
        }
        match self.runs.front() {
            Some((number, _)) if *number == run => {
                self.open = self.runs.pop_front().map(|(_, material)| material).unwrap_or_default();
                true
            }
            _ => false,
        }
    }

    /// Moves the next message of the open run into `out`. False if there is none.
    pub fn take(&mut self, out: &mut Vec<u8>) -> bool {
        self.open.take(out).is_some()
    }

    /// Runs with material left.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// No material left.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Memory held, the open run included.
    pub fn bytes(&self) -> usize {
        self.open.bytes() + self.runs.iter().map(|(_, material)| material.bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(store: &mut Store) -> Option<Vec<u8>> {
        let mut out = vec![9; 3];
        store.take(&mut out).then_some(out)
    }

    #[test]
    fn a_run_is_opened_once_and_a_message_taken_once() {
        let mut store = Store::default();
        for run in [3, 5, 6] {
            store.begin(run);
            store.put(&[run as u8; 2]);
        }
        assert!(store.open(5), "run 3 is skipped and gone");
        assert_eq!(taken(&mut store), Some(vec![5, 5]));
        assert_eq!(taken(&mut store), None);
        assert!(!store.open(5) && !store.open(3));
        assert_eq!(store.len(), 1);
        assert!(store.open(6));
        assert_eq!(taken(&mut store), Some(vec![6, 6]));
    }

    #[test]
    fn messages_of_all_sizes_come_back_in_order_and_memory_shrinks() {
        let sizes = [0, 1, CHUNK - 1, 1, 0, CHUNK, CHUNK + 1, 7, 0];
        let mut store = Store::default();
        store.begin(0);
        for (number, &size) in sizes.iter().enumerate() {
            store.put(&vec![number as u8; size]);
        }
        let held = store.bytes();
        assert!((3 * CHUNK..6 * CHUNK).contains(&held), "{held}");
        assert!(store.open(0));
        assert_eq!(store.bytes(), held, "opening copies nothing");
        for (number, &size) in sizes.iter().enumerate() {
            assert!(taken(&mut store) == Some(vec![number as u8; size]), "message {number}");
        }
        assert!(store.bytes() < 2 * CHUNK && taken(&mut store).is_none());
    }
}
