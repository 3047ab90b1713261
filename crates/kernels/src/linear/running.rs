//! A linear map on its way, chunk by chunk: whoever computes it may work ahead of who takes the chunks.

use covey_ring::Word;

use super::{Chunk, LinearWeight};

/// The map of some inputs, taken chunk by chunk. Nothing is computed before the first is taken.
pub struct Running<'a, W> {
    weight: &'a LinearWeight<W>,
    batch: usize,
    xs: Vec<&'a [W]>,
    chunks: &'a [Chunk],
}

impl<W: Word> LinearWeight<W> {
    /// Starts the map of `xs`, of which `chunks` will be taken, best in their order; `batch` and `xs` are those of
    /// [`LinearWeight::product`].
    pub fn running<'a>(&'a self, batch: usize, xs: &[&'a [W]], chunks: &'a [Chunk]) -> Running<'a, W> {
        Running { weight: self, batch, xs: xs.to_vec(), chunks }
    }
}

impl<W: Word> Running<'_, W> {
    /// Writes chunk `index` of the map to `out`.
    ///
    /// # Panics
    /// As [`LinearWeight::product`].
    pub fn chunk(&mut self, index: usize, out: &mut [W]) {
        self.weight.product(self.batch, &self.xs, &self.chunks[index], out);
    }
}
