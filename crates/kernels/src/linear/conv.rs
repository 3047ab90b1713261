//! Convolutions: the matrix product weights · patches, or directly where groups are too small for one.

use covey_ring::Word;

use super::{Chunk, Part};
use crate::ConvGeometry;
use crate::conv::{ByTaps, Patches, depthwise};
use crate::gemm::{Columns, Product, convolve, fast, lanes, product};
use crate::words::same;

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::{
    conv::fast::Tiles,
    dispatch::{Isa, level},
    gemm::amx,
};

/// The weight of a convolution.
pub(super) struct Weight<W> {
    pub(super) geometry: ConvGeometry,
    form: Form<W>,
}

impl<W> same::Over<W> for Weight<W> {
    type With<V> = Weight<V>;
}

/// [`Weight::product`].
pub(super) fn product_u32(weight: &Weight<u32>, batch: usize, xs: &[&[u32]], chunk: &Chunk, out: &mut [u32]) {
    weight.product(batch, xs, chunk, out);
}

/// [`Weight::product`].
pub(super) fn product_u64(weight: &Weight<u64>, batch: usize, xs: &[&[u64]], chunk: &Chunk, out: &mut [u64]) {
    weight.product(batch, xs, chunk, out);
}

enum Form<W> {
    /// One input channel in each group: every part as it is.
    Direct(Vec<Vec<W>>),
    /// Rows of output channels, in each the weights of all parts.
    Rows(Vec<W>),
    /// The same for each group, in tiles of limbs.
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    Tiles(Vec<amx::Packed<W>>),
    /// Words in the order in which a fast convolution makes its terms of them.
    Fast(fast::Weights<W>),
    /// The same where their products are of tiles of limbs.
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    FastTiles(amx::fast::Weights<W>),
}

impl<W: Word> Weight<W> {
    pub(super) fn new(geometry: &ConvGeometry, parts: Vec<Part<W>>, fast: bool) -> Self {
        let len = geometry.weights_len();
        let parts: Vec<Vec<W>> = parts.into_iter().map(|part| part.into_words(len)).collect();
        let geometry = geometry.flattened();
        let form = if geometry.is_depthwise() { Form::Direct(parts) } else { packed(&geometry, parts, fast) };
        Weight { geometry, form }
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.form {
            Form::Direct(parts) => parts.iter().map(|part| size_of_val(&part[..])).sum(),
            Form::Rows(words) => size_of_val(&words[..]),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            Form::Tiles(groups) => groups.iter().map(amx::Packed::bytes).sum(),
            Form::Fast(weights) => weights.bytes(),
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            Form::FastTiles(weights) => weights.bytes(),
        }
    }

    fn product(&self, batch: usize, xs: &[&[W]], chunk: &Chunk, out: &mut [W]) {
        let geometry = &self.geometry;
        let (positions, columns) = (geometry.positions(), chunk.columns());
        assert!(
            chunk.rows.end <= geometry.out_channels && chunk.images.end <= batch && chunk.run.end <= positions,
            "linear map: sizes do not match"
        );
        if let Form::Direct(parts) = &self.form {
            out.fill(W::ZERO);
            for (x, w) in xs.iter().zip(parts) {
                depthwise::add(geometry, &depthwise::Block::of(chunk), x, w, out);
            }
            return;
        }
        if let Form::Fast(weights) = &self.form {
            return match fast::tiles::<W>(geometry, &chunk.images, &chunk.run, lanes::<W>()) {
                Some(tiles) => {
                    let (rows, tiles) = (chunk.rows.clone(), &tiles);
                    convolve(&fast::Convolution { weights, geometry, xs, rows, tiles }, out);
                }
                None => by_taps(weights, geometry, xs, chunk, out),
            };
        }
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        if let Form::FastTiles(weights) = &self.form {
            let tiles = Tiles::new(geometry, chunk.images.clone(), chunk.run.clone());
            // SAFETY: weights have this form only where the process may use tiles.
            return unsafe { amx::fast::convolve(weights, geometry, xs, chunk.rows.clone(), &tiles, out) };
        }
        let channels = geometry.out_channels / geometry.groups;
        let whole = chunk.images.len() == 1 || chunk.run.len() == positions;
        assert!(whole, "columns are counted from image to image: a chunk of several has all their positions");
        let first = chunk.images.start * positions + chunk.run.start;
        for group in chunk.rows.start / channels..chunk.rows.end.div_ceil(channels) {
            let from = chunk.rows.start.max(group * channels);
            let to = chunk.rows.end.min((group + 1) * channels);
            let rows = from - group * channels..to - group * channels;
            let out = &mut out[(from - chunk.rows.start) * columns..(to - chunk.rows.start) * columns];
            let patches = Patches::new(geometry, group, xs, first);
            match &self.form {
                Form::Direct(_) | Form::Fast(_) => unreachable!("handled above"),
                #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
                Form::FastTiles(_) => unreachable!("handled above"),
                Form::Rows(words) => {
                    let k = xs.len() * geometry.depth();
                    let stride = words.len() / geometry.out_channels;
                    let a = &words[from * stride..to * stride];
                    out.fill(W::ZERO);
                    let operands = Product {
                        m: rows.len(),
                        n: columns,
                        k,
                        a,
                        stride,
                        b: &patches,
                        columns: Columns::plain(columns),
                    };
                    product(&operands, out);
                }
                #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
                Form::Tiles(groups) => {
                    let out = amx::Output { words: out, stride: columns, add: false };
                    // SAFETY: weights are packed in tiles only where the process may use them.
                    unsafe {
                        amx::product_packed(&groups[group], xs.len() * geometry.depth(), rows, &patches, columns, out)
                    }
                }
            }
        }
    }
}

/// A convolution by patches, of weights in the order for fewer products: where a chunk has too few tiles for those to pay.
fn by_taps<W: Word>(weights: &fast::Weights<W>, geometry: &ConvGeometry, xs: &[&[W]], chunk: &Chunk, out: &mut [W]) {
    let (rows, columns) = (chunk.rows.clone(), chunk.columns());
    let first = chunk.images.start * geometry.positions() + chunk.run.start;
    let patches = &Patches::new(geometry, 0, xs, first);
    out.fill(W::ZERO);
    for (channels, words) in weights.blocks(xs.len() * geometry.in_channels) {
        let stride = channels.len() * geometry.kernel.iter().product::<usize>();
        let operands = Product {
            m: rows.len(),
            n: columns,
            k: stride,
            a: &words[rows.start * stride..rows.end * stride],
            stride,
            b: &ByTaps { patches, channels },
            columns: Columns::plain(columns),
        };
        product(&operands, out);
    }
}

/// The weights as a matrix for each group, for the instruction set in use.
#[cfg_attr(any(not(target_arch = "x86_64"), feature = "portable-only"), allow(unused_variables))]
fn packed<W: Word>(geometry: &ConvGeometry, mut parts: Vec<Vec<W>>, fast: bool) -> Form<W> {
    let depth = geometry.depth();
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    {
        /// Fewer rows leave most of a tile empty.
        const ROWS: usize = 6;
        let channels = geometry.out_channels / geometry.groups;
        if level() == Isa::Amx && fast && geometry.is_fast_on_tiles() {
            return Form::FastTiles(amx::fast::Weights::new(geometry, &parts));
        }
        if level() == Isa::Amx && channels >= ROWS {
            let group = |group: usize| {
                let of_group: Vec<&[W]> =
                    parts.iter().map(|part| &part[group * channels * depth..(group + 1) * channels * depth]).collect();
                let left = amx::Left { parts: &of_group, stride: depth, rows: channels, depth };
                // SAFETY: a processor with tiles has AVX-512.
                unsafe { amx::Packed::new(&left) }
            };
            return Form::Tiles((0..geometry.groups).map(group).collect());
        }
    }
    if fast {
        return Form::Fast(fast::Weights::new(geometry, &parts));
    }
    if parts.len() == 1 {
        return Form::Rows(parts.remove(0));
    }
    let mut rows = Vec::with_capacity(parts.len() * geometry.weights_len());
    for channel in 0..geometry.out_channels {
        for part in &parts {
            rows.extend_from_slice(&part[channel * depth..(channel + 1) * depth]);
        }
    }
    Form::Rows(rows)
}

impl depthwise::Block {
    fn of(chunk: &Chunk) -> Self {
        depthwise::Block { channels: chunk.rows.clone(), images: chunk.images.clone(), positions: chunk.run.clone() }
    }
}
