//! What the tests share.
#![allow(dead_code)]

use covey_ring::{BitTensor, Word};

/// `len` words that look random (SplitMix64).
pub fn words<W: Word>(len: usize, seed: u64) -> Vec<W> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        W::from_u64(z ^ z >> 31)
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Bit planes with a reader; the bits past the last are random.
pub struct Planes(BitTensor);

impl Planes {
    pub fn new(len: usize, words: Vec<u64>) -> Self {
        let planes = words.len().checked_div(len.div_ceil(64)).unwrap_or(0);
        Planes(BitTensor::new(len, planes, words))
    }

    pub fn random(len: usize, planes: usize, seed: u64) -> Self {
        Planes(BitTensor::new(len, planes, words(len.div_ceil(64) * planes, seed)))
    }

    pub fn words(&self) -> &[u64] {
        self.0.words()
    }

    pub fn get(&self, plane: usize, index: usize) -> bool {
        self.0.get(plane, index)
    }

    pub fn xor(&self, other: Vec<u64>) -> Self {
        Planes(self.0.zip(&BitTensor::new(self.0.len(), self.0.planes(), other), |a, b| a ^ b))
    }
}
