//! What a party holds for a secret value, and what it can do with it alone.
//!
//! For x with masks l1, l2:
//!
//! | | P0 | P1 | P2 |
//! |---|---|---|---|
//! | first | l1 | x + l2 | x + l1 |
//! | second | l2 | l1 | l2 |
//!
//! P1 and P2 both know C = x + l1 + l2 = first + second; P0 knows la = l1 + l2 = first + second, and nothing of x. Bits are held
//! the same way with exclusive or for +.

use covey_kernels::{Buffer, bits, elementwise};
use covey_ring::{BitTensor, Tensor, Word};

use crate::api::Shaped;
use crate::components::Components;

/// A party's place in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Knows masks only, works before inputs are known.
    P0,
    /// Computes online, shares l1 with P0.
    P1,
    /// Computes online, shares l2 with P0.
    P2,
    /// Not a party: the client that provides inputs or receives results.
    Client,
}

impl Role {
    /// The role of peer `index`.
    pub fn of(index: usize) -> Role {
        match index {
            0 => Role::P0,
            1 => Role::P1,
            2 => Role::P2,
            _ => Role::Client,
        }
    }

    /// P1 or P2.
    pub fn is_online(self) -> bool {
        matches!(self, Role::P1 | Role::P2)
    }

    /// The component to which a public constant is added: of the two that know x under masks, the masked one.
    pub(crate) fn public_part(self) -> Option<usize> {
        self.is_online().then_some(0)
    }
}

/// One party's part of a secret tensor of ring elements. Not `Debug`.
#[derive(Clone)]
pub struct Arith<W> {
    /// l1, x + l2 or x + l1.
    pub(crate) first: Tensor<W>,
    /// l2, l1 or l2.
    pub(crate) second: Tensor<W>,
}

impl<W: Word> Arith<W> {
    pub(crate) fn new(shape: &[usize], first: Vec<W>, second: Vec<W>) -> Self {
        Arith { first: Tensor::new(shape, first), second: Tensor::new(shape, second) }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// C at P1 and P2, la at P0, for elements `range`.
    pub(crate) fn sum(&self, range: std::ops::Range<usize>) -> Buffer<W> {
        let mut sum = Buffer::stale(range.len());
        elementwise::add(&mut sum, &self.first.data()[range.clone()], &self.second.data()[range]);
        sum
    }
}

impl<W: Word> Shaped for Arith<W> {
    fn shape(&self) -> &[usize] {
        self.first.shape()
    }
}

impl<W: Word> Components for Arith<W> {
    type Part = Tensor<W>;

    fn part(&self, index: usize) -> &Tensor<W> {
        [&self.first, &self.second][index]
    }

    fn build<E>(mut part: impl FnMut(usize) -> Result<Tensor<W>, E>) -> Result<Self, E> {
        Ok(Arith { first: part(0)?, second: part(1)? })
    }
}

/// One party's part of secret bit planes. Not `Debug`.
#[derive(Clone)]
pub struct Bool {
    /// l1, x ⊕ l2 or x ⊕ l1.
    pub(crate) first: BitTensor,
    /// l2, l1 or l2.
    pub(crate) second: BitTensor,
}

impl Bool {
    /// Bits a plane.
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// No bits.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Planes.
    pub fn planes(&self) -> usize {
        self.first.planes()
    }
}

impl Components for Bool {
    type Part = BitTensor;

    fn part(&self, index: usize) -> &BitTensor {
        [&self.first, &self.second][index]
    }

    fn build<E>(mut part: impl FnMut(usize) -> Result<BitTensor, E>) -> Result<Self, E> {
        Ok(Bool { first: part(0)?, second: part(1)? })
    }
}

/// One plane over one tile: the working form of circuits.
#[derive(Clone)]
pub(crate) struct Wire {
    pub first: Buffer<u64>,
    pub second: Buffer<u64>,
}

impl Wire {
    pub fn zeros(len: usize) -> Self {
        let words = BitTensor::words_per_plane(len);
        Wire { first: Buffer::zeros(words), second: Buffer::zeros(words) }
    }

    /// The public part m of x = m ⊕ y at P1 and P2; y, known to P0 alone, at P0.
    pub fn sum(&self) -> Buffer<u64> {
        xor(&self.first, &self.second)
    }

    pub fn xor(&self, other: &Wire) -> Wire {
        Wire { first: xor(&self.first, &other.first), second: xor(&self.second, &other.second) }
    }
}

pub(crate) fn xor(x: &[u64], y: &[u64]) -> Buffer<u64> {
    let mut out = Buffer::stale(x.len());
    bits::xor(&mut out, x, y);
    out
}

pub(crate) fn and(x: &[u64], y: &[u64]) -> Buffer<u64> {
    let mut out = Buffer::stale(x.len());
    bits::and(&mut out, x, y);
    out
}

/// What P0 deals for the AND of two wires: l2·l1' ⊕ l1·l2' ⊕ l1·l1'.
pub(crate) fn dealt_term(x: &Wire, y: &Wire) -> Buffer<u64> {
    each(x.first.len(), |i| ((x.second[i] ^ x.first[i]) & y.first[i]) ^ (x.first[i] & y.second[i]))
}

/// P1's term of the AND of two wires: (x⊕l2)·l1' ⊕ (y⊕l2')·l1. P2's is (x⊕l1)·(y⊕l1').
pub(crate) fn p1_term(x: &Wire, y: &Wire) -> Buffer<u64> {
    each(x.first.len(), |i| (x.first[i] & y.second[i]) ^ (y.first[i] & x.second[i]))
}

fn each(len: usize, f: impl Fn(usize) -> u64) -> Buffer<u64> {
    let mut out = Buffer::stale(len);
    out.iter_mut().enumerate().for_each(|(i, out)| *out = f(i));
    out
}
