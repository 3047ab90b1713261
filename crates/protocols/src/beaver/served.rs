//! How a party starts, and what a model owner sends each role: all parties but the last the seed of their shares, the last one its
//! shares, the dealer nothing.

use std::sync::Arc;

use covey_kernels::elementwise;
use covey_ring::{Ring, Word};
use covey_transport::Endpoint;
use zeroize::Zeroizing;

use super::share::{Share, StoredShare};
use super::{Beaver, seeds_of};
use crate::api::{Options, Result};
use crate::masked::seed::{SEED_BYTES, Seed, expand};
use crate::party::Party;
use crate::randomness::SessionKeys;
use crate::served::{KeptRuns, Part, Served, Sharing};

impl<W: Word> Served for Beaver<W> {
    type Seeds = Option<Seed>;

    fn sharing(parties: usize) -> Sharing {
        let secret = |seeds: Vec<usize>, words| Part::Secret { seeds, words };
        let drawn = (0..parties - 1).map(|party| secret(vec![party], false));
        let roles = drawn.chain([secret(Vec::new(), true), Part::Dealer]).collect();
        Sharing { seeds: parties - 1, roles }
    }

    fn start(endpoint: Box<dyn Endpoint>, keys: SessionKeys, ring: Ring, options: Options, lane: u32) -> Result<Self> {
        Party::new::<Self>(endpoint, keys, ring, options, lane).map(Beaver::new)
    }

    const PREPARES_TOGETHER: bool = true;

    fn keeps_runs(_: &Options) -> bool {
        true
    }

    fn kept_runs(&mut self) -> Option<&mut dyn KeptRuns> {
        Some(&mut self.party)
    }

    fn weight_masks(&self) -> Zeroizing<Vec<u8>> {
        self.mask_seeds.clone()
    }

    fn restore_weight_masks(&mut self, masks: &[u8]) -> bool {
        let seeds = if self.number().is_some() { 1 } else { self.party.role.table.parties };
        if masks.len() != seeds * SEED_BYTES || self.weights > 0 {
            return false;
        }
        self.mask_seeds = Zeroizing::new(masks.to_vec());
        self.weight_seeds = seeds_of(masks);
        self.restored = true;
        true
    }

    fn share_parameter(value: &[W], seeds: &[&[u8; 32]], tensor: u64, ring: Ring) -> Vec<Arc<[W]>> {
        let mut last = value.to_vec();
        seeds.iter().for_each(|seed| elementwise::sub_assign(&mut last, &expand(seed, tensor, value.len())));
        last.iter_mut().for_each(|word| *word = ring.reduce(*word));
        vec![last.into()]
    }

    fn open_seeds(_: usize, seeds: &[&[u8; 32]]) -> Option<Seed> {
        seeds.first().map(|seed| Seed::new(seed))
    }

    fn load(
        _: usize,
        (shape, _): (&[usize], u32),
        seeds: &Option<Seed>,
        tensor: u64,
        words: Option<Vec<W>>,
    ) -> Option<StoredShare<W>> {
        let share = match (seeds, words) {
            (Some(seed), None) => Share::Drawn(seed.mask(tensor)),
            (None, Some(words)) if words.len() == shape.iter().product::<usize>() => Share::Held(words),
            (None, None) => Share::None,
            _ => return None,
        };
        Some(StoredShare { shape: shape.to_vec(), share })
    }
}
