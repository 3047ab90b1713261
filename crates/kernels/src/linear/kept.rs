//! The weight of a convolution that a GPU computes: its words rest as they came, and are packed for the processor only where the GPU
//! fails.

use std::sync::OnceLock;

use covey_ring::Word;

use super::{Part, conv};
use crate::ConvGeometry;

pub(super) struct Weight<W> {
    pub(super) geometry: ConvGeometry,
    pub(super) parts: Vec<Part<W>>,
    packed: OnceLock<conv::Weight<W>>,
}

impl<W: Word> Weight<W> {
    pub(super) fn new(geometry: &ConvGeometry, parts: Vec<Part<W>>) -> Self {
        let len = geometry.weights_len();
        let fit = parts.iter().all(|part| match part {
            Part::Words(words) => words.len() == len,
            Part::Stream(_) => true,
        });
        assert!(fit && !parts.is_empty(), "the size of a weight");
        Weight { geometry: *geometry, parts, packed: OnceLock::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |part: &Part<W>| match part {
            Part::Words(words) => size_of_val(&words[..]),
            Part::Stream(_) => 0,
        };
        self.parts.iter().map(bytes).sum::<usize>() + self.packed.get().map_or(0, conv::Weight::bytes)
    }

    /// The form that the processor multiplies by.
    pub(super) fn packed(&self) -> &conv::Weight<W> {
        self.packed.get_or_init(|| {
            let parts = self.parts.iter().map(Part::again).collect();
            conv::Weight::new(&self.geometry, parts, self.geometry.is_fast())
        })
    }
}
