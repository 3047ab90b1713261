//! From the plain types to the wire.

use covey_operators::wire;
use covey_ring::Ring;

use crate::container::VERSION;
use crate::program::{Carried, Parts, Served, Serving};
use crate::{BoundSource, Kind, Node, Postprocess, Value, ValueId, Visibility};

/// The wire form of a program. Numbers beyond the wire's width saturate, and are refused when read back.
pub(crate) fn encode(parts: &Parts) -> wire::Program {
    let ids = |ids: &[ValueId]| ids.iter().map(|id| id.0).collect();
    wire::Program {
        format_version: VERSION.into(),
        name: parts.name.clone(),
        producer: parts.producer.clone(),
        ring: Some(wire::Ring {
            kind: Some(match parts.ring {
                Ring::Pow2(bits) => wire::ring::Kind::Pow2(bits),
                Ring::Odd(modulus) => wire::ring::Kind::Odd(modulus),
            }),
        }),
        values: parts.values.iter().map(encode_value).collect(),
        nodes: parts.nodes.iter().map(encode_node).collect(),
        inputs: ids(&parts.inputs),
        outputs: ids(&parts.outputs),
        postprocess: parts.postprocess.iter().map(|&step| encode_postprocess(step).into()).collect(),
        certificate: None,
        carried: parts.carried.iter().map(encode_carried).collect(),
        serving: parts.serving.as_ref().map(encode_serving),
    }
}

fn encode_serving(serving: &Serving) -> wire::Serving {
    let served = |served: &Served| wire::Served { value: served.value.0, parameter: served.parameter.clone() };
    wire::Serving { program: serving.program.0.to_vec(), weights: serving.weights.iter().map(served).collect() }
}

fn encode_carried(pair: &Carried) -> wire::Carried {
    wire::Carried { value: pair.value.0, next: pair.next.0, opens: pair.opens.map(|id| id.0) }
}

fn encode_postprocess(step: Postprocess) -> wire::Postprocess {
    match step {
        Postprocess::Nothing => wire::Postprocess::Nothing,
        Postprocess::Softmax => wire::Postprocess::Softmax,
    }
}

fn encode_value(value: &Value) -> wire::Value {
    let kind = match value.kind {
        Kind::Intermediate => wire::value::Kind::Intermediate,
        Kind::Input => wire::value::Kind::Input,
        Kind::Constant => wire::value::Kind::Constant,
        Kind::Parameter => wire::value::Kind::Parameter,
        Kind::State => wire::value::Kind::State,
        Kind::Carried => wire::value::Kind::Carried,
    };
    let visibility = match value.visibility {
        Visibility::Secret => wire::value::Visibility::Secret,
        Visibility::Public => wire::value::Visibility::Public,
    };
    let source = match value.bound.source {
        BoundSource::Proved => wire::bound::Source::Proved,
        BoundSource::Calibrated => wire::bound::Source::Calibrated,
    };
    wire::Value {
        name: value.name.clone(),
        shape: value.shape.iter().map(|&size| size as u64).collect(),
        batched: value.batched,
        scale: value.scale,
        kind: kind.into(),
        visibility: visibility.into(),
        bound: Some(wire::Bound { bits: value.bound.bits, source: source.into() }),
        range: value.range.map(|(low, high)| wire::Range { low, high }),
        constant: value.constant.clone().unwrap_or_default(),
        whole: value.whole.as_ref().map(|whole| wire::WholeNumbers {
            shape: whole.shape.iter().map(|&size| size as u64).collect(),
            classes: whole.classes.clone(),
        }),
        bits: value.bits,
    }
}

fn encode_node(node: &Node) -> wire::Node {
    wire::Node {
        name: node.name.clone(),
        source_op: node.source_op.clone(),
        inputs: node.inputs.iter().map(|id| id.0).collect(),
        outputs: node.outputs.iter().map(|id| id.0).collect(),
        op: Some(node.op.encode()),
    }
}
