//! What runs when: the program's nodes as steps, neighbours fused, values freed as soon as nothing needs them.

use std::collections::HashMap;

use covey_operators::Fusion;
use covey_program::{Kind, Node, Op, Program, Value, ValueId};
use covey_protocols::clip::Clipped;
use covey_protocols::{Comparison, Truncation};

mod fusions;
mod parallel;

use fusions::{Readers, clipped_table, kept, rectified, residual, shift_to_nearest, summed_later};

/// The node number under which inputs are received.
pub const INPUTS: u32 = u32::MAX - 1;
/// The node number under which outputs are opened.
pub const OUTPUTS: u32 = u32::MAX - 2;

/// What the executor runs at once: one node, a product with what follows it, several of those, or a table with its clips.
#[derive(Clone, Debug)]
pub struct Step {
    /// Index of the (first) node in the program: the step's number in errors, meter and plan.
    pub node: u32,
    /// The model's name of the node; names of a fused ReLU are joined with `+`.
    pub name: String,
    /// The model's operator, or the program's where the model has none.
    pub op_name: String,
    /// What is computed (first, but for a clip).
    pub op: Op,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// The linear layer whose result is added to this one's, before the shift.
    pub other: Option<Box<Step>>,
    /// Layers that are computed at the same time, each with its own node and result.
    pub parallel: Vec<Step>,
    /// The shift fused into a product.
    pub truncate: Option<Truncation>,
    /// Whether half of what that shift leaves as one is added before it.
    pub to_nearest: bool,
    /// The addition fused into a linear layer after its shift: the other operand.
    pub residual: Option<ValueId>,
    /// The ReLU fused into a linear layer or a shift.
    pub relu: Option<Comparison>,
    /// The clips before a table, fused into it, and the addition after it.
    pub clipped: Option<Clipped>,
    /// The result.
    pub output: ValueId,
    /// What it reads and several products multiply, to be opened before it where the protocol's products open operands.
    pub opens: Vec<ValueId>,
    /// Values no later step reads.
    pub last_uses: Vec<ValueId>,
}

/// What a protocol gains by fusing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fusions {
    /// ReLUs with linear layers and shifts.
    pub relu: bool,
    /// Shifts and ReLUs with maxima.
    pub maxima: bool,
    /// Linear layers whose results are added.
    pub layers: bool,
    /// Linear layers that do not depend on each other.
    pub parallel: bool,
}

/// The steps of a program, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    steps: Vec<Step>,
}

impl Schedule {
    /// The steps, in the order they run.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// A product takes in the shift that follows it, and a linear layer, where the protocol gains by it, the addition of a
    /// value that is there already and the ReLU after that. A table takes in the clips before it, and
    /// the addition of what the first of two clips gives. A maximum takes in a shift and the ReLU behind it, and the later of two linear
    /// layers whose results are added the earlier one, where the protocol gains by it. So do linear layers that need nothing of each other:
    /// the first takes in the others.
    pub fn new(program: &Program, fusions: Fusions) -> Self {
        let Fusions { relu: fuses_relu, maxima: joins_maxima, .. } = fusions;
        let readers = Readers::of(program);
        let nodes = program.nodes();
        let mut fused = vec![false; nodes.len()];
        let mut steps = Vec::with_capacity(nodes.len());
        let given =
            |value: &Value| matches!(value.kind, Kind::Input | Kind::Parameter | Kind::Constant | Kind::Carried);
        let mut computed: Vec<bool> = program.values().iter().map(given).collect();
        // The layers that a later one takes in, by that one's node.
        let mut taken: HashMap<usize, Step> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            if fused[index] {
                continue;
            }
            let mut step = plain_step(index, node);
            let part = node.op.fusion();
            if let (true, Some(later)) = (fusions.layers, summed_later(program, &readers, index)) {
                taken.insert(later, step);
                continue;
            }
            if let (Some(other), Some(sum)) = (taken.remove(&index), readers.only(step.output)) {
                step.name = format!("{}+{}", other.name, step.name);
                step.other = Some(Box::new(other));
                step.join(&nodes[sum]);
                fused[sum] = true;
            }
            if let Fusion::Clip(ends) = part
                && let Some((clipped, table, others)) = clipped_table(&readers, nodes, step.output, ends)
            {
                step.op = nodes[table].op.clone();
                step.clipped = Some(clipped);
                for next in others {
                    step.join(&nodes[next]);
                    fused[next] = true;
                }
            }
            if matches!(part, Fusion::Linear | Fusion::Product { .. })
                && let Some(next) = readers.only(step.output)
                && let Fusion::Shift { bits, rounding } = nodes[next].op.fusion()
            {
                let bound = program.value(step.output).bound.bits;
                step.truncate = Some(Truncation { bits, rounding, bound });
                step.output = nodes[next].outputs[0];
                fused[next] = true;
            }
            if let (true, Fusion::Maximum, Some((others, truncation, relu))) =
                (joins_maxima, part, rectified(program, &readers, step.output))
            {
                (step.truncate, step.relu) = (truncation, Some(relu));
                for next in others {
                    step.join(&nodes[next]);
                    fused[next] = true;
                }
            }
            if let Some((others, truncation)) = shift_to_nearest(program, &readers, &step, fuses_relu) {
                step.truncate = Some(truncation);
                step.to_nearest = true;
                for next in others {
                    step.output = nodes[next].outputs[0];
                    fused[next] = true;
                }
            }
            if let (true, Fusion::Linear, Some(next)) =
                (fuses_relu && step.other.is_none(), part, readers.only(step.output))
                && let Some((other, truncation)) = residual(program, &step, &nodes[next], &computed)
            {
                step.truncate = Some(truncation);
                step.residual = Some(other);
                step.join(&nodes[next]);
                fused[next] = true;
            }
            if fuses_relu
                && matches!(part, Fusion::Linear | Fusion::Shift { .. })
                && let Some(next) = readers.only(step.output)
                && nodes[next].op.fusion() == Fusion::Rectifier
            {
                step.relu = Some(program.value(step.output).comparison());
                step.join(&nodes[next]);
                fused[next] = true;
            }
            computed[step.output.index()] = true;
            steps.push(step);
        }
        if fusions.parallel {
            steps = parallel::put_together(program, steps);
        }
        crate::factors::open_once(program, &mut steps);
        free_after_last_use(program, &mut steps);
        Schedule { steps }
    }
}

impl Step {
    /// The linear layers that it computes, if any: its own first.
    pub fn layers(&self) -> impl Iterator<Item = &Step> {
        let linear = |step: &&Step| step.op.fusion() == Fusion::Linear;
        self.members().filter(linear).chain(self.other.as_deref())
    }

    /// The step itself and those that are computed at the same time.
    pub fn members(&self) -> impl Iterator<Item = &Step> {
        std::iter::once(self).chain(&self.parallel)
    }

    /// Every value it reads or computes.
    fn values(&self) -> Vec<ValueId> {
        self.members().flat_map(|step| step.operands().chain([step.output])).collect()
    }

    /// Every value it reads, without those of steps that are computed at the same time.
    fn operands(&self) -> impl Iterator<Item = ValueId> {
        let others = self.other.iter().flat_map(|other| &other.inputs);
        self.inputs.iter().chain(others).chain(&self.residual).copied()
    }

    /// Takes in `node`, which reads this step's result.
    fn join(&mut self, node: &Node) {
        self.output = node.outputs[0];
        if node.name != self.name {
            self.name = format!("{}+{}", self.name, node.name);
        }
    }
}

fn plain_step(index: usize, node: &Node) -> Step {
    let op_name = if node.source_op.is_empty() { node.op.name() } else { node.source_op.as_str() };
    Step {
        node: index as u32,
        name: node.name.clone(),
        op_name: op_name.to_string(),
        op: node.op.clone(),
        inputs: node.inputs.clone(),
        other: None,
        parallel: Vec::new(),
        truncate: None,
        to_nearest: false,
        residual: None,
        relu: None,
        clipped: None,
        output: node.outputs[0],
        opens: Vec::new(),
        last_uses: Vec::new(),
    }
}

/// Lists each value with the last step that reads it, or with the step that computes it if none does. What is kept stays.
fn free_after_last_use(program: &Program, steps: &mut [Step]) {
    let mut last: Vec<Option<usize>> = vec![None; program.values().len()];
    for (index, step) in steps.iter().enumerate() {
        for id in step.values() {
            last[id.index()] = Some(index);
        }
    }
    for id in kept(program) {
        last[id.index()] = None;
    }
    let mut listed = vec![false; program.values().len()];
    for (index, step) in steps.iter_mut().enumerate() {
        for id in step.values() {
            if last[id.index()] == Some(index) && !std::mem::replace(&mut listed[id.index()], true) {
                step.last_uses.push(id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
