//! The generator on this machine's GPU against the processor's: whether both draw the same words, and what drawing a weight's masks there
//! saves. For `covey bench gpu`.

use std::hint::black_box;
use std::time::Duration;

use covey_ring::Word;

use super::fastest;
use super::gpu::{Draws, differing};
use crate::cuda::{Gpu, measured};
use crate::device::{self, Shape};
use crate::{ConvGeometry, LinearWeight, Part, Placement, PrgStream};

/// Words that a GPU drew.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Words, bytes of packed weights and elements of maps that were compared.
    pub elements: usize,
    /// Those in which the GPU's differ.
    pub differing: usize,
    /// Bytes of the words that were timed: a square weight.
    pub bytes: usize,
    /// Seconds in which the GPU draws them.
    pub gpu: f64,
    /// Seconds in which one core draws them.
    pub core: f64,
    /// Seconds in which they are copied to the GPU.
    pub copy: f64,
    /// Seconds until the weight is packed on the GPU, drawn there.
    pub packed: f64,
    /// Seconds until it is packed on the GPU, drawn by one core.
    pub brought: f64,
}

/// Draws words of 32 or 64 bits both ways: from many places of streams, as the weight of a dense layer `[side, side]`, and as weights of maps.
///
/// # Errors
/// If there is no GPU or it fails, in words.
pub fn drawn(bits: u32, side: usize) -> Result<Drawn, String> {
    let gpu = device::opened().ok_or("no GPU is used")?;
    if bits == 32 { drawn_words::<u32>(gpu, side) } else { drawn_words::<u64>(gpu, side) }
}

fn drawn_words<W: Word>(gpu: &'static Gpu, side: usize) -> Result<Drawn, String> {
    let mut draws = Draws::new();
    let (mut elements, mut differs) = (0, 0);
    let mut compared = |of: usize, differing: usize| {
        elements += of;
        differs += differing;
    };
    for _ in 0..60 {
        // Any start, near the beginning or far from it, and any length up to a hundred blocks of threads.
        let [start, len, far] = [0; 3].map(|_| draws.number());
        let (start, len) = (start % 5000 + (far % 2) * (far % (1 << 40)), 1 + len % (1 << 18));
        let streams = draws.streams(1 + far / 2 % 3);
        let range = start..start + len;
        let by_gpu = measured::drawn::<W>(gpu, &streams, range).map_err(|fault| fault.to_string())?;
        compared(len, differing(&by_gpu, &sum_of(&streams, start, len)));
    }
    for shape in [Shape::Conv2d(UNEVEN), Shape::Conv2d(DEPTHWISE), Shape::Dense { inputs: 1030, outputs: 777 }] {
        let (of, differing) = mapped::<W>(&shape, &mut draws)?;
        compared(of, differing);
    }
    let stream = draws.streams(1).remove(0);
    let timed = measured::drawing::<W>(gpu, side, &stream).map_err(|fault| fault.to_string())?;
    compared(timed.packed, timed.packed_differing);
    let mut words = vec![W::ZERO; side * side];
    let core = fastest(Duration::ZERO, || stream.fill(0, black_box(&mut words)));
    Ok(Drawn {
        elements,
        differing: differs,
        bytes: size_of_val(&words[..]),
        gpu: timed.draw_seconds,
        core,
        copy: timed.copy_seconds,
        packed: timed.packed_seconds,
        brought: timed.brought_seconds,
    })
}

fn sum_of<W: Word>(streams: &[PrgStream], start: usize, len: usize) -> Vec<W> {
    let mut sum = vec![W::ZERO; len];
    streams.iter().for_each(|stream| stream.add(start, &mut sum));
    sum
}

/// Sizes that divide by nothing, in groups.
const UNEVEN: ConvGeometry = ConvGeometry {
    in_channels: 42,
    out_channels: 76,
    groups: 2,
    input: [19, 23],
    kernel: [3, 2],
    strides: [2, 1],
    pads: [1, 0, 1, 2],
    dilations: [1, 2],
};

const DEPTHWISE: ConvGeometry = ConvGeometry { in_channels: 42, out_channels: 84, groups: 42, ..UNEVEN };

/// Elements of a map by a weight of two drawn parts and a held one, and in how many the GPU's differ.
fn mapped<W: Word>(shape: &Shape, draws: &mut Draws) -> Result<(usize, usize), String> {
    const BATCH: usize = 3;
    let (inputs, outputs, len) = match shape {
        Shape::Conv2d(geometry) => (geometry.input_len(), geometry.output_len(), geometry.weights_len()),
        Shape::Dense { inputs, outputs } => (*inputs, *outputs, inputs * outputs),
    };
    let (one, two, held) = (draws.streams(1), draws.streams(2), draws.words::<W>(len));
    let weight = |placement: Placement| {
        let parts = vec![Part::Stream(one.clone()), Part::Words(held.clone()), Part::Stream(two.clone())];
        match shape {
            Shape::Conv2d(geometry) => LinearWeight::conv2d_on(placement, geometry, parts),
            Shape::Dense { inputs, outputs } => LinearWeight::dense_on(placement, *inputs, *outputs, parts),
        }
    };
    let xs = [0; 3].map(|_| draws.words::<W>(BATCH * inputs));
    let xs: Vec<&[W]> = xs.iter().map(|x| &x[..]).collect();
    let by = |weight: &LinearWeight<W>| {
        let mut out = vec![W::ZERO; BATCH * outputs];
        weight.map(BATCH, &xs, &mut out);
        out
    };
    let (on_gpu, on_core) = (weight(Placement::Chosen), weight(Placement::Cpu));
    let (by_gpu, by_core) = (by(&on_gpu), by(&on_core));
    if !on_gpu.on_gpu() {
        return Err(device::trouble().unwrap_or("no GPU is used").to_owned());
    }
    Ok((by_core.len(), differing(&by_gpu, &by_core)))
}
