//! The client's half: sharing inputs, receiving results, and sharing weights ahead of any session.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use covey_kernels::elementwise;
use covey_ring::{Ring, Tensor, Word};
use covey_transport::Endpoint;

use super::share::{Arith, Role};
use super::stored::StoredShare;
use super::turned::turned;
use super::{GROUPS, PEERS, Quad, input, output};
use crate::api::{Options, ProtocolError, Result, Rounding};
use crate::masked::seed::{Seed, expand};
use crate::party::Party;
use crate::randomness::SessionKeys;
use crate::scheduler::Scheduler;
use crate::served::{Client, ClientGates, KeptRuns, Part, Served, Sharing};

/// An outside data owner's end of a session.
pub type QuadClient<W> = Client<Quad<W>>;

impl<W: Word> ClientGates<W> for Quad<W> {
    fn peers(_: &Options) -> usize {
        PEERS
    }

    fn share(scheduler: &mut Scheduler, ring: Ring, tiles: impl ExactSizeIterator<Item = Vec<W>>) -> Result<()> {
        let mut agreed = true;
        let machines = tiles.map(|tile| input::ClientInput::client(ring, tile));
        scheduler.run_each(machines, |_, (_, _, _, same)| agreed &= same)?;
        agreed.then_some(()).ok_or(ProtocolError::CheckFailed(
            "two parties gave this client different masks for its input, so that none of its values was sent: one of the four cheats".into(),
        ))
    }

    fn receive(
        scheduler: &mut Scheduler,
        ring: Ring,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<Vec<W>>> {
        let tiles = scheduler.run(lens.map(|len| output::Reveal::client(ring, len)))?;
        if tiles.iter().any(|(_, agreed)| !agreed) {
            return Err(ProtocolError::CheckFailed(
                "P0 and P1 gave this client another output than P2 and P3, so it takes neither: one of the four cheats"
                    .into(),
            ));
        }
        Ok(tiles.into_iter().map(|(words, _)| words).collect())
    }
}

/// The seeds of a sharing, 0 of l1, 1 of l2, 2 of w, that a role is given.
fn seeds_of(role: Role) -> &'static [usize] {
    match role {
        Role::P0 => &[0, 1, 2],
        Role::P1 => &[0, 2],
        Role::P2 => &[1, 2],
        _ => &[0, 1],
    }
}

impl<W: Word> Served for Quad<W> {
    type Seeds = Vec<Seed>;

    fn sharing(_: usize) -> Sharing {
        let part = |role| Part::Secret { seeds: seeds_of(role).to_vec(), words: role != Role::P0 };
        Sharing { seeds: 3, roles: [Role::P0, Role::P1, Role::P2, Role::P3].map(part).to_vec() }
    }

    fn key_holders(role: usize, _: usize) -> Vec<Option<Vec<usize>>> {
        super::by_slot(role, GROUPS.map(|group| group.contains(&role).then(|| group.to_vec())))
    }

    // P0 and P3 know all masks before, and could end runs until one comes whose comparisons fail where they like.
    const ADMITS_KEY_BITS: bool = false;

    const ASSIGNMENTS: usize = 4;

    fn turned(role: usize, turn: usize, components: Vec<Tensor<W>>) -> Option<Vec<Tensor<W>>> {
        Some(turned(role, turn, components.try_into().ok()?).to_vec())
    }

    fn stored_components(role: usize, stored: StoredShare<W>) -> Vec<Tensor<W>> {
        let Arith { inner, extra } = stored.share(Role::of(role));
        vec![inner.first, inner.second, extra]
    }

    /// They find out whether what they were given of the weights fits.
    const PREPARES_TOGETHER: bool = true;

    /// A probabilistic shift fails under some masks, which P0 and P3 know before anybody has a value: they could end runs until one comes
    /// that fails where they like.
    fn admits_rounding(rounding: Rounding) -> bool {
        rounding != Rounding::Probabilistic
    }

    fn start(endpoint: Box<dyn Endpoint>, keys: SessionKeys, ring: Ring, options: Options, lane: u32) -> Result<Self> {
        Party::new::<Self>(endpoint, keys, ring, options, lane).map(Quad::new)
    }

    fn keeps_runs(_: &Options) -> bool {
        true
    }

    /// What combines the openings of wide products.
    const DRAWS_LASTING: bool = true;

    fn weights_spent(&self) -> Option<Arc<AtomicBool>> {
        Some(self.challenge.spent())
    }

    fn kept_runs(&mut self) -> Option<&mut dyn KeptRuns> {
        Some(&mut self.party)
    }

    fn share_parameter(value: &[W], seeds: &[&[u8; 32]], tensor: u64, ring: Ring) -> Vec<Arc<[W]>> {
        let [l1, l2, w] = [0, 1, 2].map(|index| expand::<W>(seeds[index], tensor, value.len()));
        let masked = |masks: &[&[W]]| -> Arc<[W]> {
            let mut words = value.to_vec();
            masks.iter().for_each(|mask| elementwise::add_assign(&mut words, mask));
            words.iter().map(|&word| ring.reduce(word)).collect()
        };
        let public = masked(&[&l1, &l2]);
        vec![public.clone(), public, masked(&[&w])]
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
        let role = Role::of(role);
        let given = seeds_of(role);
        let mask = |number: usize| {
            let at = given.iter().position(|&seed| seed == number)?;
            Some(seeds.get(at)?.mask(tensor))
        };
        let words = match role {
            Role::Client => return None,
            Role::P0 => Vec::new(),
            _ => words.filter(|words| words.len() == shape.iter().product::<usize>())?,
        };
        let shape = shape.to_vec();
        (seeds.len() == given.len()).then(|| StoredShare { shape, l1: mask(0), l2: mask(1), w: mask(2), words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_stands_for_the_value() {
        let (seeds, value, ring) = ([[1; 32], [2; 32], [3; 32]], vec![5u32, 6, u32::MAX], Ring::Pow2(32));
        let words = Quad::<u32>::share_parameter(&value, &seeds.each_ref(), 9, ring);
        let share = |role: Role| {
            let seeds = seeds_of(role).iter().map(|&seed| Seed::new(&seeds[seed])).collect();
            let words = (role as usize).checked_sub(1).map(|index| words[index].to_vec());
            Quad::load(role as usize, (&[3], 32), &seeds, 9, words).unwrap().share(role)
        };
        let [p0, p1, p2, p3] = [Role::P0, Role::P1, Role::P2, Role::P3].map(share);
        for (i, &x) in value.iter().enumerate() {
            let of =
                |share: &Arith<u32>| (share.inner.first.data()[i], share.inner.second.data()[i], share.extra.data()[i]);
            let (l1, l2, w) = of(&p0);
            assert_eq!(of(&p1), (x.wrapping_add(l2), l1, w));
            assert_eq!(of(&p2), (x.wrapping_add(l1), l2, w));
            assert_eq!(of(&p3), (l1, l2, x.wrapping_add(l1).wrapping_add(l2).wrapping_add(w)));
        }
        let two = vec![Seed::new(&seeds[0]), Seed::new(&seeds[2])];
        assert!(Quad::<u32>::load(1, (&[3], 32), &two, 9, Some(words[0][1..].to_vec())).is_none());
        assert!(Quad::<u32>::load(0, (&[3], 32), &two, 9, None).is_none());
    }
}
