//! One tile: which values, weights and results its polynomials hold, and at which coefficients.

use std::ops::Range;

use super::axis::Piece;
use super::price::Counts;
use super::slots::slots;

/// A part of the outputs that is computed on its own: output positions of some images and groups, all their channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    pub(super) groups: Range<usize>,
    pub(super) place: Place,
    /// Channels in a ciphertext and in all, of one group; phases count as channels.
    pub(super) channels: [usize; 2],
    /// Output channels in a response and in all, of one group.
    pub(super) outputs: [usize; 2],
}

/// The output positions of a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Positions in the order of the batch's images, where every position reads one element of a phase. A channel takes
    /// `pitch` coefficients, at least as many as there are positions.
    List { positions: Range<usize>, pitch: usize },
    /// A rectangle of the positions of whole images or of one.
    Grid { images: Range<usize>, rows: Piece, columns: Piece },
}

impl Place {
    /// Coefficients of one channel.
    pub(super) fn pixels(&self) -> usize {
        match self {
            Place::List { pitch, .. } => *pitch,
            Place::Grid { images, rows, columns } => images.len() * rows.extent * columns.extent,
        }
    }

    /// Output positions of one channel.
    fn positions(&self) -> usize {
        match self {
            Place::List { positions, .. } => positions.len(),
            Place::Grid { images, rows, columns } => images.len() * rows.outputs * columns.outputs,
        }
    }

    /// Coefficients before the first result: as many as shifts reach forward.
    fn reach(&self, shifts: [(isize, isize); 2]) -> usize {
        match self {
            Place::List { .. } => 0,
            Place::Grid { rows, columns, .. } => {
                let high = |(_, high): (isize, isize), piece: &Piece| (high + piece.offset()).max(0) as usize;
                high(shifts[0], rows) * columns.extent + high(shifts[1], columns)
            }
        }
    }
}

impl Tile {
    /// Ciphertexts of values that the tile needs, one for every block of channels.
    pub fn inputs(&self) -> usize {
        self.channels[1].div_ceil(self.channels[0])
    }

    /// Responses, one for every block of output channels. Each sums over all ciphertexts of the tile.
    pub fn responses(&self) -> usize {
        self.outputs[1].div_ceil(self.outputs[0])
    }

    /// How many results a response holds.
    pub fn results_len(&self, response: usize) -> usize {
        self.output_channels(response).len() * self.groups.len() * self.place.positions()
    }

    /// What the tile sends and computes on its own.
    pub fn counts(&self) -> Counts {
        let (inputs, responses) = (self.inputs() as u64, self.responses() as u64);
        let results = (self.outputs[1] * self.groups.len() * self.place.positions()) as u64;
        Counts { inputs, responses, results, products: inputs * responses, transforms: inputs * responses }
    }

    /// Whether the weights of both tiles make the same polynomials, block by block.
    pub fn same_weights(&self, other: &Tile) -> bool {
        let shape = |tile: &Tile| match &tile.place {
            Place::List { pitch, .. } => (1, [*pitch, 0], [0, 0]),
            Place::Grid { images, rows, columns } => {
                (images.len(), [rows.extent, columns.extent], [rows.offset(), columns.offset()])
            }
        };
        self.groups == other.groups
            && self.channels == other.channels
            && self.outputs == other.outputs
            && shape(self) == shape(other)
    }

    /// A power of two that divides the index of every weight's coefficient. The weights are a polynomial in X^step, whose transform
    /// has degree / step different values.
    pub fn weight_step(&self) -> usize {
        match self.place {
            Place::List { pitch, .. } => 1 << pitch.trailing_zeros(),
            Place::Grid { .. } => 1,
        }
    }

    /// The channels of a group in a ciphertext.
    pub(super) fn channels(&self, block: usize) -> Range<usize> {
        part(self.channels, block)
    }

    /// The output channels of a group in a response.
    pub(super) fn output_channels(&self, response: usize) -> Range<usize> {
        part(self.outputs, response)
    }

    /// Where things lie, for kernels with these shifts (of rows and of columns, smallest and largest).
    pub(super) fn layout(&self, shifts: [(isize, isize); 2]) -> Layout {
        let pixels = self.place.pixels();
        let step = self.channels[0] * pixels;
        Layout {
            slots: slots(self.groups.len()),
            slot: self.outputs[0] * step,
            pixels,
            step,
            base: step - pixels + self.place.reach(shifts),
        }
    }
}

/// Block `index` of `[block, all]` things.
fn part([block, all]: [usize; 2], index: usize) -> Range<usize> {
    (index * block).min(all)..((index + 1) * block).min(all)
}

/// Coefficients of a tile's polynomials. Every coefficient is below the degree: nothing wraps but products.
pub(super) struct Layout {
    /// The slot of every group.
    slots: Vec<usize>,
    /// Coefficients of a slot.
    slot: usize,
    /// Coefficients of a channel.
    pixels: usize,
    /// Coefficients between the results of two output channels.
    step: usize,
    /// The coefficient of the first result, and of the weight of channel 0 and shift 0.
    base: usize,
}

impl Layout {
    /// The first coefficient of a channel's values: of the tile's group `group`, channel `channel` of its block.
    pub(super) fn values(&self, group: usize, channel: usize) -> usize {
        self.slots[group] * self.slot + channel * self.pixels
    }

    /// The coefficient of a weight with `shift`, in coefficients of the values.
    pub(super) fn weight(&self, group: usize, output: usize, channel: usize, shift: isize) -> usize {
        let unshifted = self.slots[group] * self.slot + self.base + output * self.step - channel * self.pixels;
        unshifted.wrapping_add_signed(-shift)
    }

    /// The coefficient of the result at place 0 of an output channel.
    pub(super) fn result(&self, group: usize, output: usize) -> usize {
        2 * self.slots[group] * self.slot + self.base + output * self.step
    }
}
