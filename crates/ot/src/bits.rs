//! Products of a receiver's bit with bits of the sender, in exclusive-or shares: correlated OT over Z_2.
//!
//! With A = H(K) and B = H(K ⊕ Δ), the sender sends y = x ⊕ A ⊕ B and the receiver d = b ⊕ r. The shares of b·x are
//! A ⊕ d·x and H(T) ⊕ r·y = A ⊕ r·x. Neither message depends on the other: one round.
//! One OT serves up to 128 bits x that share b.

use covey_kernels::bits::{and_xor_assign, xor_assign};
use covey_ring::BitTensor;
use covey_store::wipe;

use crate::pads::{self, HASH_BITS};
use crate::{Received, Sent};

/// The sender's side of one product for each OT.
pub struct BitSender {
    len: usize,
    width: usize,
    /// A and A ⊕ B, plane after plane.
    zero: Vec<u64>,
    sum: Vec<u64>,
}

/// The receiver's side.
pub struct BitReceiver {
    choices: Vec<u64>,
    pads: Vec<u64>,
}

fn check(width: usize) {
    assert!((1..=HASH_BITS).contains(&width), "products of {width} bits");
}

impl BitSender {
    /// Hashes the OTs for values of `width` bits, at most 128.
    pub fn new(ots: Sent, width: usize) -> Self {
        check(width);
        let words = BitTensor::words_per_plane(ots.len()) * width;
        let (mut zero, mut sum) = (vec![0; words], vec![0; words]);
        pads::sent(ots, width, &mut zero, &mut sum);
        xor_assign(&mut sum, &zero);
        BitSender { len: ots.len(), width, zero, sum }
    }

    /// The sender of these planes of A and B, of `len` OTs.
    #[cfg(any(test, feature = "test-dealer"))]
    #[doc(hidden)]
    pub fn given(len: usize, width: usize, zero: Vec<u64>, one: &[u64]) -> Self {
        let mut sum = zero.clone();
        xor_assign(&mut sum, one);
        BitSender { len, width, zero, sum }
    }

    /// Turns the planes of x into the message y, in place: `width` planes.
    pub fn message(&self, values: &mut [u64]) {
        xor_assign(values, &self.sum);
    }

    /// The sender's shares, `width` planes, from x and the receiver's plane d.
    pub fn share(mut self, values: &[u64], correction: &[u64]) -> Vec<u64> {
        let words = BitTensor::words_per_plane(self.len);
        assert_eq!(values.len(), words * self.width, "planes of {} bits", self.len);
        if words > 0 {
            for (share, values) in self.zero.chunks_exact_mut(words).zip(values.chunks_exact(words)) {
                and_xor_assign(share, values, correction);
            }
        }
        std::mem::take(&mut self.zero)
    }
}

impl Drop for BitSender {
    fn drop(&mut self) {
        wipe(&mut self.zero);
        wipe(&mut self.sum);
    }
}

impl BitReceiver {
    /// Hashes the OTs for values of `width` bits, at most 128.
    pub fn new(ots: Received, width: usize) -> Self {
        check(width);
        let words = BitTensor::words_per_plane(ots.len());
        let (mut choices, mut pads) = (vec![0; words], vec![0; words * width]);
        ots.choices(&mut choices);
        pads::received(ots, width, &mut pads);
        BitReceiver { choices, pads }
    }

    /// The receiver of this plane of r and these of H(T).
    #[cfg(any(test, feature = "test-dealer"))]
    #[doc(hidden)]
    pub fn given(choices: Vec<u64>, pads: Vec<u64>) -> Self {
        BitReceiver { choices, pads }
    }

    /// The message d for `choice`, one plane.
    pub fn correction(&self, choice: &[u64], out: &mut [u64]) {
        covey_kernels::bits::xor(out, choice, &self.choices);
    }

    /// The receiver's shares, `width` planes, from the planes of y.
    pub fn share(mut self, message: &[u64]) -> Vec<u64> {
        assert_eq!(message.len(), self.pads.len(), "planes of the sender's message");
        if !self.choices.is_empty() {
            let words = self.choices.len();
            for (share, message) in self.pads.chunks_exact_mut(words).zip(message.chunks_exact(words)) {
                and_xor_assign(share, message, &self.choices);
            }
        }
        std::mem::take(&mut self.pads)
    }
}

impl Drop for BitReceiver {
    fn drop(&mut self) {
        wipe(&mut self.choices);
        wipe(&mut self.pads);
    }
}
