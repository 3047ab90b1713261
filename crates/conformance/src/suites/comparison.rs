//! Signs, rectifiers and maxima, over the whole ring and under proved bounds.

use covey_protocols::api::Result;
use covey_protocols::{Comparison, Maximum, Rounding, Truncation};

use super::{Suite, map, zip};
use crate::Complete;
use crate::bench::Bench;
use crate::samples::{Samples, cycled};

/// Comparisons.
pub struct Comparisons(pub Samples);

impl Suite for Comparisons {
    const NAME: &'static str = "comparison";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let full = self.0.bits() - 1;
        let mut bounds = vec![1, 2, 3, self.0.bits() / 2, full - 1, full];
        bounds.retain(|&bound| bound <= full);
        bounds.sort_unstable();
        bounds.dedup();
        for bound in bounds {
            let values = self.0.values(bound);
            // A calibrated bound shortens nothing; the values keep it all the same.
            for proved in [true, false] {
                self.signs(bench, &values, Comparison::new(bound, proved))?;
            }
            if bound > 1 {
                let (x, y) = self.0.pairs(&self.0.values(bound - 1));
                self.maxima(bench, &x, &y, Comparison::new(bound, true))?;
            }
        }
        let wide = Comparison::new(full, false);
        let (x, y) = self.0.pairs(&self.0.values(full - 1));
        self.maxima(bench, &x, &y, wide)?;
        for length in self.0.lengths() {
            self.signs(bench, &cycled(&self.0.values(full), length), wide)?;
            self.maxima(bench, &cycled(&x, length), &cycled(&y, length), wide)?;
        }
        Ok(())
    }
}

impl Comparisons {
    fn signs<P: Complete>(&self, bench: &mut Bench<P>, values: &[i64], comparison: Comparison) -> Result<()> {
        let owner = values.len() % bench.parties();
        let x = bench.vector(owner, values)?;
        bench.case(format!("msb of {} elements, {comparison:?}", values.len()));
        let sign = bench.protocol.msb(&x, comparison)?;
        bench.bits(&sign, map(values, |v| i64::from(v < 0)))?;
        bench.case(format!("relu of {} elements, {comparison:?}", values.len()));
        let rectified = bench.protocol.relu(&x, comparison)?;
        bench.exactly(&rectified, map(values, |v| v.max(0)))?;
        if !(4..bench.ring().bits()).contains(&comparison.bound) {
            return Ok(());
        }
        bench.case(format!("shift and relu of {} elements, {comparison:?}", values.len()));
        // Room for the offset of a shift: half of the values; the floor of a negative one may reach the next power of two.
        let small: Vec<i64> = map(values, |v| v / 2);
        let x = bench.vector(owner, &small)?;
        let truncation = Truncation { bits: 2, rounding: Rounding::Exact, bound: comparison.bound - 1 };
        let shifted = Comparison { bound: comparison.bound - 2, certain: comparison.certain - 2 };
        let rectified = bench.protocol.truncate_relu(&x, truncation, shifted)?;
        bench.exactly(&rectified, map(&small, |v| (v >> 2).max(0)))
    }

    fn maxima<P: Complete>(&self, bench: &mut Bench<P>, xs: &[i64], ys: &[i64], comparison: Comparison) -> Result<()> {
        let (x, y) = (bench.vector(0, xs)?, bench.vector(bench.parties() - 1, ys)?);
        bench.case(format!("max of {} pairs, {comparison:?}", xs.len()));
        let (larger, less) = bench.protocol.max(x.clone(), &y, comparison)?;
        bench.exactly(&larger, zip(xs, ys, i64::max))?;
        bench.bits(&less, zip(xs, ys, |x, y| i64::from(x < y)))?;
        let ends: Vec<i64> = zip(xs, ys, |x, y| if (x ^ y) & 4 == 0 { x } else { y });
        let back: Vec<i64> = xs.iter().rev().copied().collect();
        let others = [&ends, &back];
        let mut values = vec![x, y];
        let mut most = zip(xs, ys, i64::max);
        for number in 2..=4 {
            for truncate in [None, (comparison.bound > 3).then_some(2)] {
                let bound = comparison.bound - 1;
                let truncate = truncate.map(|bits| Truncation { bits, rounding: Rounding::Exact, bound });
                let bits = truncate.map_or(0, |truncation| truncation.bits);
                // The floor of a negative value may reach the next power of two.
                let less = bits.saturating_sub(1);
                let relu = Comparison { bound: bound - less, certain: comparison.certain - 1 - less };
                for relu in [None, Some(relu)] {
                    if relu.is_none() && truncate.is_some() {
                        continue;
                    }
                    bench.case(format!("largest of {number}, {truncate:?}, {relu:?}, {comparison:?}"));
                    let maximum = Maximum { values: number, differences: comparison, truncate, relu };
                    let largest = bench.protocol.largest(&values, maximum)?;
                    bench.exactly(&largest, map(&most, |v| if relu.is_some() { v.max(0) >> bits } else { v }))?;
                }
            }
            if let Some(other) = others.get(number - 2) {
                values.push(bench.vector(number % bench.parties(), other)?);
                most = zip(&most, other, i64::max);
            }
        }
        Ok(())
    }
}
