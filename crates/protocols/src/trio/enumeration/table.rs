//! The table gate, part by part: index, slope and line; shift and sign; extension.

use std::cell::RefCell;
use std::collections::HashMap;

use covey_kernels::Buffer;
use covey_ring::Ring;
use covey_transport::Phase as StepKind;

use super::super::site::purpose;
use super::super::table::{Entries, Table, TablePlan, draws};
use super::{Case, INPUT_MASK, Shared, reconstruct};
use crate::api::{self, Comparison, Costs, Options, TableShape, Window};
use crate::circuits::Adder;
use crate::clip::{Clipped, Ends};
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
    let all: Vec<i64> = (table.low..table.end() as i64).collect();
    leak_among(name, ring, (table, table.shape()), &all, without, |x| table.at(x))
}

/// The same of a table behind a clip of `all` values.
fn leak_clipped(ring: Ring, table: &api::Table, clipped: Clipped, all: &[i64], without: Option<u32>) -> Option<String> {
    let bound = i64::BITS - all.iter().map(|x| x.unsigned_abs()).max().unwrap_or(0).leading_zeros();
    let (windowed, shape) = table.windowed(clipped, Comparison::new(bound, true), ring).unwrap();
    let (low, last) = (i128::from(table.low), table.end() - 1);
    let added = |x: i128| if clipped.adds_input { x.max(low) } else { 0 };
    let name = format!("{clipped:?}");
    leak_among(&name, ring, (&windowed, shape), all, without, |x| table.at(x.clamp(low, last)) + added(x))
}

/// The same of a gate for `all` values.
fn leak_among(
    name: &str,
    ring: Ring,
    (table, shape): (&api::Table, TableShape),
    all: &[i64],
    without: Option<u32>,
    expected: impl Fn(i128) -> i128,
) -> Option<String> {
    let options = Options { adder: Adder::FewestBytes, ..Options::default() };
    let plan = TablePlan::new(shape, ring, &options, 1);
    let entries = Entries::<u32>::new(table);
    let widths = plan.draw_widths().into_iter().chain([(INPUT_MASK, ring.bits()), (purpose::MASK, ring.bits())]);
    WIDTHS.set(widths.filter(|(purpose, _)| Some(*purpose) != without).collect());
    let modulus = (1u64 << ring.bits()) - 1;
    Case {
        name,
        ring,
        secrets: all.iter().map(|&x| vec![x as u64 & modulus]).collect(),
        width,
        blank: None,
        build: &|site, s| {
            let x = Shared::new(&site, 0, s[0]);
            Table::new(site, plan.clone(), &entries, Buffer::copy_of(&x.sum()), &x.second)
        },
        output: &reconstruct(ring),
        expected: &|s, z| z == expected(ring.signed(s[0] as u32).into()) as u64 & modulus,
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

const BOTH: Clipped = Clipped { ends: Ends { low: Some(0), high: Some(1) }, adds_input: false };

#[test]
fn values_outside_the_domain() {
    let constants = table(0, 0, &[1, -2], &[], 0);
    let all: Vec<i64> = (-4..4).collect();
    assert_eq!(leak_clipped(Ring::Pow2(3), &constants, BOTH, &all[1..], None), None);
    let below = Clipped { ends: Ends { high: None, ..BOTH.ends }, ..BOTH };
    assert_eq!(leak_clipped(Ring::Pow2(3), &constants, below, &all[1..6], None), None);
    let above = Clipped { ends: Ends { low: None, ..BOTH.ends }, ..BOTH };
    assert_eq!(leak_clipped(Ring::Pow2(3), &constants, above, &all[4..], None), None);
}

#[test]
fn values_below_a_domain_of_segments() {
    // A value below and one of each segment. Both ends, or lines, are too many bits to enumerate.
    let of_two = table(-2, 1, &[1, 0], &[], 0);
    let below = Clipped { ends: Ends { low: Some(-2), high: None }, ..BOTH };
    assert_eq!(leak_clipped(Ring::Pow2(3), &of_two, below, &[-3, -1, 0], None), None);
}

#[test]
#[ignore = "takes long: make conformance"]
fn functions_that_rise_above_the_domain() {
    let clipped = Clipped { adds_input: true, ..BOTH };
    // A value below, one within and one above.
    assert_eq!(leak_clipped(Ring::Pow2(3), &table(0, 0, &[-1, -1], &[], 0), clipped, &[-1, 0, 3], None), None);
}

/// Bits an element offline and online, and rounds, with the fewest bytes, balanced, and with the fewest rounds.
fn counted(shape: TableShape) -> [(u64, u64, u64); 3] {
    let count = 1 << 16;
    [Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds].map(|adder| {
        let cost =
            Trio::<u32>::plan(&Gate::Table { count, shape }, Ring::Pow2(32), &Options { adder, ..Options::default() });
        let bits = |kind| cost.bytes(kind) * 8 / count as u64;
        (bits(StepKind::Offline), bits(StepKind::Online), cost.rounds)
    })
}

/// exp on [0, 8) in 128 segments of 256 integers at 12 fraction bits, as the design note has it; sigmoid on [-8, 8) and GELU on [-4, 4)
/// of 20 bits, sign included.
#[test]
fn counted_bits() {
    let exp = TableShape { index_bits: 7, step: 8, slope_bits: Some(9), line_bits: 20, shift: 8, window: None };
    assert_eq!(counted(exp), [(280, 162, 11), (284, 162, 9), (1006, 146, 7)]);
    let window = Window { bits: 21, below: true, above: true, tail: None };
    let sigmoid = TableShape { step: 9, line_bits: 22, shift: 10, window: Some(window), ..exp };
    assert_eq!(counted(sigmoid), [(376, 192, 13), (392, 188, 10), (887, 178, 9)]);
    let window = Window { tail: Some(20), ..window };
    let gelu = TableShape { slope_bits: Some(10), line_bits: 24, shift: 9, window: Some(window), ..exp };
    assert_eq!(counted(gelu), [(459, 196, 13), (475, 190, 10), (718, 180, 9)]);
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
    for (table, deals) in [(lines, 4), (shifted, 2)] {
        (0..deals).for_each(|deal| without(Ring::Pow2(3), &table, draws::DEAL + deal));
    }
    // The bits `inside` and `above`, the place, and the terms of the tail.
    let constants = table(0, 0, &[1, -2], &[], 0);
    let rising = Clipped { adds_input: true, ..BOTH };
    let without = |clipped, draw| {
        let all = [-1, 0, 3];
        assert!(
            leak_clipped(Ring::Pow2(3), &constants, clipped, &all, Some(draw)).is_some(),
            "{clipped:?}, draw {draw}"
        );
    };
    without(BOTH, draws::INDEX);
    (0..3).for_each(|deal| without(BOTH, draws::DEAL + deal));
    (2..5).for_each(|deal| without(rising, draws::DEAL + deal));
}
