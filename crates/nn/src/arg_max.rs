//! The index of the largest element.

use covey_protocols::api::Result;
use covey_protocols::{Comparison, Protocol};
use covey_ring::Tensor;

use crate::indexing::{Around, gather};
use crate::tree::{Pairs, pairs, rejoin};

/// Which index wins among equal maxima.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// The lowest.
    First,
    /// The highest.
    Last,
}

/// Index of the maximum along `axis`, as an integer of scale 0; the axis goes, or stays with size 1 if `keep_dims`.
/// `comparison` bounds differences of two elements.
///
/// A tree over neighbours that carries value and index. Every row of a level stands for a run of indices, all below those
/// of the next row, so a tie is settled by position.
pub fn arg_max<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    axis: usize,
    keep_dims: bool,
    tie: Tie,
    comparison: Comparison,
) -> Result<P::Arith> {
    let mut shape = P::shape(x).to_vec();
    let Around { outer, size, inner } = Around::axis(&shape, axis)?;
    if keep_dims {
        shape[axis] = 1;
    } else {
        shape.remove(axis);
    }
    let width = outer * inner;
    let by_index = (0..size * width).map(|i| {
        let (index, o, i) = (i / width, i % width / inner, i % inner);
        Some((o * size + index) * inner + i)
    });
    let mut values = gather(protocol, x, &[size * width], by_index)?;
    let ring = protocol.ring();
    let numbers = (0..size * width).map(|i| ring.wrap::<P::Word>((i / width) as i128)).collect();
    let mut indices = protocol.constant(&Tensor::new([size * width], numbers));
    let mut count = size;
    while count > 1 {
        let value = pairs(protocol, &values, count, width)?;
        let index = pairs(protocol, &indices, count, width)?;
        let (larger, winner) = compare(protocol, &value, &index, tie, comparison)?;
        values = rejoin(protocol, larger, value.rest.as_ref())?;
        indices = rejoin(protocol, winner, index.rest.as_ref())?;
        count = count.div_ceil(2);
    }
    Ok(protocol.reshape(&indices, &shape))
}

/// The larger of each pair and its index.
fn compare<P: Protocol>(
    protocol: &mut P,
    value: &Pairs<P::Arith>,
    index: &Pairs<P::Arith>,
    tie: Tie,
    comparison: Comparison,
) -> Result<(P::Arith, P::Arith)> {
    // `max` says where its first operand is strictly smaller, so the first operand is the one that wins a tie.
    let ((first, second), (first_index, second_index)) = match tie {
        Tie::First => ((&value.even, &value.odd), (&index.even, &index.odd)),
        Tie::Last => ((&value.odd, &value.even), (&index.odd, &index.even)),
    };
    let (larger, second_wins) = protocol.max(first, second, comparison)?;
    let step = protocol.sub(second_index, first_index)?;
    let taken = protocol.select(&second_wins, &step)?;
    Ok((larger, protocol.add(first_index, &taken)?))
}
