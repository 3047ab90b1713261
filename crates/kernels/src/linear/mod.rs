//! Linear maps with a weight that stays: packed once, multiplied many times, chunk by chunk.

mod chunk;
mod combine;
mod conv;
mod dense;
mod kept;
mod running;
mod shares;

use std::sync::atomic::{AtomicBool, Ordering};

use covey_ring::Word;

use crate::words::same;
use crate::{ConvGeometry, Placement, PrgStream, device};

pub use chunk::{Chunk, Chunks};
pub use combine::Positions;
pub use running::Running;
use shares::Cuts;

/// One weight of a sum of products.
pub enum Part<W> {
    /// The words.
    Words(Vec<W>),
    /// The sum of the words of generators' streams, drawn anew for each use: a generator makes them faster than memory would deliver
    /// them. A convolution, which reads each weight many times, draws them once and holds them. A GPU draws them itself.
    Stream(Vec<PrgStream>),
}

impl<W: Word> Part<W> {
    /// Another of the same words.
    fn again(&self) -> Self {
        match self {
            Part::Words(words) => Part::Words(words.clone()),
            Part::Stream(streams) => Part::Stream(streams.clone()),
        }
    }

    /// The `len` words.
    fn into_words(self, len: usize) -> Vec<W> {
        let words = match self {
            Part::Words(words) => words,
            Part::Stream(streams) => {
                let mut words = vec![W::ZERO; len];
                PrgStream::fill_sum(&streams, 0, &mut words);
                words
            }
        };
        assert_eq!(words.len(), len, "the size of a weight");
        words
    }
}

/// The weight of a linear map, in the form the kernels of the instruction set in use read. It may have several parts: the
/// map of inputs `x_1, x_2, …` is the sum over parts `i` of `x_i` mapped by part `i`, one accumulation over all of them.
///
/// Not `Debug`: it holds weights.
pub struct LinearWeight<W> {
    form: Form<W>,
    parts: usize,
    /// Where a GPU computes its products, or those of them that are many enough.
    placed: Option<Box<device::Weight>>,
    /// Whether one computed the last map.
    on_gpu: AtomicBool,
}

enum Form<W> {
    Conv2d(conv::Weight<W>),
    /// A convolution that a GPU computes.
    Kept(Box<kept::Weight<W>>),
    Dense(dense::Weight<W>),
}

impl<W: Word> LinearWeight<W> {
    /// The weight of a convolution; parts are `[out_channels, in_channels / groups, kernel height, kernel width]`.
    ///
    /// # Panics
    /// If there is no part or one has another length, or `geometry` has not passed [`ConvGeometry::checked`].
    pub fn conv2d(geometry: &ConvGeometry, parts: Vec<Part<W>>) -> Self {
        assert!(!parts.is_empty(), "a weight has parts");
        Self::conv2d_in(geometry, parts, geometry.is_fast())
    }

    /// [`LinearWeight::conv2d`] without fewer products than the definition has, to measure what they bring.
    pub(crate) fn conv2d_by_patches(geometry: &ConvGeometry, parts: Vec<Part<W>>) -> Self {
        Self::conv2d_in(geometry, parts, false)
    }

    fn conv2d_in(geometry: &ConvGeometry, parts: Vec<Part<W>>, fast: bool) -> Self {
        let count = parts.len();
        Self::of(count, Form::Conv2d(conv::Weight::new(geometry, parts, fast)), None)
    }

    /// The weight of a dense layer; parts are `[inputs, outputs]`.
    ///
    /// # Panics
    /// If there is no part or one has another length.
    pub fn dense(inputs: usize, outputs: usize, parts: Vec<Part<W>>) -> Self {
        assert!(!parts.is_empty(), "a weight has parts");
        let count = parts.len();
        Self::of(count, Form::Dense(dense::Weight::new(inputs, outputs, parts)), None)
    }

    fn of(parts: usize, form: Form<W>, placed: Option<Box<device::Weight>>) -> Self {
        LinearWeight { form, parts, placed, on_gpu: AtomicBool::new(false) }
    }

    /// [`LinearWeight::conv2d`] where `placement` says.
    ///
    /// # Panics
    /// As [`LinearWeight::conv2d`].
    pub fn conv2d_on(placement: Placement, geometry: &ConvGeometry, parts: Vec<Part<W>>) -> Self {
        let shape = device::Shape::Conv2d(*geometry);
        match device::placed::<W>(placement, shape, parts.len()) {
            None => Self::conv2d(geometry, parts),
            placed => Self::of(parts.len(), Form::Kept(Box::new(kept::Weight::new(geometry, parts))), placed),
        }
    }

    /// [`LinearWeight::dense`] where `placement` says.
    ///
    /// # Panics
    /// As [`LinearWeight::dense`].
    pub fn dense_on(placement: Placement, inputs: usize, outputs: usize, parts: Vec<Part<W>>) -> Self {
        let placed = device::placed::<W>(placement, device::Shape::Dense { inputs, outputs }, parts.len());
        LinearWeight { placed, ..Self::dense(inputs, outputs, parts) }
    }

    /// Memory the weight takes.
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Conv2d(weight) => weight.bytes(),
            Form::Kept(weight) => weight.bytes(),
            Form::Dense(weight) => weight.bytes(),
        }
    }

    /// Whether a GPU computed its last map.
    pub fn on_gpu(&self) -> bool {
        self.on_gpu.load(Ordering::Relaxed)
    }

    /// The parts as they came, where a GPU may ask for them.
    fn parts(&self) -> &[Part<W>] {
        match &self.form {
            Form::Conv2d(_) => &[],
            Form::Kept(weight) => &weight.parts,
            Form::Dense(weight) => &weight.parts,
        }
    }

    /// Elements of an image or sample.
    fn input_len(&self) -> usize {
        match &self.form {
            Form::Conv2d(weight) => weight.geometry.input_len(),
            Form::Kept(weight) => weight.geometry.input_len(),
            Form::Dense(weight) => weight.inputs,
        }
    }

    /// Refuses inputs of other sizes.
    fn check(&self, batch: usize, xs: &[&[W]]) {
        let (input_len, parts) = (self.input_len(), 1..=self.parts);
        let fit = parts.contains(&xs.len()) && xs.iter().all(|x| x.len() == batch * input_len);
        assert!(fit, "linear map: sizes do not match");
    }

    /// The words of part `index`, if they are held as they came.
    pub fn words(&self, index: usize) -> Option<&[W]> {
        match &self.form {
            Form::Conv2d(_) => None,
            Form::Kept(weight) => match weight.parts.get(index)? {
                Part::Words(words) => Some(words),
                Part::Stream(_) => None,
            },
            Form::Dense(weight) => weight.words(index),
        }
    }

    /// How the output for `batch` images or samples is cut into chunks of about `elements` elements: [`Chunk::of_conv2d`]
    /// or [`Chunk::of_dense`].
    pub fn chunks(&self, batch: usize, elements: usize) -> Chunks {
        match &self.form {
            Form::Conv2d(weight) => Chunk::of_conv2d(&weight.geometry, batch, elements),
            Form::Kept(weight) => Chunk::of_conv2d(&weight.geometry, batch, elements),
            Form::Dense(weight) => Chunk::of_dense(weight.outputs, batch, elements),
        }
    }

    /// Writes one chunk of the map of `xs`, one tensor for each part, or for each of the first parts, to `out`. Tensors are
    /// `[batch, in_channels, height, width]` or `[batch, inputs]`.
    ///
    /// # Panics
    /// If a slice has another length or the chunk is not one of [`LinearWeight::chunks`] for this `batch`.
    pub fn product(&self, batch: usize, xs: &[&[W]], chunk: &Chunk, out: &mut [W]) {
        self.check(batch, xs);
        assert_eq!(out.len(), chunk.len(), "linear map: sizes do not match");
        let weight = match &self.form {
            Form::Conv2d(weight) => weight,
            Form::Kept(weight) => weight.packed(),
            Form::Dense(weight) => {
                let depth = xs.len() * weight.inputs;
                return shares::on_threads(chunk, depth, Cuts::of_dense(), out, |chunk, out| {
                    weight.product(batch, xs, chunk, out)
                });
            }
        };
        let depth = xs.len() * weight.geometry.depth();
        shares::on_threads(chunk, depth, Cuts::of_conv2d(&weight.geometry), out, |chunk, out| {
            // Compiled here, for both words, and not in every crate that multiplies.
            if const { W::BITS == 32 } {
                conv::product_u32(same::shared(weight), batch, same::all(xs), chunk, same::exclusive(out));
            } else {
                conv::product_u64(same::shared(weight), batch, same::all(xs), chunk, same::exclusive(out));
            }
        });
    }

    /// The whole map of `xs`, in the output's own layout.
    ///
    /// # Panics
    /// If a slice has another length.
    pub fn map(&self, batch: usize, xs: &[&[W]], out: &mut [W]) {
        const ELEMENTS: usize = 1 << 18;
        let (chunks, mut words) = (self.chunks(batch, ELEMENTS), Vec::new());
        let mut running = self.running(batch, xs, &chunks);
        for (index, chunk) in chunks.iter().enumerate() {
            words.resize(chunk.len(), W::ZERO);
            running.chunk(index, &mut words);
            chunk.scatter(&words, out);
        }
    }
}
