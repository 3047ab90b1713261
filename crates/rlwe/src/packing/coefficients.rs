//! Where values, weights and results go, between tensors and coefficients.

use covey_ring::Word;

use super::Packing;
use super::axis::{Phase, Piece};
use super::tile::{Place, Tile};
use crate::merging::residue;

impl Packing {
    /// The input channel of a group and the phases that a tile's `channel` stands for.
    pub(super) fn channel(&self, channel: usize) -> (usize, [&Phase; 2]) {
        let [rows, columns] = &self.axes;
        let (of_rows, of_columns) = (rows.phases.len(), columns.phases.len());
        let phases = [&rows.phases[channel / of_columns % of_rows], &columns.phases[channel % of_columns]];
        (channel / of_columns / of_rows, phases)
    }

    fn shifts(&self) -> [(isize, isize); 2] {
        [0, 1].map(|axis| self.axes[axis].shifts())
    }

    /// The polynomial of a tile's ciphertext `input`, from `x` `[batch, in_channels, height, width]` into `out`, `degree` words.
    ///
    /// # Panics
    /// If a slice has another length, or `input` is not below [`Tile::inputs`].
    pub fn pack_input<W: Word>(&self, tile: &Tile, input: usize, x: &[W], out: &mut [W]) {
        assert!(
            x.len() == self.batch * self.geometry.input_len() && out.len() == self.degree && input < tile.inputs(),
            "packing: sizes do not match"
        );
        out.fill(W::ZERO);
        let layout = tile.layout(self.shifts());
        let channels = self.geometry.in_channels / self.geometry.groups;
        let mut apart = vec![W::ZERO; if layout.stride > 1 { tile.place.pixels() } else { 0 }];
        for (slot, group) in tile.groups.clone().enumerate() {
            for (index, channel) in tile.channels(input).enumerate() {
                let (channel, phases) = self.channel(channel);
                let out = &mut out[layout.values(slot, index)..];
                let channel = group * channels + channel;
                if layout.stride == 1 {
                    self.pack_channel(&tile.place, channel, phases, x, out);
                    continue;
                }
                apart.fill(W::ZERO);
                self.pack_channel(&tile.place, channel, phases, x, &mut apart);
                out.iter_mut().step_by(layout.stride).zip(&apart).for_each(|(out, &value)| *out = value);
            }
        }
    }

    /// The values of one channel and phase, at the beginning of `out`.
    fn pack_channel<W: Word>(&self, place: &Place, channel: usize, phases: [&Phase; 2], x: &[W], out: &mut [W]) {
        let [height, width] = self.geometry.input;
        let [row_axis, column_axis] = &self.axes;
        let line = |image: usize, row: usize| ((image * self.geometry.in_channels + channel) * height + row) * width;
        match place {
            Place::List { positions, .. } => {
                let shifts = phases.map(|phase| phase.taps[0].1);
                let per_image = row_axis.outputs * column_axis.outputs;
                let mut position = positions.start;
                while position < positions.end {
                    let (image, row) = (position / per_image, position % per_image / column_axis.outputs);
                    let first = position % column_axis.outputs;
                    let count = (column_axis.outputs - first).min(positions.end - position);
                    if let Some(row) = row_axis.input_at(phases[0], row as isize + shifts[0]) {
                        let x = &x[line(image, row)..][..width];
                        let out = &mut out[position - positions.start..][..count];
                        self.pack_row(phases[1], first as isize + shifts[1], x, out);
                    }
                    position += count;
                }
            }
            Place::Grid { images, rows, columns } => {
                for (index, image) in images.clone().enumerate() {
                    for place in 0..rows.filled {
                        if let Some(row) = row_axis.input_at(phases[0], rows.origin + place as isize) {
                            let x = &x[line(image, row)..][..width];
                            let start = (index * rows.extent + place) * columns.extent;
                            self.pack_row(phases[1], columns.origin, x, &mut out[start..][..columns.filled]);
                        }
                    }
                }
            }
        }
    }

    /// Elements `first..` of a phase of the row `x`; those outside stay as they are.
    fn pack_row<W: Word>(&self, phase: &Phase, first: isize, x: &[W], out: &mut [W]) {
        let axis = &self.axes[1];
        let skipped = first.min(0).unsigned_abs().min(out.len());
        let begin = (first.max(0) as usize).min(axis.phase_len(phase));
        let count = (axis.phase_len(phase) - begin).min(out.len() - skipped);
        let out = &mut out[skipped..][..count];
        if axis.stride == 1 {
            out.copy_from_slice(&x[phase.remainder + begin..][..count]);
            return;
        }
        let elements = x.iter().skip(phase.remainder + begin * axis.stride).step_by(axis.stride);
        out.iter_mut().zip(elements).for_each(|(out, &element)| *out = element);
    }

    /// The polynomial by which a tile's ciphertext `input` is multiplied for its sum `sum`: the first
    /// [`Packing::weights_len`] of its coefficients at multiples of [`Packing::weight_step`] into `out`, for all others are 0. `weight` is called with places in `[out_channels, in_channels / groups, kernel height, kernel width]`.
    ///
    /// # Panics
    /// If `out` has another length, or `input` or `sum` is not below its number.
    pub fn pack_weights(&self, tile: &Tile, sum: usize, input: usize, weight: impl Fn(usize) -> i64, out: &mut [i64]) {
        let step = self.weight_step(tile);
        assert!(
            out.len() == self.weights_len(tile) && input < tile.inputs() && sum < tile.sums(),
            "packing: sizes do not match"
        );
        out.fill(0);
        let layout = tile.layout(self.shifts());
        let [height, width] = self.geometry.kernel;
        let channels = self.geometry.in_channels / self.geometry.groups;
        for (slot, group) in tile.groups.clone().enumerate() {
            for (output, of_group) in tile.output_channels(sum).enumerate() {
                let filter = (group * tile.outputs[1] + of_group) * channels;
                for (index, channel) in tile.channels(input).enumerate() {
                    let (channel, [rows, columns]) = self.channel(channel);
                    let kernel = (filter + channel) * height * width;
                    for &(row, row_shift) in &rows.taps {
                        for &(column, column_shift) in &columns.taps {
                            let shift = tile.place.shift(row_shift, column_shift);
                            let coefficient = layout.weight(slot, output, index, shift);
                            out[coefficient / step] = weight(kernel + row * width + column);
                        }
                    }
                }
            }
        }
    }

    /// The coefficients of a tile's sum `sum` that are results.
    pub fn sum_results(&self, tile: &Tile, sum: usize) -> Vec<u32> {
        let mut positions = Vec::new();
        self.each_row(tile, sum, |coefficient, _, count| {
            positions.extend((coefficient as u32..).step_by(1 << tile.levels).take(count));
        });
        positions
    }

    /// The coefficients of a tile's response `response` that are results, in the order in which they are sent.
    pub fn results(&self, tile: &Tile, response: usize) -> Vec<u32> {
        let mut positions = Vec::with_capacity(tile.results_len(response));
        let before = (1 << tile.levels) - 1;
        for (index, sum) in tile.sums_of(response).enumerate() {
            let residue = residue(index, tile.levels) as u32;
            positions.extend(self.sum_results(tile, sum).into_iter().map(|at| at - before + residue));
        }
        positions
    }

    /// The results of a response, in the order of [`Packing::results`], to their places in `out` `[batch, out_channels, output
    /// height, output width]`. All responses of all tiles write every element once.
    ///
    /// # Panics
    /// If a slice has another length, or `response` is not below [`Tile::responses`].
    pub fn unpack<W: Word>(&self, tile: &Tile, response: usize, values: &[W], out: &mut [W]) {
        assert!(
            values.len() == tile.results_len(response)
                && out.len() == self.batch * self.geometry.output_len()
                && response < tile.responses(),
            "packing: sizes do not match"
        );
        let mut read = 0;
        for sum in tile.sums_of(response) {
            self.each_row(tile, sum, |_, element, count| {
                out[element..element + count].copy_from_slice(&values[read..read + count]);
                read += count;
            });
        }
    }

    /// Calls `row(first coefficient, first element of the output, how many)` for all results of a sum, whose coefficients are 2^levels
    /// apart.
    fn each_row(&self, tile: &Tile, sum: usize, mut row: impl FnMut(usize, usize, usize)) {
        let layout = tile.layout(self.shifts());
        let stride = layout.stride;
        let [height, width] = [0, 1].map(|axis| self.axes[axis].outputs);
        for (slot, group) in tile.groups.clone().enumerate() {
            for (index, of_group) in tile.output_channels(sum).enumerate() {
                let output = group * tile.outputs[1] + of_group;
                let start = layout.result(slot, index);
                let plane = |image: usize| (image * self.geometry.out_channels + output) * height * width;
                match &tile.place {
                    Place::List { positions, .. } => {
                        let mut position = positions.start;
                        while position < positions.end {
                            let (image, first) = (position / (height * width), position % (height * width));
                            let count = (height * width - first).min(positions.end - position);
                            row(start + (position - positions.start) * stride, plane(image) + first, count);
                            position += count;
                        }
                    }
                    Place::Grid { images, rows, columns } => {
                        for (index, image) in images.clone().enumerate() {
                            for line in 0..rows.outputs {
                                let place = (index * rows.extent + line) * columns.extent;
                                let element = plane(image) + (rows.first + line) * width + columns.first;
                                row(start + place * stride, element, columns.outputs);
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Place {
    /// A kernel element's shifts of rows and columns as one of coefficients.
    fn shift(&self, row: isize, column: isize) -> isize {
        let along = |shift: isize, piece: &Piece| shift + piece.offset();
        match self {
            Place::List { .. } => 0,
            Place::Grid { rows, columns, .. } => along(row, rows) * columns.extent as isize + along(column, columns),
        }
    }
}
