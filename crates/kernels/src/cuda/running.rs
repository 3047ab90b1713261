//! A map on its way through the device. Its chunks are computed in sets of whole images or samples: while one set's chunks are taken, the
//! next one's inputs go there, its products are computed and its chunks come back.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use covey_ring::Word;

use super::launch::{Channels, MOST_RESIDUES, Map, Plain, Recombined, Residues, Rows, pieces};
use super::memory::{DeviceBytes, Event, Fault, Pinned, Stream, copy_wide};
use super::moduli::{MODULI, Recombination, residues_of_words};
use super::weight::{Panels, Shape, Weight};
use crate::ConvGeometry;
use crate::linear::{Chunk, Part};
use crate::words::{bytes, bytes_mut};

/// Sets that are on their way at once.
const AHEAD: usize = 2;
/// Bytes of the device that a set takes, unless one image or sample takes more.
pub(super) const SET: usize = 48 << 20;

/// Chunks that are computed together, and the images or samples they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub chunks: Range<usize>,
    pub samples: Range<usize>,
}

/// A set whose work is queued.
struct Submitted {
    set: usize,
    /// Chunks one after the other, and a place in the device's work for each.
    out: Pinned,
    places: Vec<(usize, Event)>,
    /// What the device copies inputs from.
    inputs: Pinned,
}

/// A map of some inputs.
pub(crate) struct Running<'a, W> {
    pub(super) weight: &'a Weight,
    panels: Arc<Panels>,
    chunks: &'a [Chunk],
    sets: Vec<Set>,
    submitted: VecDeque<Submitted>,
    /// The set that is queued next.
    next: usize,
    pub(super) streams: [Arc<Stream>; 2],
    word: PhantomData<W>,
}

impl<'a, W: Word> Running<'a, W> {
    /// Has the weight, of which these are the parts, on the device; `used` parts have inputs.
    pub fn new(weight: &'a Weight, parts: &[Part<W>], used: usize, chunks: &'a [Chunk]) -> Result<Self, Fault> {
        let streams = weight.gpu.streams()?;
        let panels = match weight.panels(parts, &streams[0]) {
            Ok(panels) => panels,
            Err(fault) => {
                weight.gpu.rest(streams);
                return Err(fault);
            }
        };
        let sets = sets(chunks, sample_bytes::<W>(&weight.shape, used, panels.planes));
        Ok(Running { weight, panels, chunks, sets, submitted: VecDeque::new(), next: 0, streams, word: PhantomData })
    }

    /// Writes chunk `index` of the map of `xs` to `out`.
    pub fn chunk(&mut self, index: usize, xs: &[&[W]], out: &mut [W]) -> Result<(), Fault> {
        // Any thread may take it.
        self.weight.gpu.enter()?;
        let set = self.sets.iter().position(|set| set.chunks.contains(&index)).expect("every chunk is in a set");
        while self.submitted.front().is_some_and(|front| front.set < set) {
            self.retire()?;
        }
        if self.submitted.front().is_none_or(|front| front.set != set) {
            // Not in order: what is on its way is of no use.
            while !self.submitted.is_empty() {
                self.retire()?;
            }
            self.next = set;
        }
        while self.submitted.len() < AHEAD && self.next < self.sets.len() {
            let submitted = self.submit(self.next, xs)?;
            self.submitted.push_back(submitted);
            self.next += 1;
        }
        let front = &self.submitted[0];
        let (start, place) = &front.places[index - self.sets[set].chunks.start];
        place.wait()?;
        let out = bytes_mut(out);
        out.copy_from_slice(front.out.part(*start..*start + out.len()));
        Ok(())
    }

    /// Gives back what the first set took, once its work is done.
    fn retire(&mut self) -> Result<(), Fault> {
        let Some(first) = self.submitted.front() else { return Ok(()) };
        for (_, place) in &first.places {
            place.wait()?;
        }
        let first = self.submitted.pop_front().expect("it is there");
        self.weight.gpu.pinned.rest(first.out);
        self.weight.gpu.pinned.rest(first.inputs);
        Ok(())
    }

    fn submit(&self, number: usize, xs: &[&[W]]) -> Result<Submitted, Fault> {
        let (gpu, set, [forward, back]) = (self.weight.gpu, &self.sets[number], &self.streams);
        let chunks = &self.chunks[set.chunks.clone()];
        let outputs: usize = chunks.iter().map(Chunk::len).sum();
        gpu.enter()?;
        let inputs = self.gathered(set, xs)?;
        let mut submitted =
            Submitted { set: number, out: gpu.pinned.take(outputs * W::BYTES)?, places: Vec::new(), inputs };
        match self.queue(set, xs.len(), &mut submitted) {
            Ok(()) => Ok(submitted),
            Err(fault) => {
                // Before pinned memory goes that copies may be using.
                let _ = forward.finish().and(back.finish());
                Err(fault)
            }
        }
    }

    /// The set's inputs, part after part, where the device can copy them from.
    fn gathered(&self, set: &Set, xs: &[&[W]]) -> Result<Pinned, Fault> {
        let len = self.weight.shape.input_len();
        let part = set.samples.len() * len * W::BYTES;
        let mut pinned = self.weight.gpu.pinned.take(xs.len() * part)?;
        for (to, x) in pinned.bytes_mut().chunks_exact_mut(part.max(1)).zip(xs) {
            copy_wide(to, bytes(&x[set.samples.start * len..set.samples.end * len]));
        }
        Ok(pinned)
    }

    fn queue(&self, set: &Set, used: usize, submitted: &mut Submitted) -> Result<(), Fault> {
        let (gpu, [forward, back]) = (self.weight.gpu, &self.streams);
        let samples = set.samples.len();
        let words = DeviceBytes::new(gpu, used * samples * self.weight.shape.input_len() * W::BYTES, forward)?;
        words.fill(&submitted.inputs, words.len(), forward)?;
        let mut out = DeviceBytes::new(gpu, samples * self.weight.shape.output_len() * W::BYTES, forward)?;
        let columns = match &self.weight.shape {
            Shape::Conv2d(geometry) if geometry.is_depthwise() => {
                let map = self.plain(geometry, samples, used, &words, &out);
                gpu.depthwise(W::BITS == 64, &map, forward)?;
                samples * geometry.positions()
            }
            Shape::Conv2d(geometry) => {
                self.convolve(geometry, samples, used, words, &out)?;
                samples * geometry.positions()
            }
            &Shape::Dense { inputs, outputs } => {
                self.multiply([inputs, outputs], samples, used, words, &out)?;
                outputs
            }
        };
        back.after(&Event::behind(forward)?)?;
        out.used_by(back);
        let mut at = 0;
        for chunk in &self.chunks[set.chunks.clone()] {
            let (row, column) = match &self.weight.shape {
                Shape::Conv2d(geometry) => {
                    let image = chunk.images.start - set.samples.start;
                    (chunk.rows.start, image * geometry.positions() + chunk.run.start)
                }
                Shape::Dense { .. } => (chunk.rows.start - set.samples.start, chunk.run.start),
            };
            let start = (row * columns + column) * W::BYTES;
            let rectangle = [chunk.rows.len(), chunk.columns() * W::BYTES, columns * W::BYTES];
            out.read_rows(start, rectangle, &mut submitted.out, at, back)?;
            submitted.places.push((at, Event::behind(back)?));
            at += chunk.len() * W::BYTES;
        }
        Ok(())
    }

    /// A convolution by tensor cores.
    fn convolve(
        &self,
        geometry: &ConvGeometry,
        images: usize,
        used: usize,
        words: DeviceBytes,
        out: &DeviceBytes,
    ) -> Result<(), Fault> {
        let (gpu, forward) = (self.weight.gpu, &self.streams[0]);
        let [height, width] = geometry.input;
        let (channels, places) = (geometry.in_channels / geometry.groups, height * width);
        let place = pieces(channels) * geometry.groups;
        let (part, planes) = (places * place, self.panels.planes);
        let plane = images * used * part * 16;
        let right = DeviceBytes::new(gpu, planes * plane, forward)?;
        for number in 0..used {
            let of = Channels {
                words: words.at(number * images * geometry.input_len() * W::BYTES),
                out: right.at(number * part * 16),
                plane: plane as i64,
                images: images as i32,
                places: places as i32,
                groups: geometry.groups as i32,
                channels: channels as i32,
                image: (used * part) as i32,
                place: place as i32,
                planes: planes as i32,
                residues: residues_for::<W>(),
            };
            gpu.pack_channels(W::BITS == 64, &of, forward)?;
        }
        drop(words);
        let columns = images * geometry.positions();
        let [stride_down, stride_right] = geometry.strides;
        let map = Map {
            a: self.panels.operand.at(0),
            b: right.at(0),
            a_plane: self.panels.plane as i64,
            b_plane: plane as i64,
            rows: (geometry.out_channels / geometry.groups) as i32,
            columns: columns as i32,
            count: (used * self.weight.shape.pieces()) as i32,
            a_row: (self.weight.parts * self.weight.shape.pieces()) as i32,
            image: (used * part) as i32,
            place: place as i32,
            group: pieces(channels) as i32,
            height: height as i32,
            width: width as i32,
            run: geometry.positions() as i32,
            across: geometry.output()[1] as i32,
            strides: [stride_down as i32, stride_right as i32],
            pads: [geometry.pads[0] as i32, geometry.pads[1] as i32],
            ..self.empty_map()
        };
        self.product(map, geometry.groups, out)
    }

    /// A matrix product by tensor cores.
    fn multiply(
        &self,
        sizes: [usize; 2],
        samples: usize,
        used: usize,
        words: DeviceBytes,
        out: &DeviceBytes,
    ) -> Result<(), Fault> {
        let (_left, map) = self.matrices(sizes, samples, used, words)?;
        self.product(map, 1, out)
    }

    /// The inputs as a product's left operand, and the product.
    pub(super) fn matrices(
        &self,
        [inputs, outputs]: [usize; 2],
        samples: usize,
        used: usize,
        words: DeviceBytes,
    ) -> Result<(DeviceBytes, Map), Fault> {
        let (gpu, forward) = (self.weight.gpu, &self.streams[0]);
        let (part, planes) = (pieces(inputs), self.panels.planes);
        let plane = samples * used * part * 16;
        let left = DeviceBytes::new(gpu, planes * plane, forward)?;
        for number in 0..used {
            let of = Rows {
                words: words.at(number * samples * inputs * W::BYTES),
                out: left.at(number * part * 16),
                plane: plane as i64,
                rows: samples as i32,
                channels: inputs as i32,
                elements: 1,
                row: (used * part) as i32,
                planes: planes as i32,
                residues: residues_for::<W>(),
            };
            gpu.pack_rows(W::BITS == 64, &of, forward)?;
        }
        drop(words);
        // Each column is an image of one place.
        let map = Map {
            a: left.at(0),
            b: self.panels.operand.at(0),
            a_plane: plane as i64,
            b_plane: self.panels.plane as i64,
            rows: samples as i32,
            columns: outputs as i32,
            count: (used * part) as i32,
            a_row: (used * part) as i32,
            image: (self.weight.parts * part) as i32,
            height: 1,
            width: 1,
            run: 1,
            across: 1,
            strides: [1, 1],
            ..self.empty_map()
        };
        Ok((left, map))
    }

    /// What all maps have in common.
    fn empty_map(&self) -> Map {
        let none = [0; MOST_RESIDUES];
        Map {
            a: 0,
            b: 0,
            out: 0,
            pieces: self.panels.pieces.as_ref().map_or(0, |pieces| pieces.at(0)),
            a_plane: 0,
            b_plane: 0,
            out_plane: 0,
            out_row: 0,
            rows: 0,
            columns: 0,
            count: 0,
            a_row: 0,
            image: 0,
            place: 0,
            group: 0,
            height: 0,
            width: 0,
            first: 0,
            start: 0,
            run: 0,
            across: 0,
            strides: [1, 1],
            pads: [0, 0],
            slices: 1,
            planes: self.panels.planes as i32,
            modulus: none,
            reciprocal: none,
            offset: none,
            factor: none,
        }
    }

    /// Queues the product into `out`, rows of `map.columns` words.
    pub(super) fn product(&self, mut map: Map, groups: usize, out: &DeviceBytes) -> Result<(), Fault> {
        let (gpu, forward) = (self.weight.gpu, &self.streams[0]);
        map.out_row = map.columns.into();
        if W::BITS == 32 {
            map.slices = gpu.slices(map.rows as usize, map.columns as usize, groups, map.count as usize) as i32;
            if map.slices > 1 {
                out.clear(forward)?;
            }
            map.out = out.at(0);
            return gpu.multiply(&map, groups, forward);
        }
        let count = self.panels.planes;
        let elements = groups * map.rows as usize * map.columns as usize;
        let plane = elements.next_multiple_of(16);
        let residues = DeviceBytes::new(gpu, count * plane, forward)?;
        let back = Recombination::new(count);
        for (i, &modulus) in MODULI[..count].iter().enumerate() {
            map.modulus[i] = modulus;
            map.reciprocal[i] = ((1u64 << 32) / u64::from(modulus)) as u32;
            map.offset[i] = (1u32 << 31).div_ceil(modulus) * modulus;
        }
        map.factor = back.inverse;
        map.out = residues.at(0);
        map.out_plane = plane as i64;
        gpu.multiply(&map, groups, forward)?;
        let of = Recombined {
            residues: residues.at(0),
            out: out.at(0),
            plane: plane as i64,
            count: elements as i64,
            planes: count as i32,
            product: back.product,
            cofactor: back.cofactor,
            fraction: back.fraction,
        };
        gpu.recombine(&of, forward)
    }

    /// A depthwise convolution, of words.
    fn plain(
        &self,
        geometry: &ConvGeometry,
        images: usize,
        used: usize,
        words: &DeviceBytes,
        out: &DeviceBytes,
    ) -> Plain {
        let mut map = Plain {
            a: Default::default(),
            b: Default::default(),
            out: out.at(0),
            out_row: (images * geometry.positions()) as i64,
            parts: used as i32,
            groups: geometry.groups as i32,
            rows: (geometry.out_channels / geometry.groups) as i32,
            columns: (images * geometry.positions()) as i32,
            channels: (geometry.in_channels / geometry.groups) as i32,
            kernel: geometry.kernel.map(|size| size as i32),
            dilations: geometry.dilations.map(|step| step as i32),
            height: geometry.input[0] as i32,
            width: geometry.input[1] as i32,
            first: 0,
            start: 0,
            run: geometry.positions() as i32,
            across: geometry.output()[1] as i32,
            strides: geometry.strides.map(|step| step as i32),
            pads: [geometry.pads[0] as i32, geometry.pads[1] as i32],
        };
        for number in 0..used {
            map.a[number] = self.panels.operand.at(number * geometry.weights_len() * W::BYTES);
            map.b[number] = words.at(number * images * geometry.input_len() * W::BYTES);
        }
        map
    }
}

impl<W> Drop for Running<'_, W> {
    fn drop(&mut self) {
        let gpu = self.weight.gpu;
        // Pinned memory may be copied from and to until then.
        let done = gpu.enter().and_then(|()| self.streams[0].finish()).and_then(|()| self.streams[1].finish());
        if done.is_ok() {
            for submitted in self.submitted.drain(..) {
                gpu.pinned.rest(submitted.out);
                gpu.pinned.rest(submitted.inputs);
            }
            gpu.rest(self.streams.clone());
        }
    }
}

fn residues_for<W: Word>() -> Residues {
    if W::BITS == 64 { residues_of_words() } else { Residues::default() }
}

/// Bytes of the device that an image or sample takes: inputs as words and as planes, outputs as words and as residues.
fn sample_bytes<W: Word>(shape: &Shape, used: usize, planes: usize) -> usize {
    let residues = if W::BITS == 64 { planes } else { 0 };
    used * (shape.input_len() * W::BYTES + shape.plane_len() * planes) + shape.output_len() * (W::BYTES + residues)
}

/// Chunks in sets: consecutive ones, of as many images or samples as `SET` has room for.
pub(super) fn sets(chunks: &[Chunk], sample: usize) -> Vec<Set> {
    let most = (SET / sample.max(1)).max(1);
    let mut sets: Vec<Set> = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let samples = chunk.samples();
        let joins = |last: &Set| {
            let all = last.samples.start.min(samples.start)..last.samples.end.max(samples.end);
            let follows = samples.start >= last.samples.start && samples.start <= last.samples.end;
            let fits = follows && (all == last.samples || all.len() <= most);
            fits.then_some(all)
        };
        match sets.last_mut().and_then(|last| joins(last).map(|all| (last, all))) {
            Some((last, all)) => {
                last.chunks.end = index + 1;
                last.samples = all;
            }
            None => sets.push(Set { chunks: index..index + 1, samples }),
        }
    }
    sets
}
