//! The patch matrix of a batch, given block by block.

use std::ops::Range;

use covey_ring::Word;

use super::ConvGeometry;
use crate::gemm::{self, Panels};
use crate::words::{clear, copy_run};

/// Row (part, channel, kernel row, kernel column), column (image, output row, output column): the input that output position
/// multiplies with that weight, 0 in the padding.
pub(crate) struct Patches<'a, W> {
    pub(crate) geometry: &'a ConvGeometry,
    pub(crate) output: [usize; 2],
    pub(crate) group: usize,
    /// The input tensors, one for each part of the sum.
    pub(crate) parts: &'a [&'a [W]],
    /// The column to count from.
    pub(crate) first: usize,
    /// Working memory of the form for tiles.
    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    pub(super) places: std::cell::RefCell<super::tiles::Places>,
}

impl<'a, W: Word> Patches<'a, W> {
    pub(crate) fn new(geometry: &'a ConvGeometry, group: usize, parts: &'a [&'a [W]], first: usize) -> Self {
        let output = geometry.output();
        Patches {
            geometry,
            output,
            group,
            parts,
            first,
            #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
            places: Default::default(),
        }
    }
}

/// Output positions `0..output` along one axis that read inside `0..input`: position `o` reads `o * stride + shift - pad`.
#[inline(always)]
pub(super) fn inside(output: usize, input: usize, stride: usize, shift: usize, pad: usize) -> Range<usize> {
    // Most strides are 1, and divisions take longer than the copies that they bound.
    let steps = |distance: usize| if stride == 1 { distance } else { distance.div_ceil(stride) };
    let first = steps(pad.saturating_sub(shift)).min(output);
    first..steps((input + pad).saturating_sub(shift)).clamp(first, output)
}

impl<W: Word> Panels<W> for Patches<'_, W> {
    #[inline(always)]
    fn pack(&self, rows: Range<usize>, columns: Range<usize>, stride: usize, out: &mut [W]) {
        let depth = self.geometry.depth();
        let mut row = rows.start;
        while row < rows.end {
            let (part, within) = (row / depth, row % depth);
            let count = (depth - within).min(rows.end - row);
            let out = &mut out[(row - rows.start) * stride..];
            self.pack_part(self.parts[part], within..within + count, columns.clone(), stride, out);
            row += count;
        }
    }

    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    #[inline(always)]
    unsafe fn tiles(&self, rows: Range<usize>, columns: Range<usize>, panel: usize, out: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { super::tiles::pack(self, rows, columns, panel, out) }
    }

    /// Where kernels are much wider than what they yield, as those of a weight's gradient are: a kernel row meets neighbours of an input row.
    fn has_long_columns(&self) -> bool {
        let geometry = self.geometry;
        geometry.dilations[1] == 1 && geometry.kernel[1] >= 2 * self.output[1]
    }

    #[inline(always)]
    fn pack_columns(&self, rows: Range<usize>, columns: Range<usize>, out: &mut [W]) {
        if !self.has_long_columns() {
            return gemm::transpose(self, rows, columns, out);
        }
        let (depth, count) = (self.geometry.depth(), rows.len());
        for (column, out) in columns.zip(out.chunks_exact_mut(count.max(1))) {
            let mut row = rows.start;
            while row < rows.end {
                let (part, within) = (row / depth, row % depth);
                let few = (depth - within).min(rows.end - row);
                self.pack_column(self.parts[part], within..within + few, column, &mut out[row - rows.start..][..few]);
                row += few;
            }
        }
    }
}

/// The rows of some channels (input channels, part after part), tap after tap: row (kernel row, kernel column, channel).
pub(crate) struct ByTaps<'a, W> {
    pub(crate) patches: &'a Patches<'a, W>,
    /// Those past the last part are zeros.
    pub(crate) channels: Range<usize>,
}

impl<W: Word> Panels<W> for ByTaps<'_, W> {
    #[inline(always)]
    fn pack(&self, rows: Range<usize>, columns: Range<usize>, stride: usize, out: &mut [W]) {
        let count = self.channels.len();
        let mut row = rows.start;
        while row < rows.end {
            let (tap, first) = (row / count, row % count);
            let few = (count - first).min(rows.end - row);
            let channels = self.channels.start + first..self.channels.start + first + few;
            self.pack_tap(tap, channels, columns.clone(), stride, &mut out[(row - rows.start) * stride..]);
            row += few;
        }
    }

    #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
    unsafe fn tiles(&self, _: Range<usize>, _: Range<usize>, _: usize, _: *mut u8) {
        unreachable!("tiles of limbs have weights in another order")
    }
}

impl<W: Word> ByTaps<'_, W> {
    /// Rows of one tap, run by run of output positions.
    #[inline(always)]
    fn pack_tap(&self, tap: usize, channels: Range<usize>, columns: Range<usize>, stride: usize, out: &mut [W]) {
        let &Patches { geometry, output: [height, width], parts, first, .. } = self.patches;
        let ([height_in, width_in], in_channels) = (geometry.input, geometry.in_channels);
        let down = tap / geometry.kernel[1] * geometry.dilations[0];
        let right = tap % geometry.kernel[1] * geometry.dilations[1];
        let valid = inside(width, width_in, geometry.strides[1], right, geometry.pads[1]);
        let positions = height * width;
        let mut column = columns.start;
        while column < columns.end {
            let (image, position) = ((first + column) / positions, (first + column) % positions);
            let (row_out, from) = (position / width, position % width);
            let run = (width - from).min(columns.end - column);
            let row_in = (row_out * geometry.strides[0] + down).wrapping_sub(geometry.pads[0]);
            let begin = valid.start.clamp(from, from + run) - from;
            let end = if row_in < height_in { valid.end.clamp(from + begin, from + run) - from } else { begin };
            for (channel, out) in channels.clone().zip(out.chunks_mut(stride)) {
                let out = &mut out[column - columns.start..][..run];
                match parts.get(channel / in_channels) {
                    Some(x) if begin < end => {
                        clear(&mut out[..begin]);
                        clear(&mut out[end..]);
                        let row = ((image * in_channels + channel % in_channels) * height_in + row_in) * width_in;
                        let start = (from + begin) * geometry.strides[1] + right - geometry.pads[1];
                        copy(&x[row..][..width_in][start..], geometry.strides[1], &mut out[begin..end]);
                    }
                    _ => clear(out),
                }
            }
            column += run;
        }
    }
}

impl<W: Word> Patches<'_, W> {
    /// Rows of one part of one column, by runs of kernel columns, which are neighbours.
    #[inline(always)]
    fn pack_column(&self, x: &[W], rows: Range<usize>, column: usize, out: &mut [W]) {
        let &Patches { geometry, output: [height, width], group, first, .. } = self;
        let ([height_in, width_in], [kernel_rows, kernel_columns]) = (geometry.input, geometry.kernel);
        let (channels, positions) = (geometry.in_channels / geometry.groups, height * width);
        let plane = height_in * width_in;
        let (image, position) = ((first + column) / positions, (first + column) % positions);
        let image = &x[(image * geometry.in_channels + group * channels) * plane..][..channels * plane];
        // What the kernel's first row and column read, counted from the padding's edge.
        let (top, left) = (position / width * geometry.strides[0], position % width * geometry.strides[1]);
        let valid = geometry.pads[1].saturating_sub(left)..(width_in + geometry.pads[1]).saturating_sub(left);
        let mut row = rows.start;
        while row < rows.end {
            let (line, from) = (row / kernel_columns, row % kernel_columns);
            let run = (kernel_columns - from).min(rows.end - row);
            let out = &mut out[row - rows.start..][..run];
            let (channel, kernel_row) = (line / kernel_rows, line % kernel_rows);
            let row_in = (top + kernel_row * geometry.dilations[0]).wrapping_sub(geometry.pads[0]);
            if row_in < height_in {
                let read = valid.start.clamp(from, from + run)..valid.end.clamp(from, from + run);
                let (first, end) = (read.start - from, read.end.max(read.start) - from);
                clear(&mut out[..first]);
                clear(&mut out[end..]);
                if first < end {
                    let start = channel * plane + row_in * width_in + left + read.start - geometry.pads[1];
                    copy(&image[start..], 1, &mut out[first..end]);
                }
            } else {
                clear(out);
            }
            row += run;
        }
    }

    /// [`Panels::pack`] of rows of one part.
    #[inline(always)]
    fn pack_part(&self, x: &[W], rows: Range<usize>, columns: Range<usize>, stride: usize, out: &mut [W]) {
        let &Patches { geometry, output: [height, width], group, first, .. } = self;
        let ([height_in, width_in], kernel) = (geometry.input, geometry.kernel);
        let (channels, positions) = (geometry.in_channels / geometry.groups, height * width);
        let plane = height_in * width_in;
        // The columns are runs of output rows; each run is filled for every row of the block in turn.
        let mut column = columns.start;
        while column < columns.end {
            let (image, position) = ((first + column) / positions, (first + column) % positions);
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
                    clear(&mut out[..first]);
                    clear(&mut out[end..]);
                    if first < end {
                        let start = (from + first) * geometry.strides[1] + shift - geometry.pads[1];
                        copy(&row[start..], geometry.strides[1], &mut out[first..end]);
                    }
                } else {
                    clear(out);
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
        1 => copy_run(&from[..to.len()], to),
        2 => to.iter_mut().zip(from.chunks(2)).for_each(|(to, from)| *to = from[0]),
        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, &from)| *to = from),
    }
}
