//! What shares, weights and gates take of each party's memory.

use covey_ring::{BitTensor, Word};

use crate::api::{Geometry, Options, WeightKind};
use crate::cost::Gate;
use crate::masked::pieces;
use crate::memory::Held;

pub(super) fn bytes<W: Word>(held: &Held, options: &Options) -> Vec<u64> {
    let word = W::BYTES as u64;
    match *held {
        Held::Share(count) => vec![3 * word * count as u64; 4],
        Held::Bits { len, planes } => vec![(3 * 8 * BitTensor::words_per_plane(len) * planes) as u64; 4],
        Held::Weight { geometry, kind } => {
            // The parts of a dense layer's weight that are masks are drawn for each use.
            let streams = matches!((geometry, kind), (Geometry::Dense { .. }, WeightKind::Stored { .. }));
            let parts = match (kind == WeightKind::Public, streams) {
                (true, _) => [1, 1, 1, 1],
                (false, false) => [2, 2, 2, 2],
                (false, true) => [0, 1, 1, 1],
            };
            parts.map(|parts| parts * word * geometry.weights_len() as u64).to_vec()
        }
        Held::Gate(gate) => {
            let working = pieces::memory::<W>(gate.elements(), options);
            let inputs = match gate {
                Gate::Linear { geometry, batch, .. } => geometry.inputs(*batch) as u64 * word,
                _ => 0,
            };
            // The inputs of a map are copied in the form that its parts multiply, three times unless the weight is public; products
            // come with their asides.
            let public = matches!(gate, Gate::Linear { weight: WeightKind::Public, .. });
            vec![if public { inputs } else { 3 * inputs } + 2 * working; 4]
        }
    }
}
