//! Trio's tables of clipped values at full width: both ends of the domain, of each segment and of the bound, in one gate.

use std::thread;
use std::time::Duration;

use crate::common::{keys, opened, samples, share, tensor};
use covey_protocols::circuits::Adder;
use covey_protocols::clip::{Clipped, Ends};
use covey_protocols::cost::CostModel;
use covey_protocols::parts::*;
use covey_protocols::planner::Planner;
use covey_protocols::served::Served;
use covey_protocols::trio::Trio;
use covey_protocols::{Comparison, Options, Phase, Table};
use covey_ring::{Ring, Word};
use covey_transport::{Network, memory};

/// Lines of any slope, the first and the last constant or not.
fn table(index_bits: u32, step: u32, shift: u32, flat: bool) -> Table {
    let segments = 1usize << index_bits;
    let scaled = |x: i64| x << shift;
    let mut values: Vec<i64> = samples(10, segments).into_iter().cycle().take(segments).map(scaled).collect();
    let mut slopes: Vec<i64> = samples(shift + 2, segments).into_iter().cycle().take(segments).collect();
    if flat {
        let input_added = -(1i64 << shift);
        (slopes[0], slopes[segments - 1]) = (input_added, 0);
        values[0] += 77;
    }
    Table { low: -(1i64 << (index_bits + step - 1)), step, values, slopes, shift }
}

fn check<W: Word>(ring: Ring, adder: Adder, table: &Table, comparison: Comparison) {
    let options = Options { adder, tile: 192, window: 3, ..Options::default() };
    let (low, last, most) = (table.low, table.end() as i64 - 1, (1i64 << comparison.bound) - 1);
    let starts = || (low..=last).step_by(1 << table.step);
    let ends = [low, low - 1, last, last + 1, most, -most, most / 2, -most / 2];
    let mut all: Vec<i64> = ends.into_iter().chain(starts()).chain(starts().map(|x| x - 1)).collect();
    all.extend(samples(comparison.bound, 200));
    for (below, above, adds_input) in
        [(true, true, false), (true, true, true), (true, false, false), (false, true, false)]
    {
        let mut xs = all.clone();
        xs.retain(|&x| x.abs() <= most && (below || x >= low) && (above || x <= last));
        let ends = Ends { low: below.then_some(low), high: above.then_some(last) };
        let x = tensor::<W>(ring, &xs);
        let found = opened(ring, options, |trio: &mut Trio<W>| {
            let x = share(trio, 1, &x);
            trio.clip_table(&x, Clipped { ends, adds_input }, comparison, table).unwrap()
        });
        for (&x, found) in xs.iter().zip(found) {
            let added = if adds_input { x.max(low) } else { 0 };
            let expected = table.at(x.clamp(low, last).into()) + i128::from(added);
            let case = format!("{ring}, {adder:?}, {comparison:?}, below {below}, above {above}, added {adds_input}");
            assert_eq!(i128::from(found), expected, "{x}: {case}");
        }
    }
}

/// Every link's bytes and messages, and rounds.
#[test]
fn plan_equals_the_meter() {
    let (ring, comparison) = (Ring::Pow2(32), Comparison::new(19, true));
    let xs = vec![5; 1000];
    for adder in [Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds] {
        let options = Options { adder, tile: 256, window: 2, ..Options::default() };
        for (flat, adds_input) in [(false, false), (true, true)] {
            let table = table(7, 8, 9, flat);
            let ends = Ends { low: Some(table.low), high: Some(table.end() as i64 - 1) };
            let clipped = Clipped { ends, adds_input };
            let mut planner = Planner::new(CostModel::of::<Trio<u32>>(), ring, options);
            let x = planner.constant(&tensor(ring, &xs));
            planner.enter(7, "a");
            planner.clip_table(&x, clipped, comparison, &table).unwrap();
            let cost = &planner.ledger()[&7];
            let networks = memory::network(3, Duration::from_secs(20));
            thread::scope(|scope| {
                for network in &networks {
                    let (table, xs) = (&table, &xs);
                    scope.spawn(move || {
                        let endpoint = network.endpoint(1).unwrap();
                        let mut trio = Trio::<u32>::start(endpoint, keys(network.me()), ring, options, 0).unwrap();
                        trio.begin(Phase::Joint, 0).unwrap();
                        let x = trio.constant(&tensor(ring, xs));
                        trio.enter(7, "a");
                        trio.clip_table(&x, clipped, comparison, table).unwrap();
                    });
                }
            });
            for network in &networks {
                let snapshot = network.meter().snapshot();
                let rows = snapshot.rows.iter().filter(|row| row.node == 7);
                for row in rows {
                    let planned = cost.links[&(row.phase, row.from, row.to)];
                    assert_eq!((row.bytes, row.messages), (planned.bytes, planned.messages), "{adder:?} {row:?}");
                }
                let rounds = snapshot.rounds.iter().find(|rounds| rounds.node == 7).map(|rounds| rounds.count);
                assert_eq!(rounds, Some(cost.rounds), "{adder:?}");
            }
        }
    }
}

#[test]
fn tables_of_clipped_values() {
    for adder in [Adder::FewestBytes, Adder::Balanced, Adder::FewestRounds] {
        for flat in [true, false] {
            let proved = |bound| Comparison::new(bound, true);
            check::<u32>(Ring::Pow2(32), adder, &table(7, 8, 9, flat), proved(19));
            check::<u32>(Ring::Pow2(32), adder, &table(3, 5, 4, flat), proved(9));
            check::<u64>(Ring::Pow2(37), adder, &table(5, 0, 0, flat), proved(8));
            check::<u64>(Ring::Pow2(64), adder, &table(8, 9, 10, flat), proved(20));
        }
    }
}

#[test]
fn tables_of_values_that_are_not_proved_to_be_small() {
    for bound in [14, 20] {
        let comparison = Comparison::new(bound, false);
        check::<u32>(
            Ring::Pow2(24),
            Adder::Balanced,
            &table(7, 9, 5, true),
            Comparison { bound: bound.min(21), ..comparison },
        );
        check::<u32>(Ring::Pow2(32), Adder::Balanced, &table(7, 8, 9, true), comparison);
    }
}

/// max(x, low) may be larger than x is certain to be.
#[test]
fn a_low_end_above_what_is_certain_of_the_input() {
    let ring = Ring::Pow2(32);
    let options = Options { adder: Adder::Balanced, ..Options::default() };
    let table = Table { low: -7, step: 0, values: (10..18).collect(), slopes: Vec::new(), shift: 0 };
    let clipped = Clipped { ends: Ends { low: Some(113), high: Some(0) }, adds_input: true };
    let x = tensor::<u32>(ring, &[3, -3, 15]);
    let found = opened(ring, options, |trio: &mut Trio<u32>| {
        let x = share(trio, 1, &x);
        trio.clip_table(&x, clipped, Comparison::new(4, true), &table).unwrap()
    });
    assert_eq!(found, [113 + 17; 3]);
}
