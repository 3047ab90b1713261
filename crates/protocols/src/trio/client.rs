//! The client's half: sharing inputs, receiving results, and sharing weights ahead of any session.

use std::sync::Arc;

use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use super::io;
use super::share::{Arith, Role};
use super::turned::turned;
use super::{PEERS, Trio, consistency};
use crate::api::{Options, Result, Shaped};
use crate::masked::seed::{Mask, Seed, expand};
use crate::party::Party;
use crate::randomness::SessionKeys;
use crate::scheduler::Scheduler;
use crate::served::{Client, ClientGates, KeptRuns, Part, Served, Sharing};

/// An outside data owner's end of a session.
pub type TrioClient<W> = Client<Trio<W>>;

impl<W: Word> ClientGates<W> for Trio<W> {
    fn peers(_: &Options) -> usize {
        PEERS
    }

    fn share(scheduler: &mut Scheduler, ring: Ring, tiles: impl ExactSizeIterator<Item = Vec<W>>) -> Result<()> {
        scheduler.run(tiles.map(|tile| io::ClientInput::client(ring, tile))).map(|_| ())
    }

    fn receive(
        scheduler: &mut Scheduler,
        ring: Ring,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<Vec<W>>> {
        scheduler.run(lens.map(|len| io::Reveal::client(ring, len)))
    }
}

/// What one party holds of a client's tensor that outlives sessions: P0 the seeds of both masks, P1 that of l1 and x + l2,
/// P2 that of l2 and x + l1. Not `Debug`.
pub struct StoredShare<W> {
    pub(super) shape: Vec<usize>,
    /// Of the components that are masks, in the order they have in a share: l1 and l2 at P0, the own one elsewhere.
    pub(super) masks: Vec<Mask>,
    /// The first component at P1 and P2, empty at P0.
    pub(super) masked: Vec<W>,
    /// Of C, at P1 and P2.
    pub(super) digest: [u8; consistency::DIGEST],
}

impl<W: Word> Shaped for StoredShare<W> {
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl<W: Word> StoredShare<W> {
    /// The part of `role` in tensor number `tensor` under `seeds`, those of l1 and l2, from the masked value
    /// C = x + l1 + l2. `None` if what the role needs is missing or has another size.
    pub fn new(
        role: Role,
        shape: &[usize],
        seeds: [Option<&Seed>; 2],
        tensor: u64,
        masked: Option<Vec<W>>,
    ) -> Option<Self> {
        let mask = |index: usize| seeds[index].map(|seed| seed.mask(tensor));
        let shape = shape.to_vec();
        if role == Role::P0 {
            let digest = [0; consistency::DIGEST];
            return Some(StoredShare { shape, masks: vec![mask(0)?, mask(1)?], masked: Vec::new(), digest });
        }
        let mask = mask(usize::from(role == Role::P2))?;
        let mut masked = masked.filter(|masked| masked.len() == shape.iter().product::<usize>())?;
        let mut hasher = blake3::Hasher::new();
        consistency::add_words(&mut hasher, &masked);
        mask.subtract(&mut masked);
        Some(StoredShare { shape, masks: vec![mask], masked, digest: *hasher.finalize().as_bytes() })
    }

    /// The whole share.
    pub(super) fn share(self) -> Arith<W> {
        let len = self.shape.iter().product();
        match &self.masks[..] {
            [l1, l2] => Arith::new(&self.shape, l1.words(len), l2.words(len)),
            [own, ..] => {
                let mask = own.words(len);
                Arith::new(&self.shape, self.masked, mask)
            }
            [] => unreachable!("made with one or two"),
        }
    }
}

/// For each secret tensor x, P0 and P1 have the seed of a mask l1, P0 and P2 the seed of a mask l2, P1 and P2 the value
/// C = x + l1 + l2. One pair of fresh seeds serves one sharing; tensors draw under their numbers.
impl<W: Word> Served for Trio<W> {
    type Seeds = Vec<Seed>;

    fn sharing(_: usize) -> Sharing {
        let part = |seeds: &[usize], words| Part::Secret { seeds: seeds.to_vec(), words };
        Sharing { seeds: 2, roles: vec![part(&[0, 1], false), part(&[0], true), part(&[1], true)] }
    }

    fn start(endpoint: Box<dyn Endpoint>, keys: SessionKeys, ring: Ring, options: Options, lane: u32) -> Result<Self> {
        Party::new::<Self>(endpoint, keys, ring, options, lane).map(Trio::new)
    }

    const ASSIGNMENTS: usize = 3;

    fn turned(role: usize, turn: usize, components: Vec<Tensor<W>>) -> Option<Vec<Tensor<W>>> {
        Some(turned(role, turn, components.try_into().ok()?).to_vec())
    }

    fn stored_components(_: usize, stored: StoredShare<W>) -> Vec<Tensor<W>> {
        let Arith { first, second } = stored.share();
        vec![first, second]
    }

    /// They find out whether what they were given of the weights fits.
    const PREPARES_TOGETHER: bool = true;

    fn keeps_runs(_: &Options) -> bool {
        true
    }

    fn kept_runs(&mut self) -> Option<&mut dyn KeptRuns> {
        Some(&mut self.party)
    }

    fn share_parameter(value: &[W], seeds: &[&[u8; 32]], tensor: u64, ring: Ring) -> Vec<Arc<[W]>> {
        let masked: Arc<[W]> = mask_parameter(value, seeds[0], seeds[1], tensor, ring).into();
        vec![masked.clone(), masked]
    }

    fn open_seeds(_: usize, seeds: &[&[u8; 32]]) -> Vec<Seed> {
        seeds.iter().map(|seed| Seed::new(seed)).collect()
    }

    fn load(
        role: usize,
        (shape, _): (&[usize], u32),
        seeds: &Vec<Seed>,
        tensor: u64,
        words: Option<Vec<W>>,
    ) -> Option<StoredShare<W>> {
        let seeds = match (Role::of(role), &seeds[..]) {
            (Role::P0, [one, two]) => [Some(one), Some(two)],
            (Role::P1, [one]) => [Some(one), None],
            (Role::P2, [two]) => [None, Some(two)],
            _ => return None,
        };
        StoredShare::new(Role::of(role), shape, seeds, tensor, words)
    }
}

/// C = x + l1 + l2 of a tensor shared under two seeds.
pub fn mask_parameter<W: Word>(value: &[W], seed_01: &[u8; 32], seed_02: &[u8; 32], tensor: u64, ring: Ring) -> Vec<W> {
    let (l1, l2) = (expand::<W>(seed_01, tensor, value.len()), expand::<W>(seed_02, tensor, value.len()));
    value.iter().zip(l1.iter().zip(&l2)).map(|(&x, (&l1, &l2))| ring.reduce(x.add(l1).add(l2))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_stands_for_the_value() {
        let (seeds, value) = ([[1; 32], [2; 32]], vec![5u32, 6, u32::MAX]);
        let masked = mask_parameter(&value, &seeds[0], &seeds[1], 9, Ring::Pow2(32));
        let [one, two] = seeds.map(|seed| Seed::new(&seed));
        let share = |role, seeds: [Option<&Seed>; 2], masked: Option<Vec<u32>>| {
            StoredShare::new(role, &[3], seeds, 9, masked).unwrap().share()
        };
        let p0 = share(Role::P0, [Some(&one), Some(&two)], None);
        let p1 = share(Role::P1, [Some(&one), None], Some(masked.clone()));
        let p2 = share(Role::P2, [None, Some(&two)], Some(masked.clone()));
        for (i, &x) in value.iter().enumerate() {
            let of = |share: &Arith<u32>| (share.first.data()[i], share.second.data()[i]);
            let (l1, l2) = of(&p0);
            assert_eq!((of(&p1), of(&p2)), ((x.wrapping_add(l2), l1), (x.wrapping_add(l1), l2)));
        }
        assert!(StoredShare::new(Role::P1, &[3], [Some(&one), None], 9, Some(masked[1..].to_vec())).is_none());
        assert!(StoredShare::<u32>::new(Role::P2, &[3], [Some(&one), None], 9, Some(masked)).is_none());
    }
}
