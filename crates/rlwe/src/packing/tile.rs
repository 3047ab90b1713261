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
    /// Output channels in a sum and in all, of one group.
    pub(super) outputs: [usize; 2],
    /// A response is merged from up to 2^levels sums. Channels then take turns, coefficient by coefficient.
    pub(super) levels: u32,
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

    /// Sums of products, one for every block of output channels. Each sums over all ciphertexts of the tile.
    pub fn sums(&self) -> usize {
        self.outputs[1].div_ceil(self.outputs[0])
    }

    /// Each response is merged from up to 2^levels sums; without levels it is one sum.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Responses, one for every 2^levels sums.
    pub fn responses(&self) -> usize {
        self.sums().div_ceil(1 << self.levels)
    }

    /// The sums of a response.
    pub fn sums_of(&self, response: usize) -> Range<usize> {
        part([1 << self.levels, self.sums()], response)
    }

    /// How many results a response holds.
    pub fn results_len(&self, response: usize) -> usize {
        let outputs: usize = self.sums_of(response).map(|sum| self.output_channels(sum).len()).sum();
        outputs * self.groups.len() * self.place.positions()
    }

    /// What the tile sends and computes on its own.
    pub fn counts(&self) -> Counts {
        let (inputs, sums) = (self.inputs() as u64, self.sums() as u64);
        let results = (self.outputs[1] * self.groups.len() * self.place.positions()) as u64;
        let (responses, merges) = (self.responses() as u64, merges(self.sums(), self.levels) as u64);
        Counts { inputs, sums, merges, responses, results, products: inputs * sums, transforms: inputs * sums }
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
            && self.levels == other.levels
            && shape(self) == shape(other)
    }

    /// A power of two that divides the index of every weight's coefficient. The weights are a polynomial in X^step, whose transform
    /// has degree / step different values.
    pub fn weight_step(&self) -> usize {
        match self.place {
            Place::List { pitch, .. } if self.levels == 0 => 1 << pitch.trailing_zeros(),
            _ => 1,
        }
    }

    /// How many coefficients of the weights' polynomial at multiples of the step there are, for a polynomial of so many, zeros beyond
    /// the last not counted.
    pub(super) fn weights_len(&self, all: usize) -> usize {
        if self.is_short() { 1 << self.levels } else { all }
    }

    /// Whether the weights lie in the first 2^levels coefficients: one output channel reads one element of each channel.
    fn is_short(&self) -> bool {
        is_short(matches!(self.place, Place::List { .. }), self.levels, self.outputs[0], self.groups.len())
    }

    /// What the transform of a polynomial of weights takes of that of a whole one.
    pub(super) fn transform(&self, whole: u128) -> u128 {
        transform(whole, self.is_short(), self.weight_step())
    }

    /// The channels of a group in a ciphertext.
    pub(super) fn channels(&self, block: usize) -> Range<usize> {
        part(self.channels, block)
    }

    /// The output channels of a group in a sum.
    pub(super) fn output_channels(&self, sum: usize) -> Range<usize> {
        part(self.outputs, sum)
    }

    /// Where things lie, for kernels with these shifts (of rows and of columns, smallest and largest).
    pub(super) fn layout(&self, shifts: [(isize, isize); 2]) -> Layout {
        let pixels = self.place.pixels();
        let reach = self.place.reach(shifts);
        let stride = 1 << self.levels;
        // Channels of a block lie one after the other, or where sums are merged at neighbouring coefficients.
        let (channel, channels) = match self.levels {
            0 => (pixels, self.channels[0]),
            _ => (1, stride),
        };
        let step = channels * pixels;
        Layout {
            slots: slots(self.groups.len()),
            slot: self.outputs[0] * step,
            stride,
            channel,
            step,
            base: (channels - 1) * channel + stride * reach,
        }
    }
}

/// Whether the weights of a tile lie in the first 2^levels coefficients.
pub(super) fn is_short(is_list: bool, levels: u32, outputs: usize, groups: usize) -> bool {
    is_list && levels > 0 && outputs == 1 && groups == 1
}

/// The part of a whole transform that a short polynomial takes, or one in X^step.
pub(super) fn transform(whole: u128, is_short: bool, step: usize) -> u128 {
    if is_short { whole * 3 / 5 } else { whole >> step.trailing_zeros() }
}

/// How often two sums become one, or one is brought to half of its distance, when responses are merged from up to 2^levels sums each.
pub(super) fn merges(sums: usize, levels: u32) -> usize {
    (1..=levels).map(|level| sums.div_ceil(1 << level)).sum()
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
    /// Coefficients between neighbours of a channel.
    pub stride: usize,
    /// Coefficients between channels.
    channel: usize,
    /// Coefficients between the results of two output channels.
    step: usize,
    /// The coefficient of the first result, and of the weight of channel 0 and shift 0.
    base: usize,
}

impl Layout {
    /// The first coefficient of a channel's values: of the tile's group `group`, channel `channel` of its block.
    pub(super) fn values(&self, group: usize, channel: usize) -> usize {
        self.slots[group] * self.slot + channel * self.channel
    }

    /// The coefficient of a weight with `shift`, in neighbours of the values.
    pub(super) fn weight(&self, group: usize, output: usize, channel: usize, shift: isize) -> usize {
        let unshifted = self.slots[group] * self.slot + self.base + output * self.step - channel * self.channel;
        unshifted.wrapping_add_signed(-shift * self.stride as isize)
    }

    /// The coefficient of the result at place 0 of an output channel.
    pub(super) fn result(&self, group: usize, output: usize) -> usize {
        2 * self.slots[group] * self.slot + self.base + output * self.step
    }
}
