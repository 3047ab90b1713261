//! Every operation of the program format once through the executor, public operands included.

use crate::common;
use std::sync::Arc;

use crate::common::{Run, integers, integers_of, run_in, tensor};
use covey_program::{Program, ProgramBuilder, Rounding, Weights, op};
use covey_protocols::beaver::Beaver;
use covey_protocols::quad::Quad;
use covey_protocols::trio::Trio;
use covey_protocols::two_party::TwoParty;
use covey_protocols::{Phase, Table};
use covey_ring::{Ring, Tensor};
use covey_runtime::clear::run_clear;

const RING: Ring = Ring::Pow2(32);

/// In Trio and in Quad.
fn run_in_each(program: &Arc<Program>, weights: &Weights, inputs: &[Tensor<u32>]) -> [Run<u32>; 2] {
    [run_in::<Trio<u32>>, run_in::<Quad<u32>>].map(|run| run(program, weights, inputs, &[Phase::Joint]))
}

#[test]
fn operations_the_cnn_does_not_have() {
    let mut b = ProgramBuilder::new("operations", RING);
    let x = b.input("x", &[2, 3], 4);
    b.bound(x, 8);
    let scale = b.constant("scale", &[3], 4, vec![16, -8, 3]);
    let offset = b.constant("offset", &[2, 1], 4, vec![5, -100]);
    let doubled = b.node("doubled", op::Add, &[scale, scale]);
    b.bound(doubled, 6);
    let scaled = b.node("scale", op::Mul, &[x, doubled]);
    b.bound(scaled, 14);
    let scaled = b.node("scale", common::truncate(4), &[scaled]);
    b.bound(scaled, 10);
    let moved = b.node("offset", op::Sub, &[offset, scaled]);
    b.bound(moved, 11);
    let clipped = b.node("clip", op::Clip { low: Some(-60), high: Some(96) }, &[moved]);
    b.bound(clipped, 7);
    let pad = op::Pad { before: vec![0, 0, 1], after: vec![0, 1, 0], value: -3 };
    let padded = b.node("pad", pad, &[clipped]);
    b.bound(padded, 7);
    let turned = b.node("turn", op::Transpose { permutation: vec![0, 2, 1] }, &[padded]);
    b.bound(turned, 7);
    let product = b.node("product", op::Matmul, &[turned, padded]);
    b.bound(product, 16);
    let product = b.node("product", op::Truncate { bits: 4, rounding: Rounding::Exact }, &[product]);
    b.bound(product, 12);
    let both = b.node("join", op::Concat { axis: 1 }, &[product, padded]);
    b.bound(both, 12);
    b.output(both);
    let program = Arc::new(b.build().unwrap());
    let none = Weights::new(&program, Default::default()).unwrap();

    let values = integers(3, 2 * 6, 250);
    let x = tensor(RING, &[2, 2, 3], &values);
    let out = run_clear(&program, &none, &[x]).unwrap();
    assert_eq!(out.outputs[0].shape(), [2, 7, 4]);
    let mut due = Vec::new();
    for sample in values.chunks(6) {
        let mut padded = [[-3i64; 4]; 3];
        for row in 0..2 {
            for column in 0..3 {
                let scaled = (sample[row * 3 + column] * [32, -16, 6][column]) >> 4;
                padded[row][column + 1] = ([5, -100][row] - scaled).clamp(-60, 96);
            }
        }
        for i in 0..4 {
            due.extend((0..4).map(|j| (0..3).map(|k| padded[k][i] * padded[k][j]).sum::<i64>() >> 4));
        }
        due.extend(padded.concat());
    }
    let found: Vec<i64> = out.outputs[0].data().iter().map(|&word| RING.signed(word)).collect();
    assert_eq!(found, due);

    let x = [tensor::<u32>(RING, &[2, 2, 3], &values)];
    for run in run_in_each(&program, &none, &x) {
        assert_eq!(integers_of(&run.outputs[0], RING), integers_of(&out.outputs[0], RING));
    }
}

#[test]
fn gathers_signs_and_stacked_images() {
    let mut b = ProgramBuilder::new("moves", RING);
    let x = b.input("x", &[2, 1, 3, 3], 4);
    b.bound(x, 8);
    let w = b.parameter("w", &[2, 1, 2, 2], 4);
    b.bound(w, 4);
    let window = covey_program::Window::square(2, 1, 0);
    let conv = b.node("conv", op::Conv2d { window, groups: 1 }, &[x, w]);
    b.bound(conv, 14);
    let conv = b.node("conv", common::truncate(4), &[conv]);
    b.bound(conv, 10);
    let rectified = b.node("relu", op::Relu, &[conv]);
    b.bound(rectified, 10);
    let most = b.node("pool", op::MaxPool { window }, &[rectified]);
    b.bound(most, 10);
    let sign = b.node("sign", op::LessThanZero, &[conv]);
    b.bound(sign, 1);
    let axes = vec![vec![Some(8), None, Some(0)], vec![Some(3), Some(3), Some(5)]];
    let picked = b.node("pick", op::Gather { axes }, &[sign]);
    b.bound(picked, 1);
    b.output(most);
    b.output(sign);
    b.output(picked);
    let program = Arc::new(b.build().unwrap());
    let weights = common::weights(&program, 3);

    let values = integers(3, 3 * 18, 250);
    let out = run_clear(&program, &weights, &[tensor(RING, &[3, 2, 1, 3, 3], &values)]).unwrap();
    let found =
        |index: usize| -> Vec<i64> { out.outputs[index].data().iter().map(|&word| RING.signed(word)).collect() };
    let kernel = weights.get("w").unwrap();
    let (mut signs, mut tops) = (Vec::new(), Vec::new());
    for image in values.chunks(9) {
        for taps in kernel.chunks(4) {
            let at = |place: usize| {
                let pixel = place / 2 * 3 + place % 2;
                let read = [pixel, pixel + 1, pixel + 3, pixel + 4];
                read.iter().zip(taps).map(|(&place, tap)| image[place] * tap).sum::<i64>() >> 4
            };
            let results: Vec<i64> = (0..4).map(at).collect();
            signs.extend(results.iter().map(|&v| i64::from(v < 0)));
            tops.push(results.into_iter().max().unwrap().max(0));
        }
    }
    assert_eq!((out.outputs[0].shape(), found(0)), (&[3, 2, 2, 1, 1][..], tops));
    assert_eq!((out.outputs[1].shape(), found(1)), (&[3, 2, 2, 2, 2][..], signs.clone()));
    assert!(signs.contains(&0) && signs.contains(&1));
    let picked = signs.chunks(16).flat_map(|s| [s[11], s[11], s[13], 0, 0, 0, s[3], s[3], s[5]]).collect::<Vec<_>>();
    assert_eq!((out.outputs[2].shape(), found(2)), (&[3, 3, 3][..], picked));

    for run in run_in_each(&program, &weights, &[tensor(RING, &[3, 2, 1, 3, 3], &values)]) {
        for (due, got) in out.outputs.iter().zip(&run.outputs) {
            assert_eq!(integers_of(got, RING), integers_of(due, RING));
        }
    }
}

/// Two signs and what logic makes of them, each read more than once: selections by three bits, and two bits as integers.
fn bits() -> Arc<Program> {
    let mut b = ProgramBuilder::new("bits", RING);
    let (x, y) = (b.input("x", &[5, 7], 4), b.input("y", &[5, 7], 4));
    let negatives = [x, y].map(|id| {
        b.bound(id, 8);
        b.node("negative", op::IsNegative, &[id])
    });
    let [of_x, _] = negatives;
    let both = b.node("both", op::And, &negatives);
    let either = b.node("either", op::Or, &negatives);
    let neither = b.node("neither", op::Not, &[either]);
    let differ = b.node("differ", op::Not, &[both]);
    let differ = b.node("differ", op::And, &[differ, either]);
    for bit in [of_x, both, neither, differ] {
        let chosen = b.node("chosen", op::Select, &[bit, x, y]);
        b.bound(chosen, 8);
        b.output(chosen);
    }
    for bit in [neither, either] {
        let integer = b.node("integer", op::BitToInteger, &[bit]);
        b.bound(integer, 1);
        b.output(integer);
    }
    Arc::new(b.build().unwrap())
}

#[test]
fn bits_are_compared_once_and_select_often() {
    let program = bits();
    let none = Weights::new(&program, Default::default()).unwrap();
    // 105 elements of 3 samples, ends and zeros among them: planes that end within a word.
    let values: [Vec<i64>; 2] = [4, 5].map(|seed| {
        let mut values = integers(seed, 3 * 35, 255);
        values[..6].copy_from_slice(&[0, 255, -255, -1, 1, 0]);
        values
    });
    let shape = [3, 5, 7];
    let out = run_clear(&program, &none, &values.each_ref().map(|values| tensor(RING, &shape, values))).unwrap();
    let pairs = || values[0].iter().copied().zip(values[1].iter().copied());
    let bits: [fn(bool, bool) -> bool; 4] = [|x, _| x, |x, y| x & y, |x, y| !(x | y), |x, y| x ^ y];
    let chosen = bits.map(|bit| pairs().map(|(x, y)| if bit(x < 0, y < 0) { x } else { y }).collect::<Vec<_>>());
    let counted = [
        pairs().map(|(x, y)| i64::from(x >= 0 && y >= 0)).collect(),
        pairs().map(|(x, y)| i64::from(x < 0 || y < 0)).collect::<Vec<_>>(),
    ];
    for (due, output) in chosen.iter().chain(&counted).zip(&out.outputs) {
        let found: Vec<i64> = output.data().iter().map(|&word| RING.signed(word)).collect();
        assert_eq!((output.shape(), &found), (&shape[..], due));
    }
    assert_eq!(out.statistics.iter().find(|value| value.value == "both:2").unwrap().largest, 1);

    let inputs = values.each_ref().map(|values| tensor::<u32>(RING, &shape, values));
    let phases: [&[Phase]; 2] = [&[Phase::Joint], &[Phase::Preprocess, Phase::Online]];
    for run in [run_in::<Trio<u32>>, run_in::<Quad<u32>>, run_in::<TwoParty<u32>>, run_in::<Beaver<u32>>] {
        for phases in phases {
            let run = run(&program, &none, &inputs, phases);
            for (due, got) in out.outputs.iter().zip(&run.outputs) {
                assert_eq!(integers_of(got, RING), integers_of(due, RING));
            }
        }
    }
}

#[test]
fn bits_and_integers_are_told_apart() {
    let refused = |add: fn(&mut ProgramBuilder, [covey_program::ValueId; 3]) -> covey_program::ValueId| {
        let mut b = ProgramBuilder::new("refused", RING);
        let (x, short) = (b.input("x", &[4], 4), b.input("short", &[2], 4));
        let bit = b.node("sign", op::IsNegative, &[x]);
        let output = add(&mut b, [x, short, bit]);
        b.output(output);
        b.build().unwrap_err().to_string()
    };
    assert_eq!(
        refused(|b, [x, _, bit]| b.node("sum", op::Add, &[x, bit])),
        "node 'sum' (Add): takes integers and 'sign:0' holds bits: use BitToInteger"
    );
    assert_eq!(
        refused(|b, [x, _, bit]| b.node("both", op::And, &[bit, x])),
        "node 'both' (And): takes bits and 'x' holds integers: use IsNegative"
    );
    assert_eq!(
        refused(|_, [_, _, bit]| bit),
        "value 'sign:0': holds bits and is listed among the outputs: use BitToInteger and open its result"
    );
    assert_eq!(
        refused(|b, [x, short, bit]| b.node("choice", op::Select, &[bit, x, short])),
        "node 'choice' (Select): 'x' of shape [N, 4] and 'short' of shape [N, 2] differ: bits do not broadcast"
    );
    assert_eq!(
        refused(|b, [x, _, bit]| {
            b.bound(x, 31);
            b.node("choice", op::Select, &[bit, x, x])
        }),
        "node 'choice' (Select): the difference of 'x' and 'x' takes 32 bits, which leaves Z_2^32: compile with a larger \
         ring or a smaller scale"
    );
}

/// A line that falls, steps behind it, and what clear says of a value that no segment holds.
#[test]
fn tables() {
    let table = Table { low: -64, step: 6, values: vec![900, 10], slopes: vec![-9, 7], shift: 2 };
    let mut b = ProgramBuilder::new("tables", RING);
    let x = b.input("x", &[2, 64], 4);
    b.bound(x, 6);
    let line = b.node("line", op::Table::new(table.clone()), &[x]);
    b.bound(line, 8);
    let far = b.node("far", common::truncate(3), &[line]);
    b.bound(far, 5);
    let steps = Table { low: 0, step: 2, values: vec![3, 1, 4, 1, 5, 9, 2, 6], slopes: Vec::new(), shift: 0 };
    let stepped = b.node("steps", op::Table::new(steps.clone()), &[far]);
    b.bound(stepped, 4);
    b.value_mut(stepped).scale = 0;
    [line, stepped].into_iter().for_each(|id| b.output(id));
    let program = Arc::new(b.build().unwrap());
    let none = Weights::new(&program, Default::default()).unwrap();

    let values: Vec<i64> = (-64..64).map(|x| x.max(-63)).collect();
    let x = tensor(RING, &[1, 2, 64], &values);
    let out = run_clear(&program, &none, &[x]).unwrap();
    let lines: Vec<i64> =
        values.iter().map(|&x| if x < 0 { (900 - 9 * (x + 64)) >> 2 } else { (10 + 7 * x) >> 2 }).collect();
    assert_eq!(integers_of(&out.outputs[0], RING).1, lines);
    let due: Vec<i64> = lines.iter().map(|line| steps.values[(line >> 5) as usize]).collect();
    assert_eq!(integers_of(&out.outputs[1], RING).1, due);
    let x = [tensor::<u32>(RING, &[1, 2, 64], &values)];
    for run in run_in_each(&program, &none, &x) {
        assert_eq!(integers_of(&run.outputs[0], RING).1, lines);
        assert_eq!(integers_of(&run.outputs[1], RING).1, due);
    }

    let beyond = |low: i64| {
        let mut b = ProgramBuilder::new("beyond", RING);
        let x = b.input("x", &[2], 4);
        b.bound(x, 8);
        let line = b.node("line", op::Table::new(Table { low, ..table.clone() }), &[x]);
        b.bound(line, 8);
        b.output(line);
        let program = Arc::new(b.build().unwrap());
        let none = Weights::new(&program, Default::default()).unwrap();
        run_clear(&program, &none, &[tensor(RING, &[1, 2], &[0, 64])]).map(drop).unwrap_err().to_string()
    };
    assert_eq!(
        beyond(-64),
        "node 'line': the value 64 lies outside the table, which reaches from -64 to 63: the input is outside what the program was \
         compiled for; compile with a wider --input-range or more --calibration data"
    );
}

#[test]
fn tables_that_do_not_fit_are_refused() {
    let refused = |table: Table, bound: u32| {
        let mut b = ProgramBuilder::new("refused", RING);
        let x = b.input("x", &[4], 4);
        b.bound(x, 6);
        let out = b.node("curve", op::Table::new(table), &[x]);
        b.bound(out, bound);
        b.output(out);
        b.build().unwrap_err().to_string()
    };
    let sound = Table { low: -64, step: 6, values: vec![900, 10], slopes: vec![-9, 7], shift: 2 };
    assert_eq!(
        refused(Table { values: vec![1], ..sound.clone() }, 8),
        "node 'curve' (Table): holds 1 segments, where 2 to 4096 are allowed"
    );
    assert_eq!(
        refused(Table { slopes: vec![1], ..sound.clone() }, 8),
        "node 'curve' (Table): holds 1 slopes for 2 segments: give one each, or none"
    );
    assert_eq!(
        refused(Table { step: 30, ..sound.clone() }, 8),
        "node 'curve' (Table): has a domain of 2 segments of 2^30, which Z_2^32 has no room for: compile with a larger ring"
    );
    assert_eq!(
        refused(Table { step: u32::MAX, ..sound.clone() }, 8),
        "node 'curve' (Table): has a domain of 2 segments of 2^4294967295, which Z_2^32 has no room for: compile with a larger ring"
    );
    assert_eq!(
        refused(Table { values: vec![1 << 31, 0], ..sound.clone() }, 31),
        "node 'curve' (Table): computes values of 32 bits before a shift by 2, where Z_2^32 has room for 30: compile with a larger \
         ring or a smaller scale"
    );
    assert_eq!(refused(sound, 7), "node 'curve' (Table): puts 225 into 'curve:0', outside its bound 2^7");
}

/// The parameter that is added joins the layer before, and nothing else reads it.
#[test]
fn a_parameter_is_added_to_a_layer_without_a_batch() {
    let mut b = ProgramBuilder::new("residual", RING);
    let x = b.input("x", &[2, 3], 4);
    b.bound(x, 8);
    let rows = b.parameter("rows", &[2, 4], 4);
    let weight = b.parameter("weight", &[4, 3], 4);
    let added = b.parameter("added", &[2, 3], 4);
    [rows, weight, added].into_iter().for_each(|id| b.bound(id, 8));
    let product = b.node("fc", op::Dense, &[rows, weight]);
    b.bound(product, 18);
    let short = b.node("fc", common::truncate(4), &[product]);
    b.bound(short, 14);
    let sum = b.node("sum", op::Add, &[short, added]);
    b.bound(sum, 15);
    let out = b.node("out", op::Add, &[x, sum]);
    b.bound(out, 16);
    b.output(out);
    let program = Arc::new(b.build().unwrap());
    let values = |seed, count| integers(seed, count, 200);
    let (rows, weight, added, x) = (values(1, 8), values(2, 12), values(3, 6), values(4, 6));
    let named = [("rows", rows.clone()), ("weight", weight.clone()), ("added", added.clone())];
    let named = named.map(|(name, values)| (name.to_string(), values)).into_iter().collect();
    let weights = Weights::new(&program, named).unwrap();
    let clear = run_clear(&program, &weights, &[tensor(RING, &[1, 2, 3], &x)]).unwrap();
    let row =
        |i: usize, j: usize| ((0..4).map(|k| rows[i * 4 + k] * weight[k * 3 + j]).sum::<i64>() >> 4) + added[i * 3 + j];
    let due: Vec<i64> = (0..6).map(|at| x[at] + row(at / 3, at % 3)).collect();
    let found: Vec<i64> = clear.outputs[0].data().iter().map(|&word| RING.signed(word)).collect();
    assert_eq!(found, due);
    let x = [tensor::<u32>(RING, &[1, 2, 3], &x)];
    for run in run_in_each(&program, &weights, &x) {
        assert_eq!(integers_of(&run.outputs[0], RING), integers_of(&clear.outputs[0], RING));
    }
}
