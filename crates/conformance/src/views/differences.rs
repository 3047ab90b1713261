//! Whether what viewers receive is uniform, given what they hold: the differences between one and the same message of two runs, taken
//! over all elements, at each place of a tile, and between two messages.

use std::collections::BTreeMap;
use std::ops::Range;

use covey_transport::Phase as StepKind;

use super::{TILE, TILES};
use crate::tap::Received;

/// Chi-square of 256 bins passes it with probability 4e-10, of 16 bins with 1e-16, of 2 bins with 1e-11: the fewer the bins, the more
/// places are looked at.
const LIMIT: f64 = 420.0;
const LIMIT_OF_NIBBLES: f64 = 110.0;
const LIMIT_OF_BITS: f64 = 46.0;
/// Bytes that 256 bins take: five a bin.
const BYTES: u32 = 1280;
/// Tiles that a place takes.
const PLACES: usize = 64;
/// Bytes of a plane of bits over one tile.
const ROW: usize = TILE / 8;

/// Sender, receiver, offline or online.
pub(super) type Link = (usize, usize, StepKind);
/// Messages by link, in order.
pub(super) type View = BTreeMap<Link, Vec<Received>>;

/// One step of a link: the messages of all tiles, in two runs.
struct Step<'a> {
    link: Link,
    number: usize,
    of: usize,
    one: Vec<&'a [u8]>,
    two: Vec<&'a [u8]>,
}

impl Step<'_> {
    fn found(&self, what: &str, chi: f64) -> Option<String> {
        let (Step { number, of, .. }, (from, to, _)) = (self, self.link);
        Some(format!("step {number} of {of} from role {from} to role {to}{what}: chi-square {chi:.0}"))
    }
}

/// Cuts messages where their size changes, and what is left where each tile has had one.
fn cut(messages: &[Received]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for same in messages.chunk_by(|a, b| a.bytes.len() == b.bytes.len()) {
        let each = if same.len().is_multiple_of(TILES) { TILES } else { same.len() };
        ranges.extend((start..start + same.len()).step_by(each).map(|at| at..at + each));
        start += same.len();
    }
    ranges
}

fn steps<'a>(one: &'a View, two: &'a View) -> Vec<Step<'a>> {
    assert!(one.keys().eq(two.keys()), "links depend on secrets");
    let mut steps = Vec::new();
    for ((&link, one), two) in one.iter().zip(two.values()) {
        assert!(one.iter().map(|m| m.bytes.len()).eq(two.iter().map(|m| m.bytes.len())), "sizes depend on secrets");
        let ranges = cut(one);
        let of = ranges.len();
        let bytes = |messages: &'a [Received]| messages.iter().map(|message| &message.bytes[..]).collect();
        steps.extend(ranges.into_iter().enumerate().map(|(number, range)| Step {
            link,
            number,
            of,
            one: bytes(&one[range.clone()]),
            two: bytes(&two[range]),
        }));
    }
    steps
}

/// What tells that two views are not independent of each other, though all is fresh in one that the viewers lack.
pub(super) fn single(one: &View, two: &View) -> Option<String> {
    steps(one, two).iter().find_map(|step| {
        let all = of_bytes(&step.one.concat(), &step.two.concat());
        all.and_then(|found| step.found("", found)).or_else(|| at_places(step))
    })
}

/// The same, place by place: what one element of a tile lacks is little of all of them.
fn at_places(step: &Step) -> Option<String> {
    let len = step.one.first()?.len();
    if step.one.len() < PLACES {
        return None;
    }
    for place in 0..len {
        let (mut nibbles, mut bits) = ([[0u32; 16]; 2], [0u32; 8]);
        for (one, two) in step.one.iter().zip(&step.two) {
            let difference = one[place] ^ two[place];
            nibbles[0][usize::from(difference & 15)] += 1;
            nibbles[1][usize::from(difference >> 4)] += 1;
            bits.iter_mut().enumerate().for_each(|(bit, ones)| *ones += u32::from(difference >> bit & 1));
        }
        let total = step.one.len() as u32;
        let of_nibbles = nibbles.iter().map(|bins| chi_square(bins)).fold(0.0, f64::max);
        let of_bits = bits.iter().map(|&ones| chi_square(&[ones, total - ones])).fold(0.0, f64::max);
        if of_nibbles > LIMIT_OF_NIBBLES || of_bits > LIMIT_OF_BITS {
            return step.found(&format!(", byte {place} of each tile"), of_nibbles.max(of_bits));
        }
    }
    None
}

/// Ways in which one mask drops out of two messages: bits, and elements of four bits under a mask of either sign.
const WAYS: [fn(u8, u8) -> u8; 3] = [
    |a, b| a ^ b,
    |a, b| (a & 15).wrapping_sub(b & 15) & 15 | (a >> 4).wrapping_sub(b >> 4) << 4,
    |a, b| (a & 15).wrapping_add(b & 15) & 15 | (a >> 4).wrapping_add(b >> 4) << 4,
];

/// What tells that two messages of one view were under one mask: of neighbouring tiles, of neighbouring planes, of two steps or links.
/// The same message twice tells nothing new. `across` says whether links are compared with each other.
pub(super) fn pairs(one: &View, two: &View, across: bool) -> Option<String> {
    let steps = steps(one, two);
    for (at, step) in steps.iter().enumerate() {
        let len = step.one[0].len();
        if len > ROW && len.is_multiple_of(ROW) {
            let planes = |run: &[&[u8]]| {
                [
                    run.iter().flat_map(|tile| &tile[..len - ROW]).copied().collect(),
                    run.iter().flat_map(|tile| &tile[ROW..]).copied().collect(),
                ]
            };
            if let Some(found) = related(planes(&step.one), planes(&step.two)) {
                return step.found(" and the plane before it", found);
            }
        }
        let tiles = |run: &[&[u8]]| -> [Vec<u8>; 2] { [run[..run.len() - 1].concat(), run[1..].concat()] };
        if let Some(found) = related(tiles(&step.one), tiles(&step.two)) {
            return step.found(" and the tile before it", found);
        }
        let alike = |other: &&Step| {
            other.one.len() == step.one.len() && other.one[0].len() == len && (across || other.link == step.link)
        };
        for other in steps[..at].iter().filter(alike) {
            let both = |run: &[&[u8]], other: &[&[u8]]| [run.concat(), other.concat()];
            if let Some(found) = related(both(&step.one, &other.one), both(&step.two, &other.two)) {
                let (from, to, _) = other.link;
                return step.found(&format!(" and step {} from role {from} to role {to}", other.number), found);
            }
        }
    }
    None
}

/// Chi-square, where it passes the limit, of what two messages have in common in two runs.
fn related(one: [Vec<u8>; 2], two: [Vec<u8>; 2]) -> Option<f64> {
    if one[0] == one[1] && two[0] == two[1] {
        return None;
    }
    WAYS.iter().find_map(|way| {
        let mut bins = [0u32; 256];
        for ((a, b), (c, d)) in one[0].iter().zip(&one[1]).zip(two[0].iter().zip(&two[1])) {
            bins[usize::from(way(*a, *b) ^ way(*c, *d))] += 1;
        }
        Some(deviation(&bins)).filter(|&found| found > LIMIT)
    })
}

/// Chi-square of the differences between two strings of bytes, where it passes the limit.
pub(super) fn of_bytes(one: &[u8], two: &[u8]) -> Option<f64> {
    let mut bins = [0u32; 256];
    one.iter().zip(two).for_each(|(a, b)| bins[usize::from(a ^ b)] += 1);
    Some(deviation(&bins)).filter(|&found| found > LIMIT)
}

/// Chi-square; of a few bytes, such as a digest, whether there is any difference at all.
fn deviation(bins: &[u32; 256]) -> f64 {
    let total: u32 = bins.iter().sum();
    if total < BYTES {
        return if total >= 8 && bins[0] == total { f64::INFINITY } else { 0.0 };
    }
    chi_square(bins)
}

fn chi_square(bins: &[u32]) -> f64 {
    let due = f64::from(bins.iter().sum::<u32>()) / bins.len() as f64;
    bins.iter().map(|&count| (f64::from(count) - due).powi(2) / due).sum()
}
