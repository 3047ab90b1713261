//! A program as text.

use std::fmt::Write;

use crate::{BoundSource, Carried, Kind, Node, Postprocess, Program, Served, Value, ValueId, Visibility, WholeNumbers};

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
    for Carried { value, next, opens } in program.carried() {
        let then = opens.map_or(String::new(), |id| format!(", at the end {} opens", list(&[id])));
        writeln!(out, "carried {} from {} of the run before{then}", list(&[*value]), list(&[*next]))?;
    }
    if let Some(serving) = program.serving() {
        writeln!(out, "serves program {}", serving.program)?;
        for Served { value, parameter } in &serving.weights {
            writeln!(out, "  parameter '{parameter}' from {}", list(&[*value]))?;
        }
    }
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
        Kind::Carried => "carried",
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
    let bits = if value.bits { " bits" } else { "" };
    let whole = value.whole.as_ref().map(describe_whole).unwrap_or_default();
    format!(
        "{visibility} {kind} '{}' {} scale {} bound 2^{} {source}{bits}{range}{whole}",
        value.name,
        value.described(),
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
    let options = node.op.options();
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

fn list(ids: &[ValueId]) -> String {
    ids.iter().map(|id| format!("%{}", id.0)).collect::<Vec<_>>().join(", ")
}
