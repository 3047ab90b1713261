//! Offline material held between a preprocessing run and the online run that uses it up.

use std::collections::VecDeque;

/// Material of several inferences, each a queue of messages in the order the gates take them. Used once: taking removes.
#[derive(Default)]
pub struct Store {
    inferences: VecDeque<(u64, VecDeque<Vec<u8>>)>,
}

impl Store {
    /// Starts filling for `inference`; numbers only grow.
    pub fn begin(&mut self, inference: u64) {
        self.inferences.push_back((inference, VecDeque::new()));
    }

    /// Adds a message to the inference being filled.
    pub fn put(&mut self, message: Vec<u8>) {
        if let Some((_, messages)) = self.inferences.back_mut() {
            messages.push_back(message);
        }
    }

    /// Discards material of inferences before `inference` and says whether there is any for it.
    pub fn advance(&mut self, inference: u64) -> bool {
        while self.inferences.front().is_some_and(|(number, _)| *number < inference) {
            self.inferences.pop_front();
        }
        self.inferences.front().is_some_and(|(number, _)| *number == inference)
    }

    /// The next message of the current inference, if it has `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let message = self.inferences.front_mut()?.1.pop_front()?;
        (message.len() == len).then_some(message)
    }

    /// Inferences with material left.
    pub fn len(&self) -> usize {
        self.inferences.len()
    }

    /// No material left.
    pub fn is_empty(&self) -> bool {
        self.inferences.is_empty()
    }
}
