//! Lookups: every index, in every form that shares of its place have.

use std::sync::Arc;

use covey_ring::Ring;

use super::{Case, filled};
use crate::beaver::lookup::{Form, Lookup, LookupPlan, PLANES};
use crate::beaver::site::{purpose, table};
use crate::masked::subsets::Reversed;

const RING: Ring = Ring::Pow2(4);

/// Without symmetries: neither constants nor signs nor shifts of the index map one entry to another. The first two differ in every bit.
const ENTRIES: [[u32; 8]; 2] = [[3, 12, 0, 13, 6, 1, 15, 10], [7, 8, 11, 4, 4, 9, 0, 14]];

#[derive(Clone, Copy)]
struct Of {
    form: Form,
    parties: usize,
    index_bits: u32,
    tables: usize,
}

/// What a mutant leaves without randomness: a plane, or all words of a draw.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    Nothing,
    Plane(usize),
    Words(u32),
}

impl Of {
    fn plan(self) -> LookupPlan {
        LookupPlan::of_form(self.form, (self.index_bits, self.tables), RING, table(self.parties))
    }

    fn leak(self, missing: Missing) -> Option<String> {
        let (plan, entries) = (self.plan(), 1usize << self.index_bits);
        let tables: Vec<_> = ENTRIES[..self.tables].iter().map(|table| Reversed::new(&table[..entries])).collect();
        let tables = Arc::new(tables);
        Case {
            name: &format!("{:?}, {} tables of {entries}", self.form, self.tables),
            parties: self.parties,
            ring: RING,
            secrets: (0..entries as u64).map(|x| vec![x]).collect(),
            width: &|draw| match draw {
                draw if missing == Missing::Words(draw) => 0,
                purpose::OPENING => self.index_bits,
                draw => plan.width(draw).unwrap_or(RING.bits()),
            },
            blank: if let Missing::Plane(plane) = missing { Some((PLANES, plane)) } else { None },
            build: &|site, s| {
                let index = filled(&site, s[0]);
                Lookup::new(site, plan.clone(), tables.clone(), index)
            },
            output: &|found, e| found.iter().rev().fold(0, |all, found| all << 32 | u64::from(found[e])),
            join: |a, b| {
                let low = 0xF_0000_000F;
                ((a & low) + (b & low)) & low
            },
            expected: &|s, found| {
                (0..self.tables).all(|t| (found >> (32 * t)) as u32 & 15 == ENTRIES[t][s[0] as usize])
            },
        }
        .leak()
    }
}

fn forms() -> impl Iterator<Item = Of> {
    let of = |(form, parties, index_bits, tables)| Of { form, parties, index_bits, tables };
    [
        (Form::Words, 2, 1, 2),
        (Form::Words, 2, 2, 2),
        (Form::Words, 3, 2, 1),
        (Form::SignedBits, 2, 1, 2),
        (Form::SignedBits, 2, 2, 2),
        (Form::SignedBits, 2, 3, 1),
        (Form::Bits, 2, 2, 1),
        (Form::Bits, 3, 1, 1),
        (Form::Bits, 3, 2, 1),
        (Form::Bits, 4, 1, 1),
    ]
    .into_iter()
    .map(of)
}

#[test]
fn lookups() {
    for of in forms() {
        let leak = of.leak(Missing::Nothing);
        assert!(leak.is_none(), "{:?}, {} parties, 2^{} entries: {leak:?}", of.form, of.parties, of.index_bits);
    }
}

/// Every draw is needed: of the index's mask, of each result's, of each plane and of each word that the dealer shares.
#[test]
fn a_lookup_without_one_of_its_pads_is_caught() {
    for of in forms().filter(|of| of.index_bits <= 2 && of.parties < 4 && (of.parties, of.tables) != (2, 1)) {
        let plan = of.plan();
        let planes = if of.form == Form::Words { 0 } else { 1 << of.index_bits };
        let results = if of.form == Form::Words { 0 } else { of.tables };
        let words = (0..results).map(|table| plan.mask(table)).chain(plan.dealt_draws()).chain([purpose::OPENING]);
        let missing = words.map(Missing::Words).chain((0..planes).map(Missing::Plane));
        for (number, missing) in missing.enumerate() {
            let case = format!("{:?}, {} parties, 2^{} entries, pad {number}", of.form, of.parties, of.index_bits);
            assert!(of.leak(missing).is_some(), "{case}");
        }
    }
}
