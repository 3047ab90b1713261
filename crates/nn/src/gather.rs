//! Elements at public positions.

use covey_protocols::Protocol;
use covey_protocols::api::Result;

use crate::indexing;

/// Element (i, j, ..) of each sample of the result is the element of the row-major sample of x at the sum of its offsets,
/// one list for each dimension, or 0 where one of them is absent. x has `samples` samples, or `None` if it is one without a
/// batch dimension. Local.
pub fn gather<P: Protocol>(
    protocol: &mut P,
    x: &P::Arith,
    axes: &[Vec<Option<u32>>],
    samples: Option<usize>,
) -> Result<P::Arith> {
    let count = samples.unwrap_or(1);
    let size = P::shape(x).iter().product::<usize>() / count.max(1);
    let mut positions = vec![Some(0)];
    for offsets in axes {
        let with = |position: Option<usize>| offsets.iter().map(move |offset| Some(position? + (*offset)? as usize));
        positions = positions.into_iter().flat_map(with).collect();
    }
    let shape: Vec<usize> = samples.into_iter().chain(axes.iter().map(Vec::len)).collect();
    let positions = &positions;
    // A position past the sample must not reach into the next one: past everything, the protocol refuses it.
    let place = move |n: usize, position: usize| if position < size { n * size + position } else { usize::MAX };
    let indices = (0..count).flat_map(|n| positions.iter().map(move |&position| Some(place(n, position?))));
    indexing::gather(protocol, x, &shape, indices)
}
