//! Which maps a device is expected to compute faster than the processor.

use std::hint::black_box;
use std::time::{Duration, Instant};

use covey_ring::Word;

use super::gpu::Gpu;
use super::memory::{DeviceBytes, Event, Fault};
use super::weight::Shape;
use crate::gemm;

/// What is measured when a device is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Seconds a byte takes from where it lies to the device, and back.
    there: f64,
    back: f64,
    /// Products of words a second of one core, for 32 and 64 bits.
    core: [f64; 2],
}

/// Seconds of a map beside its products and copies: kernels are started, and copies.
const OVERHEAD: f64 = 100e-6;
/// Samples from which on a dense layer may go to the device: fewer read each weight too rarely to make up for its memory there.
const FEWEST_SAMPLES: usize = 16;

impl Rates {
    pub(super) fn measured(gpu: &Gpu) -> Result<Self, Fault> {
        const BYTES: usize = 8 << 20;
        let streams = gpu.streams()?;
        let stream = &streams[0];
        let on_device = DeviceBytes::new(gpu, BYTES, stream)?;
        let mut pinned = gpu.pinned.take(BYTES)?;
        let mut words = vec![1u8; BYTES];
        let (mut there, mut back) = (f64::MAX, f64::MAX);
        for _ in 0..3 {
            let start = Instant::now();
            pinned.bytes_mut()[..BYTES].copy_from_slice(black_box(&words));
            on_device.fill(&pinned, BYTES, stream)?;
            stream.finish()?;
            there = there.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            on_device.read_rows(0, [1, BYTES, BYTES], &mut pinned, 0, stream)?;
            Event::behind(stream)?.wait()?;
            words.copy_from_slice(pinned.part(0..BYTES));
            back = back.min(start.elapsed().as_secs_f64());
        }
        drop(on_device);
        stream.finish()?;
        gpu.pinned.rest(pinned);
        gpu.rest(streams);
        let core = [core_rate::<u32>(), core_rate::<u64>()];
        Ok(Rates { there: there / BYTES as f64, back: back / BYTES as f64, core })
    }
}

/// Products of words a second of this core, in a matrix product as it is now.
fn core_rate<W: Word>() -> f64 {
    const SIDE: usize = 256;
    let words: Vec<W> = (0..SIDE * SIDE).map(|i| W::from_u64((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let mut out = vec![W::ZERO; SIDE * SIDE];
    let fastest = (0..4).map(|_| {
        let start = Instant::now();
        gemm(SIDE, SIDE, SIDE, black_box(&words), black_box(&words), &mut out);
        start.elapsed()
    });
    let fastest = fastest.min().unwrap_or(Duration::MAX).max(Duration::from_nanos(1));
    (SIDE * SIDE * SIDE) as f64 / fastest.as_secs_f64()
}

impl Gpu {
    /// Whether a map of `samples` images or rows by a weight of `parts` parts is expected to be faster here than on one core. What is
    /// used `once` must be brought here first.
    pub(super) fn pays<W: Word>(&self, shape: &Shape, parts: usize, samples: usize, once: bool) -> bool {
        if matches!(shape, Shape::Dense { .. }) && samples < FEWEST_SAMPLES {
            return false;
        }
        let wide = W::BITS == 64;
        let products = (shape.products() * samples as u64) as f64 * parts as f64;
        let bytes = |elements: usize| (elements * samples * W::BYTES) as f64;
        let weights = if once { (shape.weights_len() * parts * W::BYTES) as f64 } else { 0.0 };
        let here = weights * self.rates.there
            + bytes(shape.input_len()) * parts as f64 * self.rates.there
            + bytes(shape.output_len()) * self.rates.back
            + products / self.products(wide)
            + OVERHEAD;
        here < products / self.rates.core[usize::from(wide)]
    }
}
