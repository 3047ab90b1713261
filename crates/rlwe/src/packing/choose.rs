//! The packing of least cost. Both parties choose from the same sizes and prices, in integers, and so alike.

use std::ops::Range;

use super::axis::{Axis, Piece};
use super::price::{Price, Times};
use super::slots::span;
use super::tile::{Place, Tile};

/// The sizes that a choice depends on.
pub(super) struct Sizes<'a> {
    pub degree: usize,
    pub batch: usize,
    pub groups: usize,
    /// Output channels of a group.
    pub outputs: usize,
    /// Channels of a group, phases counted.
    pub channels: usize,
    pub axes: &'a [Axis; 2],
}

/// How many channels, output channels and groups a polynomial holds, and what all groups cost then.
#[derive(Clone, Copy)]
struct Blocks {
    channels: usize,
    outputs: usize,
    groups: usize,
    cost: u128,
}

/// How the output positions are cut: into equal pieces of so many, the last smaller.
#[derive(Clone, Copy)]
enum Cut {
    List(usize),
    Grid { images: usize, rows: usize, columns: usize },
}

struct Search<'a> {
    sizes: &'a Sizes<'a>,
    times: Times,
    channels: Vec<usize>,
    groups: Vec<usize>,
    /// The best blocks by coefficients of a channel.
    known: Vec<Option<Blocks>>,
}

/// The tiles of least cost, and that cost without the results. `None` if not even one output position fits.
pub(super) fn tiles(sizes: &Sizes, price: &Price) -> Option<(u128, Vec<Tile>)> {
    let mut search = Search {
        sizes,
        times: price.times(),
        channels: splits(sizes.channels, sizes.degree),
        groups: splits(sizes.groups, sizes.degree),
        known: vec![None; sizes.degree + 1],
    };
    let cuts = if sizes.axes.iter().all(Axis::is_pointwise) { search.lists() } else { search.grids() };
    let mut best: Option<(u128, Cut)> = None;
    for cut in cuts {
        if let Some(cost) = search.cost(cut)
            && best.is_none_or(|(least, _)| cost < least)
        {
            best = Some((cost, cut));
        }
    }
    best.map(|(cost, cut)| (cost, search.tiles(cut)))
}

impl Search<'_> {
    fn positions(&self) -> usize {
        self.sizes.batch * self.sizes.axes[0].outputs * self.sizes.axes[1].outputs
    }

    fn lists(&self) -> Vec<Cut> {
        let mut last = usize::MAX;
        // Of sizes that differ by less than a part in 64, the first: long lists have too many.
        let apart = |&size: &usize| {
            let keep = size < last - last / 64;
            last = if keep { size } else { last };
            keep
        };
        splits(self.positions(), self.sizes.degree).into_iter().filter(apart).map(Cut::List).collect()
    }

    fn grids(&self) -> Vec<Cut> {
        let [rows, columns] = self.sizes.axes;
        let splits = |all| splits(all, self.sizes.degree);
        let mut cuts = Vec::new();
        for images in splits(self.sizes.batch) {
            cuts.push(Cut::Grid { images, rows: rows.outputs, columns: columns.outputs });
        }
        for rows in splits(rows.outputs) {
            cuts.extend(splits(columns.outputs).into_iter().map(|columns| Cut::Grid { images: 1, rows, columns }));
        }
        cuts
    }

    /// What all tiles of a cut cost, without the results, which are the same for all cuts.
    fn cost(&mut self, cut: Cut) -> Option<u128> {
        match cut {
            Cut::List(size) => {
                let mut sum = 0;
                for (length, times) in lengths(self.positions(), size) {
                    sum += times as u128 * self.blocks(length)?.cost;
                }
                Some(sum)
            }
            Cut::Grid { images, rows, columns } => {
                let mut sum = 0;
                for (images, image_times) in lengths(self.sizes.batch, images) {
                    for (rows, row_times) in lengths(self.sizes.axes[0].outputs, rows) {
                        for (columns, column_times) in lengths(self.sizes.axes[1].outputs, columns) {
                            let rows = self.sizes.axes[0].piece(0, rows).extent;
                            let columns = self.sizes.axes[1].piece(0, columns).extent;
                            let pixels = rows.checked_mul(columns)?.checked_mul(images)?;
                            let times = (image_times * row_times * column_times) as u128;
                            sum += times * self.blocks(pixels)?.cost;
                        }
                    }
                }
                Some(sum)
            }
        }
    }

    /// The best blocks for channels of `pixels` coefficients. `None` if not even one channel fits.
    fn blocks(&mut self, pixels: usize) -> Option<Blocks> {
        if pixels > self.sizes.degree {
            return None;
        }
        if self.known[pixels].is_none() {
            self.known[pixels] = self.best_blocks(self.sizes.degree / pixels);
        }
        self.known[pixels]
    }

    /// The best blocks where `room` channels fit a polynomial.
    fn best_blocks(&self, room: usize) -> Option<Blocks> {
        let mut best: Option<Blocks> = None;
        for &groups in &self.groups {
            let room = room / span(groups);
            let sets = self.sizes.groups.div_ceil(groups) as u128;
            for &channels in self.channels.iter().filter(|&&channels| channels <= room) {
                let inputs = self.sizes.channels.div_ceil(channels) as u128;
                let responses = self.sizes.outputs.div_ceil(room / channels);
                let cost = sets
                    * (inputs * self.times.input
                        + responses as u128 * (self.times.response + inputs * self.times.product));
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(Blocks { channels, outputs: self.sizes.outputs.div_ceil(responses), groups, cost });
                }
            }
        }
        best
    }

    fn tiles(&mut self, cut: Cut) -> Vec<Tile> {
        let mut places = Vec::new();
        match cut {
            Cut::List(size) => places.extend(ranges(self.positions(), size).map(Place::List)),
            Cut::Grid { images, rows, columns } => {
                let [row_axis, column_axis] = self.sizes.axes;
                let pieces = |axis: &Axis, size| -> Vec<Piece> {
                    ranges(axis.outputs, size).map(|range| axis.piece(range.start, range.len())).collect()
                };
                let (rows, columns) = (pieces(row_axis, rows), pieces(column_axis, columns));
                for images in ranges(self.sizes.batch, images) {
                    for &rows in &rows {
                        places.extend(columns.iter().map(|&columns| Place::Grid {
                            images: images.clone(),
                            rows,
                            columns,
                        }));
                    }
                }
            }
        }
        let mut tiles = Vec::new();
        for place in places {
            let Some(blocks) = self.blocks(place.pixels()) else { continue };
            tiles.extend(ranges(self.sizes.groups, blocks.groups).map(|groups| Tile {
                groups,
                place: place.clone(),
                channels: [blocks.channels, self.sizes.channels],
                outputs: [blocks.outputs, self.sizes.outputs],
            }));
        }
        tiles
    }
}

/// The sizes, up to `limit`, of equal parts into which `all` is cut: one size for every number of parts, descending.
fn splits(all: usize, limit: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = all.min(limit);
    while size > 0 {
        let parts = all.div_ceil(size);
        sizes.push(all.div_ceil(parts));
        size = (all - 1) / parts;
    }
    sizes
}

/// The lengths of the parts of `size`, the last smaller, each with how often it occurs.
fn lengths(all: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    [(size, all / size), (all % size, 1)].into_iter().filter(|&(length, times)| length > 0 && times > 0)
}

/// The parts of `size` one after the other.
fn ranges(all: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..all).step_by(size.max(1)).map(move |start| start..(start + size).min(all))
}
