//! What shares, weights and gates take of each role's memory: the parties', then the dealer's.

use covey_kernels::threads;
use covey_ring::{BitTensor, Ring, Word};

use super::lookup::{LookupPlan, MOST_TABLES};
use crate::api::{Geometry, Options, WeightKind};
use crate::cost::Gate;
use crate::masked::pieces;
use crate::memory::Held;

pub(super) fn bytes<W: Word>(held: &Held, ring: Ring, options: &Options) -> Vec<u64> {
    let word = W::BYTES as u64;
    let roles = |party: u64, dealer: u64| [vec![party; options.parties], vec![dealer]].concat();
    match *held {
        // The dealer's zeros are never written, so they take no memory.
        Held::Share(count) => roles(word * count as u64, 0),
        Held::Opened(count) => roles(2 * word * count as u64, word * count as u64),
        Held::Bits { len, planes } => roles((8 * BitTensor::words_per_plane(len) * planes) as u64, 0),
        Held::Weight { geometry, kind } => {
            let bytes = word * geometry.weights_len() as u64;
            match (kind, geometry) {
                (WeightKind::Public, _) => roles(bytes, 0),
                (WeightKind::Computed, _) => roles(2 * bytes, bytes),
                // The mask is drawn for each use.
                (_, Geometry::Dense { .. }) => roles(bytes, 0),
                (_, Geometry::Conv2d(_)) => roles(2 * bytes, bytes),
            }
        }
        Held::Gate(&Gate::Lookup { count, index_bits, tables }) => {
            let plan = LookupPlan::new((index_bits, tables.min(MOST_TABLES)), ring, options);
            let [held, computed] = plan.memory(W::BYTES);
            let tile = count.min(options.tile_size()) as u64;
            let in_flight = count.min(options.window * options.tile_size()) as u64;
            let at_once = threads::in_use().min(count.div_ceil(options.tile_size())) as u64;
            let working = pieces::memory::<W>(count, options) + tile * computed * at_once;
            roles(working + in_flight * held, working)
        }
        Held::Gate(gate) => {
            let working = pieces::memory::<W>(gate.elements(), options);
            let inputs = match gate {
                _ if options.pipelines.inter_linear => 0,
                Gate::Linear { weight: WeightKind::Public, .. } => 0,
                Gate::Linear { geometry, batch, .. } => geometry.inputs(*batch) as u64,
                Gate::Matmul { shape, .. } => (shape.batch * shape.inner * (shape.rows + shape.columns)) as u64,
                Gate::Product { count, .. } => 2 * *count as u64,
                _ => 0,
            };
            roles(2 * inputs * word + working, inputs * word + working)
        }
    }
}
