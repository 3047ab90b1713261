//! Buffers of messages, used again and again: a large allocation costs the kernel's zeroing of its pages each time.

use std::sync::Mutex;

use crate::inbox::lock;

/// Capacities are powers of two from 2^6 to 2^21 bytes; what is larger is allocated and freed.
const SMALLEST: usize = 6;
const CLASSES: usize = 16;

/// Most bytes kept of one capacity.
const KEPT: usize = 16 << 20;

#[derive(Default)]
pub(crate) struct Pool {
    classes: [Mutex<Class>; CLASSES],
}

/// Buffers of one capacity.
#[derive(Default)]
struct Class {
    kept: Vec<Vec<u8>>,
    /// How many were handed out and not given back. No more are kept: what others allocate and give for each message they send would pile
    /// up if nobody takes as many.
    lent: usize,
}

impl Pool {
    /// An empty buffer with room for `len` bytes.
    pub fn take(&self, len: usize) -> Vec<u8> {
        let bits = (len.max(1).next_power_of_two().trailing_zeros() as usize).max(SMALLEST);
        match self.classes.get(bits - SMALLEST) {
            Some(class) => {
                let mut class = lock(class);
                class.lent += 1;
                class.kept.pop().unwrap_or_else(|| Vec::with_capacity(1 << bits))
            }
            None => Vec::with_capacity(len),
        }
    }

    /// Keeps a buffer for later, unless there are enough.
    pub fn give(&self, mut buffer: Vec<u8>) {
        let Some(bits) = buffer.capacity().checked_ilog2().map(|bits| bits as usize) else { return };
        let Some(class) = bits.checked_sub(SMALLEST).and_then(|class| self.classes.get(class)) else { return };
        buffer.clear();
        let mut class = lock(class);
        if class.lent > 0 {
            class.lent -= 1;
            if class.kept.len() < KEPT >> bits {
                class.kept.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_and_large_enough() {
        let pool = Pool::default();
        for len in [0, 1, 63, 64, 65, 5000, 1 << 20, (2 << 20) + 1] {
            let mut buffer = pool.take(len);
            assert!(buffer.is_empty() && buffer.capacity() >= len);
            buffer.extend(vec![7; len]);
            let place = buffer.as_ptr();
            pool.give(buffer);
            let again = pool.take(len);
            assert!(again.is_empty() && again.capacity() >= len);
            // Where none is kept, the allocator may hand out the same place all the same.
            assert!(len > 2 << 20 || again.as_ptr() == place, "{len}");
        }
        pool.give(Vec::new());
        let many: Vec<Vec<u8>> = (0..100).map(|_| pool.take(1 << 20)).collect();
        many.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!(lock(&pool.classes[20 - SMALLEST]).kept.len(), 16);
    }

    /// As a session does that sends control messages with each of its runs.
    #[test]
    fn buffers_of_others_do_not_pile_up() {
        let pool = Pool::default();
        for _ in 0..1000 {
            let own = pool.take(600);
            pool.give(Vec::with_capacity(1 << 10));
            pool.give(own);
            pool.give(Vec::with_capacity(1 << 10));
        }
        assert!(lock(&pool.classes[10 - SMALLEST]).kept.len() <= 1);
    }
}
