//! Shares that add up: x is the sum of what the parties hold, bits are their exclusive or.

use std::ops::Range;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Tensor, Word};

use crate::api::{Result, Shaped};
use crate::components::Components;

/// One party's share of a tensor of ring elements. In Z_2^l bits above the ring's width are undefined, as in every share; in Z_n
/// elements are below n. Not `Debug`.
#[derive(Clone)]
pub struct Arith<W>(pub(crate) Tensor<W>);

impl<W: Word> Arith<W> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One party's share of bit planes. Not `Debug`.
#[derive(Clone)]
pub struct Bool(pub(crate) BitTensor);

impl Bool {
    /// Bits a plane.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No bits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Planes.
    pub fn planes(&self) -> usize {
        self.0.planes()
    }

    /// The bits of a tile that starts at a whole word, plane after plane.
    pub(crate) fn tile(&self, range: Range<usize>) -> Buffer<u64> {
        let words = range.start / 64..range.end.div_ceil(64);
        let mut out = Buffer::stale(words.len() * self.planes());
        for (plane, out) in out.chunks_exact_mut(words.len().max(1)).enumerate() {
            out.copy_from_slice(&self.0.plane(plane)[words.clone()]);
        }
        out
    }
}

impl<W: Word> Shaped for Arith<W> {
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }
}

impl<W: Word> Components for Arith<W> {
    type Part = Tensor<W>;

    fn part(&self, _: usize) -> &Tensor<W> {
        &self.0
    }

    fn build<E>(mut part: impl FnMut(usize) -> Result<Tensor<W>, E>) -> Result<Self, E> {
        Ok(Arith(part(0)?))
    }
}

impl Components for Bool {
    type Part = BitTensor;

    fn part(&self, _: usize) -> &BitTensor {
        &self.0
    }

    fn build<E>(mut part: impl FnMut(usize) -> Result<BitTensor, E>) -> Result<Self, E> {
        Ok(Bool(part(0)?))
    }
}
