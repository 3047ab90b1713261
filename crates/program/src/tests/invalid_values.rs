//! Programs wrong in themselves or in one value: each is refused with its own message.

use super::*;
use covey_operators::wire::{Bound, Range, Ring};

#[test]
fn the_program() {
    refuses_each(&[
        (|p| p.format_version = 0, "the program is invalid: its format version is 0: compile the model again"),
        (|p| p.name.clear(), "the program is invalid: its name is empty"),
        (|p| p.name = "a\nb".into(), "the program is invalid: its name holds control characters"),
        (
            |p| p.producer = "x".repeat(1025),
            "the program is invalid: its producer is 1025 bytes long and at most 1024 are allowed",
        ),
        (
            |p| p.ring = None,
            "the program is invalid: it names no ring that this Covey knows: compile the model again, or upgrade",
        ),
        (
            |p| p.ring = Some(Ring { kind: Some(wire::ring::Kind::Pow2(65)) }),
            "ring Z_2^65 is not supported: the width must be between 4 and 64 bits",
        ),
        (
            |p| p.ring = Some(Ring { kind: Some(wire::ring::Kind::Odd(10)) }),
            "ring Z_10 is not supported: the modulus must be odd, at least 3 and below 2^63",
        ),
        (|p| p.inputs.clear(), "the program is invalid: it needs at least one input, and one output or carried value"),
        (|p| p.outputs.clear(), "the program is invalid: it needs at least one input, and one output or carried value"),
        (|p| p.postprocess.push(0), "the program is invalid: it names 4 postprocessing steps for 3 outputs"),
        (|p| p.postprocess[0] = 9, "the program is invalid: postprocessing 9 is not known to this Covey: upgrade"),
    ]);
}

#[test]
fn values() {
    refuses_each(&[
        (|p| value(p, "kernel").name.clear(), "the program is invalid: the name of value 1 is empty"),
        (
            |p| value(p, "kernel").name = "\u{1b}[2J".into(),
            "the program is invalid: the name of value 1 holds control characters",
        ),
        (
            |p| value(p, "bias").name = "kernel".into(),
            "value 'kernel': two values have this name: names must be unique",
        ),
        (|p| value(p, "bias").kind = 6, "value 'bias': kind 6 is not known to this Covey: upgrade"),
        (|p| value(p, "bias").visibility = 2, "value 'bias': visibility 2 is not known to this Covey: upgrade"),
        (|p| value(p, "bias").bound = None, "value 'bias': has no bound: give it one when compiling"),
        (
            |p| value(p, "bias").bound = Some(Bound { bits: 3, source: 2 }),
            "value 'bias': bound source 2 is not known to this Covey: upgrade",
        ),
        (
            |p| value(p, "bias").bound = Some(Bound { bits: 32, source: 0 }),
            "value 'bias': is bounded by 2^32 and Z_2^32 holds bounds up to 2^31: compile with a larger ring or a \
             smaller scale",
        ),
        (
            |p| value(p, "bias").bits = true,
            "value 'bias': holds bits but no node computes it: give integers and compare them in the program",
        ),
        (
            |p| value(p, "relu:2").bits = true,
            "value 'relu:2': holds bits and has scale 8 and bound 2^12: they must be 0 and 2^1",
        ),
        (
            |p| {
                value(p, "sign:21").bits = true;
                value(p, "sign:21").bound = Some(Bound { bits: 1, source: 0 });
            },
            "node 'sign' (LessThanZero): computes integers but 'sign:21' is declared to hold bits",
        ),
        (|p| value(p, "bias").shape = vec![1; 9], "value 'bias': has 9 dimensions and at most 8 are allowed"),
        (|p| value(p, "bias").shape = vec![4, 0], "value 'bias': has an empty dimension in its shape [4, 0]"),
        (
            |p| value(p, "bias").shape = vec![1 << 32, 1 << 32],
            "value 'bias': of shape [4294967296, 4294967296] has more than 2^31 elements",
        ),
        (
            |p| value(p, "bias").shape = vec![(1 << 31) + 1],
            "value 'bias': of shape [2147483649] has more than 2^31 elements",
        ),
        (
            |p| value(p, "bias").scale = 63,
            "value 'bias': has scale 63 and at most 62 is allowed: compile with a smaller scale",
        ),
        (|p| value(p, "image").visibility = 1, "value 'image': is an input and must be secret"),
        (|p| value(p, "shift").visibility = 0, "value 'shift': is a constant and must be public: make it a parameter"),
        (|p| value(p, "bias").batched = true, "value 'bias': comes with the model and cannot have a batch dimension"),
        (
            |p| value(p, "bias").range = Some(Range { low: 0.0, high: 1.0 }),
            "value 'bias': declares a range but is not an input",
        ),
        (
            |p| value(p, "image").range = Some(Range { low: 1.0, high: 0.0 }),
            "value 'image': declares the range [1, 0], which is not an interval of finite numbers",
        ),
        (
            |p| value(p, "image").range = Some(Range { low: f64::NAN, high: 1.0 }),
            "value 'image': declares the range [NaN, 1], which is not an interval of finite numbers",
        ),
        (
            |p| value(p, "image").range = Some(Range { low: 0.0, high: 2.0 }),
            "value 'image': declares the range [0, 2] at scale 8, which its bound 2^9 does not hold: compile again",
        ),
        (|p| value(p, "bias").constant = vec![1], "value 'bias': carries constant data but is not a constant"),
        (
            |p| value(p, "shift").constant.truncate(7),
            "value 'shift': holds 7 constants where its shape [8, 1, 1] needs 8",
        ),
        (|p| value(p, "shift").constant[2] = 8, "value 'shift': holds 8 at index 2, outside its bound 2^3"),
        (|p| value(p, "shift").constant[2] = -8, "value 'shift': holds -8 at index 2, outside its bound 2^3"),
        (
            |p| value(p, "shift").constant[0] = i64::MIN,
            "value 'shift': holds -9223372036854775808 at index 0, outside its bound 2^3",
        ),
    ]);
}

#[test]
fn inputs_and_outputs() {
    refuses_each(&[
        (|p| p.inputs = vec![99], "the program is invalid: as an input refers to value 99 where there are 28"),
        (|p| p.inputs = vec![1], "value 'kernel': is listed among the inputs but is not of kind input"),
        (|p| p.inputs = vec![0, 0], "value 'image': is listed twice among the inputs"),
        (
            |p| {
                let mut extra = value(p, "image").clone();
                extra.name = "mask".into();
                p.values.push(extra);
            },
            "value 'mask': is of kind input but not listed among the inputs",
        ),
        (|p| p.outputs[0] = 99, "the program is invalid: as an output refers to value 99 where there are 28"),
        (
            |p| p.outputs[0] = 1,
            "value 'kernel': is listed among the outputs but no node computes it: opening it would reveal it as it is",
        ),
        (|p| p.outputs[0] = p.outputs[1], "value 'class:19': is listed twice among the outputs"),
        (|p| _ = p.nodes.pop(), "value 'sign:21': is never computed: no node writes it"),
        (
            |p| {
                // An ArgMax without its axis leaves one number a sample.
                let Some(wire::node::Op::ArgMax(op)) = &mut node(p, "class").op else { unreachable!() };
                op.keep_dims = false;
                value(p, "class:19").shape.clear();
                p.postprocess[1] = 1;
            },
            "value 'class:19': has no axis for the softmax of its owner",
        ),
    ]);
}
