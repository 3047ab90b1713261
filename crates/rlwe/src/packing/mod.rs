//! How linear maps become products of polynomials modulo X^N + 1.
//!
//! One party has values, the other weights. A [`Packing`] cuts the map into [`Tile`]s that are independent of each other. Of a
//! tile, the party with the values sends [`Tile::inputs`] ciphertexts, one for every block of channels. The other computes
//! [`Tile::sums`], one for every block of output channels: the sum over the ciphertexts, each times a polynomial of weights. It answers
//! with [`Tile::responses`], each one sum or merged from several.
//! Some coefficients of a response are results; the others never leave the party with the weights.
//!
//! A block of C channels of P coefficients has channel `c`, coefficient `p` at `c P + p`. Output channel `o` has its weights at
//! `B + o C P - c P - shift` and its results at `B + o C P + p`, where B is the least number that makes no index negative. So C
//! channels, M output channels and P coefficients need `C M P <= N`. Strides are removed first: every stride-th row and column
//! is a channel of its own. Several groups share a polynomial at slots whose products do not meet.
//!
//! Results fill a C-th of a response. Where responses can be merged ([`crate::Merger`]), C is up to 2^k, and channel `c`, coefficient `p`
//! is at `p 2^k + c`. Weights are at `B + o 2^k P + 2^k - 1 - c - 2^k shift`, and the results of one product at multiples of 2^k less
//! one, so that a response merged from 2^k sums is full of them.
//!
//! Everything here depends on sizes alone; no coefficient's place depends on a value.

mod axis;
mod choose;
mod coefficients;
mod map;
mod price;
mod slots;
mod tile;

#[cfg(test)]
mod counts;
#[cfg(test)]
mod tests;

use covey_kernels::ConvGeometry;

use axis::Axis;
pub use map::Map;
pub use price::{Counts, Price};
pub use tile::Tile;

/// A map cut into tiles of polynomials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    geometry: ConvGeometry,
    batch: usize,
    degree: usize,
    axes: [Axis; 2],
    tiles: Vec<Tile>,
}

impl Packing {
    /// The packing of least cost for `batch` images into polynomials of `degree` coefficients, with responses merged from up to 2^levels
    /// sums. It depends on its arguments alone, so that both parties choose alike. A map of no image has no tile.
    ///
    /// # Panics
    /// If `degree` is 0, or the map's geometry has not passed [`ConvGeometry::checked`].
    pub fn choose(map: &Map, batch: usize, degree: usize, price: &Price, levels: u32) -> Packing {
        assert!(degree > 0, "packing: polynomials without coefficients");
        let geometry = map.geometry();
        // Kernels of several elements also as products of matrices, with a channel for every element: at least one of both fits.
        let best = [false, true].into_iter().filter_map(|unrolled| {
            let axes = [0, 1].map(|axis| Axis::new(&geometry, axis, unrolled));
            let phases: usize = axes.iter().map(|axis| axis.phases.len()).product();
            let sizes = choose::Sizes {
                degree,
                levels,
                batch,
                groups: geometry.groups,
                outputs: geometry.out_channels / geometry.groups,
                channels: geometry.in_channels / geometry.groups * phases,
                axes: &axes,
            };
            choose::tiles(&sizes, price).map(|(cost, tiles)| (cost, axes, tiles))
        });
        let Some(((_, cost), axes, tiles)) = best.min_by_key(|(cost, ..)| *cost) else {
            let axes = [0, 1].map(|axis| Axis::new(&geometry, axis, true));
            return Packing { geometry, batch, degree, axes, tiles: Vec::new() };
        };
        let packing = Packing { geometry, batch, degree, axes, tiles };
        debug_assert!(
            packing.nanoseconds(price) <= cost + price.nanoseconds(packing.counts().results * price.result_bits)
        );
        packing
    }

    /// The map as a convolution of one image.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    /// Images.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Coefficients of a polynomial.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// Independent parts. Those with the same weights follow one another.
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// The tiles in runs of the same weights: [`Packing::pack_weights`] gives the same polynomials for all tiles of a run.
    pub fn runs(&self) -> impl Iterator<Item = &[Tile]> {
        self.tiles.chunk_by(Tile::same_weights)
    }

    /// A power of two, below the degree, that divides the index of every weight's coefficient in `tile`'s polynomials.
    pub fn weight_step(&self, tile: &Tile) -> usize {
        tile.weight_step().min((self.degree / 2).max(1))
    }

    /// The levels of the tile with the most.
    pub fn levels(&self) -> u32 {
        self.tiles.iter().map(Tile::levels).max().unwrap_or(0)
    }

    /// The coefficients at multiples of the step that [`Packing::pack_weights`] writes; all beyond are 0.
    pub fn weights_len(&self, tile: &Tile) -> usize {
        tile.weights_len(self.degree.div_ceil(self.weight_step(tile)))
    }

    /// What all tiles send and compute.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for run in self.runs() {
            run.iter().for_each(|tile| counts.add(tile.counts()));
            counts.transforms -= run[1..].iter().map(|tile| tile.counts().transforms).sum::<u64>();
        }
        counts
    }

    /// Bits of all messages, in both directions.
    pub fn bits(&self, price: &Price) -> u64 {
        self.counts().bits(price)
    }

    /// The time of all messages and of the work, as the choice counts it.
    pub fn nanoseconds(&self, price: &Price) -> u128 {
        let (counts, times) = (self.counts(), price.times());
        let transform = |run: &[Tile]| {
            let transforms = run[0].counts().transforms;
            u128::from(transforms) * run[0].transform(times.transform)
        };
        u128::from(counts.inputs) * times.input
            + u128::from(counts.sums) * times.sum
            + u128::from(counts.merges) * times.merge
            + u128::from(counts.responses) * times.response
            + u128::from(counts.products) * times.product
            + self.runs().map(transform).sum::<u128>()
            + price.nanoseconds(counts.results * price.result_bits)
    }

    /// The largest number of products of a value and a weight in one result.
    pub fn terms(&self) -> usize {
        self.geometry.in_channels / self.geometry.groups * self.taps()
    }

    /// The largest number of weights in the polynomials of one sum: every coefficient of it, noise included, is a sum of at most so many
    /// products.
    pub fn weights_per_sum(&self) -> usize {
        let groups_and_outputs = self.tiles.iter().map(|tile| tile.groups.len() * tile.outputs[0]).max();
        groups_and_outputs.unwrap_or(0) * self.terms()
    }

    /// Weights in the polynomial of one product of `tile`, zeros included.
    pub fn weights_per_product(&self, tile: &Tile, sum: usize, input: usize) -> usize {
        let taps: usize = tile.channels(input).map(|channel| self.channel_taps(channel)).sum();
        tile.groups.len() * tile.output_channels(sum).len() * taps
    }

    /// Kernel elements that read a value somewhere.
    fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.phases.iter().map(|phase| phase.taps.len()).sum::<usize>()).product()
    }

    /// Kernel elements that read a channel.
    fn channel_taps(&self, channel: usize) -> usize {
        let (_, [rows, columns]) = self.channel(channel);
        rows.taps.len() * columns.taps.len()
    }
}
