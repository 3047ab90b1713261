//! Convolutions in which every group has one input channel: each weight scales a row of the input into a row of the output.

use std::ops::Range;

use covey_ring::Word;

use super::ConvGeometry;
use super::patches::inside;
use crate::dispatch;

/// A block of the output, stored as `[channels, images, positions]`.
pub(crate) struct Block {
    pub(crate) channels: Range<usize>,
    pub(crate) images: Range<usize>,
    pub(crate) positions: Range<usize>,
}

/// As [`super::conv2d`], for `groups == in_channels`.
pub(super) fn conv2d<W: Word>(geometry: &ConvGeometry, x: &[W], w: &[W], out: &mut [W]) {
    for (image, out) in out.chunks_exact_mut(geometry.output_len()).enumerate() {
        let block =
            Block { channels: 0..geometry.out_channels, images: image..image + 1, positions: 0..geometry.positions() };
        add(geometry, &block, x, w, out);
    }
}

/// Adds a block of the convolution of `x`, the whole batch, to `out`.
pub(crate) fn add<W: Word>(geometry: &ConvGeometry, block: &Block, x: &[W], w: &[W], out: &mut [W]) {
    match dispatch::isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx512 => unsafe { avx512(geometry, block, x, w, out) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has it.
        dispatch::Isa::Avx2 => unsafe { avx2(geometry, block, x, w, out) },
        _ => by_rows(geometry, block, x, w, out),
    }
}

/// [`by_rows`] compiled for AVX-512.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<W: Word>(geometry: &ConvGeometry, block: &Block, x: &[W], w: &[W], out: &mut [W]) {
    by_rows(geometry, block, x, w, out);
}

/// [`by_rows`] compiled for AVX2.
#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[target_feature(enable = "avx2")]
fn avx2<W: Word>(geometry: &ConvGeometry, block: &Block, x: &[W], w: &[W], out: &mut [W]) {
    by_rows(geometry, block, x, w, out);
}

/// One weight of the kernel: the output columns to which it adds, in a whole row, and where it reads.
struct Tap {
    row: usize,
    shift: usize,
    columns: Range<usize>,
}

impl Tap {
    fn all(geometry: &ConvGeometry) -> Vec<Tap> {
        let [height, width] = geometry.kernel;
        let columns = geometry.output()[1];
        let tap = |row: usize, column: usize| {
            let shift = column * geometry.dilations[1];
            let columns = inside(columns, geometry.input[1], geometry.strides[1], shift, geometry.pads[1]);
            Tap { row: row * geometry.dilations[0], shift, columns }
        };
        (0..height)
            .flat_map(|row| (0..width).map(move |column| (row, column)))
            .map(|(row, column)| tap(row, column))
            .collect()
    }
}

#[inline(always)]
fn by_rows<W: Word>(geometry: &ConvGeometry, block: &Block, x: &[W], w: &[W], out: &mut [W]) {
    let [height_in, width_in] = geometry.input;
    let [_, width] = geometry.output();
    let ([stride_row, stride], [pad_row, pad, ..]) = (geometry.strides, geometry.pads);
    // Rows are often shorter than what finding a tap's place in one costs.
    let taps = Tap::all(geometry);
    let multiplier = geometry.out_channels / geometry.groups;
    let first = (block.positions.start / width, block.positions.start % width);
    // Image by image, as the input lies: its planes may be shorter than a page is long.
    let planes = block.images.clone().flat_map(|image| block.channels.clone().map(move |channel| (image, channel)));
    for (image, channel) in planes {
        let row = (channel - block.channels.start) * block.images.len() + image - block.images.start;
        let mut out = &mut out[row * block.positions.len()..][..block.positions.len()];
        let plane = image * geometry.in_channels + channel / multiplier;
        let x = &x[plane * height_in * width_in..];
        let w = &w[channel * taps.len()..][..taps.len()];
        let (mut row, mut from) = first;
        while !out.is_empty() {
            let columns = from..width.min(from + out.len());
            let (out_row, rest) = out.split_at_mut(columns.len());
            for (tap, &weight) in taps.iter().zip(w) {
                let row_in = (row * stride_row + tap.row).wrapping_sub(pad_row);
                let valid = tap.columns.start.max(columns.start)..tap.columns.end.min(columns.end);
                if row_in < height_in && !valid.is_empty() {
                    let x = &x[row_in * width_in + valid.start * stride + tap.shift - pad..];
                    add_scaled(stride, weight, x, &mut out_row[valid.start - columns.start..valid.end - columns.start]);
                }
            }
            (row, from, out) = (row + 1, 0, rest);
        }
    }
}

/// Adds to each word of `out` the `stride`-th next of `x`, times `weight`.
#[inline(always)]
fn add_scaled<W: Word>(stride: usize, weight: W, x: &[W], out: &mut [W]) {
    match stride {
        1 => add_strided::<W, 1>(weight, x, out),
        2 => add_strided::<W, 2>(weight, x, out),
        _ => out.iter_mut().zip(x.iter().step_by(stride)).for_each(|(out, &x)| *out = out.add(weight.mul(x))),
    }
}

/// [`add_scaled`] in blocks whose lengths the compiler knows: of loops, it vectorises those that are longer than most rows.
#[inline(always)]
fn add_strided<W: Word, const STRIDE: usize>(weight: W, x: &[W], out: &mut [W]) {
    // What the last word is skipped for may lie past the end.
    let (steps, end) = x.as_chunks::<STRIDE>();
    let (out, last) = out.split_at_mut(steps.len().min(out.len()));
    let (steps, out) = add_blocks::<W, STRIDE, 16>(weight, steps, out);
    let (steps, out) = add_blocks::<W, STRIDE, 4>(weight, steps, out);
    add_blocks::<W, STRIDE, 1>(weight, steps, out);
    last.iter_mut().zip(end).for_each(|(out, &x)| *out = out.add(weight.mul(x)));
}

/// Adds whole blocks; returns what is left.
#[inline(always)]
fn add_blocks<'a, W: Word, const STRIDE: usize, const BLOCK: usize>(
    weight: W,
    x: &'a [[W; STRIDE]],
    out: &'a mut [W],
) -> (&'a [[W; STRIDE]], &'a mut [W]) {
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    let (whole, left) = x.split_at(blocks.len() * BLOCK);
    for (out, x) in blocks.iter_mut().zip(whole.as_chunks::<BLOCK>().0) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = out.add(weight.mul(x[0]));
        }
    }
    (left, rest)
}
