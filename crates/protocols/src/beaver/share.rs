//! What a party holds for a secret value: a share, of which there is nothing at the dealer but the shape.

use std::ops::Range;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Tensor, Word};

use crate::masked::seed::Mask;

/// One party's share of a tensor of ring elements: x is the sum of all parties' shares. Zeros at the dealer. Not `Debug`.
#[derive(Clone)]
pub struct Arith<W>(pub(super) Tensor<W>);

impl<W: Word> Arith<W> {
    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The elements of a tile.
    pub(super) fn tile(&self, range: Range<usize>) -> Buffer<W> {
        Buffer::copy_of(&self.0.data()[range])
    }
}

/// One party's share of bit planes, under exclusive or. Not `Debug`.
#[derive(Clone)]
pub struct Bool(pub(super) BitTensor);

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
    pub(super) fn tile(&self, range: Range<usize>) -> Buffer<u64> {
        let words = range.start / 64..range.end.div_ceil(64);
        let mut out = Buffer::stale(words.len() * self.planes());
        for (plane, out) in out.chunks_exact_mut(words.len().max(1)).enumerate() {
            out.copy_from_slice(&self.0.plane(plane)[words.clone()]);
        }
        out
    }
}

/// What a party holds of its owner's tensor that outlives sessions: the seed its share is drawn from, or, at the last
/// party, the share itself. The dealer holds the shape. Not `Debug`.
pub struct Stored<W> {
    pub(super) shape: Vec<usize>,
    pub(super) share: Share<W>,
}

pub(super) enum Share<W> {
    Drawn(Mask),
    Held(Vec<W>),
    /// At the dealer.
    None,
}

impl<W: Word> Stored<W> {
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The whole share.
    pub(super) fn words(self) -> Vec<W> {
        let len = self.len();
        match self.share {
            Share::Drawn(mask) => mask.words(len),
            Share::Held(words) => words,
            Share::None => vec![W::ZERO; len],
        }
    }
}
