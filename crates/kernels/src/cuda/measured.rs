//! What the kernels reach by themselves, on operands that rest on the device, and what they are compared with.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use covey_ring::Word;

use super::draw::Generators;
use super::gpu::Gpu;
use super::launch::{MOST_PARTS, Plain};
use super::memory::{DeviceBytes, Event, Fault, Stream};
use super::running::Running;
use super::weight::{Panels, Shape, Weight};
use crate::linear::{Chunk, Part};
use crate::words::{bytes, bytes_mut};
use crate::{Device, PrgStream};

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

/// Words that the device drew, next to what it takes to bring them there.
pub(crate) struct Drawing {
    /// Seconds of the fastest run: to draw the words, and to copy as many bytes from pinned memory.
    pub draw_seconds: f64,
    pub copy_seconds: f64,
    /// Seconds until a weight of these words is packed, drawn by the device and drawn by this core.
    pub packed_seconds: f64,
    pub brought_seconds: f64,
    /// Bytes of the two packed weights, and in how many they differ.
    pub packed: usize,
    pub packed_differing: usize,
}

/// The sum of the words of `streams`, drawn by the device.
pub(crate) fn drawn<W: Word>(gpu: &Gpu, streams: &[PrgStream], range: Range<usize>) -> Result<Vec<W>, Fault> {
    let queues = gpu.streams()?;
    let words = Generators::new(gpu, streams, &queues[0])?.draw::<W>(range)?;
    let words = downloaded(gpu, &words, &queues[0])?;
    gpu.rest(queues);
    Ok(words)
}

/// Draws the weight of a dense layer, `[side, side]`, and packs it.
pub(crate) fn drawing<W: Word>(gpu: &'static Gpu, side: usize, stream: &PrgStream) -> Result<Drawing, Fault> {
    let (queues, streams) = (gpu.streams()?, [stream.clone()]);
    let (queue, len) = (&queues[0], side * side);
    let generators = Generators::new(gpu, &streams, queue)?;
    let draw_seconds = fastest(queue, || generators.draw::<W>(0..len).map(drop))?;
    let (pinned, brought) = (gpu.pinned.take(len * W::BYTES)?, DeviceBytes::new(gpu, len * W::BYTES, queue)?);
    let copy_seconds = fastest(queue, || brought.fill(&pinned, brought.len(), queue))?;
    gpu.pinned.rest(pinned);
    let (packed_seconds, by_device) = packed::<W>(gpu, side, queue, || Part::Stream(streams.to_vec()))?;
    let (brought_seconds, by_core) = packed::<W>(gpu, side, queue, || {
        let mut words = vec![W::ZERO; len];
        stream.fill(0, &mut words);
        Part::Words(words)
    })?;
    let by_device: Vec<u32> = downloaded(gpu, &by_device.operand, queue)?;
    let by_core: Vec<u32> = downloaded(gpu, &by_core.operand, queue)?;
    let packed = size_of_val(&by_core[..]);
    let packed_differing = bytes(&by_device).iter().zip(bytes(&by_core)).filter(|(one, other)| one != other).count();
    drop((generators, brought));
    queue.finish()?;
    gpu.rest(queues);
    Ok(Drawing { draw_seconds, copy_seconds, packed_seconds, brought_seconds, packed, packed_differing })
}

/// Seconds that the device takes for what an element-wise gate makes it do.
pub(crate) struct Passes {
    pub copies: f64,
    pub draws: f64,
    pub moves: f64,
}

/// Copies `there` bytes to the device and `back` bytes from it, draws `drawn` bytes, and reads and writes `moved` bytes of its memory.
pub(crate) fn passes(
    gpu: &'static Gpu,
    [there, back, drawn, moved]: [usize; 4],
    stream: &PrgStream,
) -> Result<Passes, Fault> {
    let (queues, streams) = (gpu.streams()?, [stream.clone()]);
    let [forward, backward] = &queues;
    let generators = Generators::new(gpu, &streams, forward)?;
    let [input, output] = [DeviceBytes::new(gpu, there, forward)?, DeviceBytes::new(gpu, back, forward)?];
    let [one, other] = [DeviceBytes::new(gpu, moved, forward)?, DeviceBytes::new(gpu, moved, forward)?];
    let from = gpu.pinned.take(there)?;
    let to = RefCell::new(gpu.pinned.take(back)?);
    let copies = fastest(forward, || {
        // Both directions at once, as for sets of a map.
        input.fill(&from, there, forward)?;
        output.read_rows(0, [1, back, back], &mut to.borrow_mut(), 0, backward)?;
        backward.finish()
    })?;
    let draws = fastest(forward, || generators.draw::<u32>(0..drawn / 4).map(drop))?;
    let moves = fastest(forward, || one.copy_to(&other, 0, forward))?;
    drop((generators, input, output, one, other));
    forward.finish()?;
    gpu.pinned.rest(from);
    gpu.pinned.rest(to.into_inner());
    gpu.rest(queues);
    Ok(Passes { copies, draws, moves })
}

/// Packs a weight of one part several times. Seconds of the fastest, what it takes to make the part included, and the weight.
fn packed<W: Word>(
    gpu: &'static Gpu,
    side: usize,
    stream: &Arc<Stream>,
    part: impl Fn() -> Part<W>,
) -> Result<(f64, Arc<Panels>), Fault> {
    let shape = Shape::Dense { inputs: side, outputs: side };
    let mut best: Option<(f64, Arc<Panels>)> = None;
    for _ in 0..4 {
        let start = Instant::now();
        let weight = Weight::new::<W>(gpu, Device::Cuda(0), shape, 1, false)
            .ok_or_else(|| Fault("too large a weight".to_owned()))?;
        let panels = weight.panels(&[part()], stream)?;
        let seconds = start.elapsed().as_secs_f64();
        if best.as_ref().is_none_or(|(fastest, _)| seconds < *fastest) {
            best = Some((seconds, panels));
        }
    }
    best.ok_or_else(|| Fault("nothing was packed".to_owned()))
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
