//! A linear map on its way, chunk by chunk: whoever computes it may work ahead of who takes the chunks.

use std::sync::atomic::Ordering;

use covey_ring::Word;

use super::{Chunk, LinearWeight};
use crate::device;

/// The map of some inputs, taken chunk by chunk. Nothing is computed before the first is taken.
pub struct Running<'a, W> {
    weight: &'a LinearWeight<W>,
    batch: usize,
    xs: Vec<&'a [W]>,
    chunks: &'a [Chunk],
    on_gpu: OnGpu<'a, W>,
}

/// How far a GPU is with a map.
enum OnGpu<'a, W> {
    NotBegun,
    Running(device::Running<'a, W>),
    /// The processor computes.
    No,
}

impl<W: Word> LinearWeight<W> {
    /// Starts the map of `xs`, of which `chunks` will be taken, best in their order; `batch` and `xs` are those of
    /// [`LinearWeight::product`].
    pub fn running<'a>(&'a self, batch: usize, xs: &[&'a [W]], chunks: &'a [Chunk]) -> Running<'a, W> {
        let placed = self.placed.as_ref().is_some_and(|placed| placed.takes::<W>(batch));
        let on_gpu = if placed { OnGpu::NotBegun } else { OnGpu::No };
        Running { weight: self, batch, xs: xs.to_vec(), chunks, on_gpu }
    }
}

impl<W: Word> Running<'_, W> {
    /// Writes chunk `index` of the map to `out`.
    ///
    /// # Panics
    /// As [`LinearWeight::product`].
    pub fn chunk(&mut self, index: usize, out: &mut [W]) {
        if !matches!(self.on_gpu, OnGpu::No) {
            match self.chunk_by_gpu(index, out) {
                Ok(()) => return,
                Err(fault) => {
                    device::note(&fault);
                    self.on_gpu = OnGpu::No;
                }
            }
        }
        self.weight.on_gpu.store(false, Ordering::Relaxed);
        self.weight.product(self.batch, &self.xs, &self.chunks[index], out);
    }

    fn chunk_by_gpu(&mut self, index: usize, out: &mut [W]) -> Result<(), device::Fault> {
        let weight = self.weight;
        if let OnGpu::NotBegun = self.on_gpu {
            weight.check(self.batch, &self.xs);
            let Some(placed) = &weight.placed else { unreachable!("the weight is placed on a GPU") };
            self.on_gpu = OnGpu::Running(device::Running::new(placed, weight.parts(), self.xs.len(), self.chunks)?);
        }
        assert_eq!(out.len(), self.chunks[index].len(), "linear map: sizes do not match");
        match &mut self.on_gpu {
            OnGpu::Running(running) => {
                weight.on_gpu.store(true, Ordering::Relaxed);
                running.chunk(index, &self.xs, out)
            }
            _ => unreachable!("it has begun"),
        }
    }
}
