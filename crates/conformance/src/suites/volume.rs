//! One primitive on many elements, boundary values among them.

use covey_protocols::api::{MatmulShape, Result};
use covey_protocols::{Comparison, Epilogue, Geometry, Maximum, Placement, Rounding, Table, Truncation, WeightSource};

use super::Suite;
use crate::Complete;
use crate::bench::{Allowed, Bench};
use crate::samples::{Samples, spread, uniform};

/// One gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// x · y over the whole ring.
    Mul,
    /// x · y, then an exact shift.
    MulExact,
    /// x · y, then an exact shift to the nearest.
    MulToNearest,
    /// An exact shift.
    Exact,
    /// A shift right to the last place.
    Ulp,
    /// A probabilistic shift.
    Probabilistic,
    /// Rows of a matrix product, then an exact shift.
    Matmul,
    /// A dense layer of shared weight, then an exact shift.
    Linear,
    /// Signs.
    Msb,
    /// Rectifier.
    Relu,
    /// Maxima.
    Max,
    /// The largest of three numbers of half as many bits as the ring has, proved.
    Largest,
    /// The largest of two to four numbers at once, and a shift and a ReLU of it, or neither.
    Several,
    /// Bit decomposition.
    A2b,
    /// AND of signs.
    And,
    /// Signs as ring elements.
    Bit2a,
    /// Selection by signs.
    Select,
    /// A piecewise linear function over its whole domain.
    Table,
}

impl Primitive {
    /// All of them.
    pub const ALL: [Primitive; 18] = [
        Primitive::Mul,
        Primitive::MulExact,
        Primitive::MulToNearest,
        Primitive::Exact,
        Primitive::Ulp,
        Primitive::Probabilistic,
        Primitive::Matmul,
        Primitive::Linear,
        Primitive::Msb,
        Primitive::Relu,
        Primitive::Max,
        Primitive::Largest,
        Primitive::Several,
        Primitive::A2b,
        Primitive::And,
        Primitive::Bit2a,
        Primitive::Select,
        Primitive::Table,
    ];
}

/// `samples.count` elements of `primitive`; `part` chooses which.
pub struct Volume {
    /// The gate.
    pub primitive: Primitive,
    /// Ring and number of elements, a multiple of 64.
    pub samples: Samples,
    /// Tells the parts of a large volume apart.
    pub part: u64,
}

/// Bits of a table's domain.
const TABLE_BITS: u32 = 15;

/// Inner dimension of products of matrices.
const INNER: usize = 16;

impl Volume {
    /// Boundary values first, then a spread.
    fn values(&self, bound: u32, count: usize, label: &str) -> Vec<i64> {
        let mut values = Samples { count: 0, ..self.samples }.values(bound);
        values.truncate(count);
        values.extend(spread(bound, count - values.len(), &format!("volume {label} {}", self.part)));
        values
    }

    /// Lines of both signs with 12 fraction bits and 8 more, over 2^15 integers in as many segments as the part says.
    fn table(&self) -> Table {
        let index_bits = 6 + self.part as u32 % 3;
        let step = TABLE_BITS - index_bits;
        let entries = |bits: u32, label: &str| uniform(bits, 1 << index_bits, &format!("table {label} {}", self.part));
        Table {
            low: -(1 << (TABLE_BITS - 1)),
            step,
            values: entries(20, "values"),
            slopes: entries(10, "slopes"),
            shift: 8,
        }
    }

    /// A shift by a different number of bits in every part.
    fn truncation(&self, rounding: Rounding) -> Truncation {
        let l = self.samples.bits();
        Truncation { bits: 1 + (self.part as u32 * 5 + 11) % (l - 2), rounding, bound: l - 2 }
    }
}

impl Suite for Volume {
    const NAME: &'static str = "volume";
    const ON_VIOLATION: covey_protocols::clear::OnViolation = covey_protocols::clear::OnViolation::Wrap;

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let (l, count) = (self.samples.bits(), self.samples.count);
        bench.case(format!("{:?}, part {}", self.primitive, self.part));
        // Operands whose product, or sum of products, stays below 2^(l-2).
        let half = (l - 2 - INNER.ilog2()) / 2;
        let bound = match self.primitive {
            Primitive::Mul | Primitive::Msb | Primitive::Relu | Primitive::A2b | Primitive::Bit2a => l - 1,
            Primitive::And | Primitive::Select => l - 1,
            Primitive::Table => TABLE_BITS - 1,
            Primitive::MulExact | Primitive::MulToNearest | Primitive::Matmul | Primitive::Linear => half,
            Primitive::Largest => l / 2,
            Primitive::Exact | Primitive::Ulp | Primitive::Probabilistic => l - 2,
            Primitive::Max | Primitive::Several => l - 2,
        };
        let rows = count / INNER;
        let xs = self.values(bound, count, "x");
        let x = bench.vector(1 % bench.parties(), &xs)?;
        let last = bench.parties() - 1;
        let comparison = Comparison::new(l - 1, false);
        let exact = Some(self.truncation(Rounding::Exact));
        let second = |bench: &mut Bench<P>| bench.vector(last, &self.values(bound, count, "y"));
        let z = match self.primitive {
            Primitive::Mul => {
                let y = second(bench)?;
                bench.protocol.mul(&x, &y, None)?
            }
            Primitive::MulExact => {
                let y = second(bench)?;
                bench.protocol.mul(&x, &y, exact)?
            }
            Primitive::MulToNearest => {
                let y = second(bench)?;
                bench.protocol.mul_to_nearest(&x, &y, self.truncation(Rounding::Exact))?
            }
            Primitive::Exact => bench.protocol.truncate(&x, self.truncation(Rounding::Exact))?,
            Primitive::Ulp => {
                let z = bench.protocol.truncate(&x, self.truncation(Rounding::Ulp))?;
                return bench.open(&z, None, Allowed::Ulp);
            }
            Primitive::Probabilistic => {
                let truncation = self.truncation(Rounding::Probabilistic);
                let rate = xs.iter().map(|v| v.unsigned_abs() as f64).sum::<f64>() / 2f64.powi(l as i32);
                let z = bench.protocol.truncate(&x, truncation)?;
                return bench.open(&z, None, Allowed::Probabilistic { shift: l - truncation.bits, rate });
            }
            Primitive::Matmul => {
                let y = bench.input(last, &[1, INNER, INNER], &self.values(half, INNER * INNER, "y"))?;
                let shape = MatmulShape { batch: 1, rows, inner: INNER, columns: INNER };
                let x = bench.protocol.reshape(&x, &[1, rows, INNER]);
                bench.protocol.matmul(&x, &y, shape, exact)?
            }
            Primitive::Linear => {
                let y = bench.input(last, &[INNER, INNER], &self.values(half, INNER * INNER, "y"))?;
                let geometry = Geometry::Dense { inputs: INNER, outputs: INNER };
                let weight = bench.protocol.prepare(WeightSource::Shared(&y), geometry, Placement::Cpu)?;
                let x = bench.protocol.reshape(&x, &[rows, INNER]);
                bench.protocol.linear(&x, &weight, &Epilogue { truncate: exact, ..Epilogue::default() })?
            }
            Primitive::Relu => bench.protocol.relu(&x, comparison)?,
            Primitive::Max => {
                let y = second(bench)?;
                bench.protocol.max(x, &y, comparison)?.0
            }
            Primitive::Largest => {
                let proved = Comparison::new(bound + 1, true);
                let y = second(bench)?;
                let z = bench.vector(last, &self.values(bound, count, "z"))?;
                let larger = bench.protocol.max_within(x, &y, proved)?;
                let largest = bench.protocol.max_within(larger, &z, proved)?;
                bench.protocol.widened(largest, proved)?
            }
            Primitive::Several => {
                let mut values = vec![x];
                for number in 0..1 + self.part % 3 {
                    let mut others = self.values(bound, count, &format!("value {number}"));
                    // Equal ones, too.
                    others.iter_mut().zip(&xs).step_by(5).for_each(|(other, x)| *other = *x);
                    values.push(bench.vector(last, &others)?);
                }
                let truncation = self.truncation(Rounding::Exact);
                let shifted = l - 1 - truncation.bits;
                let (truncate, relu) = match self.part % 4 {
                    0 => (Some(truncation), Some(Comparison::new(shifted, true))),
                    1 => (None, Some(Comparison::new(bound, true))),
                    2 => (None, None),
                    _ => (Some(truncation), Some(Comparison::new(shifted, false))),
                };
                let maximum = Maximum { values: values.len(), differences: comparison, truncate, relu };
                bench.protocol.largest(&values, maximum)?
            }
            Primitive::A2b => {
                let bits = bench.protocol.a2b(&x)?;
                return bench.bits_as_clear(&bits);
            }
            Primitive::Msb => {
                let sign = bench.protocol.msb(&x, comparison)?;
                return bench.bits_as_clear(&sign);
            }
            Primitive::And => {
                let y = second(bench)?;
                let (a, b) = (bench.protocol.msb(&x, comparison)?, bench.protocol.msb(&y, comparison)?);
                let both = bench.protocol.and(&a, &b)?;
                return bench.bits_as_clear(&both);
            }
            Primitive::Bit2a => {
                let sign = bench.protocol.msb(&x, comparison)?;
                bench.protocol.bit2a(&sign, &[count])?
            }
            Primitive::Select => {
                let y = second(bench)?;
                let sign = bench.protocol.msb(&y, comparison)?;
                bench.protocol.select(&sign, &x)?
            }
            Primitive::Table => bench.protocol.table(&x, &self.table())?,
        };
        bench.as_clear(&z)
    }
}
