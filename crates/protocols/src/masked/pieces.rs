//! Linear maps cut into pieces, from sizes alone: each is computed when its first tile's turn comes, so that it is masked and sent
//! while the next is computed.

use std::ops::Range;

use covey_kernels::Chunk;

use crate::api::{Geometry, MatmulShape};

/// Elements computed at once. At 2^18, 1 MiB of 32-bit words, reading all of a layer's weights again for each piece costs little,
/// and a piece is on its way within milliseconds.
pub(crate) const PIECE: usize = 1 << 18;

/// A tensor in pieces. How it is cut follows from sizes alone.
pub(crate) struct Pieces<Own, Placed> {
    /// Elements of each.
    pub lens: Vec<usize>,
    /// Writes this party's part of piece `index`.
    pub own: Own,
    /// Copies elements of piece `index`, from number `start` on, to their places in the whole.
    pub place: Placed,
}

/// Pieces one after the other, each but the last of `size` elements.
#[allow(clippy::type_complexity)] // A closure's type has no name.
pub(crate) fn consecutive<W: Copy, Own>(
    len: usize,
    size: usize,
    own: Own,
) -> Pieces<Own, impl Fn(usize, usize, &[W], &mut [W])> {
    let lens = lens(len, size);
    let place = move |index: usize, start: usize, part: &[W], tensor: &mut [W]| {
        tensor[index * size + start..][..part.len()].copy_from_slice(part);
    };
    Pieces { lens, own, place }
}

/// The output's shape, and its channels.
pub(crate) fn output(geometry: &Geometry, shape: &[usize]) -> Option<(Vec<usize>, usize)> {
    match geometry {
        Geometry::Conv2d(conv) => {
            let &[batch, channels, height, width] = shape else { return None };
            if channels != conv.in_channels || [height, width] != conv.input {
                return None;
            }
            let [height, width] = conv.output();
            Some((vec![batch, conv.out_channels, height, width], conv.out_channels))
        }
        Geometry::Dense { inputs, outputs } => {
            let (last, outer) = shape.split_last()?;
            (last == inputs).then(|| ([outer, &[*outputs]].concat(), *outputs))
        }
    }
}

/// Images, or samples of a dense layer, in a tensor of shape `shape`.
pub(crate) fn batch_of(geometry: &Geometry, shape: &[usize]) -> usize {
    match geometry {
        Geometry::Conv2d(_) => shape[0],
        Geometry::Dense { .. } => shape[..shape.len() - 1].iter().product(),
    }
}

/// Elements of the input of a map for `batch` images or samples.
pub(crate) fn batch_inputs(geometry: &Geometry, batch: usize) -> usize {
    match geometry {
        Geometry::Conv2d(conv) => conv.input_len() * batch,
        Geometry::Dense { inputs, .. } => inputs * batch,
    }
}

/// How a map's output is cut, from sizes alone.
pub(crate) fn chunks(geometry: &Geometry, batch: usize) -> Vec<Chunk> {
    match geometry {
        Geometry::Conv2d(conv) => Chunk::of_conv2d(conv, batch, PIECE),
        Geometry::Dense { outputs, .. } => Chunk::of_dense(*outputs, batch, PIECE),
    }
}

/// Elements of a matrix product computed at once: whole rows.
pub(crate) fn piece_of(shape: &MatmulShape) -> usize {
    (PIECE / shape.columns.max(1)).max(1) * shape.columns
}

/// The lengths of pieces of `size` elements, the last of what is left.
pub(crate) fn lens(count: usize, size: usize) -> Vec<usize> {
    (0..count).step_by(size.max(1)).map(|start| size.min(count - start)).collect()
}

/// The tiles of pieces of these lengths: piece and range within it.
pub(crate) fn tiles(lens: &[usize], tile: usize) -> Vec<(usize, Range<usize>)> {
    let of_piece = |(piece, &len): (usize, &usize)| {
        (0..len).step_by(tile).map(move |start| (piece, start..len.min(start + tile))).collect::<Vec<_>>()
    };
    lens.iter().enumerate().flat_map(of_piece).collect()
}

/// The lengths of the tiles of pieces of these lengths.
pub(crate) fn tile_lens(lens: impl IntoIterator<Item = usize>, tile: usize) -> impl Iterator<Item = usize> {
    lens.into_iter().flat_map(move |len| (0..len).step_by(tile).map(move |start| tile.min(len - start)))
}
