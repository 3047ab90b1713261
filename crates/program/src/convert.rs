//! From the wire to the plain types. Only what the plain types cannot express is refused here; the rest is
//! [`crate::validate`]'s.

use covey_operators::wire;
use covey_ring::Ring;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::container::VERSION;
use crate::program::{Parts, Served, Serving};
use crate::validate::shown;
use crate::{
    Bound, BoundSource, Carried, Kind, Node, Op, Postprocess, ProgramError, ProgramHash, Value, ValueId, Visibility,
    WholeNumbers,
};

/// Most values a program may hold.
pub(crate) const MAX_VALUES: usize = 400_000;
/// Most nodes a program may hold.
pub(crate) const MAX_NODES: usize = 100_000;

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
        carried: program
            .carried
            .iter()
            .map(|pair| Carried {
                value: ValueId(pair.value),
                next: ValueId(pair.next),
                opens: pair.opens.map(ValueId),
            })
            .collect(),
        serving: program.serving.map(serving).transpose()?,
    })
}

fn serving(serving: wire::Serving) -> Result<Serving, ProgramError> {
    let bytes: [u8; 32] = serving
        .program
        .try_into()
        .map_err(|_| invalid("the program that it makes weights for has no hash of 32 bytes"))?;
    let served = |entry: wire::Served| Served { value: ValueId(entry.value), parameter: entry.parameter };
    Ok(Serving { program: ProgramHash(bytes), weights: serving.weights.into_iter().map(served).collect() })
}

/// Counts values and nodes without decoding them: an empty one takes two bytes on the wire and a hundred in memory, so
/// a hostile file could otherwise ask for far more memory than its own size.
fn check_counts(mut payload: &[u8]) -> Result<(), ProgramError> {
    let malformed = |error: prost::DecodeError| ProgramError::Malformed(error.to_string());
    let (mut values, mut nodes, mut carried, mut served) = (0, 0, 0, 0);
    while !payload.is_empty() {
        let (tag, wire_type) = decode_key(&mut payload).map_err(malformed)?;
        values += usize::from(tag == 5);
        nodes += usize::from(tag == 6);
        carried += usize::from(tag == 11);
        let field = payload;
        skip_field(wire_type, tag, &mut payload, DecodeContext::default()).map_err(malformed)?;
        if (tag, wire_type) == (12, WireType::LengthDelimited) {
            let mut inner = &field[..field.len() - payload.len()];
            decode_varint(&mut inner).map_err(malformed)?;
            while !inner.is_empty() {
                let (tag, wire_type) = decode_key(&mut inner).map_err(malformed)?;
                served += usize::from(tag == 2);
                skip_field(wire_type, tag, &mut inner, DecodeContext::default()).map_err(malformed)?;
            }
        }
    }
    for (count, what) in [(carried, "carries"), (served, "serves")] {
        if count > MAX_VALUES {
            return Err(invalid(format!("it {what} {count} values and at most {MAX_VALUES} are allowed")));
        }
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
        Ok(wire::value::Kind::Carried) => Kind::Carried,
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
        bits: value.bits,
        constant: (kind == Kind::Constant).then_some(value.constant),
        name,
    })
}

fn node(node: wire::Node) -> Result<Node, ProgramError> {
    let op = match node.op {
        Some(wire) => Op::decode(wire).map_err(|(op, problem)| {
            let node = shown(&node.name);
            ProgramError::Node { node, op: op.into(), problem }
        })?,
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
