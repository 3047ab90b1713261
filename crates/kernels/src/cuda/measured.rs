//! What the kernels reach by themselves, on operands that rest on the device, and their twin.

use std::sync::Arc;
use std::time::Instant;

use covey_ring::Word;

use super::gpu::Gpu;
use super::launch::{MOST_PARTS, Plain};
use super::memory::{DeviceBytes, Event, Fault, Stream};
use super::running::Running;
use super::weight::{Shape, Weight};
use crate::Device;
use crate::linear::{Chunk, Part};
use crate::words::{bytes, bytes_mut};

/// A square product of tensor cores and of their twin.
pub(crate) struct Square<W> {
    /// Seconds of the fastest run.
    pub seconds: f64,
    pub twin_seconds: f64,
    pub product: Vec<W>,
    pub twin: Vec<W>,
}

/// `x · w`, both `[side, side]`.
pub(crate) fn square<W: Word>(gpu: &'static Gpu, side: usize, x: &[W], w: &[W]) -> Result<Square<W>, Fault> {
    let shape = Shape::Dense { inputs: side, outputs: side };
    let weight = Weight::new::<W>(gpu, Device::Cuda(0), shape, 1, false)
        .ok_or_else(|| Fault("too large a product".to_owned()))?;
    let chunks = Chunk::of_dense(side, side, side * side);
    let running = Running::new(&weight, &[Part::Words(w.to_vec())], 1, &chunks)?;
    let stream = &running.streams[0].clone();
    let (_left, map) = running.matrices([side, side], side, 1, uploaded(gpu, x, stream)?)?;
    let out = DeviceBytes::new(gpu, side * side * W::BYTES, stream)?;
    let seconds = fastest(stream, || running.product(map, 1, &out))?;
    let product = downloaded(gpu, &out, stream)?;
    let (a, b) = (uploaded(gpu, x, stream)?, uploaded(gpu, w, stream)?);
    let mut plain = Plain {
        a: [0; MOST_PARTS],
        b: [0; MOST_PARTS],
        out: out.at(0),
        out_row: side as i64,
        parts: 1,
        groups: 1,
        rows: side as i32,
        columns: side as i32,
        channels: side as i32,
        kernel: [1, 1],
        dilations: [1, 1],
        height: 1,
        width: side as i32,
        first: 0,
        start: 0,
        run: side as i32,
        across: side as i32,
        strides: [1, 1],
        pads: [0, 0],
    };
    (plain.a[0], plain.b[0]) = (a.at(0), b.at(0));
    let twin_seconds = fastest(stream, || gpu.plain(W::BITS == 64, &plain, stream))?;
    let twin = downloaded(gpu, &out, stream)?;
    Ok(Square { seconds, twin_seconds, product, twin })
}

fn fastest(stream: &Stream, run: impl Fn() -> Result<(), Fault>) -> Result<f64, Fault> {
    let mut fastest = f64::MAX;
    for _ in 0..6 {
        stream.finish()?;
        let start = Instant::now();
        run()?;
        stream.finish()?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    Ok(fastest)
}

fn uploaded<W: Word>(gpu: &Gpu, words: &[W], stream: &Arc<Stream>) -> Result<DeviceBytes, Fault> {
    DeviceBytes::filled(gpu, size_of_val(words), stream, |to| to.copy_from_slice(bytes(words)))
}

fn downloaded<W: Word>(gpu: &Gpu, from: &DeviceBytes, stream: &Stream) -> Result<Vec<W>, Fault> {
    let mut words = vec![W::ZERO; from.len() / W::BYTES];
    let mut pinned = gpu.pinned.take(from.len())?;
    from.read_rows(0, [1, from.len(), from.len()], &mut pinned, 0, stream)?;
    Event::behind(stream)?.wait()?;
    bytes_mut(&mut words).copy_from_slice(pinned.part(0..from.len()));
    gpu.pinned.rest(pinned);
    Ok(words)
}
