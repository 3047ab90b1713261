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

#[inline(always)]
fn by_rows<W: Word>(geometry: &ConvGeometry, block: &Block, x: &[W], w: &[W], out: &mut [W]) {
    let [height_in, width_in] = geometry.input;
    let [_, width] = geometry.output();
    let (taps, multiplier) = (geometry.kernel[0] * geometry.kernel[1], geometry.out_channels / geometry.groups);
    let planes = block.channels.clone().flat_map(|channel| block.images.clone().map(move |image| (channel, image)));
    for ((channel, image), out) in planes.zip(out.chunks_exact_mut(block.positions.len())) {
        let plane = image * geometry.in_channels + channel / multiplier;
        let x = &x[plane * height_in * width_in..][..height_in * width_in];
        let w = &w[channel * taps..][..taps];
        let mut position = block.positions.start;
        while position < block.positions.end {
            let (row, from) = (position / width, position % width);
            let columns = from..width.min(from + block.positions.end - position);
            let out = &mut out[position - block.positions.start..][..columns.len()];
            position += columns.len();
            for (tap, &weight) in w.iter().enumerate() {
                let shift_row = tap / geometry.kernel[1] * geometry.dilations[0];
                let row_in = (row * geometry.strides[0] + shift_row).wrapping_sub(geometry.pads[0]);
                if row_in < height_in {
                    let shift = tap % geometry.kernel[1] * geometry.dilations[1];
                    add_scaled(geometry, shift, weight, &x[row_in * width_in..][..width_in], columns.clone(), out);
                }
            }
        }
    }
}

/// Adds one tap to `columns` of one output row: column `o` gains `weight * x[o * stride + shift - pad]`.
#[inline(always)]
fn add_scaled<W: Word>(
    geometry: &ConvGeometry,
    shift: usize,
    weight: W,
    x: &[W],
    columns: Range<usize>,
    out: &mut [W],
) {
    let (stride, pad) = (geometry.strides[1], geometry.pads[1]);
    let valid = inside(columns.end, x.len(), stride, shift, pad);
    let valid = valid.start.max(columns.start)..valid.end;
    if valid.is_empty() {
        return;
    }
    let x = &x[valid.start * stride + shift - pad..];
    let out = &mut out[valid.start - columns.start..valid.end - columns.start];
    if stride == 1 {
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = out.add(weight.mul(x)));
    } else {
        out.iter_mut().zip(x.iter().step_by(stride)).for_each(|(out, &x)| *out = out.add(weight.mul(x)));
    }
}
