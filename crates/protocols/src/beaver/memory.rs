//! What shares, weights and gates take of each role's memory: the parties', then the dealer's.

use covey_ring::{BitTensor, Word};

use super::linear::weights_len;
use crate::api::{Geometry, Options, WeightKind};
use crate::cost::Gate;
use crate::masked::pieces::PIECE;
use crate::memory::Held;

/// Bytes an element of a tile in flight takes beside its word, for words of 32 bits: bit planes, masks, material.
const STATE: u64 = 96;

pub(super) fn bytes<W: Word>(held: &Held, options: &Options) -> Vec<u64> {
    let word = W::BYTES as u64;
    let roles = |party: u64, dealer: u64| [vec![party; options.parties], vec![dealer]].concat();
    match *held {
        // The dealer's zeros are never written, so they take no memory.
        Held::Share(count) => roles(word * count as u64, 0),
        Held::Bits { len, planes } => roles((8 * BitTensor::words_per_plane(len) * planes) as u64, 0),
        Held::Weight { geometry, kind } => {
            let bytes = word * weights_len(geometry) as u64;
            match (kind, geometry) {
                (WeightKind::Public, _) => roles(bytes, 0),
                // The mask is drawn for each use.
                (_, Geometry::Dense { .. }) => roles(bytes, 0),
                (_, Geometry::Conv2d(_)) => roles(2 * bytes, bytes),
            }
        }
        Held::Gate(gate) => {
            let count = gate.elements() as u64;
            let in_flight = count.min((options.window * options.tile_size()) as u64);
            let pieces = count.min(3 * PIECE as u64) * word;
            let tiles = in_flight * (4 * word + STATE * word / 4);
            let inputs = match gate {
                Gate::Linear { weight: WeightKind::Public, .. } => 0,
                Gate::Linear { geometry: Geometry::Conv2d(conv), batch, .. } => (conv.input_len() * batch) as u64,
                Gate::Linear { geometry: Geometry::Dense { inputs, .. }, batch, .. } => (inputs * batch) as u64,
                Gate::Matmul { shape, .. } => (shape.batch * shape.inner * (shape.rows + shape.columns)) as u64,
                Gate::Product { count, .. } => 2 * *count as u64,
                _ => 0,
            };
            roles(2 * inputs * word + pieces + tiles, inputs * word + pieces + tiles)
        }
    }
}
