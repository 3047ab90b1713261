//! What goes in and out, gone through exhaustively over a small ring: what a set of roles receives, seeds included, must be
//! distributed the same for every secret when all keys that one of them has are fixed. A draw that they can repeat is part of their view.

use std::sync::Arc;

use crate::machine::{Inbox, Machine, Outbox, Step};
use crate::randomness::Generators;
use crate::randomness::script::{self, Script, generators};

/// Bits that any key draws.
const BITS: u32 = 4;
/// Elements of the least tile.
const LEN: usize = 64;

/// Machines of all roles, the client last.
pub(crate) struct Exchange<'a, M> {
    pub name: &'a str,
    pub roles: usize,
    pub holders: &'a Holders<'a>,
    /// A role's machine over tiles of so many elements, with its keys, and what it held of the secrets before, which is part of what
    /// it sees. The client has no keys.
    pub build: &'a Build<'a, M>,
}

type Build<'a, M> = dyn Fn(usize, Arc<Generators>, usize, &[u64]) -> (M, Vec<Vec<u64>>) + 'a;

impl<M: Machine> Exchange<'_, M> {
    /// The columns that `viewers` see over one tile.
    fn run(&self, viewers: &[usize], keys: &[(Vec<usize>, Arc<Script>)], len: usize, secrets: &[u64]) -> Vec<Vec<u64>> {
        let mut view = Vec::new();
        let mut machines: Vec<M> = Vec::new();
        for role in 0..self.roles {
            let script =
                |holders: &Vec<usize>| keys.iter().find(|(group, _)| group == holders).map(|(_, key)| key.clone());
            let sources = (self.holders)(role).into_iter().map(|holders| holders.as_ref().and_then(script));
            let (machine, mut held) = (self.build)(role, generators(sources), len, secrets);
            if viewers.contains(&role) {
                view.append(&mut held);
            }
            machines.push(machine);
        }
        let layout = machines[0].layout().clone();
        for step in std::iter::once(Step::Offline).chain((0..layout.rounds()).map(Step::Online)) {
            let mut outboxes: Vec<Outbox> = (0..self.roles).map(|_| Outbox::new(self.roles)).collect();
            machines.iter_mut().zip(&mut outboxes).for_each(|(machine, out)| machine.local(step, out));
            for (role, machine) in machines.iter_mut().enumerate() {
                let mut inbox = Inbox::new(self.roles);
                let due: Vec<_> = layout.due(step, role).cloned().collect();
                for message in &due {
                    let bytes = outboxes[message.from].take(role);
                    assert_eq!(bytes.len(), message.len, "{}: layout", self.name);
                    // A seed is as good as all that is expanded from it.
                    let expanded = script::expanded::<u64>(&bytes, len).filter(|_| viewers.contains(&role));
                    view.extend(expanded);
                    inbox.put(message.from, bytes);
                }
                if !due.is_empty() {
                    machine.absorb(step, &mut inbox);
                }
                if viewers.contains(&role) {
                    view.append(&mut inbox.read);
                }
            }
        }
        view
    }

    /// The multiset of what `viewers` see, over all draws of the keys that none of them has.
    fn views(&self, viewers: &[usize], secrets: &[u64], seed: u64) -> u128 {
        let mut groups: Vec<Vec<usize>> = (0..self.roles).flat_map(|role| (self.holders)(role)).flatten().collect();
        groups.sort();
        groups.dedup();
        let mut hidden = 0;
        let keys: Vec<(Vec<usize>, Arc<Script>)> = groups
            .into_iter()
            .enumerate()
            .map(|(number, group)| {
                let width: fn(u32) -> u32 = |_| BITS;
                let key = match group.iter().any(|holder| viewers.contains(holder)) {
                    true => Script::new(false, 0, width, seed + number as u64, None),
                    false => {
                        hidden += 1;
                        Script::from_bit((hidden - 1) * BITS, width)
                    }
                };
                (group, key)
            })
            .collect();
        let len = LEN.max(1 << (hidden * BITS));
        assert!(len <= 1 << 16, "{}: {hidden} keys are too many", self.name);
        let columns = self.run(viewers, &keys, len, secrets);
        let lacked = keys.iter().filter(|(group, _)| !group.iter().any(|holder| viewers.contains(holder)));
        let bounded = lacked.zip(1..).all(|((_, key), number)| key.bits() <= number * BITS);
        assert!(bounded, "{}: a key draws more than is gone through", self.name);
        (0..len).fold(0u128, |sum, e| sum.wrapping_add(script::hash(columns.iter().map(|column| column[e]))))
    }

    /// Whether what `viewers` see tells any two of `secrets` apart.
    pub fn leaks(&self, viewers: &[usize], secrets: &[Vec<u64>]) -> bool {
        [11, 77].iter().any(|&seed| {
            let reference = self.views(viewers, &secrets[0], seed);
            secrets[1..].iter().any(|secrets| self.views(viewers, secrets, seed) != reference)
        })
    }

    /// Asserts that it does not.
    pub fn hides(&self, viewers: &[usize], secrets: &[Vec<u64>]) {
        assert!(!self.leaks(viewers, secrets), "{}: what roles {viewers:?} see depends on the secret", self.name);
    }
}

/// Those who have the key in each slot of a role.
pub(crate) type Holders<'a> = dyn Fn(usize) -> Vec<Option<Vec<usize>>> + 'a;

/// Whether what `viewer` sees depends on the value that the client, the last of `roles` roles, puts in.
pub(crate) fn client_input_leaks<M: Machine>(
    (roles, holders): (usize, &Holders),
    client: fn(Vec<u32>) -> M,
    party: fn(usize, Arc<Generators>, usize) -> M,
    viewer: usize,
) -> bool {
    Exchange {
        name: "an input of the client",
        roles,
        holders,
        build: &|role, generators, len, secrets| match role + 1 == roles {
            true => (client(vec![secrets[0] as u32; len]), Vec::new()),
            false => (party(role, generators, len), Vec::new()),
        },
    }
    .leaks(&[viewer], &singles())
}

/// All secrets of four bits, alone.
pub(crate) fn singles() -> Vec<Vec<u64>> {
    (0..16).map(|x| vec![x]).collect()
}

/// All ways of splitting x in two.
pub(crate) fn splits(x: u64) -> Vec<Vec<u64>> {
    (0..16).map(|share: u64| vec![x.wrapping_sub(share) & 15, share]).collect()
}
