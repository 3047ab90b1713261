//! Every layer of `covey-operators`, as clear computes it.

use covey_operators::arg_max::{Tie, arg_max};
use covey_operators::linear::After;
use covey_operators::mul_shift::{mul_shift, product_bound};
use covey_operators::{
    Operand, Window, add, concat, conv2d, dense, gather, less_than_zero, linear, matmul, max_pool, mul, pad, reshape,
    shift_left, sub, sum_pool, transpose,
};
use covey_protocols::api::Result;
use covey_protocols::clip::Ends;
use covey_protocols::{Bias, Comparison, Layer, Rounding, Shaped, Term, Truncation};

use super::{Suite, map};
use crate::Complete;
use crate::bench::Bench;
use crate::samples::{Samples, spread};

/// Layers over values of 8 bits, in rings of at least 24.
pub struct Layers(pub Samples);

/// |v| < 2^8.
const BITS: u32 = 8;
const PROVED: Comparison = Comparison::new(BITS, true);
/// Of differences.
const WIDER: Comparison = Comparison::new(BITS + 1, true);

impl Suite for Layers {
    const NAME: &'static str = "layers";

    fn run<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        self.convolutions(bench)?;
        self.stacked_convolution(bench)?;
        self.sums(bench)?;
        self.parallel(bench)?;
        self.dense(bench)?;
        self.pools(bench)?;
        self.element_wise(bench)?;
        self.structure(bench)
    }
}

fn window(kernel: [usize; 2], strides: [usize; 2], pads: [usize; 4], dilations: [usize; 2]) -> Window {
    Window { kernel, strides, pads, dilations }
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Values of `shape`, the ends of their range among them.
fn values(shape: &[usize], bits: u32, label: &str) -> Vec<i64> {
    let mut values = spread(bits, count(shape), label);
    let last = values.len() - 1;
    (values[0], values[last]) = ((1 << bits) - 1, 1 - (1 << bits));
    values
}

impl Layers {
    /// The widest sum here: 4 channels of 3 x 3 taps of 8 by 6 bits, and a bias.
    fn truncation(&self) -> Truncation {
        Truncation { bits: 5, rounding: Rounding::Exact, bound: 20 }
    }

    fn shifted<'a, P: Complete>(&self) -> After<'a, P> {
        After { truncate: Some(self.truncation()), ..After::default() }
    }

    fn secret<P: Complete>(&self, bench: &mut Bench<P>, shape: &[usize], label: &str) -> Result<P::Arith> {
        bench.input(label.len() % bench.parties(), shape, &values(shape, BITS, label))
    }

    fn convolutions<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        // x, weight, groups, window: plain, strides and pads that differ by side, dilation, groups, depthwise, 1 x 1, whole image.
        let cases = [
            ([1, 1, 4, 4], [1, 1, 3, 3], 1, window([3, 3], [1, 1], [0; 4], [1, 1])),
            ([2, 3, 6, 5], [4, 3, 3, 3], 1, window([3, 3], [1, 1], [1; 4], [1, 1])),
            ([1, 2, 7, 8], [3, 2, 3, 2], 1, window([3, 2], [2, 3], [2, 0, 1, 1], [1, 1])),
            ([1, 2, 9, 8], [2, 2, 3, 3], 1, window([3, 3], [1, 2], [2, 1, 0, 3], [2, 3])),
            ([2, 4, 5, 5], [6, 2, 3, 3], 2, window([3, 3], [2, 2], [1; 4], [1, 1])),
            ([1, 6, 5, 6], [6, 1, 3, 3], 6, window([3, 3], [1, 1], [1; 4], [1, 1])),
            ([3, 4, 3, 3], [5, 4, 1, 1], 1, window([1, 1], [1, 1], [0; 4], [1, 1])),
            ([1, 4, 3, 3], [7, 4, 3, 3], 1, window([3, 3], [1, 1], [0; 4], [1, 1])),
        ];
        let rectified = Comparison::new(15, true);
        for (index, (x_shape, w_shape, groups, window)) in cases.into_iter().enumerate() {
            let x = self.secret(bench, &x_shape, &format!("image {index}"))?;
            let weights = values(&w_shape, 6, "kernel");
            let (shared, known) = (bench.input(0, &w_shape, &weights)?, bench.tensor(&w_shape, &weights));
            let biases = values(&[w_shape[0]], 12, "bias");
            let (bias, known_bias) =
                (bench.vector(bench.parties() - 1, &biases)?, bench.tensor(&[w_shape[0]], &biases));
            let geometry = conv2d::conv2d_geometry(&x_shape, &w_shape, &window, groups)?;
            for (weight, name) in [(Operand::Secret(&shared), "shared"), (Operand::Public(&known), "public")] {
                let weight = linear::prepare(bench.protocol, weight, geometry)?;
                let biases = [None, Some(Operand::Secret(&bias)), Some(Operand::Public(&known_bias))];
                for (number, bias) in biases.into_iter().enumerate() {
                    bench.case(format!("convolution {index}, {name} weight, bias {number}"));
                    let z = linear::linear(bench.protocol, &x, &weight, bias, self.shifted())?;
                    bench.as_clear(&z)?;
                    bench.case(format!("convolution {index}, {name} weight, bias {number}, residual, rectified"));
                    let residual = bench.vector(0, &values(z.shape(), 11, "residual"))?;
                    let residual = bench.protocol.reshape(&residual, z.shape());
                    let after = After { residual: Some(&residual), relu: Some(rectified), ..self.shifted() };
                    let z = linear::linear(bench.protocol, &x, &weight, bias, after)?;
                    bench.as_clear(&z)?;
                }
                bench.case(format!("convolution {index}, {name} weight, rectified"));
                let after = After { relu: Some(rectified), ..self.shifted() };
                let z = linear::linear(bench.protocol, &x, &weight, None, after)?;
                bench.as_clear(&z)?;
                bench.case(format!("convolution {index}, {name} weight, neither shifted nor rectified"));
                let z = linear::linear(bench.protocol, &x, &weight, Some(Operand::Secret(&bias)), After::default())?;
                bench.as_clear(&z)?;
            }
        }
        Ok(())
    }

    /// Images along more than one leading dimension.
    fn stacked_convolution<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let (x_shape, w_shape) = ([2, 3, 2, 4, 4], [3, 2, 3, 3]);
        let x = self.secret(bench, &x_shape, "stacked images")?;
        let weight = bench.input(0, &w_shape, &values(&w_shape, 6, "kernel"))?;
        let window = window([3, 3], [1, 1], [1; 4], [1, 1]);
        let geometry = conv2d::conv2d_geometry(&x_shape, &w_shape, &window, 1)?;
        let weight = linear::prepare(bench.protocol, Operand::Secret(&weight), geometry)?;
        let residual = bench.input(0, &[2, 3, 3, 4, 4], &values(&[288], 11, "residual"))?;
        let relu = Some(Comparison::new(15, true));
        bench.case("convolution of stacked images, residual, rectified");
        let after = After { residual: Some(&residual), relu, ..self.shifted() };
        let z = conv2d::conv2d(bench.protocol, &x, &weight, None, after)?;
        bench.as_clear(&z)
    }

    /// Sums of two layers, shifted and rectified or not, one weight public or none.
    fn sums<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let wide = window([3, 3], [2, 2], [1; 4], [1, 1]);
        let narrow = window([1, 1], [2, 2], [0; 4], [1, 1]);
        let conv = |x: [usize; 4], w: [usize; 4], window: &Window, groups: usize| -> Result<_> {
            Ok((x.to_vec(), w.to_vec(), conv2d::conv2d_geometry(&x, &w, window, groups)?))
        };
        let rows =
            |x: [usize; 2], w: [usize; 2]| -> Result<_> { Ok((x.to_vec(), w.to_vec(), dense::dense_geometry(&w)?)) };
        // A shortcut, a grouped convolution, which is computed by itself, and a recurrent layer.
        let pairs = [
            [conv([2, 4, 6, 5], [5, 4, 3, 3], &wide, 1)?, conv([2, 3, 6, 5], [5, 3, 1, 1], &narrow, 1)?],
            [conv([1, 4, 5, 5], [6, 2, 3, 3], &wide, 2)?, conv([1, 3, 5, 5], [6, 3, 1, 1], &narrow, 1)?],
            [rows([3, 7], [7, 9])?, rows([3, 9], [9, 9])?],
        ];
        let truncation = Truncation { bound: 21, ..self.truncation() };
        for (index, pair) in pairs.into_iter().enumerate() {
            for public in [false, true] {
                let mut layers = Vec::new();
                for (number, (x_shape, w_shape, geometry)) in pair.iter().enumerate() {
                    let x = self.secret(bench, x_shape, &format!("summed {number}"))?;
                    let weights = values(w_shape, 6, &format!("summed weight {number}"));
                    let (shared, known) = (bench.input(0, w_shape, &weights)?, bench.tensor(w_shape, &weights));
                    let source = if public && number == 1 { Operand::Public(&known) } else { Operand::Secret(&shared) };
                    let weight = linear::prepare(bench.protocol, source, *geometry)?;
                    let channels = if w_shape.len() == 4 { w_shape[0] } else { w_shape[1] };
                    let biases = values(&[channels], 12, "bias");
                    layers.push((x, weight, bench.vector(0, &biases)?, bench.tensor(&[channels], &biases)));
                }
                let biases = [Some(Bias::Shared(&layers[0].2)), Some(Bias::Public(&layers[1].3))];
                for (biases, relu) in [(biases, None), (biases, Some(Comparison::new(16, true))), ([None; 2], None)] {
                    bench.case(format!("sum {index}, public {public}, bias {}, {relu:?}", biases[0].is_some()));
                    let terms = [0, 1].map(|number| {
                        let (x, weight, ..) = &layers[number];
                        Term { x, weight, bias: biases[number] }
                    });
                    let z = bench.protocol.linear_sum(&terms, truncation, relu)?;
                    bench.as_clear(&z)?;
                }
            }
        }
        Ok(())
    }

    /// Layers of several geometries at once, shifted differently, rectified or not, all weights secret or one public.
    fn parallel<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let conv = |x: [usize; 4], w: [usize; 4], groups: usize| -> Result<_> {
            let window = window([w[2], w[3]], [1, 1], [w[2] / 2; 4], [1, 1]);
            Ok((x.to_vec(), w.to_vec(), conv2d::conv2d_geometry(&x, &w, &window, groups)?))
        };
        let rows =
            |x: [usize; 2], w: [usize; 2]| -> Result<_> { Ok((x.to_vec(), w.to_vec(), dense::dense_geometry(&w)?)) };
        let maps = [
            conv([2, 4, 6, 5], [5, 4, 3, 3], 1)?,
            conv([2, 3, 6, 5], [70, 3, 1, 1], 1)?,
            rows([3, 7], [7, 9])?,
            conv([1, 4, 5, 5], [6, 2, 3, 3], 2)?,
        ];
        let truncation = Truncation { bound: 21, ..self.truncation() };
        for public in [false, true] {
            let mut layers = Vec::new();
            for (number, (x_shape, w_shape, geometry)) in maps.iter().enumerate() {
                let x = self.secret(bench, x_shape, &format!("parallel {number}"))?;
                let weights = values(w_shape, 6, &format!("parallel weight {number}"));
                let (shared, known) = (bench.input(0, w_shape, &weights)?, bench.tensor(w_shape, &weights));
                let source = if public && number == 1 { Operand::Public(&known) } else { Operand::Secret(&shared) };
                let weight = linear::prepare(bench.protocol, source, *geometry)?;
                let channels = if w_shape.len() == 4 { w_shape[0] } else { w_shape[1] };
                let biases = values(&[channels], 12, "bias");
                layers.push((x, weight, bench.vector(0, &biases)?, bench.tensor(&[channels], &biases)));
            }
            for (count, relu) in [(4, None), (4, Some(Comparison::new(17, true))), (1, None)] {
                bench.case(format!("{count} parallel layers, public {public}, {relu:?}"));
                let mut parallel = Vec::new();
                for (number, (x, weight, shared, known)) in layers.iter().take(count).enumerate() {
                    let bias = [Some(Bias::Shared(shared)), Some(Bias::Public(known)), None][number % 3];
                    let truncation = Truncation { bits: truncation.bits - number as u32 % 2, ..truncation };
                    parallel.push(Layer { map: Term { x, weight, bias }, truncation, relu });
                }
                for z in bench.protocol.parallel_layers(&parallel)? {
                    bench.as_clear(&z)?;
                }
            }
        }
        Ok(())
    }

    fn dense<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        for (x_shape, w_shape) in [(vec![1, 1], [1, 1]), (vec![3, 20], [20, 7]), (vec![2, 3, 5], [5, 9])] {
            let x = self.secret(bench, &x_shape, "rows")?;
            let weight = bench.input(0, &w_shape, &values(&w_shape, 6, "columns"))?;
            let bias = bench.tensor(&[w_shape[1]], &values(&[w_shape[1]], 12, "bias"));
            let geometry = dense::dense_geometry(&w_shape)?;
            let weight = linear::prepare(bench.protocol, Operand::Secret(&weight), geometry)?;
            bench.case(format!("dense layer of {w_shape:?} on {x_shape:?}"));
            let bias = Some(Operand::Public(&bias));
            let z = linear::linear(bench.protocol, &x, &weight, bias, self.shifted())?;
            bench.as_clear(&z)?;
        }
        let (x, y) = (self.secret(bench, &[2, 3, 4, 5], "left")?, self.secret(bench, &[2, 3, 5, 2], "right ")?);
        bench.case("matmul");
        let z = matmul::matmul(bench.protocol, &x, &y, Some(self.truncation()))?;
        bench.as_clear(&z)
    }

    fn pools<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let windows = [
            window([1, 1], [1, 1], [0; 4], [1, 1]),
            window([2, 2], [2, 2], [0; 4], [1, 1]),
            window([3, 3], [2, 2], [1; 4], [1, 1]),
            window([3, 2], [1, 3], [2, 1, 0, 0], [1, 1]),
            window([2, 3], [1, 1], [0, 2, 1, 1], [2, 2]),
            window([7, 6], [1, 1], [0; 4], [1, 1]),
        ];
        let x = self.secret(bench, &[2, 2, 7, 6], "pooled image")?;
        for (index, window) in windows.iter().enumerate() {
            bench.case(format!("max pool {index}"));
            let z = max_pool::max_pool(bench.protocol, &x, window, WIDER)?;
            bench.as_clear(&z)?;
            bench.case(format!("max pool {index}, rectified"));
            let relu = Some(Comparison::new(BITS, true));
            let rectifier = max_pool::Rectifier { truncate: None, relu };
            let z = max_pool::max_pool_and(bench.protocol, &x, window, WIDER, rectifier)?;
            bench.as_clear(&z)?;
            bench.case(format!("max pool {index}, shifted and rectified"));
            let (truncate, relu) = (Some(self.truncation()), Some(Comparison::new(15, false)));
            let rectifier = max_pool::Rectifier { truncate, relu };
            let z = max_pool::max_pool_and(bench.protocol, &x, window, WIDER, rectifier)?;
            bench.as_clear(&z)?;
            bench.case(format!("sum pool {index}"));
            let z = sum_pool::sum_pool(bench.protocol, &x, window)?;
            bench.as_clear(&z)?;
        }
        let volumes = self.secret(bench, &[2, 2, 2, 4, 3], "pooled volume")?;
        bench.case("max pool of volumes");
        let z = max_pool::max_pool(bench.protocol, &volumes, &windows[1], WIDER)?;
        bench.as_clear(&z)?;
        bench.case("sum pool of volumes");
        let z = sum_pool::sum_pool(bench.protocol, &volumes, &windows[1])?;
        bench.as_clear(&z)?;
        // One number twice in each window: a tie is no difference.
        let ties = bench.input(0, &[1, 1, 4, 4], &[3, 3, -7, -7, 3, 3, -7, -7, 0, -1, 5, 4, -1, 0, 4, 5])?;
        bench.case("max pool of ties");
        let z = max_pool::max_pool(bench.protocol, &ties, &windows[1], WIDER)?;
        bench.exactly(&z, vec![3, -7, 0, 5])?;
        for axis in 0..3 {
            for (tie, keep) in [(Tie::First, false), (Tie::Last, true)] {
                for size in [1, 2, 3, 7, 8] {
                    let mut shape = vec![3, 2, 2];
                    shape[axis] = size;
                    // Few values: many ties.
                    let few = map(&values(&shape, BITS, "ranked"), |v| v.rem_euclid(3));
                    let x = bench.input(bench.parties() - 1, &shape, &few)?;
                    bench.case(format!("arg max of {shape:?} along {axis}, {tie:?}"));
                    let z = arg_max(bench.protocol, &x, axis, keep, tie, WIDER)?;
                    bench.as_clear(&z)?;
                }
            }
        }
        Ok(())
    }

    fn element_wise<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let shape = [2, 3, 4];
        let plain = values(&shape, BITS, "elements");
        let x = bench.input(0, &shape, &plain)?;
        bench.case("relu");
        let z = bench.protocol.relu(&x, PROVED)?;
        bench.exactly(&z, map(&plain, |v| v.max(0)))?;
        bench.case("less than zero");
        let z = less_than_zero::less_than_zero(bench.protocol, &x, PROVED)?;
        bench.exactly(&z, map(&plain, |v| i64::from(v < 0)))?;
        for (low, high) in
            [(Some(-20), Some(60)), (Some(0), None), (None, Some(0)), (Some(7), Some(7)), (Some(-300), Some(300))]
        {
            bench.case(format!("clip to {low:?}..={high:?}"));
            let z = bench.protocol.clip(&x, Ends { low, high }, PROVED)?;
            let due = map(&plain, |v| v.max(low.unwrap_or(i64::MIN)).min(high.unwrap_or(i64::MAX)));
            bench.exactly(&z, due)?;
        }
        for multipliers in [vec![57], vec![-5], vec![3, -7, 0, 1]] {
            bench.case(format!("mul shift by {multipliers:?}"));
            let bound = product_bound(BITS, &multipliers);
            let truncation = Truncation { bits: 4, rounding: Rounding::Exact, bound };
            let z = mul_shift(bench.protocol, &x, &multipliers, truncation)?;
            let due = plain.iter().enumerate().map(|(i, v)| (v * multipliers[i % multipliers.len()]) >> 4);
            bench.exactly(&z, due.collect())?;
        }
        bench.case("shift left");
        let z = shift_left::shift_left(bench.protocol, &x, 6)?;
        bench.exactly(&z, map(&plain, |v| v << 6))?;
        for y_shape in [vec![2, 3, 4], vec![4], vec![3, 1], vec![2, 1, 1], vec![], vec![1, 3, 4], vec![5, 1, 1, 1]] {
            let y_values = values(&y_shape, BITS, "broadcast");
            let (y, c) = (bench.input(0, &y_shape, &y_values)?, bench.tensor(&y_shape, &y_values));
            for (y, known) in [(Operand::Secret(&y), "secret"), (Operand::Public(&c), "public")] {
                for turned in [false, true] {
                    let x = Operand::Secret(&x);
                    let (a, b) = if turned { (y, x) } else { (x, y) };
                    bench.case(format!("broadcast of a {known} {y_shape:?}, turned: {turned}"));
                    let z = add::add(bench.protocol, a, b)?;
                    bench.as_clear(&z)?;
                    let z = sub::sub(bench.protocol, a, b)?;
                    bench.as_clear(&z)?;
                    let z = mul::mul(bench.protocol, a, b, Some(self.truncation()))?;
                    bench.as_clear(&z)?;
                }
            }
        }
        Ok(())
    }

    fn structure<P: Complete>(&self, bench: &mut Bench<P>) -> Result<()> {
        let shape = [2, 3, 2, 4];
        let x = self.secret(bench, &shape, "moved")?;
        for permutation in [[0, 1, 2, 3], [0, 2, 3, 1], [3, 2, 1, 0], [1, 0, 3, 2]] {
            bench.case(format!("transpose {permutation:?}"));
            let z = transpose::transpose(bench.protocol, &x, &permutation)?;
            bench.as_clear(&z)?;
        }
        for (before, after, value) in
            [([0, 0, 1, 2], [0, 0, 0, 1], 0), ([0, 1, 0, 0], [1, 0, 3, 0], -9), ([0; 4], [0; 4], 5)]
        {
            bench.case(format!("pad by {before:?} and {after:?} with {value}"));
            let z = pad::pad(bench.protocol, &x, &before, &after, value)?;
            bench.as_clear(&z)?;
        }
        for axis in 0..4 {
            let mut other = shape;
            other[axis] = 3;
            let y = self.secret(bench, &other, "joined")?;
            bench.case(format!("concat along {axis}"));
            let z = concat::concat(bench.protocol, &[&x, &y, &x], axis)?;
            bench.as_clear(&z)?;
        }
        let axes = [vec![Some(16), None, Some(0)], vec![Some(0)], vec![Some(7), Some(7), Some(1), None]];
        bench.case("gather");
        let z = gather::gather(bench.protocol, &x, &axes, Some(2))?;
        bench.as_clear(&z)?;
        bench.case("reshape");
        let z = reshape::reshape(bench.protocol, &x, &[6, 8])?;
        bench.as_clear(&z)
    }
}
