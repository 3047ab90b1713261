//! A share where the roles have turned: party p has role (p + turn) mod 4.
//!
//! x is a sum of four addends, of which each role lacks one and has the others: V, which P0 lacks, -l2, which P1 lacks, -l1, which P2
//! lacks, and -w, which P3 lacks. A party lacks the same addend whatever its role, as in Trio (`trio/turned.rs`).

use covey_ring::{Tensor, Word};

use crate::turned::{negated, role_of, sum};

/// Addends of x by the role that lacks them.
type Addends<W> = [Option<Tensor<W>>; 4];

/// The components at role (role + turn) mod 4 of what has `components` at `role`.
pub(super) fn turned<W: Word>(role: usize, turn: usize, components: [Tensor<W>; 3]) -> [Tensor<W>; 3] {
    let mut addends = addends(role, components);
    addends.rotate_right(turn % 4);
    components_of(role_of(role, turn, 4), addends)
}

fn addends<W: Word>(role: usize, components: [Tensor<W>; 3]) -> Addends<W> {
    let [first, second, extra] = components;
    match role {
        0 => [None, Some(negated(second)), Some(negated(first)), Some(negated(extra))],
        1 => [Some(sum(first, [&second, &extra])), None, Some(negated(second)), Some(negated(extra))],
        2 => [Some(sum(first, [&second, &extra])), Some(negated(second)), None, Some(negated(extra))],
        _ => [Some(extra), Some(negated(second)), Some(negated(first)), None],
    }
}

fn components_of<W: Word>(role: usize, addends: Addends<W>) -> [Tensor<W>; 3] {
    match (role, addends) {
        (0, [_, Some(l2), Some(l1), Some(w)]) => [negated(l1), negated(l2), negated(w)],
        (1, [Some(v), _, Some(l1), Some(w)]) => [sum(v, [&l1, &w]), negated(l1), negated(w)],
        (2, [Some(v), Some(l2), _, Some(w)]) => [sum(v, [&l2, &w]), negated(l2), negated(w)],
        (3, [Some(v), Some(l2), Some(l1), _]) => [negated(l1), negated(l2), v],
        _ => unreachable!("a party lacks the addend of its role, and no other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All x and masks of a ring of 4 bits, held in words of 32.
    #[test]
    fn a_share_is_one_of_the_same_value_in_every_assignment() {
        let tensor = |word: u32| Tensor::new([1], vec![word]);
        let words = |components: &[Tensor<u32>]| [0, 1, 2].map(|index| components[index].data()[0]);
        let shares = |x: u32, [l1, l2, w]: [u32; 3]| {
            let [without_l1, without_l2] = [l2, l1].map(|mask| x.wrapping_add(mask));
            let value = without_l1.wrapping_add(l1).wrapping_add(w);
            [[l1, l2, w], [without_l1, l1, w], [without_l2, l2, w], [l1, l2, value]]
        };
        for word in 0..1u32 << 16 {
            let [x, l1, l2, w] = [0, 4, 8, 12].map(|shift| (word >> shift & 15) << 28);
            for turn in 0..4 {
                let mut there = [[0; 3]; 4];
                for (party, share) in shares(x, [l1, l2, w]).iter().enumerate() {
                    let components = turned(party, turn, share.map(tensor));
                    there[(party + turn) % 4] = words(&components);
                    assert_eq!(words(&turned((party + turn) % 4, 4 - turn, components)), *share);
                }
                assert_eq!(there, shares(x, there[0]));
            }
        }
    }
}
