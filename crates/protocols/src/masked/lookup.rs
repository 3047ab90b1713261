//! Public tables read at a masked place by two servers that hold sets of entries (private information retrieval), as Trio's P1 and P2
//! do, and what Quad checks of it.
//!
//! J = i + R mod 2^k is public, R the dealer's. One party has a uniform set q of the 2^k places, the other q' = q ⊕ {R}. Of a table
//! T each adds up T[J - j] over the places j of its set. The sums differ by T[i], and whose is larger depends on whether R is in q,
//! which the dealer alone knows. The sizes of the sets are shares of that sign: |q'| - |q| is 1 or -1.
//!
//! A set lies in memory element by element: of up to 64 places in the low bits of one word, of more in consecutive words.

use std::hint::black_box;

use covey_kernels::{Buffer, vectorised};
use covey_ring::{Ring, Word};

use super::subsets::{Bits, Reversed, subset_sums};
use crate::api::{Options, ProtocolError, Result, Table};
use crate::cost::Gate;

/// Words of the largest set.
const MOST_WORDS: usize = 1 << (Table::MOST_INDEX_BITS - 6);

/// The sizes of lookups with indices of `index_bits` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sets {
    pub index_bits: u32,
}

impl Sets {
    /// Those of lookups in `tables`.
    ///
    /// # Errors
    /// If the tables do not have the same 2^k entries.
    pub fn of<W>(tables: &[Vec<W>]) -> Result<Self> {
        let entries = tables.first().map_or(0, Vec::len);
        let most = 1 << Table::MOST_INDEX_BITS;
        let sound = entries.is_power_of_two() && (2..=most).contains(&entries);
        match sound && tables.iter().all(|table| table.len() == entries) {
            true => Ok(Sets { index_bits: entries.ilog2() }),
            false => Err(ProtocolError::Internal("the sizes of tables")),
        }
    }

    /// Those of a gate that has any.
    pub fn of_gate(gate: &Gate) -> Option<Self> {
        match *gate {
            Gate::Lookup { index_bits, .. } => Some(Sets { index_bits }),
            Gate::Table { shape, .. } => Some(Sets { index_bits: shape.index_bits }),
            _ => None,
        }
    }

    /// Words that an element's set takes.
    pub fn words(self) -> usize {
        (self.entries() / 64).max(1)
    }

    /// Bytes of the sets of the elements in flight of a gate over `count`.
    pub fn bytes(self, count: usize, options: &Options) -> u64 {
        (8 * self.words() * count.min(options.window * options.tile_size())) as u64
    }

    /// Entries of a table.
    pub fn entries(self) -> usize {
        1 << self.index_bits
    }

    /// The words of a set as ring elements: as wide as its bits.
    pub fn ring(self) -> Ring {
        Ring::Pow2(self.entries().min(64) as u32)
    }

    /// Adds place R to the set if it is not in it, else takes it out, and says whether it was in it: 0 or 1.
    pub fn toggle<W: Word>(self, sets: &mut [u64], places: &[W]) -> Buffer<W> {
        let mut held = Buffer::stale(places.len());
        toggle(sets, places, &mut held, self.words(), self.entries() as u64 - 1);
        held
    }

    /// The sums of a table over sets, read at public places J.
    pub fn sums<W: Word>(self, out: &mut [W], sets: &[u64], places: &[W], table: &Reversed<W>) {
        subset_sums(out, Bits::by_element(sets, self.words()), places, table);
    }

    /// The sizes of sets. q' has one more than q where R was not in q, and one less where it was: a share of that sign.
    pub fn sizes<W: Word>(self, sets: &[u64], count: usize) -> Buffer<W> {
        let mut out = Buffer::stale(count);
        sizes(&mut out, sets, self.words());
        out
    }

    /// Turns each element's set by its place: place j becomes j - R mod 2^k.
    pub fn turn<W: Word>(self, sets: &mut [u64], places: &[W]) {
        turn(sets, places, self.words(), self.entries() as u32);
    }

    /// The exclusive or of σ·T + ρ over sets, with σ = ±1 and ρ of each element.
    pub fn masked_sums<W: Word>(self, out: &mut [W], sets: &[u64], table: &[W], sign: &[W], mask: &[W]) {
        masked_sums(out, sets, table, sign, mask, self.words());
    }
}

vectorised! {
    /// Flips the bit of each element's place; no branch, no index and no shift's amount depends on it.
    fn toggle<W: Word>(sets: &mut [u64], places: &[W], held: &mut [W], words: usize, mask: u64) {
        for ((set, &place), held) in sets.chunks_exact_mut(words).zip(places).zip(held) {
            let place = place.to_u64() & mask;
            // 2^(place mod 64), bit by bit of the place.
            let low = (0..6).fold(1u64, |low, bit| {
                let all = (place >> bit & 1).wrapping_neg();
                low ^ ((low ^ low << (1 << bit)) & all)
            });
            let mut was = 0;
            for (number, word) in set.iter_mut().enumerate() {
                // All ones in the word of the place.
                let here = (((place >> 6) ^ number as u64).wrapping_sub(1) >> 63).wrapping_neg();
                was |= *word & low & here;
                *word ^= low & here;
            }
            *held = W::from_u64((was | was.wrapping_neg()) >> 63);
        }
    }

    /// By each bit of the place in turn; no branch, no index and no shift's amount depends on it.
    fn turn<W: Word>(sets: &mut [u64], places: &[W], words: usize, entries: u32) {
        let mut before = [0; MOST_WORDS];
        let before = &mut before[..words];
        for (set, &place) in sets.chunks_exact_mut(words).zip(places) {
            let place = place.to_u64();
            // Of small sets there are bits above.
            set[0] &= u64::MAX >> (64 - entries.min(64));
            for step in 0..entries.ilog2() {
                before.copy_from_slice(set);
                // Out of the compiler's sight: it makes two loops of one where it sees a mask being made of a bit.
                let all = black_box((place >> step & 1).wrapping_neg());
                let by = 1 << step;
                for (number, word) in set.iter_mut().enumerate() {
                    let turned = match step {
                        6.. => before[(number + by / 64) % words],
                        _ if entries >= 64 => before[number] >> by | before[(number + 1) % words] << (64 - by),
                        _ => (before[0] >> by | before[0] << (entries as usize - by)) & (u64::MAX >> (64 - entries)),
                    };
                    *word ^= (*word ^ turned) & all;
                }
            }
        }
    }

    fn masked_sums<W: Word>(out: &mut [W], sets: &[u64], table: &[W], sign: &[W], mask: &[W], words: usize) {
        for (((out, set), &sign), &mask) in out.iter_mut().zip(sets.chunks_exact(words)).zip(sign).zip(mask) {
            // -t is ¬t + 1.
            let negative = sign.shr(W::BITS - 1);
            let (flip, plus) = (W::ZERO.sub(negative), mask.add(negative));
            *out = set.iter().zip(table.chunks(64)).fold(W::ZERO, |sum, (&bits, table)| {
                let masked = |(j, &entry): (usize, &W)| {
                    (entry ^ flip).add(plus) & W::ZERO.sub(W::from_u64(bits >> j & 1))
                };
                table.iter().enumerate().map(masked).fold(sum, |sum, entry| sum ^ entry)
            });
        }
    }

    fn sizes<W: Word>(out: &mut [W], sets: &[u64], words: usize) {
        for (out, set) in out.iter_mut().zip(sets.chunks_exact(words)) {
            *out = W::from_u64(set.iter().map(|word| u64::from(word.count_ones())).sum());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums against a loop over places, and toggling a place against the sum of both sets.
    #[test]
    fn sums_over_sets_differ_by_the_entry() {
        for index_bits in 1..=9 {
            let sets = Sets { index_bits };
            let (entries, count) = (sets.entries(), 70);
            let mut state = 1u64;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                state ^ state >> 29
            };
            let table: Vec<u32> = (0..entries).map(|_| next() as u32).collect();
            let mut set: Vec<u64> = (0..count * sets.words()).map(|_| next() & sets.ring().reduce(!0u64)).collect();
            let masks: Vec<u32> = (0..count).map(|_| next() as u32).collect();
            let index: Vec<u32> = (0..count).map(|i| (i * 7 % entries) as u32).collect();
            let places: Vec<u32> = index.iter().zip(&masks).map(|(i, mask)| i.wrapping_add(*mask)).collect();
            let reversed = Reversed::new(&table);
            let bit = |set: &[u64], e: usize, j: usize| set[e * sets.words() + j / 64] >> (j % 64) & 1;
            let (mut one, mut other) = (vec![0u32; count], vec![0u32; count]);
            sets.sums(&mut one, &set, &places, &reversed);
            for e in 0..count {
                let place = |j: usize| (places[e] as usize).wrapping_sub(j) & (entries - 1);
                let naive = (0..entries).filter(|&j| bit(&set, e, j) == 1).map(|j| table[place(j)]);
                assert_eq!(one[e], naive.fold(0, u32::wrapping_add), "{index_bits} bits");
            }
            let before = set.clone();
            let before_sizes = sets.sizes::<u32>(&set, count);
            let held = sets.toggle(&mut set, &masks);
            let sizes = sets.sizes::<u32>(&set, count);
            sets.sums(&mut other, &set, &places, &reversed);
            for e in 0..count {
                let place = masks[e] as usize & (entries - 1);
                assert_eq!(u64::from(held[e]), bit(&before, e, place));
                assert_eq!(bit(&set, e, place), 1 - bit(&before, e, place));
                assert_eq!(1 - 2 * held[e] as i32, sizes[e].wrapping_sub(before_sizes[e]) as i32);
                let difference = other[e].wrapping_sub(one[e]);
                let signed = if held[e] == 1 { difference.wrapping_neg() } else { difference };
                assert_eq!(signed, table[index[e] as usize], "{index_bits} bits");
            }
        }
    }

    /// Turned sets against their bits, and sums of masked entries against a loop over them.
    #[test]
    fn turned_sets_choose_masked_entries() {
        for index_bits in (1..=9).chain([Table::MOST_INDEX_BITS]) {
            let sets = Sets { index_bits };
            let (entries, count) = (sets.entries(), 70);
            let mut state = 7u64;
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                state ^ state >> 29
            };
            let table: Vec<u32> = (0..entries).map(|_| next() as u32).collect();
            let before: Vec<u64> = (0..count * sets.words()).map(|_| next()).collect();
            let places: Vec<u32> = (0..count).map(|e| if e < 2 { 64 * e as u32 } else { next() as u32 }).collect();
            let sign: Vec<u32> = (0..count).map(|e| if e % 3 == 0 { 1 } else { u32::MAX }).collect();
            let mask: Vec<u32> = (0..count).map(|_| next() as u32).collect();
            let bit = |set: &[u64], e: usize, j: usize| set[e * sets.words() + j / 64] >> (j % 64) & 1;
            let mut set = before.clone();
            sets.turn(&mut set, &places);
            let mut sums = vec![0u32; count];
            sets.masked_sums(&mut sums, &set, &table, &sign, &mask);
            for e in 0..count {
                let from = |j: usize| (places[e] as usize).wrapping_add(j) & (entries - 1);
                assert!((0..entries).all(|j| bit(&set, e, j) == bit(&before, e, from(j))), "{index_bits} bits");
                let chosen = (0..entries).filter(|&j| bit(&set, e, j) == 1);
                let naive = chosen.fold(0, |sum, j| sum ^ table[j].wrapping_mul(sign[e]).wrapping_add(mask[e]));
                assert_eq!(sums[e], naive, "{index_bits} bits");
            }
        }
    }
}
