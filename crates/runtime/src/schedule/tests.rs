//! Schedules of small programs.

use covey_program::{ProgramBuilder, Window, op};
use covey_protocols::clip::Ends;
use covey_protocols::{Rounding, Table};
use covey_ring::Ring;

use super::*;

const RELU: Fusions = Fusions { relu: true, maxima: false, layers: false, parallel: false };

/// An input, and a dense layer of it with its shift.
fn layer() -> (ProgramBuilder, ValueId, ValueId) {
    let mut b = ProgramBuilder::new("fused", Ring::Pow2(32));
    let x = b.input("x", &[4], 8);
    let w = b.parameter("w", &[4, 4], 8);
    let product = b.node("fc", op::Dense, &[x, w]);
    b.bound(product, 24);
    let truncate = op::Truncate { bits: 8, rounding: Rounding::Exact };
    let short = b.node("fc", truncate, &[product]);
    b.bound(short, 16);
    (b, x, short)
}

/// The layer and its ReLU, in each of the ways they may meet.
fn program(read_twice: bool) -> Program {
    let (mut b, _, short) = layer();
    let relu = b.node("relu", op::Relu, &[short]);
    b.output(relu);
    if read_twice {
        let sum = b.node("sum", op::Add, &[short, relu]);
        b.output(sum);
    }
    b.build().unwrap()
}

#[test]
fn an_addition_joins_the_linear_layer_before_it_if_the_sum_leaves_room() {
    let schedule = |bits: u32| {
        let (mut b, x, short) = layer();
        let sum = b.node("sum", op::Add, &[x, short]);
        b.bound(sum, bits);
        let relu = b.node("relu", op::Relu, &[sum]);
        b.output(relu);
        Schedule::new(&b.build().unwrap(), RELU)
    };
    let joined = schedule(22);
    let [step] = joined.steps() else { panic!("{joined:?}") };
    assert_eq!((step.name.as_str(), step.truncate.unwrap().bound), ("fc+sum+relu", 30));
    assert_eq!((step.residual, step.relu.unwrap().bound), (Some(step.inputs[0]), 22));
    let names: Vec<_> = schedule(23).steps.into_iter().map(|step| step.name).collect();
    assert_eq!(names, ["fc", "sum", "relu"]);
}

#[test]
fn the_later_of_two_layers_takes_in_the_earlier_one_whose_result_is_added() {
    let steps = |layers: bool, read_twice: bool, grouped: bool| -> Vec<_> {
        let mut b = ProgramBuilder::new("branches", Ring::Pow2(32));
        let x = b.input("x", &[2, 3, 3], 8);
        let (w, v) = (b.parameter("w", &[2, 2, 3, 3], 8), b.parameter("v", &[2, 2 - usize::from(grouped), 1, 1], 8));
        let layer = |name: &str, weight, pad, groups| {
            let window = Window::square(if name == "long" { 3 } else { 1 }, 1, pad);
            (name.to_string(), op::Conv2d { window, groups }, [x, weight])
        };
        let (name, conv, inputs) = layer("long", w, 1, 1);
        let long = b.node(&name, conv, &inputs);
        b.bound(long, 20);
        let (name, conv, inputs) = layer("short", v, 0, 1 + usize::from(grouped));
        let short = b.node(&name, conv, &inputs);
        b.bound(short, 20);
        let sum = b.node("sum", op::Add, &[long, short]);
        b.bound(sum, 21);
        let shifted = b.node("sum", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[sum]);
        b.bound(shifted, 13);
        let relu = b.node("relu", op::Relu, &[shifted]);
        b.output(relu);
        if read_twice {
            b.output(long);
        }
        let schedule = Schedule::new(&b.build().unwrap(), Fusions { layers, ..RELU });
        let found = |step: Step| {
            let nodes: Vec<u32> = step.layers().map(|layer| layer.node).collect();
            (step.name, nodes, step.truncate.map(|truncate| truncate.bound), step.last_uses.len())
        };
        schedule.steps.into_iter().map(found).collect()
    };
    // x, both weights and the result, which no step reads and which is opened.
    assert_eq!(steps(true, false, false), [("long+short+sum+relu".to_string(), vec![1, 0], Some(21), 3)]);
    let names = |steps: Vec<(String, Vec<u32>, Option<u32>, usize)>| -> Vec<String> {
        steps.into_iter().map(|step| step.0).collect()
    };
    for apart in [steps(false, false, false), steps(true, true, false)] {
        assert_eq!(names(apart), ["long", "short", "sum", "sum+relu"]);
    }
    // An addition behind the shift stays by itself, and so does its ReLU.
    let mut b = ProgramBuilder::new("skipped", Ring::Pow2(32));
    let x = b.input("x", &[4], 8);
    b.bound(x, 8);
    let layers = ["w", "v"].map(|name| {
        let weight = b.parameter(name, &[4, 4], 8);
        let layer = b.node(name, op::Dense, &[x, weight]);
        b.bound(layer, 20);
        layer
    });
    let sum = b.node("sum", op::Add, &layers);
    b.bound(sum, 21);
    let shifted = b.node("sum", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[sum]);
    b.bound(shifted, 13);
    let skip = b.node("skip", op::Add, &[shifted, x]);
    b.bound(skip, 14);
    let relu = b.node("relu", op::Relu, &[skip]);
    b.output(relu);
    let schedule = Schedule::new(&b.build().unwrap(), Fusions { layers: true, ..RELU });
    let found: Vec<_> = schedule.steps.into_iter().map(|step| (step.name, step.residual)).collect();
    assert_eq!(found, ["w+v+sum", "skip", "relu"].map(|name| (name.to_string(), None)));
    // Groups are the protocol's to refuse: it computes the layers one by one.
    assert_eq!(names(steps(true, false, true)), ["long+short+sum+relu"]);
}

#[test]
fn a_maximum_takes_in_the_shift_and_the_relu_where_that_pays() {
    let names = |maxima| -> Vec<_> {
        let mut b = ProgramBuilder::new("pooled", Ring::Pow2(32));
        let x = b.input("x", &[1, 2, 2], 8);
        let window = Window::square(2, 2, 0);
        let largest = b.node("pool", op::MaxPool { window }, &[x]);
        b.bound(largest, 24);
        let short = b.node("pool", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[largest]);
        b.bound(short, 16);
        let relu = b.node("relu", op::Relu, &[short]);
        b.output(relu);
        let schedule = Schedule::new(&b.build().unwrap(), Fusions { maxima, ..RELU });
        schedule.steps.into_iter().map(|step| (step.name, step.truncate.is_some(), step.relu.is_some())).collect()
    };
    assert_eq!(names(true), [("pool+relu".to_string(), true, true)]);
    assert_eq!(names(false), [("pool".to_string(), false, false), ("pool+relu".to_string(), false, true)]);
}

#[test]
fn a_clip_joins_the_table_that_alone_reads_it() {
    let names = |read_twice| -> Vec<_> {
        let mut b = ProgramBuilder::new("clipped", Ring::Pow2(32));
        let x = b.input("x", &[4], 12);
        let clipped = b.node("clip", op::Clip { low: Some(-8), high: Some(7) }, &[x]);
        b.bound(clipped, 4);
        let (values, slopes) = (vec![1, 2, 3, 4], Vec::new());
        let table = Table { low: -8, step: 2, values, slopes, shift: 0 };
        let result = b.node("table", op::Table::new(table), &[clipped]);
        b.bound(result, 3);
        b.output(result);
        if read_twice {
            b.output(clipped);
        }
        let schedule = Schedule::new(&b.build().unwrap(), Fusions::default());
        schedule.steps.into_iter().map(|step| (step.name, step.clipped.is_some(), step.inputs[0] == x)).collect()
    };
    assert_eq!(names(false), [("clip+table".to_string(), true, true)]);
    let apart = [("clip".to_string(), false, true), ("table".to_string(), false, false)];
    assert_eq!(names(true), apart);
}

#[test]
fn a_half_and_the_shift_behind_it_join_their_product() {
    let steps = |half: i64, secret: bool, read_twice: bool, rectified: bool| -> Vec<_> {
        let mut b = ProgramBuilder::new("centred", Ring::Pow2(32));
        let x = b.input("x", &[4], 8);
        let y = if secret { b.input("y", &[4], 8) } else { b.constant("y", &[4], 8, vec![1, 2, 3, 4]) };
        let product = b.node("product", op::Mul, &[x, y]);
        b.bound(product, 20);
        let half = b.constant("half", &[], 16, vec![half]);
        let centred = b.node("centred", op::Add, &[product, half]);
        b.bound(centred, 21);
        let short = b.node("short", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[centred]);
        b.bound(short, 13);
        let last = if rectified { b.node("relu", op::Relu, &[short]) } else { short };
        b.output(last);
        if read_twice {
            b.output(product);
        }
        let schedule = Schedule::new(&b.build().unwrap(), RELU);
        schedule.steps.into_iter().map(|step| (step.to_nearest, step.truncate, step.output == short)).collect()
    };
    let truncation = Truncation { bits: 8, rounding: Rounding::Exact, bound: 21 };
    assert_eq!(steps(128, true, false, false), [(true, Some(truncation), true)]);
    let apart = [(false, None, false), (false, None, false), (false, None, true)];
    for other in [steps(127, true, false, false), steps(128, false, false, false), steps(128, true, true, false)] {
        assert_eq!(other, apart);
    }
    // The shift joins the ReLU behind it.
    let rectified = steps(128, true, false, true);
    assert_eq!(rectified.iter().map(|step| step.0).collect::<Vec<_>>(), [false; 3]);
}

#[test]
fn two_clips_and_an_addition_join_their_table() {
    let names = |low: Option<i64>, high: Option<i64>| -> Vec<_> {
        let mut b = ProgramBuilder::new("clipped", Ring::Pow2(32));
        let x = b.input("x", &[4], 12);
        let raised = b.node("gelu", op::Clip { low: Some(-8), high: None }, &[x]);
        b.bound(raised, 12);
        let inside = b.node("gelu", op::Clip { low, high }, &[raised]);
        b.bound(inside, 12);
        let table = Table { low: -8, step: 2, values: vec![1, 2, 3, 4], slopes: Vec::new(), shift: 0 };
        let drawn = b.node("gelu", op::Table::new(table), &[inside]);
        b.bound(drawn, 3);
        let sum = b.node("gelu", op::Add, &[raised, drawn]);
        b.bound(sum, 13);
        b.output(sum);
        let schedule = Schedule::new(&b.build().unwrap(), Fusions::default());
        schedule.steps.into_iter().map(|step| (step.clipped, step.inputs[0] == x, step.output == sum)).collect()
    };
    let ends = Ends { low: Some(-8), high: Some(7) };
    assert_eq!(names(None, Some(7)), [(Some(Clipped { ends, adds_input: true }), true, true)]);
    // The second clip and its table join, and nothing else.
    let apart = [(None, true, false), (Some(Clipped { ends, adds_input: false }), false, false), (None, false, true)];
    assert_eq!(names(Some(-8), Some(7)), apart);
}

#[test]
fn a_relu_joins_its_linear_layer_where_the_protocol_gains_by_it() {
    let names = |program: &Program, relu| -> Vec<String> {
        Schedule::new(program, Fusions { relu, ..Fusions::default() }).steps.into_iter().map(|step| step.name).collect()
    };
    assert_eq!(names(&program(false), false), ["fc", "relu"]);
    assert_eq!(names(&program(false), true), ["fc+relu"]);
    assert_eq!(names(&program(true), true), ["fc", "relu", "sum"]);
    let fused = Schedule::new(&program(false), RELU);
    let step = &fused.steps[0];
    assert_eq!((step.truncate.unwrap().bound, step.relu.unwrap().bound, step.node), (24, 16, 0));
    assert_eq!(step.output, program(false).outputs()[0]);
}

#[test]
fn layers_that_need_nothing_of_each_other_are_one_step() {
    let mut b = ProgramBuilder::new("branches", Ring::Pow2(32));
    let x = b.input("x", &[4], 8);
    b.bound(x, 8);
    let known = b.constant("known", &[4, 4], 8, (0..16).collect());
    let layer = |b: &mut ProgramBuilder, name: &str, x, weight: Option<ValueId>, rectified: bool| {
        let weight = weight.unwrap_or_else(|| b.parameter(&format!("{name}.weight"), &[4, 4], 8));
        let product = b.node(name, op::Dense, &[x, weight]);
        b.bound(product, 20);
        let short = b.node(name, op::Truncate { bits: 8, rounding: Rounding::Exact }, &[product]);
        b.bound(short, 12);
        if rectified { b.node(&format!("{name}.relu"), op::Relu, &[short]) } else { short }
    };
    let one = layer(&mut b, "one", x, None, true);
    let behind = layer(&mut b, "behind", one, None, true);
    let plain = layer(&mut b, "plain", x, None, false);
    let public = layer(&mut b, "public", x, Some(known), true);
    let negative = b.node("negative", op::Sub, &[plain, x]);
    b.bound(negative, 13);
    let other = layer(&mut b, "other", x, None, true);
    let later = layer(&mut b, "later", negative, None, true);
    for output in [behind, public, other, later] {
        b.output(output);
    }
    let program = b.build().unwrap();
    let names = |parallel| -> Vec<String> {
        let schedule = Schedule::new(&program, Fusions { parallel, ..RELU });
        schedule.steps.iter().map(|step| step.name.clone()).collect()
    };
    let apart = ["one+one.relu", "behind+behind.relu", "plain", "public+public.relu", "negative", "other+other.relu"];
    assert_eq!(names(false)[..6], apart);
    // "later" reads what is computed of "plain" alone, which no ReLU follows.
    let joined = [
        "one+one.relu+other+other.relu",
        "plain",
        "negative",
        "behind+behind.relu+later+later.relu",
        "public+public.relu",
    ];
    assert_eq!(names(true), joined);
    // What members read is freed behind the last of their steps.
    let schedule = Schedule::new(&program, Fusions { parallel: true, ..RELU });
    let freed = |id| schedule.steps.iter().position(|step| step.last_uses.contains(&id));
    assert_eq!([x, one, negative].map(freed), [Some(4), Some(3), Some(3)]);
    let outputs: Vec<ValueId> = schedule.steps[3].members().map(|step| step.output).collect();
    assert_eq!(outputs, [behind, later]);
}
