//! What a party holds of its owner's tensor between sessions.

use covey_ring::Word;

use crate::api::Shaped;
use crate::masked::seed::Mask;

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
