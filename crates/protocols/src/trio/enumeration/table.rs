//! The table gate, part by part: index, slope and line; shift and sign; extension.

use std::cell::RefCell;
use std::collections::HashMap;

use covey_kernels::Buffer;
use covey_ring::Ring;
use covey_transport::Phase as StepKind;

use super::super::site::purpose;
use super::super::table::{Entries, Table, TablePlan, draws};
use super::{Case, INPUT_MASK, Shared, reconstruct};
use crate::api::{self, Costs, Options, TableShape};
use crate::circuits::Adder;
use crate::cost::Gate;
use crate::trio::Trio;

thread_local! {
    /// Bits of each draw of words.
    static WIDTHS: RefCell<HashMap<u32, u32>> = RefCell::default();
}

fn width(purpose: u32) -> u32 {
    WIDTHS.with_borrow(|widths| widths.get(&purpose).copied().unwrap_or(0))
}

/// Whether a view depends on x; `without` is a draw that is left out.
fn leak(name: &str, ring: Ring, table: &api::Table, without: Option<u32>) -> Option<String> {
    let options = Options { adder: Adder::FewestBytes, ..Options::default() };
    let plan = TablePlan::new(table.shape(), ring, &options, 1);
    let entries = Entries::<u32>::new(table);
    let widths = plan.draw_widths().into_iter().chain([(INPUT_MASK, ring.bits()), (purpose::MASK, ring.bits())]);
    WIDTHS.set(widths.filter(|(purpose, _)| Some(*purpose) != without).collect());
    let modulus = (1u64 << ring.bits()) - 1;
    Case {
        name,
        ring,
        secrets: (table.low..table.end() as i64).map(|x| vec![x as u64 & modulus]).collect(),
        width,
        blank: None,
        build: &|site, s| {
            let value = Shared::new(&site, 0, s[0]).sum();
            Table::new(site, plan.clone(), &entries, Buffer::copy_of(&value))
        },
        output: &reconstruct(ring),
        expected: &|s, z| z == table.at(ring.signed(s[0] as u32).into()) as u64 & modulus,
    }
    .leak()
}

fn table(low: i64, step: u32, values: &[i64], slopes: &[i64], shift: u32) -> api::Table {
    api::Table { low, step, values: values.to_vec(), slopes: slopes.to_vec(), shift }
}

#[test]
fn constants() {
    assert_eq!(leak("constants", Ring::Pow2(4), &table(0, 0, &[1, -1], &[], 0), None), None);
    assert_eq!(leak("constants of two", Ring::Pow2(3), &table(-2, 1, &[2, 1], &[], 0), None), None);
    assert_eq!(leak("four constants", Ring::Pow2(2), &table(-2, 0, &[0, 1, 1, 0], &[], 0), None), None);
}

#[test]
fn shifts() {
    assert_eq!(leak("shifted constants", Ring::Pow2(3), &table(0, 0, &[3, -1], &[], 1), None), None);
    assert_eq!(leak("constants shifted by two", Ring::Pow2(2), &table(-1, 0, &[6, 1], &[], 2), None), None);
}

#[test]
fn lines() {
    assert_eq!(leak("lines", Ring::Pow2(3), &table(0, 1, &[0, 2], &[1, -1], 0), None), None);
    assert_eq!(leak("shifted lines", Ring::Pow2(2), &table(-2, 1, &[0, 3], &[1, -2], 1), None), None);
}

/// exp on [0, 8) in 128 segments of 256 integers at 12 fraction bits, as the design note has it.
#[test]
fn counted_bits() {
    let shape = TableShape { index_bits: 7, step: 8, slope_bits: Some(9), line_bits: 20, shift: 8 };
    let count = 1 << 16;
    let counted = [Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds].map(|adder| {
        let cost =
            Trio::<u32>::plan(&Gate::Table { count, shape }, Ring::Pow2(32), &Options { adder, ..Options::default() });
        let bits = |kind| cost.bytes(kind) * 8 / count as u64;
        (bits(StepKind::Offline), bits(StepKind::Online), cost.rounds)
    });
    assert_eq!(counted, [(295, 162, 11), (299, 162, 9), (1021, 146, 7)]);
}

/// Each pad alone.
#[test]
fn missing_masks_are_caught() {
    let without = |ring, table: &api::Table, draw| {
        assert!(leak("without a mask", ring, table, Some(draw)).is_some(), "{table:?}, draw {draw}");
    };
    // Values of both parities before the shift, as its borrow tells one from the other.
    let (lines, shifted) = (table(0, 1, &[0, 2], &[1, -1], 0), table(0, 0, &[3, 0], &[], 1));
    for draw in [draws::INDEX, draws::SLOPE, draws::LINE, draws::SET, purpose::MASK] {
        without(Ring::Pow2(3), &lines, draw);
    }
    // Those of the extension, the last two of the second table, are caught in the fused gate.
    for (table, deals) in [(lines, 5), (shifted, 2)] {
        (0..deals).for_each(|deal| without(Ring::Pow2(3), &table, draws::DEAL + deal));
    }
}
