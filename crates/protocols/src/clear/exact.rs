//! Sums of products without wrap-around: in 64 bits where a bound on the operands proves it exact, else in 192 bits.

use covey_kernels::conv::ConvGeometry;
use covey_kernels::{conv2d, gemm};
use covey_ring::Ring;

use crate::api::{Geometry, MatmulShape, ProtocolError, Result};

/// Signed integers as 64-bit two's complement, with the largest magnitude among them.
pub(super) struct Operand {
    words: Vec<u64>,
    largest: u64,
}

impl Operand {
    pub(super) fn new(values: impl Iterator<Item = i64>) -> Self {
        let mut largest = 0;
        let words = values.map(|value| {
            largest = value.unsigned_abs().max(largest);
            value as u64
        });
        Operand { words: words.collect(), largest }
    }

    fn len(&self) -> usize {
        self.words.len()
    }

    fn at(&self, index: usize) -> i128 {
        i128::from(self.words[index] as i64)
    }
}

/// Exact integers.
pub(super) enum Exact {
    /// All fit 64 bits.
    Narrow(Vec<i64>),
    /// Some may not.
    Wide(Vec<Wide>),
}

/// The integer `high * 2^64 + low`. Sums of up to 2^63 products of 64-bit integers fit.
#[derive(Clone, Copy, Default)]
pub(super) struct Wide {
    high: i128,
    low: u128,
}

impl Wide {
    fn add(&mut self, value: i128) {
        self.high += value >> 64;
        self.low += value as u128 & u128::from(u64::MAX);
    }

    /// The value, or the nearest integer of 128 bits.
    pub(super) fn saturated(self) -> i128 {
        let (high, low) = (self.high + (self.low >> 64) as i128, self.low as u64);
        match i64::try_from(high) {
            Ok(high) => i128::from(high) << 64 | i128::from(low),
            Err(_) if high < 0 => i128::MIN,
            Err(_) => i128::MAX,
        }
    }

    /// The value modulo the ring.
    pub(super) fn modulo(self, ring: Ring) -> u64 {
        match ring {
            Ring::Pow2(_) => ring.wrap(self.low as i128),
            Ring::Odd(modulus) => {
                let modulus = i128::from(modulus);
                let high = self.high.rem_euclid(modulus) * ((1i128 << 64) % modulus) % modulus;
                ring.wrap(high + (self.low % modulus as u128) as i128)
            }
        }
    }
}

/// The linear map of `weight` on `x` of shape `shape`, and `bias` by output channel: the result's shape and elements.
pub(super) fn linear(
    geometry: Geometry,
    shape: &[usize],
    x: &Operand,
    weight: &Operand,
    bias: Option<&Operand>,
) -> Result<(Vec<usize>, Exact)> {
    let sizes = Sizes::of(geometry, shape)?;
    let (expected_x, expected_weight) = sizes.operands();
    if x.len() != expected_x
        || weight.len() != expected_weight
        || bias.is_some_and(|bias| bias.len() != sizes.channels())
    {
        return Err(ProtocolError::Internal("the sizes of a linear layer"));
    }
    let channel = |output: usize| output / sizes.inner() % sizes.channels();
    let largest_bias = bias.map_or(0, |bias| bias.largest);
    let bias_at = |output: usize| bias.map_or(0, |bias| bias.words[channel(output)]);
    let outputs = sizes.outputs();
    let out_shape = sizes.out_shape(shape);
    let terms = sizes.terms() as u128;
    let values = if fits(x, weight, terms, largest_bias) {
        let mut out: Vec<u64> = (0..outputs).map(bias_at).collect();
        match &sizes {
            Sizes::Conv(geometry, batch) => conv2d(geometry, *batch, &x.words, &weight.words, &mut out),
            &Sizes::Dense { rows, inputs, outputs } => gemm(rows, outputs, inputs, &x.words, &weight.words, &mut out),
        }
        Exact::Narrow(out.into_iter().map(|word| word as i64).collect())
    } else {
        let mut out = vec![Wide::default(); outputs];
        out.iter_mut().enumerate().for_each(|(output, sum)| sum.add(i128::from(bias_at(output) as i64)));
        sizes.each_product(|output, i, j| out[output].add(x.at(i) * weight.at(j)));
        Exact::Wide(out)
    };
    Ok((out_shape, values))
}

/// The batched product of two matrices.
pub(super) fn matmul(shape: MatmulShape, x: &Operand, y: &Operand) -> Result<Exact> {
    let MatmulShape { batch, rows, inner, columns } = shape;
    if x.len() != batch * rows * inner || y.len() != batch * inner * columns {
        return Err(ProtocolError::Internal("the sizes of a matrix product"));
    }
    if fits(x, y, inner as u128, 0) {
        let mut out = vec![0; batch * rows * columns];
        for index in 0..batch {
            let x = &x.words[index * rows * inner..][..rows * inner];
            let y = &y.words[index * inner * columns..][..inner * columns];
            gemm(rows, columns, inner, x, y, &mut out[index * rows * columns..][..rows * columns]);
        }
        return Ok(Exact::Narrow(out.into_iter().map(|word| word as i64).collect()));
    }
    let mut out = vec![Wide::default(); batch * rows * columns];
    for (output, sum) in out.iter_mut().enumerate() {
        let (row, column) = (output / columns, output % columns);
        let index = row / rows;
        for k in 0..inner {
            sum.add(x.at(row * inner + k) * y.at((index * inner + k) * columns + column));
        }
    }
    Ok(Exact::Wide(out))
}

/// Whether `terms` products and one more term cannot pass 63 bits.
fn fits(x: &Operand, y: &Operand, terms: u128, more: u64) -> bool {
    let product = u128::from(x.largest) * u128::from(y.largest);
    let sum = product.checked_mul(terms).and_then(|sum| sum.checked_add(more.into()));
    sum.is_some_and(|sum| sum <= i64::MAX as u128)
}

/// A linear map over a batch.
enum Sizes {
    Conv(ConvGeometry, usize),
    Dense { rows: usize, inputs: usize, outputs: usize },
}

impl Sizes {
    fn of(geometry: Geometry, shape: &[usize]) -> Result<Self> {
        match (geometry, shape) {
            (Geometry::Conv2d(geometry), &[batch, channels, height, width])
                if channels == geometry.in_channels && [height, width] == geometry.input =>
            {
                Ok(Sizes::Conv(geometry, batch))
            }
            (Geometry::Dense { inputs, outputs }, [rows @ .., last]) if *last == inputs => {
                Ok(Sizes::Dense { rows: rows.iter().product(), inputs, outputs })
            }
            _ => Err(ProtocolError::Internal("the shape of a linear layer's input")),
        }
    }

    fn operands(&self) -> (usize, usize) {
        match self {
            Sizes::Conv(geometry, batch) => (batch * geometry.input_len(), geometry.weights_len()),
            Sizes::Dense { rows, inputs, outputs } => (rows * inputs, inputs * outputs),
        }
    }

    fn outputs(&self) -> usize {
        match self {
            Sizes::Conv(geometry, batch) => batch * geometry.output_len(),
            Sizes::Dense { rows, outputs, .. } => rows * outputs,
        }
    }

    fn channels(&self) -> usize {
        match self {
            Sizes::Conv(geometry, _) => geometry.out_channels,
            Sizes::Dense { outputs, .. } => *outputs,
        }
    }

    /// Output elements of one channel that lie side by side.
    fn inner(&self) -> usize {
        match self {
            Sizes::Conv(geometry, _) => geometry.output().iter().product(),
            Sizes::Dense { .. } => 1,
        }
    }

    /// Products summed for one output element.
    fn terms(&self) -> usize {
        match self {
            Sizes::Conv(geometry, _) => geometry.weights_len() / geometry.out_channels,
            Sizes::Dense { inputs, .. } => *inputs,
        }
    }

    fn out_shape(&self, shape: &[usize]) -> Vec<usize> {
        match self {
            Sizes::Conv(geometry, batch) => {
                let [height, width] = geometry.output();
                vec![*batch, geometry.out_channels, height, width]
            }
            Sizes::Dense { outputs, .. } => [&shape[..shape.len() - 1], &[*outputs]].concat(),
        }
    }

    /// Calls `f(output, x, weight)` with the indices of every product.
    fn each_product(&self, mut f: impl FnMut(usize, usize, usize)) {
        match self {
            Sizes::Conv(geometry, batch) => {
                for image in 0..*batch {
                    each_conv_product(geometry, image, &mut f);
                }
            }
            &Sizes::Dense { rows, inputs, outputs } => {
                for row in 0..rows {
                    for column in 0..outputs {
                        (0..inputs).for_each(|k| f(row * outputs + column, row * inputs + k, k * outputs + column));
                    }
                }
            }
        }
    }
}

fn each_conv_product(geometry: &ConvGeometry, image: usize, f: &mut impl FnMut(usize, usize, usize)) {
    let ConvGeometry { in_channels, out_channels, groups, input, kernel, strides, pads, dilations } = *geometry;
    let [height, width] = geometry.output();
    let group_channels = in_channels / groups;
    for output in 0..geometry.output_len() {
        let (channel, row, column) = (output / (height * width), output / width % height, output % width);
        let first = channel / (out_channels / groups) * group_channels;
        for tap in 0..group_channels * kernel[0] * kernel[1] {
            let (c, i, j) = (tap / (kernel[0] * kernel[1]), tap / kernel[1] % kernel[0], tap % kernel[1]);
            // Positions in the padding come out negative, wrap and fail the comparison.
            let y = (row * strides[0] + i * dilations[0]).wrapping_sub(pads[0]);
            let x = (column * strides[1] + j * dilations[1]).wrapping_sub(pads[1]);
            if y < input[0] && x < input[1] {
                let from = ((image * in_channels + first + c) * input[0] + y) * input[1] + x;
                f(image * geometry.output_len() + output, from, channel * group_channels * kernel[0] * kernel[1] + tap);
            }
        }
    }
}
