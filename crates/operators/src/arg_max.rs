//! The index of the largest element.

use covey_protocols::{Comparison, Protocol, Shaped, api};
use covey_ring::{Ring, Tensor};

use crate::indexing::{Around, gather};
use crate::tensor_type::{Dim, bad_axis, full, number, operands, to_type};
use crate::tree::{Pairs, pairs, rejoin};
use crate::{Arguments, Operator, Requirements, Shared, TensorType, Value, wire};

/// Index of the maximum along `axis`, as an integer of scale 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgMax {
    /// Over the full shape, never the batch.
    pub axis: usize,
    /// Among equal maxima the last index wins, else the first.
    pub select_last: bool,
    /// The axis stays, with size 1.
    pub keep_dims: bool,
}

impl Operator for ArgMax {
    type Wire = wire::ArgMax;

    fn decode(wire: wire::ArgMax) -> Result<Self, String> {
        Ok(ArgMax { axis: wire.axis as usize, select_last: wire.select_last, keep_dims: wire.keep_dims })
    }

    fn encode(&self) -> wire::ArgMax {
        wire::ArgMax { axis: number(&self.axis), select_last: self.select_last, keep_dims: self.keep_dims }
    }

    fn options(&self) -> String {
        let tie = if self.select_last { "last" } else { "first" };
        format!("axis {}, {tie} wins{}", self.axis, if self.keep_dims { ", keep dims" } else { "" })
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let ([x], &ArgMax { axis, keep_dims, .. }) = (operands(inputs)?, self);
        let mut dims = full(x);
        match dims.get(axis) {
            Some(Dim::Size(_)) if keep_dims => dims[axis] = Dim::Size(1),
            Some(Dim::Size(_)) => _ = dims.remove(axis),
            _ => return Err(bad_axis(axis, x)),
        }
        to_type(dims, 0)
    }

    fn largest_constant(&self, operands: &[&Value]) -> u64 {
        operands[0].full_shape(1)[self.axis] as u64 - 1
    }

    fn requirements(&self, x: &Value, _: &Value) -> Requirements {
        Requirements::comparison(x.bound.bits + 1)
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let tie = if self.select_last { Tie::Last } else { Tie::First };
        arg_max(protocol, &*arguments.share(protocol, 0)?, self.axis, self.keep_dims, tie, arguments.difference())
            .map(Shared::Integers)
    }
}

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
pub fn arg_max<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    axis: usize,
    keep_dims: bool,
    tie: Tie,
    comparison: Comparison,
) -> api::Result<P::Arith> {
    let mut shape = x.shape().to_vec();
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
fn compare<P: Protocol + ?Sized>(
    protocol: &mut P,
    value: &Pairs<P::Arith>,
    index: &Pairs<P::Arith>,
    tie: Tie,
    comparison: Comparison,
) -> api::Result<(P::Arith, P::Arith)> {
    // `max` says where its first operand is strictly smaller, so the first operand is the one that wins a tie.
    let ((first, second), (first_index, second_index)) = match tie {
        Tie::First => ((&value.even, &value.odd), (&index.even, &index.odd)),
        Tie::Last => ((&value.odd, &value.even), (&index.odd, &index.even)),
    };
    let (larger, second_wins) = protocol.max(first.clone(), second, comparison)?;
    let step = protocol.sub(second_index, first_index)?;
    let taken = protocol.select(&second_wins, &step)?;
    Ok((larger, protocol.add(first_index, &taken)?))
}
