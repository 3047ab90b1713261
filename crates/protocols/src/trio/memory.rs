//! What shares, weights and gates take of each party's memory.

use covey_ring::{BitTensor, Word};

use crate::api::{Geometry, Options, WeightKind};
use crate::cost::Gate;
use crate::masked::pieces::PIECE;
use crate::memory::Held;

/// Bytes an element of a tile in flight takes beside its word: bit planes, masks, material.
const STATE: u64 = 96;

pub(super) fn bytes<W: Word>(held: &Held, options: &Options) -> Vec<u64> {
    let word = W::BYTES as u64;
    match *held {
        Held::Share(count) => vec![2 * word * count as u64; 3],
        Held::Bits { len, planes } => vec![(2 * 8 * BitTensor::words_per_plane(len) * planes) as u64; 3],
        Held::Weight { geometry, kind } => {
            let (len, streams) = match geometry {
                Geometry::Conv2d(conv) => (conv.weights_len(), false),
                // The parts that are masks are drawn for each use.
                Geometry::Dense { inputs, outputs } => (inputs * outputs, matches!(kind, WeightKind::Stored { .. })),
            };
            let parts = match (kind == WeightKind::Public, streams) {
                (true, _) => [1, 1, 1],
                (false, false) => [2, 2, 1],
                (false, true) => [0, 1, 1],
            };
            parts.map(|parts| parts * word * len as u64).to_vec()
        }
        Held::Gate(gate) => {
            let count = gate.elements() as u64;
            let in_flight = count.min((options.window * options.tile_size()) as u64);
            // The piece that is computed, and the results of pieces not yet whole.
            let pieces = count.min(3 * PIECE as u64) * word;
            let tiles = in_flight * (4 * word + STATE * word / 4);
            let inputs = match gate {
                Gate::Linear { geometry: Geometry::Conv2d(conv), batch, .. } => {
                    (conv.input_len() * batch) as u64 * word
                }
                Gate::Linear { geometry: Geometry::Dense { inputs, .. }, batch, .. } => (inputs * batch) as u64 * word,
                _ => 0,
            };
            let public = matches!(gate, Gate::Linear { weight: WeightKind::Public, .. });
            // P0 multiplies by the difference of an input's masks, a public weight multiplies the sum of both components.
            let sums = [inputs, if public { inputs } else { 0 }, if public { inputs } else { 0 }];
            sums.map(|sums| sums + pieces + tiles).to_vec()
        }
    }
}
