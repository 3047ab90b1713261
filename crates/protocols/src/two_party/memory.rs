//! What shares, weights and gates take of each party's memory. The stock of OTs is in `stock`.

use covey_ring::{BitTensor, Ring, Word};

use super::{lattice, linear, plan, product};
use crate::api::{Geometry, Options, WeightKind};
use crate::cost::Gate;
use crate::memory::Held;

/// Bytes an OT of a tile in flight takes: hashed, or as a block until its choice is known.
const OT_BYTES: u64 = 24;
/// Bytes an element of a tile in flight takes beside: bit planes and words.
const STATE: u64 = 256;

pub(super) fn bytes<W: Word>(held: &Held, ring: Ring, options: &Options) -> Vec<u64> {
    let word = W::BYTES as u64;
    match *held {
        Held::Share(count) | Held::Opened(count) => vec![word * count as u64; 2],
        Held::Bits { len, planes } => vec![(8 * BitTensor::words_per_plane(len) * planes) as u64; 2],
        Held::Weight { geometry, kind } => {
            // P1 has nothing of what P0 owns.
            let here = word * geometry.weights_len() as u64;
            vec![here, if matches!(kind, WeightKind::Stored { .. }) { 0 } else { here }]
        }
        Held::Gate(gate) => {
            let cost = plan::plan::<W>(gate, ring, options);
            let correlated_ots: u64 = cost.ot_count.by_sender.iter().sum();
            let count = gate.elements() as u64;
            let per_element = correlated_ots.div_ceil(count.max(1)) * OT_BYTES + STATE;
            if let Gate::Linear { geometry, batch, weight, .. } = *gate
                && let Some(lattice) = lattice::chosen(&geometry, batch, weight, ring, options)
            {
                // The products across, and their sum with what a party multiplies alone; masks, or what is multiplied instead of the input.
                let masked = if options.preprocess_linear { geometry.inputs(batch) as u64 } else { 0 };
                let beside = (2 * count + masked) * word + STATE;
                return lattice.memory(options).map(|bytes| bytes + beside).to_vec();
            }
            if let Gate::Linear { geometry, batch, weight, .. } = *gate
                && let Some(products) = lattice::Products::of_layer(&geometry, batch, weight, ring, options)
            {
                // The patches of all images, and the products across twice.
                let patches = match geometry {
                    Geometry::Conv2d(conv) => conv.groups * conv.depth() * batch * conv.positions(),
                    Geometry::Dense { .. } => 0,
                };
                let beside = (2 * count + patches as u64) * word + STATE;
                return products.memory(word, options).map(|bytes| bytes + beside).to_vec();
            }
            if let Gate::Matmul { shape, .. } = gate
                && let Some(products) = lattice::Products::chosen(shape, ring, options)
            {
                return products.memory(word, options).map(|bytes| bytes + count * word + STATE).to_vec();
            }
            let in_flight = match gate {
                Gate::Linear { .. } | Gate::Matmul { .. } => products::<W>(gate, ring, options),
                _ => count.min(options.window as u64 * options.tile_size() as u64) * per_element,
            };
            vec![in_flight + count * word; 2]
        }
    }
}

/// Tiles of a product in flight, the patches of one image, and a convolution's weight as a kernel reads it with what that is made of.
fn products<W: Word>(gate: &Gate, ring: Ring, options: &Options) -> u64 {
    let (shape, weights) = match *gate {
        Gate::Linear { geometry, batch, weight, .. } => {
            let packs = matches!(geometry, Geometry::Conv2d(_)) && weight != WeightKind::Public;
            (linear::shape(&geometry, batch, weight, ring), if packs { 2 * geometry.weights_len() } else { 0 })
        }
        Gate::Matmul { shape, .. } => (linear::matmul_shape(&shape, ring), 0),
        _ => return 0,
    };
    let patches = (shape.k * shape.n * W::BYTES) as u64;
    let multiplications = (shape.units * shape.m * shape.k * shape.n).min(options.window * product::TILE) as u64;
    let bits = product::parts(shape, options).iter().map(|part| part.shape.chosen_bits()).max().unwrap_or(0);
    // Two words for every bit and multiplication at the sender, and the message.
    (weights * W::BYTES) as u64 + patches + multiplications * u64::from(bits) * (3 * W::BYTES as u64)
}
