//! Every check between what a file says and a [`crate::Program`]. Order: the program, its values, its inputs, its nodes
//! and its outputs, each from first to last; the first problem found is the one reported.

use std::collections::HashSet;

use covey_operators::largest_bound;

use crate::program::Parts;
use crate::{BoundSource, Carried, Kind, Node, Postprocess, ProgramError, Served, Serving, Value, ValueId, Visibility};

/// Most dimensions of a value, the batch included.
const MAX_RANK: usize = 8;
/// Most elements of a value, per sample.
const MAX_ELEMENTS: usize = 1 << 31;
/// Largest scale: integer / 2^scale must fit 64 bits.
const MAX_SCALE: u32 = 62;
/// Longest name, in bytes.
const MAX_NAME: usize = 1024;

/// Refuses what is not a valid program.
pub(crate) fn check(parts: &Parts) -> Result<(), ProgramError> {
    let invalid = |problem: String| Err(ProgramError::Invalid(problem));
    if let Err(problem) = check_name(&parts.name) {
        return invalid(format!("its name {problem}"));
    }
    if let Err(problem) = check_text(&parts.producer) {
        return invalid(format!("its producer {problem}"));
    }
    if parts.inputs.is_empty() || parts.outputs.is_empty() && parts.carried.is_empty() {
        return invalid("it needs at least one input, and one output or carried value".into());
    }
    if parts.postprocess.len() != parts.outputs.len() {
        return invalid(format!(
            "it names {} postprocessing steps for {} outputs",
            parts.postprocess.len(),
            parts.outputs.len()
        ));
    }
    check_values(parts)?;
    let mut defined = check_inputs(parts)?;
    for node in &parts.nodes {
        check_node(parts, node, &mut defined).map_err(|problem| ProgramError::Node {
            node: shown(&node.name),
            op: node.op.name().into(),
            problem,
        })?;
    }
    check_outputs(parts, &defined)?;
    check_carried(parts)?;
    check_serving(parts)
}

fn check_values(parts: &Parts) -> Result<(), ProgramError> {
    let mut names = HashSet::new();
    for (index, value) in parts.values.iter().enumerate() {
        let refuse = |problem: String| ProgramError::Value { value: shown(&value.name), problem };
        check_name(&value.name)
            .map_err(|problem| ProgramError::Invalid(format!("the name of value {index} {problem}")))?;
        if !names.insert(value.name.as_str()) {
            return Err(refuse("two values have this name: names must be unique".into()));
        }
        check_value(parts, value).map_err(refuse)?;
    }
    Ok(())
}

fn check_value(parts: &Parts, value: &Value) -> Result<(), String> {
    if value.rank() > MAX_RANK {
        return Err(format!("has {} dimensions and at most {MAX_RANK} are allowed", value.rank()));
    }
    if value.shape.contains(&0) {
        return Err(format!("has an empty dimension in its shape {}", value.described()));
    }
    let elements = value.shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if elements.is_none_or(|elements| elements > MAX_ELEMENTS) {
        return Err(format!("of shape {} has more than 2^31 elements", value.described()));
    }
    if value.scale > MAX_SCALE {
        return Err(format!(
            "has scale {} and at most {MAX_SCALE} is allowed: compile with a smaller scale",
            value.scale
        ));
    }
    let most = largest_bound(parts.ring);
    if value.bound.bits > most {
        return Err(format!(
            "is bounded by 2^{} and {} holds bounds up to 2^{most}: compile with a larger ring or a smaller scale",
            value.bound.bits, parts.ring
        ));
    }
    let secret = value.visibility == Visibility::Secret;
    match value.kind {
        Kind::Input if !secret => return Err("is an input and must be secret".into()),
        Kind::Carried if !secret => return Err("is carried from run to run and must be secret".into()),
        Kind::Constant if secret => return Err("is a constant and must be public: make it a parameter".into()),
        Kind::Constant | Kind::Parameter | Kind::State if value.batched => {
            return Err("comes with the model and cannot have a batch dimension".into());
        }
        _ => {}
    }
    check_bits(value)?;
    check_range(value)?;
    check_whole(value)?;
    check_constant(value)
}

fn check_bits(value: &Value) -> Result<(), String> {
    if !value.bits {
        return Ok(());
    }
    if value.kind != Kind::Intermediate {
        return Err("holds bits but no node computes it: give integers and compare them in the program".into());
    }
    if value.scale != 0 || value.bound.bits != 1 {
        return Err(format!(
            "holds bits and has scale {} and bound 2^{}: they must be 0 and 2^1",
            value.scale, value.bound.bits
        ));
    }
    Ok(())
}

fn check_range(value: &Value) -> Result<(), String> {
    let Some((low, high)) = value.range else { return Ok(()) };
    if value.kind != Kind::Input {
        return Err("declares a range but is not an input".into());
    }
    // Written so that NaN fails.
    if !(low.is_finite() && high.is_finite() && low <= high) {
        return Err(format!("declares the range [{low}, {high}], which is not an interval of finite numbers"));
    }
    let largest = (low.abs().max(high.abs()) * 2f64.powi(value.scale as i32)).round_ties_even();
    if largest >= 2f64.powi(value.bound.bits as i32) {
        return Err(format!(
            "declares the range [{low}, {high}] at scale {}, which its bound 2^{} does not hold: compile again",
            value.scale, value.bound.bits
        ));
    }
    Ok(())
}

fn check_whole(value: &Value) -> Result<(), String> {
    let Some(whole) = &value.whole else { return Ok(()) };
    if value.kind != Kind::Input {
        return Err("takes whole numbers but is not an input".into());
    }
    if value.scale != 0 {
        return Err(format!("takes whole numbers and has scale {}: it must be 0", value.scale));
    }
    if whole.shape.len() + usize::from(value.batched) > MAX_RANK || whole.shape.contains(&0) {
        return Err(format!(
            "takes whole numbers of shape {:?}: at most {MAX_RANK} dimensions, none empty, are allowed",
            whole.shape
        ));
    }
    let numbers = whole.shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    let Some(numbers) = numbers.filter(|&numbers| numbers <= MAX_ELEMENTS) else {
        return Err(format!("takes whole numbers of shape {:?}, more than 2^31", whole.shape));
    };
    let named = whole.classes.len();
    if named != 1 && named != numbers {
        return Err(format!(
            "says how many classes {named} of its {numbers} whole numbers have: say it of all or of each"
        ));
    }
    if whole.elements() != Some(value.elements()) {
        let due = whole.elements().map_or("more".to_string(), |elements| elements.to_string());
        return Err(format!("has {} elements and its whole numbers take {due}", value.elements()));
    }
    match value.range {
        None => Err("takes whole numbers but declares no range".into()),
        Some((low, high)) if whole.one_hot() && (low > 0.0 || high < 1.0) => {
            Err(format!("holds one-hot rows, and its range [{low}, {high}] does not hold 0 and 1"))
        }
        Some(_) => Ok(()),
    }
}

fn check_constant(value: &Value) -> Result<(), String> {
    let Some(data) = &value.constant else {
        return if value.kind == Kind::Constant { Err("is a constant without data".into()) } else { Ok(()) };
    };
    if data.len() != value.elements() {
        return Err(format!(
            "holds {} constants where its shape {} needs {}",
            data.len(),
            value.described(),
            value.elements()
        ));
    }
    match data.iter().position(|v| v.unsigned_abs() >> value.bound.bits != 0) {
        Some(index) => Err(format!("holds {} at index {index}, outside its bound 2^{}", data[index], value.bound.bits)),
        None => Ok(()),
    }
}

/// Checks the list of inputs and returns which values exist before the first node runs.
fn check_inputs(parts: &Parts) -> Result<Vec<bool>, ProgramError> {
    let mut listed = vec![false; parts.values.len()];
    for &id in &parts.inputs {
        let value = lookup(parts, id).map_err(|problem| ProgramError::Invalid(format!("as an input {problem}")))?;
        let refuse = |problem: &str| Err(ProgramError::Value { value: shown(&value.name), problem: problem.into() });
        if value.kind != Kind::Input {
            return refuse("is listed among the inputs but is not of kind input");
        }
        if std::mem::replace(&mut listed[id.index()], true) {
            return refuse("is listed twice among the inputs");
        }
    }
    for (value, &listed) in parts.values.iter().zip(&listed) {
        if value.kind == Kind::Input && !listed {
            let problem = "is of kind input but not listed among the inputs".into();
            return Err(ProgramError::Value { value: shown(&value.name), problem });
        }
    }
    Ok(parts.values.iter().map(|value| value.kind != Kind::Intermediate).collect())
}

fn check_node(parts: &Parts, node: &Node, defined: &mut [bool]) -> Result<(), String> {
    check_name(&node.name).map_err(|problem| format!("its name {problem}"))?;
    check_text(&node.source_op).map_err(|problem| format!("its model operator {problem}"))?;
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for &id in &node.inputs {
        let value = lookup(parts, id)?;
        if !defined[id.index()] {
            return Err(format!("reads '{}' before any node has computed it", value.name));
        }
        inputs.push(value);
    }
    let [id] = node.outputs[..] else {
        return Err(format!("writes {} values and not one", node.outputs.len()));
    };
    let output = lookup(parts, id)?;
    if !matches!(output.kind, Kind::Intermediate | Kind::State) {
        return Err(format!("writes '{}', which is an input, constant or parameter", output.name));
    }
    if output.kind == Kind::Intermediate && std::mem::replace(&mut defined[id.index()], true) {
        return Err(format!("writes '{}', which an earlier node has computed", output.name));
    }
    for (position, input) in inputs.iter().enumerate() {
        match (node.op.takes_bits(position), input.bits) {
            (false, true) => return Err(format!("takes integers and '{}' holds bits: use BitToInteger", input.name)),
            (true, false) => return Err(format!("takes bits and '{}' holds integers: use IsNegative", input.name)),
            _ => {}
        }
    }
    if node.op.depends_on_run() && parts.carried.is_empty() {
        let problem = "depends on the number of the run in a sequence, and the program carries nothing from run to run";
        return Err(format!("{problem}: leave it out, or carry a value"));
    }
    let computed = node.op.result_type(&inputs, output, parts.ring)?;
    if (computed.batched, &computed.shape) != (output.batched, &output.shape) {
        let shown = Value { batched: computed.batched, shape: computed.shape, ..output.clone() };
        return Err(format!(
            "computes shape {} but '{}' declares {}",
            shown.described(),
            output.name,
            output.described()
        ));
    }
    if computed.scale != output.scale {
        return Err(format!("computes scale {} but '{}' declares {}", computed.scale, output.name, output.scale));
    }
    if computed.bits != output.bits {
        let (is, declared) = if computed.bits { ("bits", "integers") } else { ("integers", "bits") };
        return Err(format!("computes {is} but '{}' is declared to hold {declared}", output.name));
    }
    // A public result of secret operands would have to be opened.
    let secret = inputs.iter().any(|input| input.visibility == Visibility::Secret);
    if secret != (output.visibility == Visibility::Secret) {
        let (is, declared) = if secret { ("secret", "public") } else { ("public", "secret") };
        return Err(format!("its operands make the result {is} but '{}' is declared {declared}", output.name));
    }
    // Integers that the operation itself puts into its result must lie inside the result's bound.
    let largest = node.op.largest_constant(&inputs);
    if largest >> output.bound.bits != 0 {
        return Err(format!("puts {largest} into '{}', outside its bound 2^{}", output.name, output.bound.bits));
    }
    Ok(())
}

fn check_outputs(parts: &Parts, defined: &[bool]) -> Result<(), ProgramError> {
    for (value, &defined) in parts.values.iter().zip(defined) {
        if !defined {
            let problem = "is never computed: no node writes it".into();
            return Err(ProgramError::Value { value: shown(&value.name), problem });
        }
    }
    let mut listed = HashSet::new();
    for (&id, &postprocess) in parts.outputs.iter().zip(&parts.postprocess) {
        let value = lookup(parts, id).map_err(|problem| ProgramError::Invalid(format!("as an output {problem}")))?;
        let refuse = |problem: &str| Err(ProgramError::Value { value: shown(&value.name), problem: problem.into() });
        if value.kind != Kind::Intermediate {
            return refuse("is listed among the outputs but no node computes it: opening it would reveal it as it is");
        }
        if value.bits {
            return refuse("holds bits and is listed among the outputs: use BitToInteger and open its result");
        }
        if !listed.insert(id) {
            return refuse("is listed twice among the outputs");
        }
        if postprocess == Postprocess::Softmax && value.shape.is_empty() {
            return refuse("has no axis for the softmax of its owner");
        }
    }
    Ok(())
}

/// What a run leaves to the next must be what the next run takes it for.
fn check_carried(parts: &Parts) -> Result<(), ProgramError> {
    let mut listed = HashSet::new();
    for &Carried { value: id, next, opens } in &parts.carried {
        let of = |id| lookup(parts, id).map_err(|problem| ProgramError::Invalid(format!("as carried {problem}")));
        let (value, next, opens) = (of(id)?, of(next)?, opens.map(of).transpose()?);
        let refuse = |problem: String| Err(ProgramError::Value { value: shown(&value.name), problem });
        if value.kind != Kind::Carried {
            return refuse("is listed among the carried values but is not of kind carried".into());
        }
        if !listed.insert(id) {
            return refuse("is listed twice among the carried values".into());
        }
        let next_name = shown(&next.name);
        if !is_computed(next) {
            return refuse(format!("is next '{next_name}', which is no secret integer that a node computes"));
        }
        if let Some(opens) = opens.filter(|opens| !is_computed(opens)) {
            let name = shown(&opens.name);
            return refuse(format!("opens '{name}' at the end, which is no secret integer that a node computes"));
        }
        if (next.batched, &next.shape, next.scale) != (value.batched, &value.shape, value.scale) {
            return refuse(format!(
                "of shape {} and scale {} is next '{next_name}' of shape {} and scale {}",
                value.described(),
                value.scale,
                next.described(),
                next.scale
            ));
        }
        let proved = |value: &Value| value.bound.source == BoundSource::Proved;
        if next.bound.bits > value.bound.bits || (proved(value) && !proved(next)) {
            return refuse(format!(
                "has a bound that '{next_name}', which it is next, does not prove: compile with a wider --input-range of it"
            ));
        }
    }
    match parts
        .values
        .iter()
        .enumerate()
        .find(|(id, value)| value.kind == Kind::Carried && !listed.contains(&ValueId(*id as u32)))
    {
        None => Ok(()),
        Some((_, value)) => Err(ProgramError::Value {
            value: shown(&value.name),
            problem: "is of kind carried but not listed among the carried values".into(),
        }),
    }
}

/// What becomes weights of another program is kept from a run, in the ring, once.
fn check_serving(parts: &Parts) -> Result<(), ProgramError> {
    let Some(Serving { weights, .. }) = &parts.serving else { return Ok(()) };
    let invalid = |problem: String| Err(ProgramError::Invalid(problem));
    if parts.carried.is_empty() || weights.is_empty() {
        return invalid("it makes weights for another program, and carries or names none".into());
    }
    let (mut values, mut names) = (HashSet::new(), HashSet::new());
    for Served { value: id, parameter } in weights {
        let name = shown(parameter);
        if let Err(problem) = check_name(parameter) {
            return invalid(format!("the name '{name}' of a parameter of another program {problem}"));
        }
        let value = lookup(parts, *id)
            .map_err(|problem| ProgramError::Invalid(format!("as parameter '{name}' of another program {problem}")))?;
        let refuse = |problem: String| Err(ProgramError::Value { value: shown(&value.name), problem });
        if !is_computed(value) || !value.batched {
            return refuse(format!(
                "becomes parameter '{name}' of another program, and is no secret integers of a run that a node computes"
            ));
        }
        if !values.insert(*id) || !names.insert(parameter.as_str()) {
            return refuse(format!("becomes parameter '{name}' of another program, and one of them is listed twice"));
        }
    }
    Ok(())
}

/// Whether a node computes secret integers.
fn is_computed(value: &Value) -> bool {
    value.kind == Kind::Intermediate && !value.bits && value.visibility == Visibility::Secret
}

fn lookup(parts: &Parts, id: ValueId) -> Result<&Value, String> {
    let count = parts.values.len();
    parts.values.get(id.index()).ok_or_else(|| format!("refers to value {} where there are {count}", id.0))
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() { Err("is empty".into()) } else { check_text(name) }
}

/// Names stand in one-line messages and logs, so they may not break lines or steer a terminal.
fn check_text(text: &str) -> Result<(), String> {
    if text.len() > MAX_NAME {
        return Err(format!("is {} bytes long and at most {MAX_NAME} are allowed", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("holds control characters".into());
    }
    Ok(())
}

/// A name that may not have been checked yet, fit for a message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(200).collect()
}
