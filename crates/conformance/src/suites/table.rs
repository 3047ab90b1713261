//! Lookups at a secret index, and piecewise linear functions.

use covey_protocols::api::Result;
use covey_protocols::clip::{Clipped, Ends};
use covey_protocols::{Comparison, Table};

use super::{Suite, map};
use crate::Complete;
use crate::bench::Bench;
use crate::samples::{Samples, cycled, modulo, uniform};

/// Tables of every size that a ring of these samples has room for.
pub struct Tables(pub Samples);

/// The largest tables: beyond, only numbers grow.
const MOST: u32 = 8;

impl Suite for Tables {
    const NAME: &'static str = "table";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let l = self.0.bits();
        for index_bits in 1..=(l - 2).min(MOST) {
            let all: Vec<i64> = (0..1 << index_bits).collect();
            self.lookups(bench, index_bits, &all)?;
        }
        let small = 3.min(l - 2);
        let all: Vec<i64> = (0..1 << small).collect();
        for length in self.0.lengths() {
            self.lookups(bench, small, &cycled(&all, length))?;
        }
        // Segments of a single integer and longer ones, as many as a power of two and fewer, with and without slopes.
        for (index_bits, step) in [(1, 0), (1, 1), (2, 1), (1, 2), (2, l / 3), (3, 2), (6, 7), (7, 8)] {
            if index_bits + step + 2 > l {
                continue;
            }
            let table = self.table(index_bits, step);
            self.functions(bench, &table)?;
            let fewer = 1 + (1 << (index_bits - 1));
            let cut = |entries: &[i64]| entries[..entries.len().min(fewer)].to_vec();
            let fewer = Table { values: cut(&table.values), slopes: cut(&table.slopes), ..table.clone() };
            if fewer.values.len() > 1 && fewer != table {
                self.functions(bench, &fewer)?;
            }
            self.functions(bench, &Table { slopes: Vec::new(), ..table.clone() })?;
            for bound in [index_bits + step, l - 2] {
                for proved in [true, false] {
                    self.clipped(bench, &table, Comparison::new(bound, proved))?;
                }
            }
            self.functions(bench, &Table { shift: 0, ..table })?;
        }
        Ok(())
    }
}

impl Tables {
    /// No table, one and two of the same index; entries over the whole ring.
    fn lookups<P: Complete>(&self, bench: &mut Bench<P>, index_bits: u32, index: &[i64]) -> Result<()> {
        let (ring, entries) = (self.0.ring, 1usize << index_bits);
        let x = bench.vector(index.len() % bench.parties(), index)?;
        let table = |number: usize| -> Vec<i64> {
            let spread = uniform(self.0.bits() - 1, entries, &format!("table {index_bits} {number}"));
            let ends = [ring.signed_range().0, ring.signed_range().1, 0, -1];
            ends.into_iter().take(entries / 2).chain(spread).take(entries).collect()
        };
        for count in 1..=2 {
            bench.case(format!("{count} tables of {entries} at {} places", index.len()));
            let tables: Vec<Vec<i64>> = (0..count).map(table).collect();
            let words: Vec<Vec<P::Word>> = tables.iter().map(|t| crate::samples::wrapped(ring, t)).collect();
            let found = bench.protocol.lookup(&x, &words)?;
            assert_eq!(found.len(), count);
            for (found, table) in found.iter().zip(&tables) {
                bench.exactly(found, map(index, |i| table[i as usize]))?;
            }
        }
        Ok(())
    }

    /// Lines of both signs whose values reach the bound that shifts have, and a domain around 0.
    fn table(&self, index_bits: u32, step: u32) -> Table {
        let l = self.0.bits();
        let segments = 1usize << index_bits;
        let half = l.saturating_sub(3).max(1);
        let values = uniform(half, segments, "values");
        let largest = (half - half.min(step)).min(20);
        let slopes = uniform(largest, segments, "slopes");
        let domain = 1i64 << (index_bits + step);
        Table { low: -domain / 2, step, values, slopes, shift: (l / 3).max(1) }
    }

    fn functions<P: Complete>(&self, bench: &mut Bench<P>, table: &Table) -> Result<()> {
        let (low, end) = (table.low, table.end() as i64);
        let width = 1i64 << table.step;
        // All of a small domain; of a large one both ends of every segment and places in between.
        let mut xs: Vec<i64> = if end - low <= 512 {
            (low..end).collect()
        } else {
            let starts = (low..end).step_by(width as usize);
            starts.enumerate().flat_map(|(i, x)| [x, x + width - 1, x + (i as i64 * 37) % width]).collect()
        };
        xs.retain(|x| (low..end).contains(x));
        let x = bench.vector(0, &xs)?;
        bench.case(format!(
            "{} segments of {width}, {} slopes, shift {}, at {} places",
            table.values.len(),
            table.slopes.len(),
            table.shift,
            xs.len()
        ));
        let y = bench.protocol.table(&x, table)?;
        bench.exactly(&y, map(&xs, |x| modulo(self.0.ring, table.at(x.into()))))
    }

    /// Values beyond either end of the domain and beyond both, as far as their bound allows, and both ends of every segment.
    fn clipped<P: Complete>(&self, bench: &mut Bench<P>, table: &Table, comparison: Comparison) -> Result<()> {
        let (low, last) = (table.low, table.end() as i64 - 1);
        let most = (1i64 << comparison.bound) - 1;
        let starts = || (low..=last).step_by(1 << table.step);
        let ends = [low, low - 1, last, last + 1, most, -most, most / 2, -most / 2];
        let far = uniform(comparison.bound, 64, "clipped");
        let all: Vec<i64> = ends.into_iter().chain(far).chain(starts()).chain(starts().map(|x| x - 1)).collect();
        let cases = [(true, true, false), (true, true, true), (true, false, false), (false, true, false)];
        for (below, above, adds_input) in cases {
            let mut xs = all.clone();
            xs.retain(|&x| x.abs() <= most && (below || x >= low) && (above || x <= last));
            let x = bench.vector(0, &xs)?;
            bench.case(format!(
                "{} segments of {}, clipped below: {below}, above: {above}, input added: {adds_input}, {comparison:?}",
                table.values.len(),
                1i64 << table.step
            ));
            let ends = Ends { low: below.then_some(low), high: above.then_some(last) };
            let y = bench.protocol.clip_table(&x, Clipped { ends, adds_input }, comparison, table)?;
            let added = |x: i64| if adds_input { i128::from(x.max(low)) } else { 0 };
            let value = |x: i64| modulo(self.0.ring, table.at(x.clamp(low, last).into()) + added(x));
            bench.exactly(&y, map(&xs, value))?;
        }
        Ok(())
    }
}
