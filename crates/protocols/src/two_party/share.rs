//! What a party holds for a secret value: x = x0 + x1 in the ring, b = b0 ⊕ b1 for bits, one summand each.

use covey_kernels::constant_time;
use covey_ring::{Modulus, Ring, Tensor, Word, from_signed};

use crate::additive::Arith;
use crate::api::Shaped;
use crate::randomness::{DrawPosition, Generators};

/// A parameter of the model as it rests: the model's owner runs P0 and keeps it in the clear; P1 knows its shape and the public
/// bound of its elements. Not `Debug`.
pub struct StoredShare<W> {
    pub(super) shape: Vec<usize>,
    /// `|w| < 2^bits` for every element.
    pub(super) bits: u32,
    pub(super) value: Option<Tensor<W>>,
}

impl<W: Word> Shaped for StoredShare<W> {
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl<W: Word> StoredShare<W> {
    /// P0's part: the values themselves.
    pub fn owned(value: Tensor<W>, bits: u32) -> Self {
        StoredShare { shape: value.shape().to_vec(), bits, value: Some(value) }
    }

    /// P1's part.
    pub fn absent(shape: &[usize], bits: u32) -> Self {
        StoredShare { shape: shape.to_vec(), bits, value: None }
    }

    /// Whether what is held keeps the bound, on which products rely. Only P0 asks, about its own values.
    pub(super) fn keeps_bound(&self, ring: Ring) -> bool {
        let high = |&w: &W| ring.signed(w).unsigned_abs().checked_shr(self.bits).unwrap_or(0);
        self.value.as_ref().is_none_or(|value| {
            let outside = value.data().iter().fold(0, |outside, w| outside | high(w));
            constant_time::is_zero(outside)
        })
    }

    /// The share it stands for: all of it at P0, zero at P1.
    pub(super) fn share(self) -> Arith<W> {
        Arith(self.value.unwrap_or_else(|| Tensor::zeros(self.shape)))
    }
}

/// Arithmetic on elements of the ring, reduced where the ring is Z_n.
#[derive(Clone, Copy)]
pub(super) struct Arithmetic {
    pub ring: Ring,
    /// Of Z_n; of no use in other rings.
    modulus: Modulus,
}

impl Arithmetic {
    pub fn new(ring: Ring) -> Self {
        let modulus = Modulus::new(if let Ring::Odd(n) = ring { n } else { 3 });
        Arithmetic { ring, modulus }
    }

    /// a + b.
    #[inline(always)]
    pub fn add<W: Word>(self, a: W, b: W) -> W {
        match self.ring {
            Ring::Pow2(_) => a.add(b),
            Ring::Odd(n) => {
                // Below 2^64, as n < 2^63.
                let sum = a.to_u64() + b.to_u64();
                W::from_u64(from_signed(sum.wrapping_sub(n), n))
            }
        }
    }

    /// a - b.
    #[inline(always)]
    pub fn sub<W: Word>(self, a: W, b: W) -> W {
        match self.ring {
            Ring::Pow2(_) => a.sub(b),
            Ring::Odd(n) => W::from_u64(from_signed(a.to_u64().wrapping_sub(b.to_u64()), n)),
        }
    }

    /// a · b.
    #[inline(always)]
    pub fn mul<W: Word>(self, a: W, b: W) -> W {
        match self.ring {
            Ring::Pow2(_) => a.mul(b),
            Ring::Odd(_) => W::from_u64(self.modulus.reduce(u128::from(a.to_u64()) * u128::from(b.to_u64()))),
        }
    }

    /// 2^`bits`.
    pub fn power<W: Word>(self, bits: u32) -> W {
        match self.ring {
            Ring::Pow2(_) => W::ONE.shl(bits),
            Ring::Odd(n) => W::from_u64(((1u128 << bits) % u128::from(n)) as u64),
        }
    }

    /// -a.
    #[inline(always)]
    pub fn neg<W: Word>(self, a: W) -> W {
        self.sub(W::ZERO, a)
    }
}

/// `out.len()` uniform elements of the ring from the key shared with `peer`.
pub(super) fn draw<W: Word>(
    generators: &Generators,
    peer: usize,
    position: DrawPosition,
    purpose: u32,
    ring: Ring,
    len: usize,
) -> Vec<W> {
    match ring {
        Ring::Pow2(_) => generators.words(peer, position, purpose, len),
        Ring::Odd(_) => reduced(&generators.words::<u64>(peer, position, purpose, 2 * len), ring),
    }
}

/// Elements of Z_n from two uniform words each: 2^-64 from uniform at most.
pub(super) fn reduced<W: Word>(words: &[u64], ring: Ring) -> Vec<W> {
    let Ring::Odd(n) = ring else { return words.iter().map(|&w| W::from_u64(w)).collect() };
    let modulus = Modulus::new(n);
    let element = |pair: &[u64]| modulus.reduce(u128::from(pair[1]) << 64 | u128::from(pair[0]));
    words.chunks_exact(2).map(|pair| W::from_u64(element(pair))).collect()
}
