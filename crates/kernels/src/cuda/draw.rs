//! Words of generators that the device draws itself: their round keys go there, and no word crosses the bus.

use std::ops::Range;
use std::sync::Arc;

use covey_ring::Word;
use zeroize::Zeroize;

use super::gpu::Gpu;
use super::launch::Drawn;
use super::memory::{DeviceBytes, Fault, Stream};
use crate::PrgStream;
use crate::prg::SCHEDULE;

/// Streams of generators whose sum the device draws. Round keys rest there until this is dropped, and are overwritten then.
pub(super) struct Generators<'a> {
    gpu: &'a Gpu,
    streams: &'a [PrgStream],
    keys: DeviceBytes,
    /// Its work draws.
    stream: Arc<Stream>,
}

impl<'a> Generators<'a> {
    pub fn new(gpu: &'a Gpu, streams: &'a [PrgStream], stream: &Arc<Stream>) -> Result<Self, Fault> {
        let len = streams.len() * SCHEDULE;
        let generators = Generators { gpu, streams, keys: DeviceBytes::new(gpu, len, stream)?, stream: stream.clone() };
        let mut pinned = gpu.pinned.take(len)?;
        for (keys, of) in pinned.bytes_mut().as_chunks_mut().0.iter_mut().zip(streams) {
            of.prg().write_round_keys(keys);
        }
        let copied = generators.keys.fill(&pinned, len, stream).and(stream.finish());
        pinned.bytes_mut()[..len].zeroize();
        copied?;
        gpu.pinned.rest(pinned);
        Ok(generators)
    }

    /// The sum of their words of these numbers, on the device once the stream's work is done.
    pub fn draw<W: Word>(&self, range: Range<usize>) -> Result<DeviceBytes, Fault> {
        let out = DeviceBytes::new(self.gpu, range.len() * W::BYTES, &self.stream)?;
        if self.streams.is_empty() {
            out.clear(&self.stream)?;
        }
        let narrow = W::BYTES / size_of::<u32>();
        for (number, of) in self.streams.iter().enumerate() {
            let drawn = Drawn {
                keys: self.keys.at(number * SCHEDULE),
                out: out.at(0),
                nonce: of.nonce(),
                start: (range.start * narrow) as i64,
                count: (range.len() * narrow) as i64,
                adds: i32::from(number > 0),
                wide: i32::from(W::BITS == 64),
            };
            self.gpu.draw(&drawn, &self.stream)?;
        }
        Ok(out)
    }
}

impl Drop for Generators<'_> {
    fn drop(&mut self) {
        // Behind what draws, and before the memory is given back. A device that fails here has failed for good.
        let _ = self.keys.clear(&self.stream);
    }
}
