//! What the tests share: one program that uses every operation on integers.

use std::collections::BTreeMap;

use covey_operators::wire;
use covey_ring::Ring;
use prost::Message;

use crate::*;

mod carried;
mod certain;
mod corruption;
mod format;
mod invalid_nodes;
mod invalid_values;
mod random;
mod weights;
mod whole;

/// A program over Z_2^32 with every operation on integers in it.
fn sample() -> ProgramBuilder {
    let mut b = ProgramBuilder::new("sample", Ring::Pow2(32));
    let exact = Rounding::Exact;
    let image = b.input("image", &[2, 8, 8], 8);
    b.bound(image, 9);
    b.range(image, -1.0, 1.0);
    let kernel = b.parameter("kernel", &[4, 1, 3, 3], 8);
    let bias = b.parameter("bias", &[4], 16);
    let conv = op::Conv2d { window: Window::square(3, 1, 1), groups: 2 };
    let conv = b.node("conv", conv, &[image, kernel, bias]);
    let conv = b.node("conv", op::Truncate { bits: 8, rounding: exact }, &[conv]);
    let relu = b.node("relu", op::Relu, &[conv]);
    b.bound(relu, 12);
    let sums = b.node("mean", op::SumPool { window: Window::square(2, 2, 0) }, &[relu]);
    b.bound(sums, 14);
    let mean = op::MulShift { multipliers: vec![1 << 8], shift: 10, rounding: Rounding::Ulp };
    let mean = b.mul_shift("mean", mean, sums, 8);
    let tops = b.node("top", op::MaxPool { window: Window::square(3, 2, 1) }, &[relu]);
    let both = b.node("join", op::Concat { axis: 1 }, &[mean, tops]);
    let shift = b.constant("shift", &[8, 1, 1], 8, vec![-3, 0, 1, 2, 3, 4, 5, 6]);
    let sum = b.node("shift", op::Add, &[both, shift]);
    let gain = b.parameter("gain", &[8, 1, 1], 0);
    let scaled = b.node("gain", op::Mul, &[sum, gain]);
    let less = b.node("less", op::Sub, &[scaled, sum]);
    let part = b.node("part", op::DivExact { divisor: 3 }, &[less]);
    let pads = op::Pad { before: vec![0, 0, 1, 1], after: vec![0, 0, 0, 0], value: -7 };
    let padded = b.node("pad", pads, &[part]);
    let turned = b.node("turn", op::Transpose { permutation: vec![0, 1, 3, 2] }, &[padded]);
    let squares = b.node("square", op::Matmul, &[padded, turned]);
    let squares = b.node("square", op::Truncate { bits: 8, rounding: Rounding::Probabilistic }, &[squares]);
    let clipped = b.node("clip", op::Clip { low: Some(-256), high: None }, &[squares]);
    let flat = b.reshape("flat", clipped, &[8 * 25]);
    let weight = b.parameter("weight", &[200, 10], 8);
    let dense = b.node("dense", op::Dense, &[flat, weight]);
    let scores = b.node("lift", op::ShiftLeft { bits: 1 }, &[dense]);
    let class = b.node("class", op::ArgMax { axis: 1, select_last: false, keep_dims: true }, &[scores]);
    let axes = vec![vec![Some(10), None], vec![Some(3), Some(0), Some(1)]];
    let picked = b.node("pick", op::Gather { axes }, &[flat]);
    let sign = b.node("sign", op::LessThanZero, &[picked]);
    b.output_with(scores, Postprocess::Softmax);
    b.output(class);
    b.output(sign);
    b
}

/// Integers for every parameter of `program`, small and different.
fn some_weights(program: &Program) -> BTreeMap<String, Vec<i64>> {
    let tensor = |value: &Value| (0..value.elements() as i64).map(|index| index % 37 - 18).collect();
    program.parameters().map(|(_, value)| (value.name.clone(), tensor(value))).collect()
}

/// The sample with `change` made to its wire form, read back.
fn changed(change: impl FnOnce(&mut wire::Program)) -> Result<Program, ProgramError> {
    let mut wire = sample().wire();
    change(&mut wire);
    Program::from_bytes(&container::seal(&wire.encode_to_vec()))
}

/// One line of a table of invalid programs: what is changed, and the message due.
type Case = (fn(&mut wire::Program), &'static str);

fn refuses_each(cases: &[Case]) {
    for (index, (change, expected)) in cases.iter().enumerate() {
        match changed(change) {
            Ok(_) => panic!("case {index} was accepted; expected: {expected}"),
            Err(error) => assert_eq!(error.to_string(), *expected, "case {index}"),
        }
    }
}

/// The value called `name`.
fn value<'a>(program: &'a mut wire::Program, name: &str) -> &'a mut wire::Value {
    program.values.iter_mut().find(|value| value.name == name).expect("a value of the sample")
}

/// Id of the value called `name`.
fn id(program: &wire::Program, name: &str) -> u32 {
    program.values.iter().position(|value| value.name == name).expect("a value of the sample") as u32
}

/// The first node called `name`.
fn node<'a>(program: &'a mut wire::Program, name: &str) -> &'a mut wire::Node {
    program.nodes.iter_mut().find(|node| node.name == name).expect("a node of the sample")
}
