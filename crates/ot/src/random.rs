//! What two parties have of correlated OTs without sending anything.

use covey_kernels::bits::{and, xor_assign};
use covey_kernels::hash::{hash, hash_pair};
use covey_ring::BitTensor;

use crate::pads::{self, HASH_BITS};
use crate::{Block, Received, Sent};

/// One party's shares of random triples c = a·b over Z_2, bit planes. `b` and `c` have `width` planes: products with one `a`.
pub struct BitTriples {
    /// One plane.
    pub a: Vec<u64>,
    /// `width` planes.
    pub b: Vec<u64>,
    /// `width` planes.
    pub c: Vec<u64>,
}

/// Bit triples from as many OTs in each direction (Gilboa's product twice, over random bits). In each, the sender has
/// u = A ⊕ B and v = A, the receiver r and w = A ⊕ r·u. This party's a is its r, its b its u, its c is a·b ⊕ w ⊕ v.
pub fn bit_triples(sent: Sent, received: Received, width: usize) -> BitTriples {
    assert!((1..=HASH_BITS).contains(&width), "triples of {width} bits");
    assert_eq!(sent.len(), received.len(), "triples take as many OTs in both directions");
    let words = BitTensor::words_per_plane(sent.len());
    let (mut a, mut b, mut c) = (vec![0; words], vec![0; words * width], vec![0; words * width]);
    received.choices(&mut a);
    let mut v = vec![0; words * width];
    pads::sent(sent, width, &mut v, &mut b);
    xor_assign(&mut b, &v);
    if words > 0 {
        for (c, b) in c.chunks_exact_mut(words).zip(b.chunks_exact(words)) {
            and(c, &a, b);
        }
    }
    xor_assign(&mut c, &v);
    pads::received(received, width, &mut v);
    xor_assign(&mut c, &v);
    covey_store::wipe(&mut v);
    BitTriples { a, b, c }
}

/// Both strings of each random OT: H(K) and H(K ⊕ Δ).
pub fn strings_sent(ots: Sent, zero: &mut [Block], one: &mut [Block]) {
    hash_pair(ots.key, 0, ots.first, ots.blocks, ots.delta, zero, one);
}

/// The string of each random OT that the receiver has; [`Received::choices`] says which.
pub fn strings_received(ots: Received, out: &mut [Block]) {
    hash(ots.key, 0, ots.first, ots.blocks, out);
}
