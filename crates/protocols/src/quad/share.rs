//! What a party holds for a secret value, and what it can do with it alone.
//!
//! For x with masks l1, l2 and w, and X = x + l1 + l2:
//!
//! | | P0 | P1 | P2 | P3 |
//! |---|---|---|---|---|
//! | inner | l1, l2 | x + l2, l1 | x + l1, l2 | l1, l2 |
//! | extra | w | w | w | V = X + w |
//!
//! The inner part is Trio's, P0 being its dealer; P3 knows what that dealer knows of the masks, and each value under the one mask it
//! lacks. Bits are held the same way with exclusive or for +.

use std::ops::Range;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Tensor, Word};

use crate::api::Shaped;
use crate::components::Components;
use crate::local::zeros;
use crate::trio::share as trio;

/// A party's place in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Knows masks only, works before inputs are known.
    P0,
    /// Computes online.
    P1,
    /// Computes online.
    P2,
    /// Repeats what P0 deals and checks what P1 and P2 compute.
    P3,
    /// Not a party: the client that provides inputs or receives results.
    Client,
}

impl Role {
    /// The role of peer `index`.
    pub fn of(index: usize) -> Role {
        [Role::P0, Role::P1, Role::P2, Role::P3].get(index).copied().unwrap_or(Role::Client)
    }

    /// P1 or P2.
    pub fn is_online(self) -> bool {
        matches!(self, Role::P1 | Role::P2)
    }

    /// The component to which a public constant is added: X at P1 and P2, V at P3.
    pub(super) fn public_part(self) -> Option<usize> {
        match self {
            Role::P1 | Role::P2 => Some(0),
            Role::P3 => Some(2),
            Role::P0 | Role::Client => None,
        }
    }

    /// The role in Trio whose part this one computes.
    pub(super) fn inner(self) -> trio::Role {
        match self {
            Role::P0 | Role::P3 => trio::Role::P0,
            Role::P1 => trio::Role::P1,
            Role::P2 => trio::Role::P2,
            Role::Client => trio::Role::Client,
        }
    }
}

/// One party's part of a secret tensor of ring elements. Not `Debug`.
#[derive(Clone)]
pub struct Arith<W> {
    pub(super) inner: trio::Arith<W>,
    /// w, or V at P3.
    pub(super) extra: Tensor<W>,
}

impl<W: Word> Arith<W> {
    pub(super) fn new(shape: &[usize], first: Vec<W>, second: Vec<W>, extra: Vec<W>) -> Self {
        let inner = trio::Arith { first: Tensor::new(shape, first), second: Tensor::new(shape, second) };
        Arith { inner, extra: Tensor::new(shape, extra) }
    }

    pub(super) fn of([first, second, extra]: [Tensor<W>; 3]) -> Self {
        Arith { inner: trio::Arith { first, second }, extra }
    }

    pub(super) fn zeros(shape: &[usize]) -> Self {
        // Not clones of one: fresh zeros are not written until they are overwritten.
        Arith { inner: trio::Arith { first: zeros(shape), second: zeros(shape) }, extra: zeros(shape) }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.extra.len()
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.extra.is_empty()
    }

    /// X at P1 and P2, l1 + l2 at P0 and P3, for elements `range`.
    pub(super) fn sum(&self, range: Range<usize>) -> Buffer<W> {
        self.inner.sum(range)
    }
}

impl<W: Word> Shaped for Arith<W> {
    fn shape(&self) -> &[usize] {
        self.extra.shape()
    }
}

impl<W: Word> Components for Arith<W> {
    type Part = Tensor<W>;

    fn part(&self, index: usize) -> &Tensor<W> {
        [&self.inner.first, &self.inner.second, &self.extra][index]
    }

    fn build<E>(mut part: impl FnMut(usize) -> Result<Tensor<W>, E>) -> Result<Self, E> {
        Ok(Arith { inner: trio::Arith { first: part(0)?, second: part(1)? }, extra: part(2)? })
    }
}

/// One party's part of secret bit planes. Not `Debug`.
#[derive(Clone)]
pub struct Bool {
    pub(super) inner: trio::Bool,
    /// w, or V at P3.
    pub(super) extra: BitTensor,
}

impl Bool {
    pub(super) fn zeros(len: usize, planes: usize) -> Self {
        let zeros = BitTensor::zeros(len, planes);
        Bool { inner: trio::Bool { first: zeros.clone(), second: zeros.clone() }, extra: zeros }
    }

    /// Bits a plane.
    pub fn len(&self) -> usize {
        self.extra.len()
    }

    /// No bits.
    pub fn is_empty(&self) -> bool {
        self.extra.is_empty()
    }

    /// Planes.
    pub fn planes(&self) -> usize {
        self.extra.planes()
    }

    /// Tile `range` of a plane.
    pub(super) fn tile(&self, plane: usize, range: Range<usize>) -> Wire {
        let words = range.start / 64..range.start / 64 + BitTensor::words_per_plane(range.len());
        Wire {
            inner: crate::trio::bits::tile_of(&self.inner.first, &self.inner.second, plane, range.start, range.len()),
            extra: Buffer::copy_of(&self.extra.plane(plane)[words]),
        }
    }
}

impl Components for Bool {
    type Part = BitTensor;

    fn part(&self, index: usize) -> &BitTensor {
        [&self.inner.first, &self.inner.second, &self.extra][index]
    }

    fn build<E>(mut part: impl FnMut(usize) -> Result<BitTensor, E>) -> Result<Self, E> {
        Ok(Bool { inner: trio::Bool { first: part(0)?, second: part(1)? }, extra: part(2)? })
    }
}

/// One plane over one tile.
#[derive(Clone)]
pub(super) struct Wire {
    pub inner: trio::Wire,
    pub extra: Buffer<u64>,
}
