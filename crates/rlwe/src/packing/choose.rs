//! The packing of least cost. Both parties choose from the same sizes and prices, in integers, and so alike.

use std::ops::Range;

use super::axis::Axis;
use super::price::{Counts, Price, Times};
use super::slots::span;
use super::tile::{self, Place, Tile, merges};

#[cfg(test)]
thread_local! {
    /// Costs of blocks that this thread has computed: most of what a choice takes.
    pub(super) static COSTS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Bits that neither message of a tile passes where smaller tiles can be had: links take messages of 1 GiB.
const LONGEST: u64 = 8_000_000_000;

/// The sizes that a choice depends on.
pub(super) struct Sizes<'a> {
    pub degree: usize,
    /// Responses are merged from at most 2^levels sums.
    pub levels: u32,
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
    /// Coefficients of a channel.
    pixels: usize,
    levels: u32,
    cost: u128,
}

impl Blocks {
    /// Ciphertexts of values and responses of a tile.
    fn messages(&self, sizes: &Sizes) -> (u64, u64) {
        let sums = sizes.outputs.div_ceil(self.outputs);
        (sizes.channels.div_ceil(self.channels) as u64, sums.div_ceil(1 << self.levels) as u64)
    }
}

/// How the output positions are cut: into pieces of so many, the last smaller.
#[derive(Clone, Copy)]
enum Cut {
    List(usize),
    Grid { images: usize, rows: usize, columns: usize },
}

/// Tiles of one shape: their weights make the same polynomials.
struct Shape {
    /// Coefficients of a channel, the fewest.
    pixels: usize,
    /// Whether they may be more.
    is_list: bool,
    /// Output positions of a tile.
    positions: usize,
    /// How many tiles, group sets not counted.
    times: usize,
    /// The output positions of the shape's tiles: of all (images × rows × columns) or of the list.
    parts: [Range<usize>; 3],
}

/// Whether a message is too long, and nanoseconds: the least is best.
pub(super) type Cost = (bool, u128);

struct Search<'a> {
    sizes: &'a Sizes<'a>,
    price: &'a Price,
    times: Times,
    channels: Vec<usize>,
    groups: Vec<usize>,
}

/// The tiles of least cost, and that cost without the results. `None` if not even one output position fits.
pub(super) fn tiles(sizes: &Sizes, price: &Price) -> Option<(Cost, Vec<Tile>)> {
    let search = Search {
        sizes,
        price,
        times: price.times(),
        channels: splits(sizes.channels, sizes.degree),
        groups: splits(sizes.groups, sizes.degree),
    };
    let cuts = if sizes.axes.iter().all(Axis::is_pointwise) { search.lists() } else { search.grids() };
    let mut best: Option<(Cost, Cut)> = None;
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
        let degree = self.sizes.degree;
        // Equal parts, and parts that fill polynomials.
        let full = splits(degree, self.positions().min(degree));
        let equal = apart(splits(self.positions(), degree).into_iter());
        full.into_iter().map(|size| degree / degree.div_ceil(size)).chain(equal).map(Cut::List).collect()
    }

    fn grids(&self) -> Vec<Cut> {
        let [height, width] = [0, 1].map(|axis| self.sizes.axes[axis].outputs);
        let degree = self.sizes.degree;
        let images = splits(self.sizes.batch, degree);
        let mut cuts: Vec<Cut> =
            images.into_iter().map(|images| Cut::Grid { images, rows: height, columns: width }).collect();
        let mut add = |rows, columns| cuts.push(Cut::Grid { images: 1, rows, columns });
        for rows in splits(height, degree) {
            splits(width, degree).into_iter().for_each(|columns| add(rows, columns));
        }
        // Stripes of any height or width.
        apart((1..=height.min(degree)).rev()).into_iter().for_each(|rows| add(rows, width));
        apart((1..=width.min(degree)).rev()).into_iter().for_each(|columns| add(height, columns));
        cuts
    }

    /// Calls `shape` for the shapes of a cut's tiles; ends where one does not fit.
    fn each_shape(&self, cut: Cut, mut shape: impl FnMut(Shape) -> Option<()>) -> Option<()> {
        match cut {
            Cut::List(size) => {
                for part in parts(self.positions(), size) {
                    shape(Shape {
                        pixels: part.len().min(size),
                        is_list: true,
                        positions: part.len().min(size),
                        times: part.len().div_ceil(size),
                        parts: [part, 0..1, 0..1],
                    })?;
                }
            }
            Cut::Grid { images, rows, columns } => {
                let [row_axis, column_axis] = self.sizes.axes;
                for of_images in parts(self.sizes.batch, images) {
                    for of_rows in parts(row_axis.outputs, rows) {
                        for of_columns in parts(column_axis.outputs, columns) {
                            let height = row_axis.piece(of_rows.start, of_rows.len().min(rows)).extent;
                            let width = column_axis.piece(of_columns.start, of_columns.len().min(columns)).extent;
                            let pixels = height.checked_mul(width)?.checked_mul(of_images.len().min(images))?;
                            let times = of_images.len().div_ceil(images)
                                * of_rows.len().div_ceil(rows)
                                * of_columns.len().div_ceil(columns);
                            let positions =
                                of_images.len().min(images) * of_rows.len().min(rows) * of_columns.len().min(columns);
                            let parts = [of_images.clone(), of_rows.clone(), of_columns];
                            shape(Shape { pixels, is_list: false, positions, times, parts })?;
                        }
                    }
                }
            }
        }
        Some(())
    }

    /// What all tiles of a cut cost, without the results, which are the same for all cuts.
    fn cost(&self, cut: Cut) -> Option<Cost> {
        let (mut too_long, mut sum) = (false, 0);
        self.each_shape(cut, |shape| {
            let blocks = self.blocks(&shape)?;
            let (inputs, responses) = blocks.messages(self.sizes);
            let results = self.sizes.outputs * blocks.groups * shape.positions;
            let counts = Counts { inputs, responses, results: results as u64, ..Counts::default() };
            too_long |= counts.bits_up(self.price).max(counts.bits_down(self.price)) > LONGEST;
            sum += blocks.cost;
            Some(())
        })?;
        Some((too_long, sum))
    }

    /// The best blocks for tiles of a shape. `None` if not even one channel fits.
    fn blocks(&self, shape: &Shape) -> Option<Blocks> {
        let mut best = None;
        // More levels than channels fill leave coefficients empty.
        let most = self.sizes.channels.next_power_of_two().ilog2();
        for levels in 1..=self.sizes.levels.min(most) {
            self.improve(&mut best, shape, shape.pixels, levels, self.times.transform);
        }
        if !shape.is_list || self.times.transform == 0 {
            self.improve(&mut best, shape, shape.pixels, 0, self.times.transform);
            return best;
        }
        // Channels at multiples of a power of two leave less to transform.
        let mut last = 0;
        for bits in 0..usize::BITS {
            let pixels = shape.pixels.next_multiple_of(1 << bits);
            if pixels > self.sizes.degree || pixels > 2 * shape.pixels {
                break;
            }
            if pixels != last {
                self.improve(&mut best, shape, pixels, 0, self.times.transform >> pixels.trailing_zeros());
                last = pixels;
            }
        }
        best
    }

    /// Replaces `best` by cheaper blocks with channels of `pixels` coefficients, if there are any.
    fn improve(&self, best: &mut Option<Blocks>, shape: &Shape, pixels: usize, levels: u32, transform: u128) {
        let (sizes, times) = (self.sizes, &self.times);
        let tiles = shape.times as u128;
        // Sums that are merged have as many channels as fit between neighbours.
        let most = sizes.channels.min(1 << levels);
        let merged = [sizes.channels.div_ceil(sizes.channels.div_ceil(most))];
        let channels = if levels == 0 { &self.channels[..] } else { &merged };
        for &groups in &self.groups {
            let room = (sizes.degree >> levels) / pixels / span(groups);
            let sets = sizes.groups.div_ceil(groups) as u128;
            for &channels in channels.iter().filter(|&&channels| channels <= room << levels) {
                #[cfg(test)]
                COSTS.with(|costs| costs.set(costs.get() + 1));
                let inputs = sizes.channels.div_ceil(channels) as u128;
                let sums = sizes.outputs.div_ceil(if levels == 0 { room / channels } else { room });
                let messages = inputs * times.input
                    + sums as u128 * times.sum
                    + merges(sums, levels) as u128 * times.merge
                    + sums.div_ceil(1 << levels) as u128 * times.response;
                let products = inputs * sums as u128;
                let outputs = sizes.outputs.div_ceil(sums);
                let transform = match levels {
                    0 => transform,
                    _ => tile::transform(transform, tile::is_short(shape.is_list, levels, outputs, groups), 1),
                };
                let cost = sets * (tiles * (messages + products * times.product) + products * transform);
                if best.is_none_or(|best| cost < best.cost) {
                    *best = Some(Blocks { channels, outputs, groups, pixels, levels, cost });
                }
            }
        }
    }

    /// The tiles of a cut that fits: tiles of the same weights follow one another.
    fn tiles(&self, cut: Cut) -> Vec<Tile> {
        let mut tiles = Vec::new();
        let _ = self.each_shape(cut, |shape| {
            let blocks = self.blocks(&shape)?;
            let places = self.places(cut, &shape, blocks.pixels);
            for groups in ranges(0..self.sizes.groups, blocks.groups) {
                tiles.extend(places.iter().map(|place| Tile {
                    groups: groups.clone(),
                    place: place.clone(),
                    channels: [blocks.channels, self.sizes.channels],
                    outputs: [blocks.outputs, self.sizes.outputs],
                    levels: blocks.levels,
                }));
            }
            Some(())
        });
        tiles
    }

    /// The output positions of every tile of a shape.
    fn places(&self, cut: Cut, shape: &Shape, pitch: usize) -> Vec<Place> {
        let [first, of_rows, of_columns] = shape.parts.clone();
        let (images, rows, columns) = match cut {
            Cut::List(size) => {
                return ranges(first, size).map(|positions| Place::List { positions, pitch }).collect();
            }
            Cut::Grid { images, rows, columns } => (images, rows, columns),
        };
        let mut places = Vec::new();
        for images in ranges(first, images) {
            for rows in ranges(of_rows.clone(), rows) {
                let rows = self.sizes.axes[0].piece(rows.start, rows.len());
                for columns in ranges(of_columns.clone(), columns) {
                    let columns = self.sizes.axes[1].piece(columns.start, columns.len());
                    places.push(Place::Grid { images: images.clone(), rows, columns });
                }
            }
        }
        places
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

/// Of descending sizes that differ by less than a part in 64, the first.
fn apart(sizes: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut last = usize::MAX;
    let mut kept = Vec::new();
    for size in sizes {
        if size < last - last / 64 {
            last = size;
            kept.push(size);
        }
    }
    kept
}

/// What is cut into full pieces of `size`, and the smaller piece that remains.
fn parts(all: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let full = all / size * size;
    [0..full, full..all].into_iter().filter(|part| !part.is_empty())
}

/// The pieces of `size` of a range one after the other, the last smaller.
fn ranges(all: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    all.clone().step_by(size).map(move |start| start..(start + size).min(all.end))
}
