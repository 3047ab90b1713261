//! Lookups, element by element: every element of a tile has draws of its own, so one run goes through all of them.
//!
//! Words and sets have equally many bits in the rings here, so a message is a row of fields, each of one for every element.

use std::cell::RefCell;

use covey_kernels::Buffer;
use covey_ring::{Ring, Word};

use super::super::audit::Site;
use super::super::lookup::Lookup;
use super::super::share::Role;
use super::super::transcript::Line;
use super::{Ended, INPUT_MASK, NOTED, SEEN, Shared, every_change_shows, keyed, run, scripted, words_fit};
use crate::machine::Step;
use crate::masked::lookup::Sets;
use crate::masked::subsets::Reversed;
use crate::randomness::script::{self, Script};

/// A table in a small ring.
struct Small {
    ring: Ring,
    width: usize,
    sets: Sets,
    tables: Vec<Vec<u32>>,
    reversed: Vec<Reversed<u32>>,
}

/// A message's step, sender, receiver and field.
type Field = (Step, usize, usize, usize);
/// What is added to which fields.
type Offsets = [(Field, u64)];

/// What is compared, by line and place in it: the dealt messages, the place's bits, Z, Z masked for the result, and the result.
const COMPARED: [(&str, &[(Line, usize)]); 6] = [
    ("dealt to P1", &[(Line::P3ToP1, 0)]),
    ("dealt to P2", &[(Line::P3ToP2, 0)]),
    ("the place", &[(Line::P1ToP3, 0)]),
    ("Z", &[(Line::P1ToP3, 1), (Line::P2ToP3, 0)]),
    ("Z masked", &[(Line::P1ToP3, 2)]),
    ("the result", &[(Line::P1ToP3, 3), (Line::P2ToP3, 1)]),
];

/// The fields that each party sends.
fn fields(cheater: usize) -> Vec<Field> {
    let offline = |to, field| (Step::Offline, 0, to, field);
    let online = |round, to| (Step::Online(round), cheater, to, 0);
    match cheater {
        0 => vec![offline(2, 0), offline(1, 0), offline(3, 0), offline(3, 1)],
        1 => vec![online(0, 2), online(1, 2)],
        _ => vec![online(0, 1), online(0, 3), online(1, 1), online(1, 3)],
    }
}

impl Small {
    fn new(index_bits: u32, table: &[u32]) -> Self {
        let sets = Sets { index_bits };
        let width = table.len();
        let tables = vec![table.to_vec()];
        let reversed = vec![Reversed::new(table)];
        Small { ring: Ring::Pow2(width as u32), width, sets, tables, reversed }
    }

    fn two() -> Self {
        Small::new(1, &[1, 0])
    }

    fn four() -> Self {
        Small::new(2, &[3, 14, 0, 9])
    }

    fn gate<'a>(&'a self, site: &Site, index: u64) -> Lookup<'a, u32> {
        Lookup::new(site, Shared::new(site, 0, index).sum(), self.sets, &self.tables, &self.reversed)
    }

    fn indices(&self) -> std::ops::Range<u64> {
        0..self.width as u64
    }

    fn field(&self, bytes: &[u8], field: usize, len: usize) -> impl Fn(usize) -> u64 {
        let (width, mask) = (self.width, (1 << self.width) - 1);
        move |e| {
            let bit = (field * len + e) * width;
            u64::from(bytes[bit / 8] >> (bit % 8)) & mask
        }
    }

    fn add(&self, bytes: &mut [u8], field: usize, len: usize, offset: u64) {
        let mask = (1u8 << self.width) - 1;
        for e in 0..len {
            let bit = (field * len + e) * self.width;
            let (byte, by) = (&mut bytes[bit / 8], bit % 8);
            let sum = (*byte >> by).wrapping_add(offset as u8) & mask;
            *byte = *byte & !(mask << by) | sum << by;
        }
    }

    /// A run in which a party changes what it sends. Returns what all end with, and the view of `viewer`, field by field.
    fn run<'a>(
        &'a self,
        sites: &[Site],
        index: u64,
        offsets: &Offsets,
        viewer: usize,
    ) -> (Ended<Lookup<'a, u32>>, Vec<Vec<u64>>) {
        let len = sites[0].len;
        SEEN.take();
        let columns = RefCell::new(Vec::new());
        let held = Shared::new(&sites[viewer], 0, index);
        let held = if viewer == 3 { held.extra } else { held.sum() };
        columns.borrow_mut().push(held.iter().map(|&word| u64::from(self.ring.reduce(word))).collect());
        let ended = run(sites, &|site| self.gate(site, index), &|step, from, to, bytes| {
            for &((_, _, _, field), offset) in
                offsets.iter().filter(|((s, f, t, _), _)| (*s, *f, *t) == (step, from, to))
            {
                self.add(bytes, field, len, offset);
            }
            for field in (0..8 * bytes.len() / (self.width * len)).filter(|_| to == viewer) {
                columns.borrow_mut().push((0..len).map(self.field(bytes, field, len)).collect());
            }
        });
        (ended, columns.into_inner())
    }

    /// Of each element whether honest parties find a difference, without comparisons `left_out`.
    fn found(
        &self,
        sites: &[Site],
        index: u64,
        cheater: usize,
        offsets: &Offsets,
        left_out: &[(Line, usize)],
    ) -> Vec<bool> {
        let len = sites[0].len;
        NOTED.set(Some(Vec::new()));
        self.run(sites, index, offsets, cheater);
        let noted = NOTED.take().unwrap();
        let mut found = vec![0u8; len * self.width / 8];
        for line in [Line::P3ToP1, Line::P3ToP2, Line::P1ToP3, Line::P2ToP3] {
            if line.ends().contains(&cheater) {
                continue;
            }
            let [from, to] = line.ends().map(|party| {
                let of = noted.iter().filter(move |(role, on, _)| *role == Role::of(party) && *on == line);
                of.map(|(_, _, bytes)| bytes).collect::<Vec<_>>()
            });
            assert_eq!(from.len(), to.len());
            for (number, (one, other)) in from.into_iter().zip(to).enumerate() {
                if left_out.contains(&(line, number)) {
                    continue;
                }
                assert_eq!(one.len(), other.len());
                for (at, (one, other)) in one.iter().zip(other).enumerate() {
                    found[at % (len * self.width / 8)] |= one ^ other;
                }
            }
        }
        (0..len).map(self.field(&found, 0, len)).map(|differs| differs != 0).collect()
    }

    /// Every change of one party's messages, all of them at once, in each field by each offset.
    fn changes(&self, cheater: usize) -> Vec<Vec<(Field, u64)>> {
        let fields = fields(cheater);
        let numbers = 1..1u64 << (self.width * fields.len());
        let offset = |number: u64, at: usize| number >> (self.width * at) & ((1 << self.width) - 1);
        let of = |number| fields.iter().enumerate().map(|(at, &field)| (field, offset(number, at))).collect();
        numbers.map(of).collect()
    }

    /// Of these, those of a single field.
    fn single_changes(&self, cheater: usize) -> Vec<Vec<(Field, u64)>> {
        let offsets = |field: Field| (1..1 << self.width).map(move |offset| vec![(field, offset)]);
        fields(cheater).into_iter().flat_map(offsets).collect()
    }
}

/// One bit of an index's mask is enough in a table of two.
fn two_bits(purpose: u32) -> u32 {
    if purpose >= INPUT_MASK { 1 } else { 2 }
}

/// Scripts of k013, k023 and k012, of which `enumerated` go through all their draws, and the bits that these take.
fn scripts(
    small: &Small,
    enumerated: &[usize],
    width: fn(u32) -> u32,
    seed: u64,
    base: u64,
) -> ([std::sync::Arc<Script>; 3], u32) {
    let mut start = 0;
    let scripts = [0, 1, 2].map(|key| {
        let fixed = Script::new(false, 0, width, 3 * seed + key as u64, None);
        if !enumerated.contains(&key) {
            return fixed;
        }
        let probe = [0, 1, 2].map(|other| Script::new(other == key, 0, width, seed, None));
        run(&scripted(small.ring, 8, &probe), &|site| small.gate(site, 0), &super::no_change);
        let first = start;
        start += probe[key].bits();
        match (first, base) {
            (0, base) => Script::new(true, base, width, seed, None),
            _ => Script::from_bit(first, width),
        }
    });
    (scripts, start)
}

/// Whether what `viewer` sees depends on the index, over all of the key that it lacks, whatever it adds to its own messages.
fn leaks(small: &Small, viewer: usize, width: fn(u32) -> u32, seed: u64, offsets: &Offsets) -> bool {
    let lacked = [1, 0, 2][viewer - 1];
    let sums: Vec<u128> = small
        .indices()
        .map(|index| {
            let (_, bits) = scripts(small, &[lacked], width, seed, 0);
            assert!(bits <= 20, "{bits} bits are too many");
            let tile = 1u64 << bits.min(14);
            let mut sum = 0u128;
            for base in (0..1u64 << bits).step_by(tile as usize) {
                let sites = scripted(small.ring, tile as usize, &scripts(small, &[lacked], width, seed, base).0);
                let (ended, view) = small.run(&sites, index, offsets, viewer);
                for e in 0..tile as usize {
                    sum = sum.wrapping_add(script::hash(view.iter().map(|column| column[e])));
                    if offsets.is_empty() {
                        assert!(words_fit::<Lookup<'_, u32>>(small.ring)(&ended, e), "V is not X + w");
                        let ((a, b), (l1, l2)) = (&ended[1].0, &ended[0].0);
                        let x = small.ring.reduce(a[e].add(b[e]).sub(l1[e]).sub(l2[e]));
                        assert_eq!(x, small.ring.reduce(small.tables[0][index as usize]));
                    }
                }
            }
            sum
        })
        .collect();
    sums.iter().any(|sum| *sum != sums[0])
}

#[test]
fn no_party_sees_the_index() {
    for viewer in 1..=3 {
        for seed in 0..8 {
            assert!(!leaks(&Small::two(), viewer, |_| 2, seed, &[]), "P{viewer}");
        }
        assert!(!leaks(&Small::four(), viewer, |_| 4, 1, &[]), "P{viewer}");
    }
    // Whatever P1 and P2 make of their own messages. P3 sends none, and P0 is sent none.
    for cheater in [1, 2] {
        for offsets in Small::two().changes(cheater) {
            assert!(!leaks(&Small::two(), cheater, |_| 2, 5, &offsets), "P{cheater}, {offsets:?}");
        }
    }
}

/// Each of the four masks between P1, P2 and P0 in turn.
#[test]
fn a_missing_mask_shows_p3_the_index() {
    let without: [fn(u32) -> u32; 4] = [
        |purpose| if purpose == 0 { 0 } else { 2 },
        |purpose| if purpose == 1 { 0 } else { 2 },
        |purpose| if purpose == 1 << 11 { 0 } else { 2 },
        |purpose| if purpose == (1 << 11) + 1 { 0 } else { 2 },
    ];
    for (number, width) in without.into_iter().enumerate() {
        assert!((0..4).any(|seed| leaks(&Small::two(), 3, width, seed, &[])), "mask {number}");
    }
}

/// Sites that go through all draws of each key, and of the two keys that masks and deals come from.
fn all_sites(small: &Small, width: fn(u32) -> u32) -> Vec<Vec<Site>> {
    let of = |enumerated: &[usize], seed| {
        let (scripts, bits) = scripts(small, enumerated, width, seed, 0);
        scripted(small.ring, 1 << bits, &scripts)
    };
    let single = (0..3).flat_map(|key| [0, 1].map(|seed| of(&[key], seed)));
    single.chain([of(&[0, 1], 2)]).collect()
}

/// Every change of any of a party's messages is found, in all cases alike.
#[test]
fn every_change_is_found_whatever_is_drawn() {
    let small = Small::two();
    let sites = all_sites(&small, two_bits);
    for cheater in 0..3 {
        let changes = small.changes(cheater);
        for index in small.indices() {
            for sites in &sites {
                assert!(!small.found(sites, index, cheater, &[], &[]).contains(&true));
            }
            // P0's, of which there are most, under draws of one key after the other.
            let sites = if cheater == 0 { &sites[..sites.len() - 1] } else { &sites };
            for (sites, offsets) in sites.iter().flat_map(|sites| changes.iter().map(move |offsets| (sites, offsets))) {
                let found = small.found(sites, index, cheater, offsets, &[]);
                assert!(!found.contains(&false), "P{cheater}, {index}: {offsets:?}");
            }
        }
    }
}

/// The same of larger words and four entries, under draws at random: P1's messages at once, of others each alone.
#[test]
fn every_change_of_longer_words_is_found() {
    let small = Small::four();
    let sites = keyed(small.ring, 2048);
    for cheater in 0..3 {
        let changes = if cheater == 1 { small.changes(1) } else { small.single_changes(cheater) };
        for (index, offsets) in small.indices().flat_map(|index| changes.iter().map(move |o| (index, o))) {
            let found = small.found(&sites, index, cheater, offsets, &[]);
            assert!(!found.contains(&false), "P{cheater}, {index}: {offsets:?}");
        }
    }
}

/// Without any one comparison some change passes, always or as the secrets have it.
#[test]
fn without_a_comparison_a_change_passes() {
    let small = Small::two();
    let sites = &all_sites(&small, two_bits)[..6];
    for (name, left_out) in COMPARED {
        let passes = (0..3).any(|cheater| {
            let changes = small.changes(cheater);
            changes.iter().any(|offsets| {
                let found = |sites| small.found(sites, 0, cheater, offsets, left_out);
                sites.iter().any(|sites: &Vec<Site>| found(sites).contains(&false))
            })
        });
        assert!(passes, "nothing passes without the comparison of {name}");
    }
}

#[test]
fn a_change_of_any_message_of_two_large_tables_shows() {
    let sets = Sets { index_bits: 7 };
    let table = |number: u32| (0..128u32).map(|i| (i + number).wrapping_mul(0x9E37_79B9)).collect::<Vec<_>>();
    let tables = vec![table(1), table(2)];
    let reversed: Vec<Reversed<_>> = tables.iter().map(|table| Reversed::new(table)).collect();
    let place = |site: &Site| -> Buffer<u32> { Shared::new(site, 0, 77).sum() };
    every_change_shows("lookup", &|site| Lookup::new(site, place(site), sets, &tables, &reversed));
}
