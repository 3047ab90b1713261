//! Which nodes join the one before them.

use covey_operators::Fusion;
use covey_operators::linear::may_join;
use covey_program::{Node, Op, Program, ValueId, Visibility};
use covey_protocols::clip::{Clipped, Ends};
use covey_protocols::{Comparison, ProtocolError, Rounding, Truncation};

use super::Step;

/// The later linear layer whose result alone is added to that of the layer at `index`, where a shift alone reads the sum and both may be
/// computed at once.
pub(super) fn summed_later(program: &Program, readers: &Readers, index: usize) -> Option<usize> {
    let nodes = program.nodes();
    let first = &nodes[index];
    let sum = readers.only(first.outputs[0])?;
    let (&[x, y], Fusion::Linear, Fusion::Addition) =
        (&nodes[sum].inputs[..], first.op.fusion(), nodes[sum].op.fusion())
    else {
        return None;
    };
    let other = if x == first.outputs[0] { y } else { x };
    let later = readers.makers[other.index()].filter(|&later| later > index)?;
    let shifted = readers.only(nodes[sum].outputs[0])?;
    let alone = readers.only(other) == Some(sum) && matches!(nodes[shifted].op.fusion(), Fusion::Shift { .. });
    let total = program.value(nodes[sum].outputs[0]);
    let alike =
        [x, y].iter().all(|&id| program.value(id).shape == total.shape && program.value(id).batched == total.batched);
    let values = [first, &nodes[later]].map(|node| node.inputs.iter().map(|&id| program.value(id)).collect::<Vec<_>>());
    let layers = [(first, &values[0]), (&nodes[later], &values[1])].map(|(node, inputs)| {
        let [x, weight, ..] = inputs[..] else { return (&inputs[..], Err(ProtocolError::Internal("a linear layer"))) };
        (&inputs[..], node.op.geometry(&x.full_shape(1), &weight.shape))
    });
    (alone && alike && nodes[later].op.fusion() == Fusion::Linear && may_join(layers)).then_some(later)
}

/// What `next` adds to the shifted result of `step`, if it is an addition of a value that is there before, and the shift with
/// room for the sum: floor(v / 2^f) + y = floor((v + y·2^f) / 2^f), and a sum below 2^b shifts back to below 2^(b+f).
pub(super) fn residual(
    program: &Program,
    step: &Step,
    next: &Node,
    computed: &[bool],
) -> Option<(ValueId, Truncation)> {
    let truncation = step.truncate.filter(|truncation| truncation.rounding == Rounding::Exact)?;
    let &[x, y] = &next.inputs[..] else { return None };
    if next.op.fusion() != Fusion::Addition || x == y {
        return None;
    }
    let other = if x == step.output { y } else { x };
    let sum = program.value(next.outputs[0]);
    let value = program.value(other);
    let fits = value.shape == sum.shape && value.batched == sum.batched && computed[other.index()];
    let bound = truncation.bound.max(sum.bound.bits + truncation.bits);
    (fits && bound + 2 <= program.ring().bits()).then_some((other, Truncation { bound, ..truncation }))
}

/// The rectifier that alone reads a value, or the shift that does and the rectifier behind it, and what is known before the rectifier.
pub(super) fn rectified(
    program: &Program,
    readers: &Readers,
    value: ValueId,
) -> Option<(Vec<usize>, Option<Truncation>, Comparison)> {
    let nodes = program.nodes();
    let first = readers.only(value)?;
    match nodes[first].op.fusion() {
        Fusion::Rectifier => {
            let Comparison { bound, certain } = program.value(value).comparison();
            Some((vec![first], None, Comparison { bound, certain: certain.min(program.certain_bits(value)) }))
        }
        Fusion::Shift { bits, rounding } => {
            let shifted = nodes[first].outputs[0];
            let rectifier = readers.only(shifted).filter(|&next| nodes[next].op.fusion() == Fusion::Rectifier)?;
            let truncation = Truncation { bits, rounding, bound: program.value(value).bound.bits };
            Some((vec![first, rectifier], Some(truncation), program.value(shifted).comparison()))
        }
        _ => None,
    }
}

/// The addition of a public half and the exact shift behind it that alone read a product of two secrets element by element. The sum may
/// be reshaped before the shift. A ReLU that is one with the shift saves more.
pub(super) fn shift_to_nearest(
    program: &Program,
    readers: &Readers,
    step: &Step,
    fuses_relu: bool,
) -> Option<(Vec<usize>, Truncation)> {
    let nodes = program.nodes();
    let secret = step.inputs.iter().all(|&id| program.value(id).visibility == Visibility::Secret);
    if step.op.fusion() != (Fusion::Product { elementwise: true }) || step.truncate.is_some() || !secret {
        return None;
    }
    let half = readers.only(step.output)?;
    let (sum, &[x, y]) = (nodes[half].outputs[0], &nodes[half].inputs[..]) else { return None };
    let mut others = vec![half, readers.only(sum)?];
    if matches!(nodes[others[1]].op, Op::Reshape(_)) {
        others.push(readers.only(nodes[others[1]].outputs[0])?);
    }
    let &shift = others.last()?;
    let rectifies = |next: usize| nodes[next].op.fusion() == Fusion::Rectifier;
    if fuses_relu && readers.only(nodes[shift].outputs[0]).is_some_and(rectifies) {
        return None;
    }
    let (Fusion::Addition, Fusion::Shift { bits, rounding: Rounding::Exact }) =
        (nodes[half].op.fusion(), nodes[shift].op.fusion())
    else {
        return None;
    };
    let constant = program.value(if x == step.output { y } else { x });
    let added = constant.constant.as_ref()?;
    let (product, bound) = (program.value(step.output), program.value(sum).bound.bits);
    let fits = product.shape == program.value(sum).shape && added.iter().all(|&added| added == 1 << (bits - 1));
    fits.then_some((others, Truncation { bits, rounding: Rounding::Exact, bound }))
}

/// The table of what a node clips to `ends`, and all nodes that join it: the table alone, or a second clip, the table and the addition
/// of its result to what was clipped first.
pub(super) fn clipped_table(
    readers: &Readers,
    nodes: &[Node],
    output: ValueId,
    ends: Ends,
) -> Option<(Clipped, usize, Vec<usize>)> {
    let is_table = |node: &usize| nodes[*node].op.fusion() == Fusion::Table;
    if let Some(table) = readers.only(output).filter(is_table) {
        return Some((Clipped { ends, adds_input: false }, table, vec![table]));
    }
    let [clip, sum] = readers.pair(output)?;
    let (Fusion::Clip(inner), Fusion::Addition) = (nodes[clip].op.fusion(), nodes[sum].op.fusion()) else {
        return None;
    };
    let table = readers.only(nodes[clip].outputs[0]).filter(is_table)?;
    let joined = readers.only(nodes[table].outputs[0]) == Some(sum);
    match (ends, inner) {
        (Ends { low, high: None }, Ends { low: None, high }) if joined => {
            Some((Clipped { ends: Ends { low, high }, adds_input: true }, table, vec![clip, table, sum]))
        }
        _ => None,
    }
}

/// Who reads each value, and who makes it.
pub(super) struct Readers {
    nodes: Vec<Vec<usize>>,
    makers: Vec<Option<usize>>,
    /// By the run's end: to be opened or carried to the next run.
    kept: Vec<bool>,
}

impl Readers {
    pub(super) fn of(program: &Program) -> Self {
        let count = program.values().len();
        let (nodes, makers) = (vec![Vec::new(); count], vec![None; count]);
        let mut readers = Readers { nodes, makers, kept: vec![false; count] };
        for (index, node) in program.nodes().iter().enumerate() {
            node.outputs.iter().for_each(|id| readers.makers[id.index()] = Some(index));
            node.inputs.iter().for_each(|id| readers.nodes[id.index()].push(index));
        }
        kept(program).for_each(|id| readers.kept[id.index()] = true);
        readers
    }

    /// The one node that reads the value, if it reads it once and nobody else does.
    pub(super) fn only(&self, id: ValueId) -> Option<usize> {
        match self.nodes[id.index()][..] {
            [node] if !self.kept[id.index()] => Some(node),
            _ => None,
        }
    }

    /// The two nodes that read the value, in order, if each reads it once and nobody else does.
    fn pair(&self, id: ValueId) -> Option<[usize; 2]> {
        match self.nodes[id.index()][..] {
            [first, second] if first != second && !self.kept[id.index()] => Some([first, second]),
            _ => None,
        }
    }
}

/// What is read when all steps are done.
pub(super) fn kept(program: &Program) -> impl Iterator<Item = ValueId> + '_ {
    let carried = program.carried().iter().map(|pair| pair.next);
    program.outputs().iter().copied().chain(carried).chain(program.kept_for_end())
}
