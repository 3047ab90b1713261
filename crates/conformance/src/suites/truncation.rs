//! Right shifts: alone, after a product, after a linear map.

use covey_protocols::api::{MatmulShape, Result};
use covey_protocols::{Bias, Epilogue, Geometry, Placement, Rounding, Truncation, WeightSource};

use super::{Suite, map, zip};
use crate::Complete;
use crate::bench::{Allowed, Bench};
use crate::samples::{Samples, cycled, spread, top};

/// Exact shifts, bit for bit.
pub struct Truncations(pub Samples);

/// Ulp shifts, within their stated error.
pub struct Roundings(pub Samples);

/// Probabilistic shifts, within theirs: not of a protocol in which a party may cheat.
pub struct Probabilistic(pub Samples);

impl Suite for Truncations {
    const NAME: &'static str = "truncation";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let cases = Cases { samples: self.0, rounding: Rounding::Exact };
        for bits in cases.shifts() {
            cases.alone(bench, bits)?;
            cases.after_products(bench, bits)?;
            cases.after_linear(bench, bits)?;
        }
        cases.lengths(bench)?;
        cases.chain(bench)
    }
}

impl Suite for Roundings {
    const NAME: &'static str = "roundings";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        inexact(bench, self.0, Rounding::Ulp)
    }
}

impl Suite for Probabilistic {
    const NAME: &'static str = "probabilistic";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        inexact(bench, self.0, Rounding::Probabilistic)
    }
}

fn inexact<P: Complete>(bench: &mut Bench<P>, samples: Samples, rounding: Rounding) -> Result<()> {
    let cases = Cases { samples, rounding };
    for bits in cases.shifts() {
        cases.alone(bench, bits)?;
        cases.after_products(bench, bits)?;
        cases.after_linear(bench, bits)?;
    }
    cases.lengths(bench)
}

struct Cases {
    samples: Samples,
    rounding: Rounding,
}

impl Cases {
    /// The widest bound every protocol of an honest majority takes.
    fn bound(&self) -> u32 {
        self.samples.bits() - 2
    }

    /// One bit, a few, half, and all that may go.
    fn shifts(&self) -> Vec<u32> {
        let l = self.samples.bits();
        let mut shifts = vec![1, 2, 3, 8, l / 2, l - 3, l - 2];
        shifts.retain(|bits| (1..=l - 2).contains(bits));
        shifts.sort_unstable();
        shifts.dedup();
        shifts
    }

    fn truncation(&self, bits: u32) -> Truncation {
        Truncation { bits, rounding: self.rounding, bound: self.bound() }
    }

    /// What a shift of `values` may yield.
    fn allowed(&self, values: &[i64], bits: u32) -> Allowed {
        let l = self.samples.bits();
        match self.rounding {
            Rounding::Exact => Allowed::Exact,
            Rounding::Ulp => Allowed::Ulp,
            Rounding::Probabilistic => {
                let rate = values.iter().map(|v| v.unsigned_abs() as f64).sum::<f64>() / 2f64.powi(l as i32);
                Allowed::Probabilistic { shift: l - bits, rate }
            }
        }
    }

    /// Opens the shift of `before` by `bits`.
    fn judge<P: Complete>(&self, bench: &mut Bench<P>, x: &P::Arith, before: &[i64], bits: u32) -> Result<()> {
        bench.open(x, Some(map(before, |v| v >> bits)), self.allowed(before, bits))
    }

    fn alone<P: Complete>(&self, bench: &mut Bench<P>, bits: u32) -> Result<()> {
        // A shift's neighbourhood: the multiples of 2^bits next to 0, and one beside them.
        let near = [0i128, 1, 2].into_iter().flat_map(|k| [-1, 0, 1].map(|d| (k << bits) + d)).flat_map(|v| [v, -v]);
        let mut values = self.samples.values(self.bound());
        values.extend(near.filter(|v| v.abs() <= top(self.bound()).into()).map(|v| v as i64));
        for owner in 0..bench.parties() {
            bench.case(format!("{:?} shift by {bits}, value of P{owner}", self.rounding));
            let x = bench.vector(owner, &values)?;
            let y = bench.protocol.truncate(&x, self.truncation(bits))?;
            self.judge(bench, &y, &values, bits)?;
        }
        if self.rounding == Rounding::Probabilistic {
            // Its error is stated over uniform masks; a constant has none.
            return Ok(());
        }
        bench.case(format!("{:?} shift by {bits} of a constant", self.rounding));
        let x = bench.protocol.constant(&bench.tensor(&[values.len()], &values));
        let y = bench.protocol.truncate(&x, self.truncation(bits))?;
        self.judge(bench, &y, &values, bits)
    }

    fn after_products<P: Complete>(&self, bench: &mut Bench<P>, bits: u32) -> Result<()> {
        let (xs, ys) = self.samples.factors(self.bound());
        let products = zip(&xs, &ys, |x, y| x * y);
        bench.case(format!("mul, then {:?} shift by {bits}", self.rounding));
        let (x, y) = (bench.vector(0, &xs)?, bench.vector(bench.parties() - 1, &ys)?);
        let z = bench.protocol.mul(&x, &y, Some(self.truncation(bits)))?;
        self.judge(bench, &z, &products, bits)?;
        bench.case(format!("matmul, then {:?} shift by {bits}", self.rounding));
        let count = xs.len() / 2 * 2;
        let shape = MatmulShape { batch: count, rows: 1, inner: 1, columns: 1 };
        let (x, y) = (bench.input(0, &[count, 1, 1], &xs[..count])?, bench.input(0, &[count, 1, 1], &ys[..count])?);
        let z = bench.protocol.matmul(&x, &y, shape, Some(self.truncation(bits)))?;
        self.judge(bench, &z, &products[..count], bits)
    }

    /// Two inputs and a bias of 2a - 1 bits: 2·(2^a - 1)^2 + 2^(2a-1) < 2^(2a+2) <= 2^(l-2).
    fn after_linear<P: Complete>(&self, bench: &mut Bench<P>, bits: u32) -> Result<()> {
        let a = ((self.samples.bits() - 4) / 2).max(1);
        let (rows, outputs) = (24, 3);
        let sample = |bits: u32, count: usize, label: &str| {
            let mut values = spread(bits, count, label);
            values[0] = top(bits);
            values[count - 1] = -top(bits);
            values
        };
        let (xs, ws) = (sample(a, 2 * rows, "rows"), sample(a, 2 * outputs, "columns"));
        let bs = sample(2 * a - 1, outputs, "biases");
        let geometry = Geometry::Dense { inputs: 2, outputs };
        let x = bench.input(bench.parties() - 1, &[rows, 2], &xs)?;
        let (secret, public) = (bench.input(0, &[2, outputs], &ws)?, bench.tensor(&[2, outputs], &ws));
        let (secret_bias, public_bias) = (bench.vector(1 % bench.parties(), &bs)?, bench.tensor(&[outputs], &bs));
        let product = |i: usize| {
            let (row, column) = (i / outputs, i % outputs);
            xs[2 * row] * ws[column] + xs[2 * row + 1] * ws[outputs + column]
        };
        for (weight, known) in [(WeightSource::Shared(&secret), "shared"), (WeightSource::Public(&public), "public")] {
            let weight = bench.protocol.prepare(weight, geometry, Placement::Cpu)?;
            let biases = [
                (None, "no"),
                (Some(Bias::Shared(&secret_bias)), "shared"),
                (Some(Bias::Public(&public_bias)), "public"),
            ];
            for (bias, bias_known) in biases {
                bench.case(format!("{known} weight, {bias_known} bias, then {:?} shift by {bits}", self.rounding));
                let biased = bias.is_some();
                let due: Vec<i64> =
                    (0..rows * outputs).map(|i| product(i) + if biased { bs[i % outputs] } else { 0 }).collect();
                let truncate = Some(self.truncation(bits));
                let epilogue = Epilogue { bias, truncate, ..Epilogue::default() };
                let z = bench.protocol.linear(&x, &weight, &epilogue)?;
                self.judge(bench, &z, &due, bits)?;
            }
        }
        Ok(())
    }

    fn lengths<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let (xs, ys) = self.samples.factors(self.bound());
        let bits = self.samples.bits() / 2;
        for length in self.samples.lengths() {
            bench.case(format!("{:?} shift of {length} products", self.rounding));
            let (xs, ys) = (cycled(&xs, length), cycled(&ys, length));
            let products = zip(&xs, &ys, |x, y| x * y);
            let (x, y) = (bench.vector(0, &xs)?, bench.vector(0, &ys)?);
            let z = bench.protocol.mul(&x, &y, Some(self.truncation(bits)))?;
            self.judge(bench, &z, &products, bits)?;
            bench.case(format!("{:?} shift of {length} values", self.rounding));
            let product = bench.protocol.mul(&x, &y, None)?;
            let z = bench.protocol.truncate(&product, self.truncation(bits))?;
            self.judge(bench, &z, &products, bits)?;
        }
        Ok(())
    }

    /// Shift after shift: what one leaves above l bits must not reach the next.
    fn chain<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        // 2·(v≫1) >= v - 1: one bit below the bound.
        let mut values = self.samples.values(self.bound() - 1);
        bench.case("shift after shift");
        let mut x = bench.vector(0, &values)?;
        for _ in 0..self.bound().min(5) {
            x = bench.protocol.truncate(&x, self.truncation(1))?;
            let doubled = bench.protocol.add(&x, &x)?;
            x = bench.protocol.truncate(&doubled, self.truncation(1))?;
            values = map(&values, |v| v >> 1);
        }
        bench.exactly(&x, values)
    }
}
