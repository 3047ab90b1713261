//! How many samples fit one run.

use covey_operators::Fusion;
use covey_program::{Node, Program};

use crate::RuntimeError;

/// Most elements of any tensor of a run: their indices stay below 2^32 - 1.
const MAX_ELEMENTS: usize = 1 << 31;

/// Most samples one run of `program` takes.
fn batch_limit(program: &Program) -> usize {
    if program.nodes().iter().any(|node| has_computed_weight(program, node)) {
        return 1;
    }
    (MAX_ELEMENTS / largest(program).max(1)).max(1)
}

/// Elements of the largest tensor of a run, for one sample.
pub(crate) fn largest(program: &Program) -> usize {
    let values = program.values().iter().filter(|value| value.batched).map(|value| value.elements());
    let windows = program.nodes().iter().map(|node| elements_gathered(program, node));
    values.chain(windows).max().unwrap_or(1)
}

/// Refuses a batch that is empty or too large.
///
/// # Errors
/// The batch, and how many samples one run takes.
pub fn check_batch(program: &Program, batch: usize) -> Result<(), RuntimeError> {
    let limit = batch_limit(program);
    match batch {
        0 => Err(RuntimeError::EmptyBatch),
        _ if batch > limit => Err(RuntimeError::LargeBatch { program: program.name().into(), batch, limit }),
        _ => Ok(()),
    }
}

/// Whether it is a linear layer whose weight or bias is another one for each sample.
fn has_computed_weight(program: &Program, node: &Node) -> bool {
    node.op.fusion() == Fusion::Linear && node.inputs[1..].iter().any(|id| !program.value(*id).is_weight())
}

/// The largest tensor a node builds beside its operands and result, for one sample.
fn elements_gathered(program: &Program, node: &Node) -> usize {
    let (Some(&input), Some(&output)) = (node.inputs.first(), node.outputs.first()) else { return 0 };
    node.op.scratch_elements(program.value(input), program.value(output))
}
