//! Small programs that use every operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use covey_program::{Program, ProgramBuilder, ProgramError, Rounding, Weights, WeightsError, Window, op};
use covey_protocols::{NetworkProfile, Table};
use covey_ring::{Ring, Tensor};

use crate::samples::{uniform, wrapped};

fn truncate(bits: u32) -> op::Truncate {
    op::Truncate { bits, rounding: Rounding::Exact }
}

/// Convolutions plain and depthwise, ReLU, max and average pool, a residual sum, a dense layer and the class.
pub fn cnn(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("cnn", ring);
    let x = b.input("x", &[2, 8, 8], 8);
    b.bound(x, 9);
    let w1 = b.parameter("w1", &[4, 2, 3, 3], 8);
    let b1 = b.parameter("b1", &[4], 16);
    let w2 = b.parameter("w2", &[4, 1, 3, 3], 8);
    for id in [w1, b1, w2] {
        b.bound(id, 7);
    }
    let window = Window { kernel: [3, 3], strides: [2, 1], pads: [1, 1, 0, 1], dilations: [1, 1] };
    let conv = b.node("conv1", op::Conv2d { window, groups: 1 }, &[x, w1, b1]);
    b.bound(conv, 21);
    let conv = b.node("conv1", truncate(8), &[conv]);
    b.bound(conv, 13);
    let relu = b.node("relu1", op::Relu, &[conv]);
    b.bound(relu, 13);
    let depthwise = b.node("conv2", op::Conv2d { window: Window::square(3, 1, 1), groups: 4 }, &[relu, w2]);
    b.bound(depthwise, 24);
    let depthwise = b.node("conv2", truncate(8), &[depthwise]);
    b.bound(depthwise, 16);
    let sum = b.node("add", op::Add, &[depthwise, relu]);
    b.bound(sum, 17);
    let max = b.node("pool1", op::MaxPool { window: Window::square(2, 2, 0) }, &[sum]);
    b.bound(max, 17);
    let all = b.node("pool2", op::SumPool { window: Window::square(2, 1, 0) }, &[max]);
    b.bound(all, 19);
    let mean = op::MulShift { multipliers: vec![128], shift: 9, rounding: Rounding::Exact };
    let mean = b.mul_shift("pool2", mean, all, 8);
    b.bound(mean, 17);
    let flat = b.reshape("flatten", mean, &[12]);
    b.bound(flat, 17);
    let w3 = b.parameter("w3", &[12, 5], 8);
    let b3 = b.parameter("b3", &[5], 16);
    b.bound(w3, 7);
    b.bound(b3, 12);
    let dense = b.node("fc", op::Dense, &[flat, w3, b3]);
    b.bound(dense, 28);
    let logits = b.node("fc", truncate(8), &[dense]);
    b.bound(logits, 20);
    let class = b.node("class", op::ArgMax { axis: 1, select_last: false, keep_dims: false }, &[logits]);
    b.bound(class, 3);
    b.output(logits);
    b.output(class);
    b.build().map(Arc::new)
}

/// A convolution, a rectifier and a dense layer that is not shifted: one unit in the last place of the convolution shows.
pub fn sensitive(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("sensitive", ring);
    let x = b.input("x", &[2, 6, 6], 8);
    b.bound(x, 9);
    let w1 = b.parameter("w1", &[4, 2, 3, 3], 8);
    let w2 = b.parameter("w2", &[144, 5], 8);
    for id in [w1, w2] {
        b.bound(id, 7);
    }
    let conv = b.node("conv", op::Conv2d { window: Window::square(3, 1, 1), groups: 1 }, &[x, w1]);
    b.bound(conv, 21);
    let conv = b.node("conv", truncate(8), &[conv]);
    b.bound(conv, 13);
    let relu = b.node("relu", op::Relu, &[conv]);
    b.bound(relu, 13);
    let flat = b.reshape("flatten", relu, &[144]);
    b.bound(flat, 13);
    let dense = b.node("dense", op::Dense, &[flat, w2]);
    b.bound(dense, 28);
    b.output(dense);
    b.build().map(Arc::new)
}

/// Products so wide that some protocols check them by combinations: convolutions, one with a bias, one with a residual and one that is
/// pooled before it is shifted, a dense layer of many rows, and products of secret matrices, one without a shift.
pub fn wide(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    const CHANNELS: usize = 192;
    let mut b = ProgramBuilder::new("wide", ring);
    let x = b.input("x", &[8, 16, 12], 24);
    b.bound(x, 9);
    let w1 = b.parameter("w1", &[CHANNELS, 8, 3, 3], 8);
    let b1 = b.parameter("b1", &[CHANNELS], 32);
    let w2 = b.parameter("w2", &[CHANNELS, CHANNELS, 1, 1], 8);
    let w3 = b.parameter("w3", &[CHANNELS, CHANNELS], 8);
    for id in [w1, b1, w2, w3] {
        b.bound(id, 7);
    }
    let conv = b.node("conv1", op::Conv2d { window: Window::square(3, 1, 1), groups: 1 }, &[x, w1, b1]);
    b.bound(conv, 23);
    let conv = b.node("conv1", truncate(8), &[conv]);
    b.bound(conv, 15);
    let relu1 = b.node("relu1", op::Relu, &[conv]);
    b.bound(relu1, 15);
    let conv = b.node("conv2", op::Conv2d { window: Window::square(1, 1, 0), groups: 1 }, &[relu1, w2]);
    b.bound(conv, 30);
    let conv = b.node("conv2", truncate(8), &[conv]);
    b.bound(conv, 22);
    let sum = b.node("add", op::Add, &[conv, relu1]);
    b.bound(sum, 23);
    let relu2 = b.node("relu2", op::Relu, &[sum]);
    b.bound(relu2, 23);
    let small = b.node("small", truncate(12), &[relu2]);
    b.bound(small, 11);
    let square = b.reshape("square", small, &[CHANNELS, CHANNELS]);
    b.bound(square, 11);
    let dense = b.node("dense", op::Dense, &[square, w3]);
    b.bound(dense, 26);
    let dense = b.node("dense", truncate(16), &[dense]);
    b.bound(dense, 10);
    let product = b.node("product", op::Matmul, &[dense, square]);
    b.bound(product, 29);
    let product = b.node("product", truncate(10), &[product]);
    b.bound(product, 19);
    b.output(product);
    let unshifted = b.node("product without a shift", op::Matmul, &[square, dense]);
    b.bound(unshifted, 29);
    b.output(unshifted);
    let pooled = b.node("conv3", op::Conv2d { window: Window::square(1, 1, 0), groups: 1 }, &[relu1, w2, b1]);
    b.bound(pooled, 30);
    let pooled = b.node("pool", op::MaxPool { window: Window::square(2, 2, 0) }, &[pooled]);
    b.bound(pooled, 30);
    let pooled = b.node("pool", truncate(8), &[pooled]);
    b.bound(pooled, 22);
    b.output(pooled);
    b.build().map(Arc::new)
}

/// Secret weights in convolutions of all geometries and in a dense layer, and products of secret matrices. Nothing is shifted, so that
/// any ring does.
pub fn linear_maps(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let window = |kernel, strides, pads, dilations| Window { kernel, strides, pads, dilations };
    // Image, weight, groups: plain, strides and pads that differ by side, dilation, groups, depthwise, 1 x 1, whole image.
    let cases = [
        ([3, 6, 5], [4, 3, 3, 3], 1, window([3, 3], [1, 1], [1; 4], [1, 1])),
        ([2, 7, 8], [3, 2, 3, 2], 1, window([3, 2], [2, 3], [2, 0, 1, 1], [1, 1])),
        ([2, 9, 8], [2, 2, 3, 3], 1, window([3, 3], [1, 2], [2, 1, 0, 3], [2, 3])),
        ([4, 5, 5], [6, 2, 3, 3], 2, window([3, 3], [2, 2], [1; 4], [1, 1])),
        ([6, 5, 6], [6, 1, 3, 3], 6, window([3, 3], [1, 1], [1; 4], [1, 1])),
        ([4, 3, 3], [5, 4, 1, 1], 1, window([1, 1], [1, 1], [0; 4], [1, 1])),
        ([4, 3, 3], [7, 4, 3, 3], 1, window([3, 3], [1, 1], [0; 4], [1, 1])),
    ];
    let mut b = ProgramBuilder::new("linear maps", ring);
    for (index, (image, kernel, groups, window)) in cases.into_iter().enumerate() {
        let x = b.input(&format!("image {index}"), &image, 8);
        b.bound(x, 9);
        let weight = b.parameter(&format!("kernel {index}"), &kernel, 8);
        b.bound(weight, 7);
        let conv = b.node(&format!("convolution {index}"), op::Conv2d { window, groups }, &[x, weight]);
        b.bound(conv, 9 + 7 + 6);
        b.output(conv);
    }
    let row = b.input("row", &[37], 8);
    b.bound(row, 9);
    let weight = b.parameter("dense weight", &[37, 21], 8);
    b.bound(weight, 7);
    let dense = b.node("dense", op::Dense, &[row, weight]);
    b.bound(dense, 9 + 7 + 6);
    b.output(dense);
    for (name, left, right) in
        [("square", [3, 5, 5], [3, 5, 5]), ("long", [2, 3, 17], [2, 17, 4]), ("row", [2, 1, 8], [2, 8, 9])]
    {
        let [x, y] = [("left", left), ("right", right)].map(|(side, shape)| {
            let operand = b.input(&format!("{side} of {name}"), &shape, 8);
            b.bound(operand, 9);
            operand
        });
        let product = b.node(&format!("product {name}"), op::Matmul, &[x, y]);
        b.bound(product, 9 + 9 + 5);
        b.output(product);
    }
    b.build().map(Arc::new)
}

/// A network so slow that two parties merge the responses of [`wide_maps`].
pub const MERGING: NetworkProfile = NetworkProfile { latency_us: 500, bits_per_second: 5_000_000 };

/// Linear maps of channels so many that slow networks call for merged responses: 1 x 1, 3 x 3, with strides, with groups, dense.
pub fn wide_maps(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let window = |kernel: usize, stride| Window {
        kernel: [kernel; 2],
        strides: [stride; 2],
        pads: [kernel / 2; 4],
        dilations: [1; 2],
    };
    let cases = [
        ([160, 14, 14], [170, 160, 1, 1], 1, window(1, 1)),
        ([100, 7, 7], [130, 100, 3, 3], 1, window(3, 1)),
        ([96, 9, 9], [100, 96, 3, 3], 1, window(3, 2)),
        ([256, 7, 7], [160, 128, 1, 1], 2, window(1, 1)),
    ];
    let mut b = ProgramBuilder::new("wide maps", ring);
    for (index, (image, kernel, groups, window)) in cases.into_iter().enumerate() {
        let x = b.input(&format!("image {index}"), &image, 4);
        b.bound(x, 9);
        let weight = b.parameter(&format!("kernel {index}"), &kernel, 4);
        b.bound(weight, 4);
        let conv = b.node(&format!("convolution {index}"), op::Conv2d { window, groups }, &[x, weight]);
        b.bound(conv, 9 + 4 + 10);
        b.output(conv);
    }
    let row = b.input("row", &[700], 4);
    b.bound(row, 9);
    let weight = b.parameter("dense weight", &[700, 650], 4);
    b.bound(weight, 4);
    let dense = b.node("dense", op::Dense, &[row, weight]);
    b.bound(dense, 9 + 4 + 10);
    b.output(dense);
    b.build().map(Arc::new)
}

/// What the CNN does not have: public operands, broadcasting, clips, pads, moves, products of secrets.
pub fn operations(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("operations", ring);
    let x = b.input("x", &[2, 3], 4);
    b.bound(x, 8);
    let gain = b.parameter("gain", &[2, 1], 0);
    b.bound(gain, 3);
    let scale = b.constant("scale", &[3], 4, vec![32, -16, 6]);
    let offset = b.constant("offset", &[2, 1], 4, vec![5, -100]);
    let scaled = b.node("scale", op::Mul, &[x, scale]);
    b.bound(scaled, 14);
    let scaled = b.node("scale", truncate(4), &[scaled]);
    b.bound(scaled, 10);
    let moved = b.node("offset", op::Sub, &[offset, scaled]);
    b.bound(moved, 11);
    let clipped = b.node("clip", op::Clip { low: Some(-60), high: Some(96) }, &[moved]);
    b.bound(clipped, 7);
    let gained = b.node("gain", op::Mul, &[clipped, gain]);
    b.bound(gained, 10);
    let pad = op::Pad { before: vec![0, 0, 1], after: vec![0, 1, 0], value: -3 };
    let padded = b.node("pad", pad, &[gained]);
    b.bound(padded, 10);
    let turned = b.node("turn", op::Transpose { permutation: vec![0, 2, 1] }, &[padded]);
    b.bound(turned, 10);
    let product = b.node("product", op::Matmul, &[turned, padded]);
    b.bound(product, 22);
    let product = b.node("product", truncate(4), &[product]);
    b.bound(product, 18);
    let up = b.node("up", op::ShiftLeft { bits: 3 }, &[padded]);
    b.bound(up, 13);
    let down = op::MulShift { multipliers: vec![3], shift: 3, rounding: Rounding::Exact };
    let up = b.mul_shift("down", down, up, 4);
    b.bound(up, 12);
    let both = b.node("join", op::Concat { axis: 1 }, &[product, up]);
    b.bound(both, 18);
    let rank = b.node("rank", op::ArgMax { axis: 1, select_last: true, keep_dims: true }, &[both]);
    b.bound(rank, 3);
    b.output(both);
    b.output(rank);
    b.build().map(Arc::new)
}

/// Bits: two signs, logic of them, selections by what they give, bits as integers.
pub fn bits(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("bits", ring);
    let (x, y) = (b.input("x", &[5, 7], 4), b.input("y", &[5, 7], 4));
    let signs = [x, y].map(|id| {
        b.bound(id, 8);
        b.node("sign", op::IsNegative, &[id])
    });
    let both = b.node("both", op::And, &signs);
    let either = b.node("either", op::Or, &signs);
    let neither = b.node("neither", op::Not, &[either]);
    for bit in [signs[0], both, neither] {
        let chosen = b.node("chosen", op::Select, &[bit, x, y]);
        b.bound(chosen, 8);
        b.output(chosen);
    }
    let count = b.node("count", op::BitToInteger, &[either]);
    b.bound(count, 1);
    b.output(count);
    b.build().map(Arc::new)
}

/// Tables: lines and constants, after a shift and on an input.
pub fn tables(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("tables", ring);
    let x = b.input("x", &[5, 7], 4);
    b.bound(x, 8);
    let table = |low, step, values: &[i64], slopes: &[i64], shift| {
        op::Table::new(Table { low, step, values: values.to_vec(), slopes: slopes.to_vec(), shift })
    };
    let bent = b.node("bent", table(-256, 7, &[-900, 40, 7, 800], &[7, -3, 0, 5], 3), &[x]);
    b.bound(bent, 8);
    let clipped = b.node("clipped", op::Clip { low: Some(-3), high: Some(4) }, &[bent]);
    b.bound(clipped, 3);
    let steps = b.node("steps", table(-3, 0, &[5, 4, -3, 2, 1, 0, -7, 2], &[], 0), &[clipped]);
    b.bound(steps, 3);
    b.output(bent);
    b.output(steps);
    b.build().map(Arc::new)
}

/// A sequence: a window of the last three rows, which a query is multiplied with, and a mean that fades and two products multiply.
pub fn sequence(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("sequence", ring);
    let x = b.input("x", &[4], 4);
    b.bound(x, 6);
    let (window, mean) = (b.carried("window", &[3, 4], 4), b.carried("mean", &[4], 4));
    b.bound(window, 8);
    b.bound(mean, 6);
    let w = b.parameter("w", &[4, 4], 4);
    b.bound(w, 3);
    let product = b.node("row", op::Dense, &[x, w]);
    b.bound(product, 12);
    let row = b.node("row", truncate(4), &[product]);
    b.bound(row, 8);
    let row = b.reshape("row", row, &[1, 4]);
    b.bound(row, 8);
    let later =
        b.node("later", op::Gather { axes: vec![vec![Some(4), Some(8)], (0..4).map(Some).collect()] }, &[window]);
    b.bound(later, 8);
    let next = b.node("next", op::Concat { axis: 1 }, &[later, row]);
    b.bound(next, 8);
    b.carry(window, next);
    let query = b.reshape("query", x, &[4, 1]);
    b.bound(query, 6);
    let scores = b.node("scores", op::Matmul, &[next, query]);
    b.bound(scores, 17);
    let scores = b.node("scores", truncate(4), &[scores]);
    b.bound(scores, 13);
    let rectified = b.node("rectified", op::Relu, &[scores]);
    b.bound(rectified, 13);
    b.output(rectified);
    let sum = b.node("sum", op::Add, &[mean, x]);
    b.bound(sum, 7);
    let half = op::MulShift { multipliers: vec![1], shift: 1, rounding: Rounding::Exact };
    let fading = b.mul_shift("fading", half, sum, 4);
    b.bound(fading, 6);
    b.carry(mean, fading);
    b.output(fading);
    let products = [fading, x].map(|factor| {
        let product = b.node("product", op::Mul, &[fading, factor]);
        b.bound(product, 12);
        product
    });
    let both = b.node("both", op::Add, &products);
    b.bound(both, 13);
    b.output(both);
    b.build().map(Arc::new)
}

/// A sequence of which each run has other public numbers: a rate, elements that are dropped, and a dither before a shift.
pub fn changing(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("changing", ring);
    let x = b.input("x", &[5, 7], 4);
    b.bound(x, 6);
    let mean = b.carried("mean", &[5, 7], 4);
    b.bound(mean, 8);
    let rate = op::Scheduled { multipliers: vec![3, -2], runs: vec![1], scale: 2 };
    let rated = b.node("rate", rate, &[x]);
    b.bound(rated, 8);
    let dropped = b.node("drop", op::Dropout { seed: 7, threshold: 1 << 30, multiplier: -5, scale: 2 }, &[rated]);
    b.bound(dropped, 11);
    let dithered = b.node("dither", op::Dither { seed: 9, bits: 4 }, &[dropped]);
    b.bound(dithered, 12);
    let short = b.node("short", truncate(4), &[dithered]);
    b.bound(short, 8);
    let sum = b.node("sum", op::Add, &[mean, short]);
    b.bound(sum, 9);
    let half = op::MulShift { multipliers: vec![1], shift: 1, rounding: Rounding::Exact };
    let fading = b.mul_shift("fading", half, sum, 4);
    b.bound(fading, 8);
    b.carry(mean, fading);
    b.output(fading);
    b.build().map(Arc::new)
}

/// Layers whose weights and biases are computed in the run, one of them the gradient of a kernel. Runs have one sample.
pub fn computed_weights(ring: Ring) -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("computed weights", ring);
    let x = b.input("x", &[2, 4, 5, 6], 4);
    b.bound(x, 6);
    let moved = b.input("moved", &[6, 2, 3, 2], 4);
    b.bound(moved, 4);
    let bias = b.input("bias", &[6], 8);
    b.bound(bias, 9);
    let start = b.parameter("start", &[6, 2, 3, 2], 4);
    b.bound(start, 4);
    let kernel = b.node("kernel", op::Add, &[moved, start]);
    b.bound(kernel, 5);
    let window = Window { kernel: [3, 2], strides: [2, 3], pads: [1, 0, 2, 1], dilations: [1, 2] };
    let conv = b.node("conv", op::Conv2d { window, groups: 2 }, &[x, kernel, bias]);
    b.bound(conv, 16);
    let conv = b.node("conv", truncate(4), &[conv]);
    b.bound(conv, 12);
    let rectified = b.node("conv", op::Relu, &[conv]);
    b.bound(rectified, 12);
    b.output(rectified);
    // What moves a kernel of 3 x 3 by x alone: images as channels, strides as dilations.
    let image = Window { kernel: [3, 4], strides: [1, 1], pads: [0; 4], dilations: [1, 1] };
    let turned = b.node("turned", op::Transpose { permutation: vec![0, 2, 1, 3, 4] }, &[x]);
    b.bound(turned, 6);
    let slope = b.input("slope", &[3, 2, 3, 4], 4);
    b.bound(slope, 5);
    let gradient = b.node("gradient", op::Conv2d { window: image, groups: 1 }, &[turned, slope]);
    b.bound(gradient, 16);
    b.output(gradient);
    let rows = b.reshape("rows", rectified, &[2, 36]);
    b.bound(rows, 12);
    let dense = b.input("dense", &[36, 3], 4);
    b.bound(dense, 4);
    let product = b.node("product", op::Dense, &[rows, dense]);
    b.bound(product, 22);
    b.output(product);
    b.build().map(Arc::new)
}

/// A division, in a ring that is not a power of two: clear alone runs it.
pub fn division() -> Result<Arc<Program>, ProgramError> {
    let mut b = ProgramBuilder::new("division", Ring::Odd(4_293_918_721));
    let x = b.input("x", &[2, 5], 6);
    b.bound(x, 12);
    let square = b.node("square", op::Mul, &[x, x]);
    b.bound(square, 24);
    let less = b.node("square", truncate(7), &[square]);
    b.bound(less, 17);
    let w = b.parameter("w", &[5, 3], 6);
    b.bound(w, 7);
    let dense = b.node("dense", op::Dense, &[less, w]);
    b.bound(dense, 27);
    let mean = b.node("mean", op::DivExact { divisor: 49 }, &[dense]);
    b.bound(mean, 22);
    let relu = b.node("relu", op::Relu, &[mean]);
    b.bound(relu, 22);
    b.output(mean);
    b.output(relu);
    b.build().map(Arc::new)
}

/// Weights over their whole bounds.
pub fn weights(program: &Program) -> Result<Weights, WeightsError> {
    let drawn = program.parameters().map(|(_, value)| {
        let label = format!("weights of {}", value.name);
        (value.name.clone(), uniform(value.bound.bits, value.elements(), &label))
    });
    Weights::new(program, drawn.collect::<BTreeMap<_, _>>())
}

/// Inputs over their whole bounds; `number` tells sets apart.
pub fn inputs(program: &Program, batch: usize, number: usize) -> Vec<Tensor<u64>> {
    let drawn = program.inputs().iter().map(|id| {
        let (value, shape) = (program.value(*id), program.value(*id).full_shape(batch));
        let values =
            uniform(value.bound.bits, shape.iter().product(), &format!("input {} number {number}", value.name));
        Tensor::new(shape, wrapped(program.ring(), &values))
    });
    drawn.collect()
}
