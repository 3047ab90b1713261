//! Between the wire and the plain types. Only what the plain types cannot express is refused here; the rest is
//! [`crate::validate`]'s.

use covey_ring::Ring;
use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};

use crate::container::VERSION;
use crate::program::Parts;
use crate::validate::shown;
use crate::wire::{self, node::Op as WireOp};
use crate::{
    Bound, BoundSource, Kind, Node, Op, Postprocess, ProgramError, Rounding, Value, ValueId, Visibility, WholeNumbers,
    Window,
};

/// Most values a program may hold.
pub(crate) const MAX_VALUES: usize = 400_000;
/// Most nodes a program may hold.
pub(crate) const MAX_NODES: usize = 100_000;
/// Largest kernel side, stride, pad or dilation.
pub(crate) const MAX_WINDOW: u32 = 65_535;

/// The program a payload encodes, not yet checked.
pub(crate) fn decode(payload: &[u8]) -> Result<Parts, ProgramError> {
    let malformed = |error: prost::DecodeError| ProgramError::Malformed(error.to_string());
    check_counts(payload)?;
    let program = wire::Program::decode(payload).map_err(malformed)?;
    if program.format_version > u32::from(VERSION) {
        return Err(ProgramError::Newer { version: program.format_version, known: VERSION.into() });
    }
    if program.format_version != u32::from(VERSION) {
        return Err(invalid(format!("its format version is {}: compile the model again", program.format_version)));
    }
    let ring = match program.ring.and_then(|ring| ring.kind) {
        Some(wire::ring::Kind::Pow2(bits)) => Ring::pow2(bits)?,
        Some(wire::ring::Kind::Odd(modulus)) => Ring::odd(modulus)?,
        None => return Err(invalid("it names no ring that this Covey knows: compile the model again, or upgrade")),
    };
    let postprocess = if program.postprocess.is_empty() {
        vec![Postprocess::Nothing; program.outputs.len()]
    } else {
        program.postprocess.into_iter().map(postprocess).collect::<Result<_, _>>()?
    };
    Ok(Parts {
        name: program.name,
        producer: program.producer,
        ring,
        values: program.values.into_iter().map(value).collect::<Result<_, _>>()?,
        nodes: program.nodes.into_iter().map(node).collect::<Result<_, _>>()?,
        inputs: program.inputs.into_iter().map(ValueId).collect(),
        outputs: program.outputs.into_iter().map(ValueId).collect(),
        postprocess,
    })
}

/// Counts values and nodes without decoding them: an empty one takes two bytes on the wire and a hundred in memory, so
/// a hostile file could otherwise ask for far more memory than its own size.
fn check_counts(mut payload: &[u8]) -> Result<(), ProgramError> {
    let malformed = |error: prost::DecodeError| ProgramError::Malformed(error.to_string());
    let (mut values, mut nodes) = (0, 0);
    while !payload.is_empty() {
        let (tag, wire_type) = decode_key(&mut payload).map_err(malformed)?;
        values += usize::from(tag == 5);
        nodes += usize::from(tag == 6);
        skip_field(wire_type, tag, &mut payload, DecodeContext::default()).map_err(malformed)?;
    }
    if values > MAX_VALUES {
        return Err(invalid(format!("it holds {values} values and at most {MAX_VALUES} are allowed")));
    }
    if nodes > MAX_NODES {
        return Err(invalid(format!("it holds {nodes} nodes and at most {MAX_NODES} are allowed")));
    }
    Ok(())
}

fn invalid(problem: impl Into<String>) -> ProgramError {
    ProgramError::Invalid(problem.into())
}

fn postprocess(number: i32) -> Result<Postprocess, ProgramError> {
    match wire::Postprocess::try_from(number) {
        Ok(wire::Postprocess::Nothing) => Ok(Postprocess::Nothing),
        Ok(wire::Postprocess::Softmax) => Ok(Postprocess::Softmax),
        Err(_) => Err(invalid(format!("postprocessing {number} is not known to this Covey: upgrade"))),
    }
}

fn value(value: wire::Value) -> Result<Value, ProgramError> {
    let name = value.name;
    let refuse = |problem: String| ProgramError::Value { value: shown(&name), problem };
    let unknown = |field: &str, number: i32| refuse(format!("{field} {number} is not known to this Covey: upgrade"));
    let kind = match wire::value::Kind::try_from(value.kind) {
        Ok(wire::value::Kind::Intermediate) => Kind::Intermediate,
        Ok(wire::value::Kind::Input) => Kind::Input,
        Ok(wire::value::Kind::Constant) => Kind::Constant,
        Ok(wire::value::Kind::Parameter) => Kind::Parameter,
        Ok(wire::value::Kind::State) => Kind::State,
        Err(_) => return Err(unknown("kind", value.kind)),
    };
    let visibility = match wire::value::Visibility::try_from(value.visibility) {
        Ok(wire::value::Visibility::Secret) => Visibility::Secret,
        Ok(wire::value::Visibility::Public) => Visibility::Public,
        Err(_) => return Err(unknown("visibility", value.visibility)),
    };
    let bound = value.bound.ok_or_else(|| refuse("has no bound: give it one when compiling".into()))?;
    let source = match wire::bound::Source::try_from(bound.source) {
        Ok(wire::bound::Source::Proved) => BoundSource::Proved,
        Ok(wire::bound::Source::Calibrated) => BoundSource::Calibrated,
        Err(_) => return Err(unknown("bound source", bound.source)),
    };
    let shape = value.shape.iter().map(|&size| usize::try_from(size));
    let shape =
        shape.collect::<Result<_, _>>().map_err(|_| refuse("a dimension exceeds this machine's word".into()))?;
    let whole = match value.whole {
        None => None,
        Some(whole) => {
            let shape: Result<Vec<usize>, _> = whole.shape.iter().map(|&size| usize::try_from(size)).collect();
            let shape = shape.map_err(|_| refuse("a dimension of its data exceeds this machine's word".into()))?;
            Some(WholeNumbers { shape, classes: whole.classes })
        }
    };
    if kind != Kind::Constant && !value.constant.is_empty() {
        return Err(refuse("carries constant data but is not a constant".into()));
    }
    Ok(Value {
        shape,
        batched: value.batched,
        scale: value.scale,
        kind,
        visibility,
        bound: Bound { bits: bound.bits, source },
        range: value.range.map(|range| (range.low, range.high)),
        whole,
        constant: (kind == Kind::Constant).then_some(value.constant),
        name,
    })
}

fn node(node: wire::Node) -> Result<Node, ProgramError> {
    let op = match node.op {
        Some(wire) => {
            let name = wire_name(&wire);
            op(wire).map_err(|problem| ProgramError::Node { node: shown(&node.name), op: name.into(), problem })?
        }
        None => {
            let problem = "its operation is not known to this Covey: upgrade, or compile the model again".into();
            return Err(ProgramError::Node { node: shown(&node.name), op: shown(&node.source_op), problem });
        }
    };
    Ok(Node {
        name: node.name,
        source_op: node.source_op,
        inputs: node.inputs.into_iter().map(ValueId).collect(),
        outputs: node.outputs.into_iter().map(ValueId).collect(),
        op,
    })
}

fn op(wire: WireOp) -> Result<Op, String> {
    Ok(match wire {
        WireOp::Conv2d(conv) => Op::Conv2d { window: window(conv.window)?, groups: conv.groups as usize },
        WireOp::Dense(_) => Op::Dense,
        WireOp::Truncate(op) => Op::Truncate { bits: op.bits, rounding: rounding(op.rounding)? },
        WireOp::MulShift(op) => {
            Op::MulShift { multipliers: op.multipliers, shift: op.shift, rounding: rounding(op.rounding)? }
        }
        WireOp::DivExact(op) => Op::DivExact { divisor: op.divisor },
        WireOp::Add(_) => Op::Add,
        WireOp::Sub(_) => Op::Sub,
        WireOp::Mul(_) => Op::Mul,
        WireOp::ShiftLeft(op) => Op::ShiftLeft { bits: op.bits },
        WireOp::Relu(_) => Op::Relu,
        WireOp::Clip(op) => Op::Clip { low: op.low, high: op.high },
        WireOp::MaxPool(op) => Op::MaxPool { window: window(op.window)? },
        WireOp::SumPool(op) => Op::SumPool { window: window(op.window)? },
        WireOp::Reshape(_) => Op::Reshape,
        WireOp::Transpose(op) => Op::Transpose { permutation: sizes(&op.permutation) },
        WireOp::Concat(op) => Op::Concat { axis: op.axis as usize },
        WireOp::Pad(op) => Op::Pad { before: sizes(&op.before), after: sizes(&op.after), value: op.value },
        WireOp::ArgMax(op) => {
            Op::ArgMax { axis: op.axis as usize, select_last: op.select_last, keep_dims: op.keep_dims }
        }
        WireOp::Matmul(_) => Op::Matmul,
        WireOp::Gather(op) => Op::Gather { axes: offsets(&op)? },
        WireOp::LessThanZero(_) => Op::LessThanZero,
    })
}

fn wire_name(wire: &WireOp) -> &'static str {
    match wire {
        WireOp::Conv2d(_) => "Conv2d",
        WireOp::MaxPool(_) => "MaxPool",
        WireOp::SumPool(_) => "SumPool",
        WireOp::Truncate(_) => "Truncate",
        WireOp::MulShift(_) => "MulShift",
        WireOp::Gather(_) => "Gather",
        // The others have no field that can fail to convert.
        _ => "operation",
    }
}

/// Offsets stand on the wire one higher, so that 0 is free for the absent one.
fn offsets(wire: &wire::Gather) -> Result<Vec<Vec<Option<u32>>>, String> {
    let due: u64 = wire.sizes.iter().copied().map(u64::from).sum();
    if due != wire.offsets.len() as u64 {
        return Err(format!("holds {} offsets where its sizes {:?} need {due}", wire.offsets.len(), wire.sizes));
    }
    let mut rest = &wire.offsets[..];
    let axes = wire.sizes.iter().map(|&size| {
        let (axis, others) = rest.split_at(size as usize);
        rest = others;
        axis.iter().map(|offset| offset.checked_sub(1)).collect()
    });
    Ok(axes.collect())
}

fn sizes(wire: &[u32]) -> Vec<usize> {
    wire.iter().map(|&size| size as usize).collect()
}

fn rounding(number: i32) -> Result<Rounding, String> {
    match wire::Rounding::try_from(number) {
        Ok(wire::Rounding::Exact) => Ok(Rounding::Exact),
        Ok(wire::Rounding::Ulp) => Ok(Rounding::Ulp),
        Ok(wire::Rounding::Probabilistic) => Ok(Rounding::Probabilistic),
        Err(_) => Err(format!("rounding {number} is not known to this Covey: upgrade")),
    }
}

/// Checks the numbers too: a [`Window`] with a zero stride would make its own methods fail.
fn window(wire: Option<wire::Window>) -> Result<Window, String> {
    let wire = wire.ok_or("has no window")?;
    fn field<const N: usize>(name: &str, wire: &[u32], least: u32) -> Result<[usize; N], String> {
        let numbers: [u32; N] =
            wire.try_into().map_err(|_| format!("its {name} hold {} numbers where {N} are due", wire.len()))?;
        match numbers.iter().find(|&&number| number < least || number > MAX_WINDOW) {
            Some(number) => Err(format!("its {name} hold {number}, outside {least}..={MAX_WINDOW}")),
            None => Ok(numbers.map(|number| number as usize)),
        }
    }
    Ok(Window {
        kernel: field("kernel sides", &wire.kernel, 1)?,
        strides: field("strides", &wire.strides, 1)?,
        pads: field("pads", &wire.pads, 0)?,
        dilations: field("dilations", &wire.dilations, 1)?,
    })
}

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
    }
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
    }
}

fn encode_node(node: &Node) -> wire::Node {
    wire::Node {
        name: node.name.clone(),
        source_op: node.source_op.clone(),
        inputs: node.inputs.iter().map(|id| id.0).collect(),
        outputs: node.outputs.iter().map(|id| id.0).collect(),
        op: Some(encode_op(&node.op)),
    }
}

fn encode_op(op: &Op) -> WireOp {
    match op {
        Op::Conv2d { window, groups } => {
            WireOp::Conv2d(wire::Conv2d { window: Some(encode_window(window)), groups: number(groups) })
        }
        Op::Dense => WireOp::Dense(wire::Dense {}),
        Op::Truncate { bits, rounding } => {
            WireOp::Truncate(wire::Truncate { bits: *bits, rounding: encode_rounding(*rounding) })
        }
        Op::MulShift { multipliers, shift, rounding } => WireOp::MulShift(wire::MulShift {
            multipliers: multipliers.clone(),
            shift: *shift,
            rounding: encode_rounding(*rounding),
        }),
        Op::DivExact { divisor } => WireOp::DivExact(wire::DivExact { divisor: *divisor }),
        Op::Add => WireOp::Add(wire::Add {}),
        Op::Sub => WireOp::Sub(wire::Sub {}),
        Op::Mul => WireOp::Mul(wire::Mul {}),
        Op::ShiftLeft { bits } => WireOp::ShiftLeft(wire::ShiftLeft { bits: *bits }),
        Op::Relu => WireOp::Relu(wire::Relu {}),
        Op::Clip { low, high } => WireOp::Clip(wire::Clip { low: *low, high: *high }),
        Op::MaxPool { window } => WireOp::MaxPool(wire::MaxPool { window: Some(encode_window(window)) }),
        Op::SumPool { window } => WireOp::SumPool(wire::SumPool { window: Some(encode_window(window)) }),
        Op::Reshape => WireOp::Reshape(wire::Reshape {}),
        Op::Transpose { permutation } => WireOp::Transpose(wire::Transpose { permutation: numbers(permutation) }),
        Op::Concat { axis } => WireOp::Concat(wire::Concat { axis: number(axis) }),
        Op::Pad { before, after, value } => {
            WireOp::Pad(wire::Pad { before: numbers(before), after: numbers(after), value: *value })
        }
        Op::ArgMax { axis, select_last, keep_dims } => {
            WireOp::ArgMax(wire::ArgMax { axis: number(axis), select_last: *select_last, keep_dims: *keep_dims })
        }
        Op::Matmul => WireOp::Matmul(wire::Matmul {}),
        Op::Gather { axes } => WireOp::Gather(wire::Gather {
            sizes: axes.iter().map(|axis| number(&axis.len())).collect(),
            offsets: axes.iter().flatten().map(|offset| offset.map_or(0, |offset| offset.saturating_add(1))).collect(),
        }),
        Op::LessThanZero => WireOp::LessThanZero(wire::LessThanZero {}),
    }
}

fn encode_rounding(rounding: Rounding) -> i32 {
    match rounding {
        Rounding::Exact => wire::Rounding::Exact.into(),
        Rounding::Ulp => wire::Rounding::Ulp.into(),
        Rounding::Probabilistic => wire::Rounding::Probabilistic.into(),
    }
}

fn encode_window(window: &Window) -> wire::Window {
    wire::Window {
        kernel: numbers(&window.kernel),
        strides: numbers(&window.strides),
        pads: numbers(&window.pads),
        dilations: numbers(&window.dilations),
    }
}

fn numbers(sizes: &[usize]) -> Vec<u32> {
    sizes.iter().map(number).collect()
}

fn number(size: &usize) -> u32 {
    u32::try_from(*size).unwrap_or(u32::MAX)
}
