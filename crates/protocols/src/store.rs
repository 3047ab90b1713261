//! Offline material held between a preprocessing run and the online run that uses it up.

use std::collections::VecDeque;

use zeroize::Zeroizing;

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

/// What a run was dealt: messages one after the other; none straddles two chunks. Not `Debug`.
#[derive(Default)]
pub struct Material {
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

    /// The messages as they are kept on disk: how many, the length of each, then all of them, numbers little-endian.
    pub fn to_bytes(mut self) -> Zeroizing<Vec<u8>> {
        let held = self.chunks.iter().map(|chunk| chunk.0.len()).sum::<usize>() - self.taken;
        let mut out = Zeroizing::new(Vec::with_capacity(4 * (1 + self.lengths.len()) + held));
        out.extend_from_slice(&(self.lengths.len() as u32).to_le_bytes());
        self.lengths.iter().for_each(|&length| out.extend_from_slice(&(length as u32).to_le_bytes()));
        while let Some(chunk) = self.chunks.pop_front() {
            out.extend_from_slice(&chunk.0[std::mem::take(&mut self.taken)..]);
        }
        out
    }

    /// [`Material::to_bytes`] read back; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Material> {
        let (count, rest) = bytes.split_first_chunk()?;
        let (lengths, mut rest) = rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(4)?)?;
        let mut material = Material::default();
        for length in lengths.as_chunks().0 {
            let (message, after) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            material.put(message);
            rest = after;
        }
        rest.is_empty().then_some(material)
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

    /// Opens what was stored for a run in an earlier session.
    pub fn supply(&mut self, material: Material) {
        self.open = material;
    }

    /// Takes out what is stored for `run`, to be kept for a later session; none if it is not there (any more).
    pub fn remove(&mut self, run: u64) -> Option<Material> {
        let at = self.runs.iter().position(|(number, _)| *number == run)?;
        self.runs.remove(at).map(|(_, material)| material)
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

    #[test]
    fn what_is_kept_between_sessions_comes_back_and_nothing_else_is_read() {
        let sizes = [0, 7, CHUNK, 1, 0];
        let mut store = Store::default();
        for run in 3..6 {
            store.begin(run);
            sizes.iter().for_each(|&size| store.put(&vec![run as u8; size]));
        }
        let kept = store.remove(4).unwrap().to_bytes();
        assert!(store.len() == 2 && store.remove(4).is_none() && !store.open(4));
        assert_eq!(kept.len(), 4 * (1 + sizes.len()) + sizes.iter().sum::<usize>());
        store.supply(Material::from_bytes(&kept).unwrap());
        for size in sizes {
            assert!(taken(&mut store) == Some(vec![4; size]));
        }
        assert!(taken(&mut store).is_none());
        let empty = Material::default().to_bytes();
        assert!(Material::from_bytes(&empty).is_some() && empty.len() == 4);
        let long = [&kept[..], &[0]].concat();
        let many = [&u32::MAX.to_le_bytes()[..], &kept[4..]].concat();
        for wrong in [&[][..], &kept[..3], &kept[..5], &kept[..kept.len() - 1], &long, &many] {
            assert!(Material::from_bytes(wrong).is_none());
        }
    }
}
