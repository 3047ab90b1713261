//! What shares, weights and gates take of each party's memory.

use covey_ring::{BitTensor, Word};

use crate::api::{Geometry, Options, WeightKind};
use crate::cost::Gate;
use crate::masked::lookup::Sets;
use crate::masked::pieces;
use crate::memory::Held;

pub(super) fn bytes<W: Word>(held: &Held, options: &Options) -> Vec<u64> {
    let word = W::BYTES as u64;
    match *held {
        Held::Share(count) | Held::Opened(count) => vec![2 * word * count as u64; 3],
        Held::Bits { len, planes } => vec![(2 * 8 * BitTensor::words_per_plane(len) * planes) as u64; 3],
        Held::Weight { geometry, kind } => {
            // The parts of a dense layer's weight that are masks are drawn for each use.
            let streams = matches!((geometry, kind), (Geometry::Dense { .. }, WeightKind::Stored { .. }));
            let parts = match (kind == WeightKind::Public, streams) {
                (true, _) => [1, 1, 1],
                (false, false) => [2, 2, 1],
                (false, true) => [0, 1, 1],
            };
            parts.map(|parts| parts * word * geometry.weights_len() as u64).to_vec()
        }
        Held::Gate(gate) => {
            let working = pieces::memory::<W>(gate.elements(), options);
            let sets = Sets::of_gate(gate).map_or(0, |sets| sets.bytes(gate.elements(), options));
            let more = match gate {
                Gate::Largest { count, maximum } => maximum.comparisons() as u64 * pieces::state::<W>(*count, options),
                _ => 0,
            };
            let working = working + sets + more;
            let inputs = match gate {
                Gate::Linear { geometry, other_inputs, batch, .. } => {
                    (geometry.inputs(*batch) + other_inputs) as u64 * word
                }
                _ => 0,
            };
            let public = matches!(gate, Gate::Linear { weight: WeightKind::Public, .. });
            // P0 multiplies by the difference of an input's masks, a public weight multiplies the sum of both components.
            let sums = [inputs, if public { inputs } else { 0 }, if public { inputs } else { 0 }];
            sums.map(|sums| sums + working).to_vec()
        }
    }
}
