//! Two parties among servers: their stock of OTs is made in the session, a model owner's weights go to P0 as they are.

use std::ops::Range;
use std::sync::Arc;

use covey_kernels::constant_time::declassified;
use covey_ot::stock::Reserved;
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use super::stock::Supply;
use super::{StoredShare, TwoParty, division, silent_stock};
use crate::api::{Options, Result, Truncation};
use crate::cost::OtCount;
use crate::randomness::{DrawPosition, SessionKeys};
use crate::served::{KeptRuns, Part, Served, Sharing, StoredRun};
use crate::store::Material;

/// Where the name of a session's stock is drawn: from a run that no inference is.
const STOCK: DrawPosition = DrawPosition { gate: 0, tile: 0 };

impl<W: Word> Served for TwoParty<W> {
    type Seeds = ();

    /// P0 belongs to the model owner.
    fn sharing(_: usize) -> Sharing {
        Sharing { seeds: 0, roles: vec![Part::Secret { seeds: Vec::new(), words: true }, Part::Public] }
    }

    /// Beside the one in common, each has a key of its own. From P0's come the seeds that it gives a client, which P1 must not have; from
    /// P1's the masks of preprocessed layers, which P0 must not have.
    fn key_holders(role: usize, _: usize) -> Vec<Option<Vec<usize>>> {
        match role {
            0 => vec![Some(vec![0]), Some(vec![0, 1])],
            _ => vec![Some(vec![0, 1]), Some(vec![1])],
        }
    }

    fn admits_shift(ring: Ring, Truncation { bits, bound, .. }: Truncation) -> bool {
        match ring {
            Ring::Pow2(l) => (1..=l - 2).contains(&bits) && bound < l,
            Ring::Odd(_) => (1..ring.bits()).contains(&bits) && division::admits::<W>(ring, 1 << bits, bound),
        }
    }

    fn admits_division(ring: Ring, divisor: u64, bound: u32) -> bool {
        division::admits::<W>(ring, divisor, bound)
    }

    fn start(endpoint: Box<dyn Endpoint>, keys: SessionKeys, ring: Ring, options: Options, lane: u32) -> Result<Self> {
        let me = endpoint.me().min(1);
        // Both derive the same from their key, which is fresh for the session; it may be public, as the key cannot be told from it, and
        // indices of matrices follow from it.
        let name = declassified(keys.generators(u64::MAX, lane).seed(1 - me, STOCK, 0));
        TwoParty::new(endpoint, keys, silent_stock(me, name), ring, options, lane)
    }

    const STOCKED: bool = true;

    /// Products of masks.
    fn keeps_runs(options: &Options) -> bool {
        options.preprocess_linear
    }

    fn kept_runs(&mut self) -> Option<&mut dyn KeptRuns> {
        Some(self)
    }

    fn expect(&mut self, ots: OtCount) {
        let mut all = self.reservations.promised();
        all += ots;
        self.stock.expect(all);
    }

    fn supply(&mut self, runs: Range<u64>, ots: Reserved) {
        self.supplies.push(Supply { runs, ots });
    }

    fn share_parameter(value: &[W], _: &[&[u8; 32]], _: u64, _: Ring) -> Vec<Arc<[W]>> {
        vec![value.into()]
    }

    fn open_seeds(_: usize, _: &[&[u8; 32]]) {}

    fn load(
        role: usize,
        (shape, bits): (&[usize], u32),
        _: &(),
        _: u64,
        words: Option<Vec<W>>,
    ) -> Option<StoredShare<W>> {
        match (role, words) {
            (0, Some(words)) if words.len() == shape.iter().product::<usize>() => {
                Some(StoredShare::owned(Tensor::new(shape, words), bits))
            }
            (1, None) => Some(StoredShare::absent(shape, bits)),
            _ => None,
        }
    }
}

impl<W: Word> KeptRuns for TwoParty<W> {
    /// Their OTs come from the stock of the session in which they are online.
    fn keep_runs(&mut self) {
        self.keeps_runs = true;
    }

    fn take_run(&mut self, run: u64) -> Option<Material> {
        self.party.take_run(run)
    }

    fn supply_run(&mut self, run: u64, stored: StoredRun) {
        self.party.supply_run(run, stored);
    }
}
