//! Sums of a table's entries that bits select, the place of the first being public: what a lookup at a masked index computes.
//!
//! Where J = i + R mod 2^k is public, T[i] = Σ e[j]·T[J-j] over all j mod 2^k, e[j] = [R = j]. Holders of shares of e have shares of
//! that sum. Here the shares are bits. They are secret: every sum reads the same entries, whatever they are. J decides which.
//!
//! Bits of an element lie in words ([`Bits`]): those of entries 64g to 64g + 63 in the word of group g. Below 64 entries they are the low
//! bits of the only word, zeros above.

use covey_kernels::bits::from_planes;
use covey_kernels::{Buffer, vectorised};
use covey_ring::{BitTensor, Word};

/// Entries added at once: a vector register of 32-bit words.
const LANES: usize = 16;

/// Entries of a group, whose bits are one word an element.
const GROUP: usize = 64;

/// A table as sums read it.
pub(crate) struct Reversed<W> {
    /// T[-m] at m, twice: the entries T[J-j] for j from 0 on are neighbours, from -J on. As many as a register holds at least.
    words: Vec<W>,
    entries: usize,
}

impl<W: Word> Reversed<W> {
    /// Of 2^k entries.
    pub fn new(table: &[W]) -> Self {
        let entries = table.len();
        debug_assert!(entries.is_power_of_two());
        let words = (0..entries + entries.max(LANES)).map(|m| table[m.wrapping_neg() & (entries - 1)]).collect();
        Reversed { words, entries }
    }

    /// T[J-j] of each element of `index`, J.
    pub fn at(&self, out: &mut [W], index: &[W], j: usize) {
        let low = W::from_u64(self.entries as u64 - 1);
        let (words, j) = (&self.words[..2 * self.entries], W::from_u64(j as u64));
        for (out, &index) in out.iter_mut().zip(index) {
            *out = words[(j.sub(index) & low).to_u64() as usize];
        }
    }
}

/// Bits of elements.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'a> {
    words: &'a [u64],
    /// From a word to that of the next group, and to that of the next element.
    steps: [usize; 2],
}

impl<'a> Bits<'a> {
    /// The first group of all `len` elements, then the next.
    pub fn by_group(words: &'a [u64], len: usize) -> Self {
        Bits { words, steps: [len, 1] }
    }

    /// All groups of the first element, then of the next.
    pub fn by_element(words: &'a [u64], groups: usize) -> Self {
        Bits { words, steps: [1, groups] }
    }

    #[inline(always)]
    fn of(self, group: usize, element: usize) -> u64 {
        self.words[group * self.steps[0] + element * self.steps[1]]
    }
}

/// Planes of entries, one after the other, as words by group.
pub(crate) fn from_entries(planes: &[u64], entries: usize, len: usize) -> Buffer<u64> {
    let width = BitTensor::words_per_plane(len);
    let group = entries.min(GROUP);
    let mut words = Buffer::stale(len * entries.div_ceil(GROUP));
    let groups = planes.chunks_exact((width * group).max(1));
    words.chunks_exact_mut(len.max(1)).zip(groups).for_each(|(words, planes)| from_planes(planes, group, words));
    words
}

/// `out[e] = Σ T[J-j]` over the j whose bit of element e is 1, J = `index[e]`.
pub(crate) fn subset_sums<W: Word>(out: &mut [W], bits: Bits, index: &[W], table: &Reversed<W>) {
    check(out, bits, index, table);
    sums(out, bits, index, &table.words, table.entries);
}

/// The same under exclusive or.
pub(crate) fn subset_xors<W: Word>(out: &mut [W], bits: Bits, index: &[W], table: &Reversed<W>) {
    check(out, bits, index, table);
    xors(out, bits, index, &table.words, table.entries);
}

fn check<W: Word>(out: &[W], bits: Bits, index: &[W], table: &Reversed<W>) {
    assert!(
        index.len() == out.len() && bits.words.len() == out.len() * table.entries.div_ceil(GROUP),
        "lengths differ"
    );
}

vectorised! {
    /// How many of each element's bits are 1, words by group.
    pub(crate) fn counts<W: Word>(out: &mut [W], by_group: &[u64]) {
        out.fill(W::ZERO);
        for bits in by_group.chunks_exact(out.len().max(1)) {
            for (out, bits) in out.iter_mut().zip(bits) {
                *out = out.add(W::from_u64(bits.count_ones().into()));
            }
        }
    }

    fn sums<W: Word>(out: &mut [W], bits: Bits<'_>, index: &[W], table: &[W], entries: usize) {
        fold::<W, GROUP>(out, bits, index, table, entries, |a, b| a.add(b));
    }

    // In longer runs the compiler finds the last bits of a word by other instructions than the first, which takes twice as long.
    fn xors<W: Word>(out: &mut [W], bits: Bits<'_>, index: &[W], table: &[W], entries: usize) {
        fold::<W, 32>(out, bits, index, table, entries, |a, b| a ^ b);
    }
}

/// The body of [`subset_sums`] with any operation whose neutral element is 0, on `RUN` entries at a time.
#[inline(always)]
fn fold<W: Word, const RUN: usize>(
    out: &mut [W],
    bits: Bits,
    index: &[W],
    table: &[W],
    entries: usize,
    join: impl Fn(W, W) -> W + Copy,
) {
    let low = W::from_u64(entries as u64 - 1);
    for (e, (out, &index)) in out.iter_mut().zip(index).enumerate() {
        let start = (index.neg() & low).to_u64() as usize;
        let (runs, rest) = table[start..start + entries.max(LANES)].as_chunks::<RUN>();
        let mut sums = [W::ZERO; LANES];
        for (run, entries) in runs.iter().enumerate() {
            let first = run * RUN;
            add(&mut sums, entries, bits.of(first / GROUP, e) >> (first % GROUP), join);
        }
        // Tables of fewer entries than a run are in the only word.
        if !rest.is_empty() {
            add(&mut sums, rest, bits.of(0, e), join);
        }
        *out = sums.into_iter().fold(W::ZERO, join);
    }
}

/// Adds the entries whose bits are 1 to the lanes' sums.
///
/// Vectorised, as in releases, nothing branches on a bit, which `make constant-time` checks. Test builds are optimised less: there the
/// compiler makes branches of it.
#[inline(always)]
fn add<W: Word>(sums: &mut [W; LANES], entries: &[W], mut bits: u64, join: impl Fn(W, W) -> W) {
    for entries in entries.as_chunks::<LANES>().0 {
        let chosen = W::from_u64(bits & ((1 << LANES) - 1));
        for lane in 0..LANES {
            // All ones where the bit is 1.
            let mask = (chosen.shr(lane as u32) & W::ONE).neg();
            sums[lane] = join(sums[lane], entries[lane] & mask);
        }
        bits >>= LANES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<W: Word>(count: usize, seed: u64) -> Vec<W> {
        let word = |i: u64| W::from_u64((seed << 32 | i).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29));
        (1..=count as u64).map(|i| word(i).mul(word(i * i + seed))).collect()
    }

    /// Every size of a table, elements in whole words of planes and not.
    fn compare<W: Word>() {
        for k in 1..=12u32 {
            for len in [0, 1, 63, 64, 130] {
                let (entries, width) = (1usize << k, BitTensor::words_per_plane(len));
                let (table, index) = (words::<W>(entries, 1), words::<W>(len, 2));
                // Bits past the last element are whatever was drawn.
                let planes = words::<u64>(width * entries, 3);
                let words = from_entries(&planes, entries, len);
                let groups = entries.div_ceil(GROUP);
                let by_element: Vec<u64> = (0..len * groups).map(|i| words[i % groups * len + i / groups]).collect();
                let bit = |j: usize, e: usize| planes[j * width + e / 64] >> (e % 64) & 1 == 1;
                let at = |j: usize, e: usize| table[index[e].to_u64().wrapping_sub(j as u64) as usize & (entries - 1)];
                let chosen = |e: usize| (0..entries).filter(move |&j| bit(j, e)).map(move |j| at(j, e));
                let reversed = Reversed::new(&table);
                let mut out = vec![W::ONE; len];
                let case = format!("{} bits, 2^{k} entries, {len} elements", W::BITS);
                for bits in [Bits::by_group(&words, len), Bits::by_element(&by_element, groups)] {
                    subset_sums(&mut out, bits, &index, &reversed);
                    assert!((0..len).all(|e| out[e] == chosen(e).fold(W::ZERO, W::add)), "sums, {case}");
                    subset_xors(&mut out, bits, &index, &reversed);
                    assert!((0..len).all(|e| out[e] == chosen(e).fold(W::ZERO, |a, b| a ^ b)), "exclusive ors, {case}");
                }
                counts(&mut out, &words);
                assert!((0..len).all(|e| out[e].to_u64() == chosen(e).count() as u64), "counts, {case}");
                for j in [0, 1, entries - 1] {
                    reversed.at(&mut out, &index, j);
                    assert!((0..len).all(|e| out[e] == at(j, e)), "entry {j}, {case}");
                }
            }
        }
    }

    #[test]
    fn sums_of_chosen_entries_are_those_of_a_plain_loop() {
        compare::<u32>();
        compare::<u64>();
    }
}
