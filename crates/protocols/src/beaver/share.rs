//! A party's shares: in a session, and of its owner's tensor between sessions.

use std::ops::Range;

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Tensor, Word};

use crate::api::{Result, Shaped};
use crate::components::Components;
use crate::local::zeros;
use crate::masked::seed::Mask;

/// One party's share of a tensor of ring elements, and what all know of the value once products have opened it. Not `Debug`.
///
/// From then on its shares are those of A, but for the first party's, which is x - A and its share of A.
#[derive(Clone)]
pub struct Arith<W> {
    share: Tensor<W>,
    opened: Option<Opened<W>>,
}

/// x - A; at the dealer A. Nothing in a phase in which this role computes nothing.
#[derive(Clone)]
struct Opened<W>(Option<Tensor<W>>);

impl<W: Word> Arith<W> {
    pub(super) fn new(share: Tensor<W>) -> Self {
        Arith { share, opened: None }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.share.len()
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.share.is_empty()
    }

    /// The share.
    pub(super) fn words(&self) -> &[W] {
        self.share.data()
    }

    /// The elements of a tile.
    pub(super) fn tile(&self, range: Range<usize>) -> Buffer<W> {
        Buffer::copy_of(&self.share.data()[range])
    }

    /// The share alone.
    pub(super) fn forgotten(&self) -> Self {
        Arith::new(self.share.clone())
    }

    /// Whether products have nothing to open.
    pub(super) fn is_opened(&self) -> bool {
        self.opened.is_some()
    }

    /// x - A, at the dealer A, where this role knows it.
    pub(super) fn opened(&self) -> &[W] {
        match &self.opened {
            Some(Opened(Some(opened))) => opened.data(),
            _ => &[],
        }
    }

    /// Elements `range` of a party's part of A; `scratch` is room for them.
    pub(super) fn mask<'a>(&'a self, first: bool, range: Range<usize>, scratch: &'a mut Vec<W>) -> &'a [W] {
        let share = &self.words()[range.clone()];
        if !first {
            return share;
        }
        scratch.clear();
        scratch.extend_from_slice(share);
        elementwise::sub_assign(scratch, &self.opened()[range]);
        scratch
    }

    /// A party's part of A, and x - A; at the dealer nothing, and A.
    pub(super) fn into_mask(self, first: bool) -> [Vec<W>; 2] {
        let opened = self.opened.and_then(|Opened(opened)| opened).map_or_else(Vec::new, Tensor::into_data);
        let mut mask = self.share.into_data();
        if first {
            elementwise::sub_assign(&mut mask, &opened);
        }
        [mask, opened]
    }
}

impl<W: Word> Shaped for Arith<W> {
    fn shape(&self) -> &[usize] {
        self.share.shape()
    }
}

impl<W: Word> Components for Arith<W> {
    type Part = Tensor<W>;

    fn part(&self, _: usize) -> &Tensor<W> {
        &self.share
    }

    fn build<E>(mut part: impl FnMut(usize) -> Result<Tensor<W>, E>) -> Result<Self, E> {
        Ok(Arith::new(part(0)?))
    }

    fn placed<E>(
        &self,
        held: bool,
        place: impl Fn(&Tensor<W>) -> Result<Tensor<W>, E>,
        empty: impl Fn() -> Tensor<W>,
    ) -> Result<Self, E> {
        let share = if held { place(&self.share)? } else { empty() };
        let opened = match &self.opened {
            Some(Opened(opened)) => Some(Opened(opened.as_ref().map(place).transpose()?)),
            None => None,
        };
        Ok(Arith { share, opened })
    }
}

/// A tensor that is being opened, tile by tile.
pub(super) struct Opening<W> {
    arith: Arith<W>,
    party: Option<usize>,
}

impl<W: Word> Opening<W> {
    /// Of a tensor of `shape`, at `party` or the dealer; `computes` says whether this role has anything of it in this phase.
    pub fn new(shape: &[usize], party: Option<usize>, computes: bool) -> Self {
        let opened = Opened(computes.then(|| zeros(shape)));
        Opening { arith: Arith { share: zeros(shape), opened: Some(opened) }, party }
    }

    /// Puts in place a tile's x - A and part of A, or the dealer's A.
    pub fn put(&mut self, range: Range<usize>, difference: &[W], mask: &[W]) {
        let Arith { share, opened: Some(Opened(Some(opened))) } = &mut self.arith else { return };
        match self.party {
            None => opened.data_mut()[range].copy_from_slice(mask),
            Some(party) => {
                opened.data_mut()[range.clone()].copy_from_slice(difference);
                let share = &mut share.data_mut()[range];
                share.copy_from_slice(mask);
                if party == 0 {
                    elementwise::add_assign(share, difference);
                }
            }
        }
    }

    /// All of it.
    pub fn finish(self) -> Arith<W> {
        self.arith
    }
}

/// The seed its share is drawn from, or, at the last
/// party, the share itself. The dealer holds the shape. Not `Debug`.
pub struct StoredShare<W> {
    pub(super) shape: Vec<usize>,
    pub(super) share: Share<W>,
}

pub(super) enum Share<W> {
    Drawn(Mask),
    Held(Vec<W>),
    /// At the dealer.
    None,
}

impl<W: Word> Shaped for StoredShare<W> {
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl<W: Word> StoredShare<W> {
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
