//! What the tests share.

use std::time::Duration;

use covey_ot::base::{BaseOt, Ristretto, Seed};
use covey_ot::{Block, Channel, Instance, Link, Result};
use covey_ring::{BitTensor, Word};
use covey_transport::{Network, Phase, memory};
use zeroize::Zeroizing;

/// `len` words that look random (SplitMix64).
pub fn words<W: Word>(len: usize, seed: u64) -> Vec<W> {
    covey_kernels::dispatch::cap_from_environment();
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

/// The receiver's side of base OTs.
pub fn chosen(channel: &mut dyn Channel, instance: &Instance, choices: &[u8]) -> Result<Zeroizing<Vec<Seed>>> {
    let request = Ristretto.request(channel, instance, choices)?;
    Ristretto.receive(channel, instance, request)
}

/// Both sides of something, as threads over the memory transport: party 0's result, party 1's, and the payload bytes each sent.
pub fn both<A: Send, B: Send>(
    zero: impl FnOnce(&mut dyn Channel) -> A + Send,
    one: impl FnOnce(&mut dyn Channel) -> B + Send,
) -> (A, B, [u64; 2]) {
    covey_kernels::dispatch::cap_from_environment();
    let networks = memory::network(2, Duration::from_secs(60));
    let (a, b) = std::thread::scope(|scope| {
        let network = &networks[1];
        let other = scope.spawn(move || {
            let mut endpoint = network.endpoint(1).unwrap();
            one(&mut Link::new(endpoint.as_mut(), 0))
        });
        let mut endpoint = networks[0].endpoint(1).unwrap();
        (zero(&mut Link::new(endpoint.as_mut(), 1)), other.join().unwrap())
    });
    let sent = [0, 1].map(|party| networks[party].meter().snapshot().sent(party, Phase::Offline));
    networks.iter().for_each(|network| network.close());
    (a, b, sent)
}

/// The instance with a number.
pub fn instance(number: u64) -> Instance {
    Instance { session: [7; 32], sender: 0, lane: 0, number }
}

/// Asserts that `received` are the other side of `sent`.
pub fn assert_correlated(delta: Block, sent: &[Block], received: &[Block]) {
    assert!(delta.low() & 1 == 1 && sent.len() == received.len());
    for (index, (&k, &t)) in sent.iter().zip(received).enumerate() {
        assert!(k.low() & 1 == 0 && t == k ^ delta.times(t.low()), "OT {index}");
    }
}

/// Asserts that every bit of the blocks, the choices among them, is about as often 1 as 0; bit 0 only if it is a choice.
pub fn assert_balanced(blocks: &[Block], choices: bool) {
    let len = blocks.len() as f64;
    for bit in usize::from(!choices)..128 {
        let ones = blocks.iter().filter(|block| block.to_u128() >> bit & 1 == 1).count() as f64;
        assert!((ones - len / 2.0).abs() < 6.0 * (len / 4.0).sqrt(), "bit {bit}: {ones} of {len}");
    }
}
