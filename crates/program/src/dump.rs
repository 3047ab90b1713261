//! A program as text.

use std::fmt::Write;

use crate::infer::describe;
use crate::{
    BoundSource, Kind, Node, Op, Postprocess, Program, Rounding, Value, ValueId, Visibility, WholeNumbers, Window,
};

/// The listing of [`Program::dump`].
pub(crate) fn dump(program: &Program) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_program(&mut out, program);
    out
}

fn write_program(out: &mut String, program: &Program) -> std::fmt::Result {
    writeln!(out, "program '{}'  ring {}  hash {}", program.name(), program.ring(), program.hash())?;
    writeln!(out, "producer {}", program.producer())?;
    writeln!(out, "\nvalues")?;
    for (index, value) in program.values().iter().enumerate() {
        writeln!(out, "  %{index} {}", describe_value(value))?;
    }
    writeln!(out, "\nnodes")?;
    for node in program.nodes() {
        writeln!(out, "  {}", describe_node(node))?;
    }
    writeln!(out, "\ninputs {}", list(program.inputs()))?;
    for (&id, postprocess) in program.outputs().iter().zip(program.postprocess()) {
        let then = match postprocess {
            Postprocess::Nothing => "",
            Postprocess::Softmax => " then softmax in the clear",
        };
        writeln!(out, "output {}{then}", list(&[id]))?;
    }
    Ok(())
}

fn describe_value(value: &Value) -> String {
    let kind = match value.kind {
        Kind::Intermediate => "intermediate",
        Kind::Input => "input",
        Kind::Constant => "constant",
        Kind::Parameter => "parameter",
        Kind::State => "state",
    };
    let visibility = match value.visibility {
        Visibility::Secret => "secret",
        Visibility::Public => "public",
    };
    let source = match value.bound.source {
        BoundSource::Proved => "proved",
        BoundSource::Calibrated => "calibrated",
    };
    let range = value.range.map(|(low, high)| format!(" range [{low}, {high}]")).unwrap_or_default();
    let whole = value.whole.as_ref().map(describe_whole).unwrap_or_default();
    format!(
        "{visibility} {kind} '{}' {} scale {} bound 2^{} {source}{range}{whole}",
        value.name,
        describe(value),
        value.scale,
        value.bound.bits
    )
}

/// Few numbers of classes one by one, many by their largest.
fn describe_whole(whole: &WholeNumbers) -> String {
    let classes = match &whole.classes[..] {
        [0] => "as they are".to_string(),
        [classes] => format!("one-hot of {classes}"),
        all if all.len() <= 8 => format!("one-hot of {all:?}"),
        all => format!("one-hot of up to {}", all.iter().max().unwrap_or(&0)),
    };
    format!(" from whole numbers {:?} {classes}", whole.shape)
}

fn describe_node(node: &Node) -> String {
    let options = describe_options(&node.op);
    let options = if options.is_empty() { options } else { format!(" {{{options}}}") };
    format!(
        "{} = {}({}){options}  # '{}' {}",
        list(&node.outputs),
        node.op,
        list(&node.inputs),
        node.name,
        node.source_op
    )
    .trim_end()
    .to_string()
}

fn describe_options(op: &Op) -> String {
    match op {
        Op::Dense | Op::Add | Op::Sub | Op::Mul | Op::Relu | Op::Reshape | Op::Matmul | Op::LessThanZero => {
            String::new()
        }
        Op::Conv2d { window, groups } => format!("{}, groups {groups}", describe_window(window)),
        Op::MaxPool { window } | Op::SumPool { window } => describe_window(window),
        Op::Truncate { bits, rounding } => format!("bits {bits}, {}", describe_rounding(*rounding)),
        Op::MulShift { multipliers, shift, rounding } => {
            let multipliers = match multipliers[..] {
                [multiplier] => format!("multiplier {multiplier}"),
                _ => format!("multipliers {multipliers:?}"),
            };
            format!("{multipliers}, shift {shift}, {}", describe_rounding(*rounding))
        }
        Op::DivExact { divisor } => format!("divisor {divisor}"),
        Op::ShiftLeft { bits } => format!("bits {bits}"),
        Op::Clip { low, high } => {
            let end = |end: &Option<i64>| end.map_or("open".to_string(), |end| end.to_string());
            format!("low {}, high {}", end(low), end(high))
        }
        Op::Transpose { permutation } => format!("permutation {permutation:?}"),
        Op::Concat { axis } => format!("axis {axis}"),
        Op::Gather { axes } => axes.iter().map(|axis| describe_offsets(axis)).collect::<Vec<_>>().join(" x "),
        Op::Pad { before, after, value } => format!("before {before:?}, after {after:?}, value {value}"),
        Op::ArgMax { axis, select_last, keep_dims } => {
            let tie = if *select_last { "last" } else { "first" };
            format!("axis {axis}, {tie} wins{}", if *keep_dims { ", keep dims" } else { "" })
        }
    }
}

/// Few offsets one by one, many by their ends.
fn describe_offsets(axis: &[Option<u32>]) -> String {
    let one = |offset: &Option<u32>| offset.map_or("zero".to_string(), |offset| offset.to_string());
    match axis {
        [first, second, .., last] if axis.len() > 8 => {
            format!("[{}, {}, .., {}] ({})", one(first), one(second), one(last), axis.len())
        }
        _ => format!("[{}]", axis.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

fn describe_window(window: &Window) -> String {
    format!(
        "kernel {:?}, strides {:?}, pads {:?}, dilations {:?}",
        window.kernel, window.strides, window.pads, window.dilations
    )
}

fn describe_rounding(rounding: Rounding) -> &'static str {
    match rounding {
        Rounding::Exact => "exact",
        Rounding::Ulp => "ulp",
        Rounding::Probabilistic => "probabilistic",
    }
}

fn list(ids: &[ValueId]) -> String {
    ids.iter().map(|id| format!("%{}", id.0)).collect::<Vec<_>>().join(", ")
}
