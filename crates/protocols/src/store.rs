//! Offline material held between a preprocessing run and the online run that uses it up.

use std::collections::VecDeque;

use zeroize::Zeroizing;

/// Material of several runs, each a queue of messages in the order the gates take them. Used once: opening a run removes it
/// from the store, taking a message removes it from the run.
#[derive(Default)]
pub struct Store {
    runs: VecDeque<(u64, Material)>,
    open: Material,
}

type Material = VecDeque<Zeroizing<Vec<u8>>>;

impl Store {
    /// Starts filling for `run`; numbers only grow.
    pub fn begin(&mut self, run: u64) {
        self.runs.push_back((run, Material::new()));
    }

    /// Adds a message to the run being filled.
    pub fn put(&mut self, message: Vec<u8>) {
        if let Some((_, messages)) = self.runs.back_mut() {
            messages.push_back(Zeroizing::new(message));
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

    /// The next message of the open run, if it has `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut message = self.open.pop_front()?;
        (message.len() == len).then(|| std::mem::take(&mut *message))
    }

    /// Runs with material left.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// No material left.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_opened_once_and_a_message_taken_once() {
        let mut store = Store::default();
        for run in [3, 5, 6] {
            store.begin(run);
            store.put(vec![run as u8; 2]);
        }
        assert!(store.open(5), "run 3 is skipped and gone");
        assert_eq!(store.take(2), Some(vec![5, 5]));
        assert_eq!(store.take(2), None);
        assert!(!store.open(5) && !store.open(3));
        assert_eq!(store.len(), 1);
        assert!(store.open(6));
        assert_eq!(store.take(1), None, "a message of another size is not material for this gate");
    }
}
