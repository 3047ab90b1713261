//! The patch matrix of a batch, given block by block.

use std::ops::Range;

use covey_ring::Word;

use super::ConvGeometry;
use crate::gemm::Panels;

/// Row (channel, kernel row, kernel column), column (image, output row, output column): the input that output position
/// multiplies with that weight, 0 in the padding.
pub(super) struct Patches<'a, W> {
    pub(super) geometry: &'a ConvGeometry,
    pub(super) output: [usize; 2],
    pub(super) group: usize,
    pub(super) x: &'a [W],
}

/// Output positions `0..output` along one axis that read inside `0..input`: position `o` reads `o * stride + shift - pad`.
#[inline(always)]
pub(super) fn inside(output: usize, input: usize, stride: usize, shift: usize, pad: usize) -> Range<usize> {
    let first = if pad > shift { (pad - shift).div_ceil(stride) } else { 0 };
    let end = if input + pad > shift { (input + pad - shift - 1) / stride + 1 } else { 0 };
    first.min(output)..end.clamp(first.min(output), output)
}

impl<W: Word> Panels<W> for Patches<'_, W> {
    #[inline(always)]
    fn pack(&self, rows: Range<usize>, columns: Range<usize>, stride: usize, out: &mut [W]) {
        let &Patches { geometry, output: [_, width], group, x } = self;
        let ([height_in, width_in], kernel) = (geometry.input, geometry.kernel);
        let (channels, positions) = (geometry.in_channels / geometry.groups, self.output[0] * width);
        let plane = height_in * width_in;
        // The columns are runs of output rows; each run is filled for every row of the block in turn.
        let mut column = columns.start;
        while column < columns.end {
            let (image, position) = (column / positions, column % positions);
            let (row_out, from) = (position / width, position % width);
            let run = (width - from).min(columns.end - column);
            let image = &x[(image * geometry.in_channels + group * channels) * plane..][..channels * plane];
            let (mut channel, mut kernel_row, mut kernel_column) =
                (rows.start / (kernel[0] * kernel[1]), rows.start / kernel[1] % kernel[0], rows.start % kernel[1]);
            for out in out.chunks_mut(stride).take(rows.len()) {
                let out = &mut out[column - columns.start..][..run];
                let (shift_row, shift) = (kernel_row * geometry.dilations[0], kernel_column * geometry.dilations[1]);
                let row_in = (row_out * geometry.strides[0] + shift_row).wrapping_sub(geometry.pads[0]);
                if row_in < height_in {
                    let row = &image[channel * plane + row_in * width_in..][..width_in];
                    let valid = inside(width, width_in, geometry.strides[1], shift, geometry.pads[1]);
                    let first = valid.start.clamp(from, from + run) - from;
                    let end = valid.end.clamp(from + first, from + run) - from;
                    out[..first].fill(W::ZERO);
                    out[end..].fill(W::ZERO);
                    if first < end {
                        let start = (from + first) * geometry.strides[1] + shift - geometry.pads[1];
                        copy(&row[start..], geometry.strides[1], &mut out[first..end]);
                    }
                } else {
                    out.fill(W::ZERO);
                }
                kernel_column += 1;
                if kernel_column == kernel[1] {
                    (kernel_column, kernel_row) = (0, kernel_row + 1);
                    if kernel_row == kernel[0] {
                        (kernel_row, channel) = (0, channel + 1);
                    }
                }
            }
            column += run;
        }
    }
}

/// Every `stride`-th word of `from`.
#[inline(always)]
fn copy<W: Word>(from: &[W], stride: usize, to: &mut [W]) {
    match stride {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => to.iter_mut().zip(from.chunks(2)).for_each(|(to, from)| *to = from[0]),
        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, &from)| *to = from),
    }
}
