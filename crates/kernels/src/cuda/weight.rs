//! Weights on the device: bytes in the order in which the kernels read them.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use covey_ring::Word;

use super::draw::Generators;
use super::gpu::Gpu;
use super::launch::{Channels, LIMBS, MOST_PARTS, MOST_RESIDUES, Piece, Residues, Rows, pieces};
use super::memory::{DeviceBytes, Fault, Stream};
use super::moduli::{residues, residues_of_words};
use crate::linear::Part;
use crate::words::bytes;
use crate::{ConvGeometry, Device};

/// What a map is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Conv2d(ConvGeometry),
    Dense { inputs: usize, outputs: usize },
}

impl Shape {
    /// Elements of an image or sample.
    pub(super) fn input_len(&self) -> usize {
        match self {
            Shape::Conv2d(geometry) => geometry.input_len(),
            Shape::Dense { inputs, .. } => *inputs,
        }
    }

    pub(super) fn output_len(&self) -> usize {
        match self {
            Shape::Conv2d(geometry) => geometry.output_len(),
            Shape::Dense { outputs, .. } => *outputs,
        }
    }

    pub(super) fn weights_len(&self) -> usize {
        match self {
            Shape::Conv2d(geometry) => geometry.weights_len(),
            Shape::Dense { inputs, outputs } => inputs * outputs,
        }
    }

    /// Bytes of an image or sample in one plane of an operand, channels padded to whole pieces.
    pub(super) fn plane_len(&self) -> usize {
        match self {
            Shape::Conv2d(geometry) if self.is_depthwise() => geometry.input_len(),
            Shape::Conv2d(geometry) => {
                let places: usize = geometry.input.iter().product();
                places * geometry.groups * pieces(geometry.in_channels / geometry.groups) * 16
            }
            Shape::Dense { inputs, .. } => pieces(*inputs) * 16,
        }
    }

    /// Products for an image or sample.
    pub(super) fn products(&self) -> u64 {
        match self {
            Shape::Conv2d(geometry) => geometry.macs(),
            Shape::Dense { inputs, outputs } => (inputs * outputs) as u64,
        }
    }

    pub(super) fn is_depthwise(&self) -> bool {
        matches!(self, Shape::Conv2d(geometry) if geometry.is_depthwise())
    }

    /// Pieces of the inner dimension for one part.
    pub(super) fn pieces(&self) -> usize {
        match self {
            Shape::Conv2d(geometry) => {
                geometry.kernel.iter().product::<usize>() * pieces(geometry.in_channels / geometry.groups)
            }
            Shape::Dense { inputs, .. } => pieces(*inputs),
        }
    }
}

/// A weight that may be on the device.
pub(crate) struct Weight {
    pub(super) gpu: &'static Gpu,
    pub(super) shape: Shape,
    pub(super) parts: usize,
    /// Whether the device is only used where it is expected to be faster.
    by_cost: bool,
    /// Whether it serves one map alone.
    once: bool,
    panels: Mutex<Option<Arc<Panels>>>,
}

/// A weight in the kernels' order.
pub(super) struct Panels {
    gpu: &'static Gpu,
    /// Planes of bytes, or of a depthwise convolution the words of all parts.
    pub operand: DeviceBytes,
    pub plane: usize,
    /// Limbs of a word, or residues.
    pub planes: usize,
    /// Where pieces of a convolution's patches lie.
    pub pieces: Option<DeviceBytes>,
    /// Bytes set aside for it for good.
    reserved: usize,
}

impl Drop for Panels {
    fn drop(&mut self) {
        self.gpu.release(self.reserved);
    }
}

impl Weight {
    /// A weight of `parts` parts, if the kernels can multiply by it and `device` says so.
    pub fn new<W: Word>(gpu: &'static Gpu, device: Device, shape: Shape, parts: usize, once: bool) -> Option<Self> {
        let by_cost = device == Device::Auto;
        let small = |size: usize| i32::try_from(size).is_ok_and(|size| size < 1 << 30);
        let sizes = match &shape {
            Shape::Conv2d(geometry) => {
                let sides = [geometry.input, geometry.output(), geometry.kernel, geometry.strides];
                let narrow = sides.iter().flatten().all(|&side| side < 1 << 14)
                    && geometry.pads.iter().all(|&pad| pad < 1 << 14)
                    && [0, 1].iter().all(|&axis| geometry.kernel[axis] * geometry.dilations[axis] < 1 << 14);
                narrow && small(geometry.input_len()) && small(geometry.output_len()) && geometry.out_channels < 1 << 16
            }
            Shape::Dense { .. } => true,
        };
        // Blocks of a launch are counted by group and plane in 16 bits, pieces of a plane in 31.
        let (groups, matrix) = match &shape {
            Shape::Conv2d(geometry) => (geometry.groups, 0),
            Shape::Dense { outputs, .. } => (1, *outputs),
        };
        let fits = sizes
            && shape.weights_len() > 0
            && groups * MOST_RESIDUES < 1 << 16
            && small(matrix * parts * shape.pieces())
            && parts <= MOST_PARTS
            && small(shape.input_len())
            && small(shape.weights_len())
            && small(shape.output_len())
            && planes::<W>(&shape, parts).is_some();
        // The batch of a convolution is not known yet; copies and products grow with it alike. That of a dense layer decides.
        let pays = || match &shape {
            Shape::Conv2d(_) => gpu.pays::<W>(&shape, parts, 1, once),
            Shape::Dense { .. } => true,
        };
        (fits && (!by_cost || pays())).then(|| Weight { gpu, shape, parts, by_cost, once, panels: Mutex::new(None) })
    }

    /// Whether a map of as many images or samples goes to the device.
    pub fn takes<W: Word>(&self, samples: usize) -> bool {
        samples > 0 && (!self.by_cost || self.gpu.pays::<W>(&self.shape, self.parts, samples, self.once))
    }

    /// The weight in the kernels' order: as it rests on the device, or where there is no room for that made anew.
    pub(super) fn panels<W: Word>(&self, parts: &[Part<W>], stream: &Arc<Stream>) -> Result<Arc<Panels>, Fault> {
        let mut resting = self.panels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(panels) = &*resting {
            return Ok(panels.clone());
        }
        let bytes = self.panel_bytes::<W>();
        let reserved = if self.gpu.reserve(bytes) { bytes } else { 0 };
        let made = self.make(parts, reserved, stream);
        if made.is_err() {
            self.gpu.release(reserved);
        }
        let made = Arc::new(made?);
        // Other streams may use it from now on.
        stream.finish()?;
        if reserved > 0 {
            *resting = Some(made.clone());
        }
        Ok(made)
    }

    fn panel_bytes<W: Word>(&self) -> usize {
        if self.shape.is_depthwise() {
            return self.parts * self.shape.weights_len() * W::BYTES;
        }
        planes::<W>(&self.shape, self.parts).unwrap_or(0) * self.plane_bytes()
    }

    /// Bytes of a plane.
    fn plane_bytes(&self) -> usize {
        let rows = match &self.shape {
            Shape::Conv2d(geometry) => geometry.out_channels,
            Shape::Dense { outputs, .. } => *outputs,
        };
        rows * self.parts * self.shape.pieces() * 16
    }

    fn make<W: Word>(&self, parts: &[Part<W>], reserved: usize, stream: &Arc<Stream>) -> Result<Panels, Fault> {
        let gpu = self.gpu;
        let plane = self.plane_bytes();
        let planes = planes::<W>(&self.shape, self.parts).unwrap_or(0);
        let operand = DeviceBytes::new(gpu, self.panel_bytes::<W>(), stream)?;
        let row = self.parts * self.shape.pieces();
        let residues = if W::BITS == 64 { residues_of_words() } else { Residues::default() };
        for (number, part) in parts.iter().enumerate() {
            let offset = number * self.shape.pieces() * 16;
            let source = Source::new(gpu, part, stream)?;
            match &self.shape {
                shape if shape.is_depthwise() => {
                    let len = shape.weights_len();
                    source.words(0..len)?.copy_to(&operand, number * len * W::BYTES, stream)?;
                }
                // Rows of output channels.
                Shape::Conv2d(geometry) => {
                    let len = geometry.depth();
                    let elements = geometry.kernel.iter().product::<usize>();
                    for first in (0..geometry.out_channels).step_by(at_once::<W>(len)) {
                        let rows = at_once::<W>(len).min(geometry.out_channels - first);
                        // Given back behind what is queued, as below.
                        let words = source.words(first * len..(first + rows) * len)?;
                        let of = Rows {
                            words: words.at(0),
                            out: operand.at(offset + first * row * 16),
                            plane: plane as i64,
                            rows: rows as i32,
                            channels: (geometry.in_channels / geometry.groups) as i32,
                            elements: elements as i32,
                            row: row as i32,
                            planes: planes as i32,
                            residues,
                        };
                        gpu.pack_rows(W::BITS == 64, &of, stream)?;
                    }
                }
                // A matrix [inputs, outputs]: outputs become rows.
                &Shape::Dense { inputs, outputs } => {
                    let step = (at_once::<W>(outputs) / 16).max(1) * 16;
                    for first in (0..inputs).step_by(step) {
                        let channels = step.min(inputs - first);
                        let words = source.words(first * outputs..(first + channels) * outputs)?;
                        let of = Channels {
                            words: words.at(0),
                            out: operand.at(offset + first),
                            plane: plane as i64,
                            images: 1,
                            places: outputs as i32,
                            groups: 1,
                            channels: channels as i32,
                            image: 0,
                            place: row as i32,
                            planes: planes as i32,
                            residues,
                        };
                        gpu.pack_channels(W::BITS == 64, &of, stream)?;
                    }
                }
            }
        }
        let pieces = match &self.shape {
            Shape::Conv2d(geometry) if !self.shape.is_depthwise() => Some(self.upload_pieces(geometry, stream)?),
            Shape::Conv2d(_) => None,
            Shape::Dense { inputs, .. } => Some(self.upload_table(&matrix_pieces(*inputs, self.parts), stream)?),
        };
        Ok(Panels { gpu, operand, plane, planes, pieces, reserved })
    }

    fn upload_pieces(&self, geometry: &ConvGeometry, stream: &Arc<Stream>) -> Result<DeviceBytes, Fault> {
        self.upload_table(&patch_pieces(geometry, self.parts), stream)
    }

    fn upload_table(&self, table: &[Piece], stream: &Arc<Stream>) -> Result<DeviceBytes, Fault> {
        DeviceBytes::filled(self.gpu, size_of_val(table), stream, |bytes| {
            for (to, piece) in bytes.chunks_exact_mut(16).zip(table) {
                let numbers = [piece.down, piece.right, piece.ahead, piece.unused];
                to.chunks_exact_mut(4).zip(numbers).for_each(|(to, number)| to.copy_from_slice(&number.to_ne_bytes()));
            }
        })
    }
}

/// Where the words of a part come from.
enum Source<'a, W> {
    Held(&'a Gpu, &'a [W], &'a Arc<Stream>),
    Drawn(Generators<'a>),
}

impl<'a, W: Word> Source<'a, W> {
    fn new(gpu: &'a Gpu, part: &'a Part<W>, stream: &'a Arc<Stream>) -> Result<Self, Fault> {
        match part {
            Part::Words(words) => Ok(Source::Held(gpu, words, stream)),
            Part::Stream(streams) => Ok(Source::Drawn(Generators::new(gpu, streams, stream)?)),
        }
    }

    /// Some of them on the device, for what is queued next.
    fn words(&self, range: Range<usize>) -> Result<DeviceBytes, Fault> {
        match self {
            Source::Held(gpu, words, stream) => {
                let words = &words[range];
                DeviceBytes::filled(gpu, size_of_val(words), stream, |to| to.copy_from_slice(bytes(words)))
            }
            Source::Drawn(generators) => generators.draw::<W>(range),
        }
    }
}

/// Rows of `len` words that are brought or drawn at once: 16 MiB.
fn at_once<W: Word>(len: usize) -> usize {
    ((16 << 20) / (len * W::BYTES).max(1)).max(1)
}

/// Planes of operands: limbs, or as many residues as sums of this length take.
fn planes<W: Word>(shape: &Shape, parts: usize) -> Option<usize> {
    if W::BITS == 32 { Some(LIMBS) } else { residues(parts * shape.pieces() * 16) }
}

/// Where the pieces of patches lie, part by part, kernel element by kernel element, channel by channel.
pub(super) fn patch_pieces(geometry: &ConvGeometry, parts: usize) -> Vec<Piece> {
    let per_group = pieces(geometry.in_channels / geometry.groups);
    let (place, [height, width]) = (per_group * geometry.groups, geometry.input);
    let mut table = Vec::with_capacity(parts * geometry.kernel.iter().product::<usize>() * per_group);
    for part in 0..parts {
        for down in (0..geometry.kernel[0]).map(|row| row * geometry.dilations[0]) {
            for right in (0..geometry.kernel[1]).map(|column| column * geometry.dilations[1]) {
                let start = (part * height * width + down * width + right) * place;
                table.extend((0..per_group).map(|piece| Piece {
                    down: down as i32,
                    right: right as i32,
                    ahead: (start + piece) as i32,
                    unused: 0,
                }));
            }
        }
    }
    table
}

/// Those of a matrix's row.
pub(super) fn matrix_pieces(inputs: usize, parts: usize) -> Vec<Piece> {
    (0..parts * pieces(inputs)).map(|piece| Piece { ahead: piece as i32, ..Piece::default() }).collect()
}
