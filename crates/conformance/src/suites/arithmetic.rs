//! Input by every owner, opening, constants, and everything that adds and multiplies, over the whole ring.

use covey_kernels::ConvGeometry;
use covey_protocols::api::{MatmulShape, Result, ZERO};
use covey_protocols::clear::OnViolation;
use covey_protocols::clip::Ends;
use covey_protocols::{Bias, Comparison, Epilogue, Geometry, Placement, WeightSource};

use super::{Suite, zip};
use crate::Complete;
use crate::bench::Bench;
use crate::samples::{Samples, cycled, modulo};

/// Arithmetic modulo the ring.
pub struct Arithmetic(pub Samples);

impl Suite for Arithmetic {
    const NAME: &'static str = "arithmetic";
    const ADDS: bool = false;
    const ON_VIOLATION: OnViolation = OnViolation::Wrap;

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let values = self.0.elements();
        self.inputs(bench, &values)?;
        self.pairs(bench, &values)?;
        self.moves(bench, &values)?;
        self.enforced(bench, &values)?;
        self.matmul(bench, &values)?;
        self.linear(bench, &values)
    }
}

impl Arithmetic {
    fn inputs<P: Complete>(&self, bench: &mut Bench<P>, values: &[i64]) -> Result<()> {
        for owner in 0..bench.parties() {
            for length in self.0.lengths().into_iter().chain([values.len()]) {
                bench.case(format!("input of P{owner}, {length} elements"));
                let values = cycled(values, length);
                let x = bench.vector(owner, &values)?;
                bench.exactly(&x, values)?;
            }
        }
        bench.case("constant");
        let x = bench.protocol.constant(&bench.tensor(&[values.len()], values));
        bench.exactly(&x, values.to_vec())
    }

    /// A range for any element of the ring, one end after the other, as `enforce_ranges` compiles it.
    fn enforced<P: Complete>(&self, bench: &mut Bench<P>, values: &[i64]) -> Result<()> {
        let (ring, any) = (self.0.ring, Comparison::new(2, false));
        for (low, high) in [(-3i64, 2i64), (2, 3)] {
            // Next to where a difference with an end wraps.
            let (least, _) = ring.signed_range();
            let to = |end: i64| i128::from(end) - i128::from(least);
            let wraps = [low, high].into_iter().flat_map(|end| (-1..=1).map(move |off| to(end) + off));
            let values: Vec<i64> = values.iter().copied().chain(wraps.map(|v| modulo(ring, v))).collect();
            bench.case(format!("any element put into {low}..={high}"));
            let x = bench.vector(0, &values)?;
            let raised = bench.protocol.clip(&x, Ends { low: Some(low), high: None }, any)?;
            let z = bench.protocol.clip(&raised, Ends { low: None, high: Some(high) }, any)?;
            let beyond = |x: i64, end: i64| modulo(ring, i128::from(x) - i128::from(end)) > 0;
            let raised = values.iter().map(|&v| if beyond(low, v) { low } else { v });
            let due: Vec<i64> = raised.map(|v| if beyond(v, high) { high } else { v }).collect();
            let within = |v: i64| (low..=high).contains(&v);
            assert!(values.iter().zip(&due).all(|(v, due)| within(*due) && (v == due || !within(*v))), "{due:?}");
            bench.exactly(&z, due)?;
        }
        Ok(())
    }

    fn pairs<P: Complete>(&self, bench: &mut Bench<P>, values: &[i64]) -> Result<()> {
        let (xs, ys) = self.0.pairs(values);
        let ring = self.0.ring;
        let due = |f: fn(i128, i128) -> i128| zip(&xs, &ys, |x, y| modulo(ring, f(x.into(), y.into())));
        let (sums, differences, products) = (due(|x, y| x + y), due(|x, y| x - y), due(|x, y| x * y));
        for owner in 0..bench.parties() {
            let other = (owner + 1) % bench.parties();
            bench.case(format!("operands of P{owner} and P{other}"));
            let (x, y) = (bench.vector(owner, &xs)?, bench.vector(other, &ys)?);
            let c = bench.tensor(&[ys.len()], &ys);
            bench.case("add");
            let z = bench.protocol.add(&x, &y)?;
            bench.exactly(&z, sums.clone())?;
            bench.case("sub");
            let z = bench.protocol.sub(&x, &y)?;
            bench.exactly(&z, differences.clone())?;
            bench.case("add_public");
            let z = bench.protocol.add_public(&x, &c)?;
            bench.exactly(&z, sums.clone())?;
            bench.case("mul_public");
            let z = bench.protocol.mul_public(&x, &c)?;
            bench.exactly(&z, products.clone())?;
            bench.case("mul");
            let z = bench.protocol.mul(&x, &y, None)?;
            bench.exactly(&z, products.clone())?;
            bench.case("mul of a product by a sum");
            let sum = bench.protocol.add(&x, &y)?;
            let again = bench.protocol.mul(&z, &sum, None)?;
            let due = zip(&products, &sums, |p, s| modulo(ring, i128::from(p) * i128::from(s)));
            bench.exactly(&again, due)?;
            let (opened, other) = (opened(bench, &x)?, opened(bench, &y)?);
            for (x, y, which) in [(&opened, &y, "first"), (&x, &other, "second"), (&opened, &other, "both")] {
                bench.case(format!("mul, opened: {which}"));
                let z = bench.protocol.mul(x, y, None)?;
                bench.exactly(&z, products.clone())?;
            }
            bench.case("square of an opened value");
            let z = bench.protocol.mul(&opened, &opened, None)?;
            bench.exactly(&z, zip(&xs, &xs, |x, _| modulo(ring, i128::from(x) * i128::from(x))))?;
            bench.case("an opened value where no product reads it");
            let z = bench.protocol.sub(&opened, &other)?;
            bench.exactly(&z, differences.clone())?;
            let z = bench.protocol.add_public(&opened, &c)?;
            bench.exactly(&z, sums.clone())?;
            bench.exactly(&opened, xs.clone())?;
        }
        for length in self.0.lengths() {
            bench.case(format!("mul of {length} elements"));
            let (xs, ys) = (cycled(&xs, length), cycled(&ys, length));
            let (x, y) = (bench.vector(0, &xs)?, bench.vector(bench.parties() - 1, &ys)?);
            let z = bench.protocol.mul(&x, &y, None)?;
            bench.exactly(&z, zip(&xs, &ys, |x, y| modulo(ring, i128::from(x) * i128::from(y))))?;
        }
        Ok(())
    }

    fn moves<P: Complete>(&self, bench: &mut Bench<P>, values: &[i64]) -> Result<()> {
        let values = cycled(values, 70);
        let x = bench.vector(0, &values)?;
        bench.case("gather");
        let indices: Vec<u32> = (0..150).map(|i| if i % 7 == 3 { ZERO } else { i * 31 % 70 }).collect();
        let picked: Vec<i64> = indices.iter().map(|&i| if i == ZERO { 0 } else { values[i as usize] }).collect();
        let y = bench.protocol.gather(&x, &indices, &[3, 10, 5])?;
        bench.exactly(&y, picked.clone())?;
        bench.case("mul of gathered elements");
        let z = bench.protocol.mul(&y, &y, None)?;
        bench.exactly(&z, zip(&picked, &picked, |x, y| modulo(self.0.ring, i128::from(x) * i128::from(y))))?;
        let opened = opened(bench, &x)?;
        let z = bench.protocol.gather(&opened, &indices, &[3, 10, 5])?;
        bench.case("gathered elements of an opened value");
        bench.exactly(&z, picked.clone())?;
        let z = bench.protocol.reshape(&z, &[150]);
        let flat = bench.protocol.reshape(&y, &[150]);
        for (x, y, which) in [(&z, &flat, "opened"), (&z, &z, "both opened")] {
            bench.case(format!("mul of gathered elements, {which}"));
            let z = bench.protocol.mul(x, y, None)?;
            bench.exactly(&z, zip(&picked, &picked, |x, y| modulo(self.0.ring, i128::from(x) * i128::from(y))))?;
        }
        bench.case("concat");
        let y = bench.protocol.reshape(&y, &[150]);
        let both = bench.protocol.concat(&[&x, &y, &x])?;
        bench.exactly(&both, [&values[..], &picked, &values].concat())?;
        bench.case("sum_last");
        let rows = bench.protocol.reshape(&both, &[29, 2, 5]);
        let sums = bench.protocol.sum_last(&rows)?;
        let all = [&values[..], &picked, &values].concat();
        let due = all.chunks(5).map(|row| modulo(self.0.ring, row.iter().map(|&v| i128::from(v)).sum())).collect();
        bench.exactly(&sums, due)
    }

    fn matmul<P: Complete>(&self, bench: &mut Bench<P>, values: &[i64]) -> Result<()> {
        for (batch, rows, inner, columns) in [(1, 1, 1, 1), (2, 3, 5, 4), (1, 7, 33, 9), (3, 1, 8, 17)] {
            bench.case(format!("matmul of {batch} x {rows} x {inner} x {columns}"));
            let (xs, ys) = (cycled(values, batch * rows * inner), cycled(values, batch * inner * columns));
            let x = bench.input(0, &[batch, rows, inner], &xs)?;
            let y = bench.input(bench.parties() - 1, &[batch, inner, columns], &ys)?;
            let shape = MatmulShape { batch, rows, inner, columns };
            let ring = self.0.ring;
            let due = (0..batch * rows * columns).map(|i| {
                let (row, column) = (i / columns, i % columns);
                let product = |k: usize| {
                    i128::from(xs[row * inner + k]) * i128::from(ys[(row / rows * inner + k) * columns + column])
                };
                (0..inner).fold(0, |sum, k| modulo(ring, i128::from(sum) + i128::from(modulo(ring, product(k)))))
            });
            let due: Vec<i64> = due.collect();
            let z = bench.protocol.matmul(&x, &y, shape, None)?;
            bench.exactly(&z, due.clone())?;
            let (opened, other) = (opened(bench, &x)?, opened(bench, &y)?);
            for (x, y, which) in [(&opened, &y, "first"), (&x, &other, "second"), (&opened, &other, "both")] {
                bench.case(format!("matmul of {batch} x {rows} x {inner} x {columns}, opened: {which}"));
                let z = bench.protocol.matmul(x, y, shape, None)?;
                bench.exactly(&z, due.clone())?;
            }
        }
        Ok(())
    }

    /// Values wrap here; clear, whose sums of products have tests of their own, judges.
    fn linear<P: Complete>(&self, bench: &mut Bench<P>, values: &[i64]) -> Result<()> {
        let conv = ConvGeometry {
            in_channels: 4,
            out_channels: 6,
            groups: 2,
            input: [5, 6],
            kernel: [3, 2],
            strides: [2, 1],
            pads: [1, 0, 1, 1],
            dilations: [1, 2],
        };
        let maps = [
            (Geometry::Conv2d(conv), vec![2, 4, 5, 6], vec![6, 2, 3, 2], 6),
            (Geometry::Dense { inputs: 9, outputs: 5 }, vec![3, 2, 9], vec![9, 5], 5),
        ];
        for (geometry, x_shape, w_shape, channels) in maps {
            let elements = |shape: &[usize]| shape.iter().product::<usize>();
            let x = bench.input(0, &x_shape, &cycled(values, elements(&x_shape)))?;
            let weights = cycled(values, elements(&w_shape));
            let secret = bench.input(bench.parties() - 1, &w_shape, &weights)?;
            let public = bench.tensor(&w_shape, &weights);
            let biases = cycled(values, channels);
            let (secret_bias, public_bias) = (bench.vector(0, &biases)?, bench.tensor(&[channels], &biases));
            let (opened, opened_weight) = (opened(bench, &x)?, opened(bench, &secret)?);
            let sources = [
                (WeightSource::Shared(&secret), "shared"),
                (WeightSource::Computed(&secret), "computed"),
                (WeightSource::Computed(&opened_weight), "opened"),
                (WeightSource::Public(&public), "public"),
            ];
            for (weight, known) in sources {
                let weight = bench.protocol.prepare(weight, geometry, Placement::Cpu)?;
                let biases = [
                    (None, "no"),
                    (Some(Bias::Shared(&secret_bias)), "shared"),
                    (Some(Bias::Public(&public_bias)), "public"),
                ];
                for (bias, bias_known) in biases {
                    bench.case(format!("linear map with {known} weight and {bias_known} bias"));
                    let z = bench.protocol.linear(&x, &weight, &Epilogue { bias, ..Epilogue::default() })?;
                    bench.as_clear(&z)?;
                    bench.case(format!("linear map of an opened value with {known} weight and {bias_known} bias"));
                    let z = bench.protocol.linear(&opened, &weight, &Epilogue { bias, ..Epilogue::default() })?;
                    bench.as_clear(&z)?;
                }
            }
        }
        Ok(())
    }
}

/// x as products read it that several of them multiply.
fn opened<P: Complete>(bench: &mut Bench<P>, x: &P::Arith) -> Result<P::Arith> {
    bench.case("the opening of an operand");
    Ok(bench.protocol.open_operand(x)?.unwrap_or_else(|| x.clone()))
}
