//! Elements at public positions.

use covey_protocols::api::ZERO;
use covey_protocols::{Protocol, Shaped, api};
use covey_ring::Ring;

use crate::tensor_type::{most, number, operands, type_of};
use crate::{Arguments, Operator, Shared, TensorType, Value, indexing, wire};

/// Elements at public positions, the same in every sample: element (i, j, ..) of the result is the element of the
/// row-major sample at the sum of its offsets, or 0 where one of them is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gather {
    /// The offsets along each dimension of the result, the batch left out.
    pub axes: Vec<Vec<Option<u32>>>,
}

impl Operator for Gather {
    type Wire = wire::Gather;

    /// Offsets stand on the wire one higher, so that 0 is free for the absent one.
    fn decode(wire: wire::Gather) -> Result<Self, String> {
        let due: u64 = wire.sizes.iter().copied().map(u64::from).sum();
        if due != wire.offsets.len() as u64 {
            return Err(format!("holds {} offsets where its sizes {:?} need {due}", wire.offsets.len(), wire.sizes));
        }
        let mut rest = &wire.offsets[..];
        let axes = wire.sizes.iter().map(|&size| {
            let (axis, others) = rest.split_at(size as usize);
            rest = others;
            axis.iter().map(|offset| offset.checked_sub(1)).collect()
        });
        Ok(Gather { axes: axes.collect() })
    }

    fn encode(&self) -> wire::Gather {
        let offsets = self.axes.iter().flatten().map(|offset| offset.map_or(0, |offset| offset.saturating_add(1)));
        wire::Gather { sizes: self.axes.iter().map(|axis| number(&axis.len())).collect(), offsets: offsets.collect() }
    }

    fn options(&self) -> String {
        self.axes.iter().map(|axis| describe_offsets(axis)).collect::<Vec<_>>().join(" x ")
    }

    fn result_type(&self, inputs: &[&Value], _: &Value, _: Ring) -> Result<TensorType, String> {
        let ([x], axes) = (operands(inputs)?, &self.axes);
        let mut furthest = 0u64;
        for (axis, offsets) in axes.iter().enumerate() {
            if offsets.is_empty() {
                return Err(format!("takes no elements along dimension {axis} of the result"));
            }
            furthest += offsets.iter().flatten().copied().max().map_or(0, u64::from);
        }
        if furthest >= x.elements() as u64 {
            return Err(format!(
                "takes the element at offset {furthest} where '{}' has {} in a sample",
                x.name,
                x.elements()
            ));
        }
        Ok(TensorType { shape: axes.iter().map(Vec::len).collect(), ..type_of(x) })
    }

    fn certain_bits(&self, operands: &[u32], _: Ring) -> u32 {
        most(operands)
    }

    fn rearranges(&self) -> bool {
        true
    }

    fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        let samples = arguments.result.batched.then_some(arguments.batch);
        gather(protocol, &*arguments.share(protocol, 0)?, &self.axes, samples).map(Shared::Integers)
    }
}

/// Element (i, j, ..) of each sample of the result is the element of the row-major sample of x at the sum of its offsets,
/// one list for each dimension, or 0 where one of them is absent. x has `samples` samples, or `None` if it is one without a
/// batch dimension. Local.
pub fn gather<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    axes: &[Vec<Option<u32>>],
    samples: Option<usize>,
) -> api::Result<P::Arith> {
    let count = samples.unwrap_or(1);
    let size = x.shape().iter().product::<usize>() / count.max(1);
    let shape: Vec<usize> = samples.into_iter().chain(axes.iter().map(Vec::len)).collect();
    let sample = positions(axes, size);
    let indices = match count {
        1 => sample,
        _ => (0..count).flat_map(|n| sample.iter().map(move |&position| beyond(position, n * size))).collect(),
    };
    indexing::gathered(protocol, x, &shape, &indices)
}

/// Where each element of a sample of `size` comes from. A position past the sample must not reach into the next one: it is past
/// everything, for the protocol to refuse.
fn positions(axes: &[Vec<Option<u32>>], size: usize) -> Vec<u32> {
    let limit = size.min(ZERO as usize - 1) as u32;
    let mut positions = vec![0];
    for offsets in axes {
        let mut next = Vec::with_capacity(positions.len().saturating_mul(offsets.len()));
        for &position in &positions {
            next.extend(offsets.iter().map(|offset| offset.map_or(ZERO, |offset| beyond(position, offset as usize))));
        }
        positions = next;
    }
    positions.iter_mut().filter(|position| **position >= limit && **position != ZERO).for_each(|p| *p = ZERO - 1);
    positions
}

/// `position + by`, or 0's place for 0's; past what indices reach, the last of them.
fn beyond(position: u32, by: usize) -> u32 {
    match position {
        ZERO => ZERO,
        _ => (position as usize).saturating_add(by).min(ZERO as usize - 1) as u32,
    }
}

/// Few offsets one by one, many by their ends.
fn describe_offsets(axis: &[Option<u32>]) -> String {
    let one = |offset: &Option<u32>| offset.map_or("zero".to_string(), |offset| offset.to_string());
    match axis {
        [first, second, .., last] if axis.len() > 8 => {
            format!("[{}, {}, .., {}] ({})", one(first), one(second), one(last), axis.len())
        }
        _ => format!("[{}]", axis.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}
