//! Where the groups of a grouped convolution lie in one polynomial.
//!
//! Group `g` lies at slot `s_g`, its values as well as its weights, so its results are at slot `2 s_g`. Values of group `g` times
//! weights of group `h` are at slot `s_g + s_h`, which must be no group's result: the slots hold no three numbers at equal distances.

/// The smallest sets without three numbers at equal distances, as bits: the first has one number, the last twenty.
const SMALLEST: [u64; 20] = [
    0x1,
    0x3,
    0xb,
    0x1b,
    0x18b,
    0x61b,
    0x161b,
    0x361b,
    0xa6163,
    0xc6_8453,
    0x2c6_8453,
    0x2c68_058d,
    0xca64_058b,
    0xc_a650_118b,
    0xb0_d800_361b,
    0x1b0_d800_361b,
    0x6_60b4_4001_321b,
    0x2d_0660_4011_6833,
    0x22d_0660_4011_6833,
    0x50d0_8a60_0286_8453,
];

/// The slots of `groups` groups, ascending from 0.
pub(super) fn slots(groups: usize) -> Vec<usize> {
    match groups.checked_sub(1).and_then(|index| SMALLEST.get(index)) {
        Some(set) => (0..u64::BITS as usize).filter(|slot| set >> slot & 1 == 1).collect(),
        None => (0..groups).map(in_base_three).collect(),
    }
}

/// How many slots there must be, results included, so that nothing wraps.
pub(super) fn span(groups: usize) -> usize {
    let last = match groups.checked_sub(1) {
        None => 0,
        Some(index) => match SMALLEST.get(index) {
            Some(set) => set.ilog2() as usize,
            None => in_base_three(index),
        },
    };
    2 * last + 1
}

/// The bits of a number as digits in base three: no two of these numbers have a third midway.
fn in_base_three(number: usize) -> usize {
    (0..usize::BITS.min(40)).rev().fold(0, |value, bit| 3 * value + (number >> bit & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_three_slots_are_at_equal_distances() {
        for groups in 1..=70 {
            let slots = slots(groups);
            assert_eq!(slots.len(), groups);
            assert_eq!(span(groups), 2 * slots[groups - 1] + 1);
            for (i, a) in slots.iter().enumerate() {
                for b in &slots[i + 1..] {
                    assert!(a < b && !slots.iter().any(|middle| 2 * middle == a + b), "{groups} groups: {a}, {b}");
                }
            }
        }
    }

    #[test]
    fn more_groups_take_no_fewer_slots() {
        assert!((1..70).all(|groups| span(groups) <= span(groups + 1)));
        assert_eq!((span(1), span(8), span(13), span(20), span(32)), (1, 27, 63, 125, 243));
    }
}
