//! What shares, weights and gates take of each party's memory.

use covey_ring::{BitTensor, Word};

use super::folding;
use crate::api::{Geometry, Options, WeightKind};
use crate::cost::Gate;
use crate::masked::lookup::Sets;
use crate::masked::pieces;
use crate::memory::Held;

pub(super) fn bytes<W: Word>(held: &Held, options: &Options) -> Vec<u64> {
    let word = W::BYTES as u64;
    match *held {
        Held::Share(count) | Held::Opened(count) => vec![3 * word * count as u64; 4],
        Held::Bits { len, planes } => vec![(3 * 8 * BitTensor::words_per_plane(len) * planes) as u64; 4],
        Held::Weight { geometry, kind } => {
            // The parts of a dense layer's weight that are masks are drawn for each use.
            let streams = matches!((geometry, kind), (Geometry::Dense { .. }, WeightKind::Stored { .. }));
            let parts = match (kind == WeightKind::Public, streams) {
                (true, _) => [1, 1, 1, 1],
                (false, false) => [2, 2, 2, 2],
                (false, true) => [0, 1, 1, 1],
            };
            // Combinations of its columns, and what they are computed from where the kernel has it in another order.
            let combined = matches!(kind, WeightKind::Stored { .. }) && folding::pays_for_map(geometry, 1);
            let [challenges, narrow, kept] = if combined { folding::weight_words(geometry) } else { [0; 3] };
            let beside = [
                2 * challenges + 4 * narrow,
                challenges + narrow + kept,
                challenges,
                2 * challenges + 4 * narrow + kept,
            ];
            let words = parts.map(|parts| parts * geometry.weights_len() as u64);
            words.iter().zip(beside).map(|(words, beside)| word * (words + beside as u64)).collect()
        }
        Held::Gate(gate) => {
            let working = pieces::memory::<W>(gate.elements(), options);
            // Besides the set, the place's bits are held under a mask, and turned.
            let sets = Sets::of_gate(gate).map_or(0, |sets| 3 * sets.bytes(gate.elements(), options));
            let working = working + sets;
            let combined = match gate {
                Gate::Linear { geometry, batch, weight: WeightKind::Stored { .. }, .. }
                    if folding::pays_for_map(geometry, *batch) =>
                {
                    Some(folding::memory_of_map::<W>(geometry, *batch))
                }
                _ => None,
            };
            let inputs = match gate {
                Gate::Linear { geometry, other_inputs, batch, .. } => {
                    (geometry.inputs(*batch) + other_inputs) as u64 * word
                }
                _ => 0,
            };
            // The inputs of a map are copied in the form that its parts multiply, three times unless the weight is public; products
            // come with their asides.
            let public = matches!(gate, Gate::Linear { weight: WeightKind::Public, .. });
            let words = match combined {
                // And pieces of what both sent.
                Some(sums) => 2 * inputs + sums as u64 + 2 * working,
                None if public => inputs + 2 * working,
                None => 3 * inputs + 2 * working,
            };
            vec![words; 4]
        }
    }
}
