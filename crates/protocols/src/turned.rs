//! Lanes whose parties have other roles than the listed ones: in assignment `turn`, party p has role (p + turn) modulo the number of
//! parties. Each role sends and computes another amount, so with all assignments in turn all parties do alike.
//!
//! A lane's protocol knows roles alone: its endpoint numbers peers by their roles (`Renumbered`), and its keys lie in the slots of the
//! role. Shares that rest at a party turn without a message ([`Served::turned`](crate::served::Served::turned)).

use covey_kernels::elementwise::{add_assign, neg_assign};
use covey_ring::{Tensor, Word};
use covey_transport::{Endpoint, Renumbered};

use crate::randomness::SessionKeys;

/// Who shares the key in each slot of a role, of so many: [`Served::key_holders`](crate::served::Served::key_holders).
pub type KeyHolders = fn(usize, usize) -> Vec<Option<Vec<usize>>>;

/// An endpoint of a session on a lane with assignment `turn`.
pub fn endpoint(endpoint: Box<dyn Endpoint>, turn: usize) -> Box<dyn Endpoint> {
    if turn == 0 { endpoint } else { Box::new(Renumbered::new(endpoint, turn)) }
}

/// The keys of `party`, of so many, in assignment `turn`: in each slot of its role one of the parties that have the roles that share it.
pub fn keys(keys: &SessionKeys, holders: KeyHolders, (party, parties): (usize, usize), turn: usize) -> SessionKeys {
    if turn == 0 {
        return keys.clone();
    }
    let own = holders(party, parties);
    let of_roles = holders(role_of(party, turn, parties), parties);
    let slot = |roles: &Option<Vec<usize>>| {
        let mut sharing: Vec<usize> = roles.as_ref()?.iter().map(|role| party_of(*role, turn, parties)).collect();
        sharing.sort_unstable();
        own.iter().position(|holders| holders.as_ref() == Some(&sharing))
    };
    keys.in_slots(turn, of_roles.iter().map(slot))
}

/// The role that `party` has in assignment `turn`.
pub fn role_of(party: usize, turn: usize, parties: usize) -> usize {
    (party + turn) % parties
}

/// The party that has `role` in assignment `turn`.
pub fn party_of(role: usize, turn: usize, parties: usize) -> usize {
    (role + parties - turn % parties) % parties
}

/// What tells a reader whose roles an error on a lane speaks of; nothing where they are the listed ones. `label` is what errors call a
/// party, such as `P1 (beta)`.
pub fn who_is_who(turn: usize, parties: usize, label: impl Fn(usize) -> String) -> String {
    if turn == 0 {
        return String::new();
    }
    let name = |role| {
        let label = label(party_of(role, turn, parties));
        // Its number would be read as a role.
        label.split_once('(').and_then(|(_, name)| name.strip_suffix(')')).unwrap_or(&label).to_string()
    };
    let all: Vec<String> = (0..parties).map(|role| format!("P{role} is {}", name(role))).collect();
    format!("; on this lane {}", all.join(", "))
}

/// -x, an addend from a mask or a mask from an addend.
pub(crate) fn negated<W: Word>(mut x: Tensor<W>) -> Tensor<W> {
    neg_assign(x.data_mut());
    x
}

/// x + all of `others`.
pub(crate) fn sum<W: Word, const N: usize>(mut x: Tensor<W>, others: [&Tensor<W>; N]) -> Tensor<W> {
    others.into_iter().for_each(|other| add_assign(x.data_mut(), other.data()));
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::ProtocolKind;

    #[test]
    fn errors_say_whose_roles_they_mean() {
        let label = |party: usize| format!("P{party} ({})", ["alpha", "beta", "gamma"][party]);
        assert_eq!(who_is_who(0, 3, label), "");
        assert_eq!(who_is_who(1, 3, label), "; on this lane P0 is gamma, P1 is alpha, P2 is beta");
        assert_eq!(who_is_who(2, 3, |party| format!("P{party}")), "; on this lane P0 is P1, P1 is P2, P2 is P0");
    }

    /// Those who have the roles that share a key share it, nobody else, and no key serves two assignments.
    #[test]
    fn keys_follow_the_roles() {
        for (kind, parties) in [(ProtocolKind::Trio, 3), (ProtocolKind::Quad, 4)] {
            let holders: KeyHolders = match kind {
                ProtocolKind::Trio => <crate::trio::Trio<u32> as crate::served::Served>::key_holders,
                _ => <crate::quad::Quad<u32> as crate::served::Served>::key_holders,
            };
            // A key that follows from its holders alone stands for what they agree on.
            let key =
                |holders: &[usize]| *blake3::hash(&holders.iter().map(|&h| h as u8).collect::<Vec<_>>()).as_bytes();
            let listed = |party| {
                let slots = holders(party, parties).into_iter();
                SessionKeys::new(slots.map(|holders| holders.map(|holders| key(&holders))).collect())
            };
            let mut seen = std::collections::HashMap::new();
            for turn in 0..parties {
                for party in 0..parties {
                    let role = role_of(party, turn, parties);
                    let turned = keys(&listed(party), holders, (party, parties), turn);
                    let draws = turned.lasting();
                    assert!(draws.are_of(&holders(role, parties)), "{kind} {turn} {party}");
                    for (slot, roles) in holders(role, parties).into_iter().enumerate() {
                        let Some(roles) = roles else { continue };
                        let drawn: Vec<u64> =
                            draws.generators().words(slot, crate::randomness::DrawPosition { gate: 0, tile: 0 }, 0, 4);
                        // All who have these roles draw the same, and nobody draws it elsewhere.
                        assert_eq!(*seen.entry((turn, roles.clone())).or_insert(drawn.clone()), drawn);
                    }
                }
            }
            let mut all: Vec<_> = seen.values().collect();
            let keys = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), keys);
        }
    }
}
