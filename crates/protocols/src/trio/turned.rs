//! A share where the roles have turned: party p has role (p + turn) mod 3.
//!
//! x is a sum of three addends, of which each role lacks one and has the others: C, which P0 lacks, -l2, which P1 lacks, and -l1, which P2
//! lacks. Whatever role a party has, the addend that it lacks stays the same, so a share turns without a message, and a party that has a
//! share in every assignment knows no more than one that has it in one.

use covey_ring::{Tensor, Word};

use crate::turned::{negated, role_of, sum};

/// Addends of x by the role that lacks them.
type Addends<W> = [Option<Tensor<W>>; 3];

/// The components at role (role + turn) mod 3 of what has `components` at `role`.
pub(super) fn turned<W: Word>(role: usize, turn: usize, components: [Tensor<W>; 2]) -> [Tensor<W>; 2] {
    let mut addends = addends(role, components);
    addends.rotate_right(turn % 3);
    components_of(role_of(role, turn, 3), addends)
}

fn addends<W: Word>(role: usize, components: [Tensor<W>; 2]) -> Addends<W> {
    let [first, second] = components;
    match role {
        0 => [None, Some(negated(second)), Some(negated(first))],
        1 => [Some(sum(first, [&second])), None, Some(negated(second))],
        _ => [Some(sum(first, [&second])), Some(negated(second)), None],
    }
}

fn components_of<W: Word>(role: usize, addends: Addends<W>) -> [Tensor<W>; 2] {
    match (role, addends) {
        (0, [_, Some(l2), Some(l1)]) => [negated(l1), negated(l2)],
        (1, [Some(public), _, Some(l1)]) => [sum(public, [&l1]), negated(l1)],
        (2, [Some(public), Some(l2), _]) => [sum(public, [&l2]), negated(l2)],
        _ => unreachable!("a party lacks the addend of its role, and no other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All x, l1 and l2 of a ring of 4 bits, held in words of 32.
    #[test]
    fn a_share_is_one_of_the_same_value_in_every_assignment() {
        let tensor = |word: u32| Tensor::new([1], vec![word]);
        let words = |components: &[Tensor<u32>]| [0, 1].map(|index| components[index].data()[0]);
        for word in 0..1u32 << 12 {
            let [x, l1, l2] = [0, 4, 8].map(|shift| (word >> shift & 15) << 28);
            let public = x.wrapping_add(l1).wrapping_add(l2);
            let shares = [[l1, l2], [public.wrapping_sub(l1), l1], [public.wrapping_sub(l2), l2]];
            for turn in 0..3 {
                let mut there = [[0; 2]; 3];
                for (party, share) in shares.iter().enumerate() {
                    let components = turned(party, turn, share.map(tensor));
                    there[(party + turn) % 3] = words(&components);
                    assert_eq!(words(&turned((party + turn) % 3, 3 - turn, components)), *share);
                }
                let [[l1, l2], one, two] = there;
                assert_eq!((one, two), ([x.wrapping_add(l2), l1], [x.wrapping_add(l1), l2]));
            }
        }
    }
}
