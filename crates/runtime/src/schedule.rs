//! What runs when: the program's nodes as steps, neighbours fused, values freed as soon as nothing needs them.

use std::collections::HashMap;

use covey_operators::Fusion;
use covey_operators::linear::may_join;
use covey_program::{Kind, Node, Op, Program, Value, ValueId, Visibility};
use covey_protocols::clip::{Clipped, Ends};
use covey_protocols::{Comparison, ProtocolError, Rounding, Truncation};

/// The node number under which inputs are received.
pub const INPUTS: u32 = u32::MAX - 1;
/// The node number under which outputs are opened.
pub const OUTPUTS: u32 = u32::MAX - 2;

/// What the executor runs at once: one node, a product with what follows it, or a table with its clips.
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
    /// layers whose results are added the earlier one, where the protocol gains by it.
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
        crate::factors::open_once(program, &mut steps);
        free_after_last_use(program, &mut steps);
        Schedule { steps }
    }
}

impl Step {
    /// The linear layers that it computes, if any: its own first.
    pub fn layers(&self) -> impl Iterator<Item = &Step> {
        let own = (self.op.fusion() == Fusion::Linear).then_some(self);
        own.into_iter().chain(self.other.as_deref())
    }

    /// Every value it reads or computes.
    fn values(&self) -> Vec<ValueId> {
        let others = self.other.iter().flat_map(|other| &other.inputs);
        self.inputs.iter().chain(others).chain(&self.residual).chain([&self.output]).copied().collect()
    }

    /// Takes in `node`, which reads this step's result.
    fn join(&mut self, node: &Node) {
        self.output = node.outputs[0];
        if node.name != self.name {
            self.name = format!("{}+{}", self.name, node.name);
        }
    }
}

/// The later linear layer whose result alone is added to that of the layer at `index`, where a shift alone reads the sum and both may be
/// computed at once.
fn summed_later(program: &Program, readers: &Readers, index: usize) -> Option<usize> {
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
fn residual(program: &Program, step: &Step, next: &Node, computed: &[bool]) -> Option<(ValueId, Truncation)> {
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
fn rectified(
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
fn shift_to_nearest(
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
fn clipped_table(
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

fn plain_step(index: usize, node: &Node) -> Step {
    let op_name = if node.source_op.is_empty() { node.op.name() } else { node.source_op.as_str() };
    Step {
        node: index as u32,
        name: node.name.clone(),
        op_name: op_name.to_string(),
        op: node.op.clone(),
        inputs: node.inputs.clone(),
        other: None,
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

/// Who reads each value, and who makes it.
struct Readers {
    nodes: Vec<Vec<usize>>,
    makers: Vec<Option<usize>>,
    /// By the run's end: to be opened or carried to the next run.
    kept: Vec<bool>,
}

impl Readers {
    fn of(program: &Program) -> Self {
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
    fn only(&self, id: ValueId) -> Option<usize> {
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
fn kept(program: &Program) -> impl Iterator<Item = ValueId> + '_ {
    let carried = program.carried().iter().map(|pair| pair.next);
    program.outputs().iter().copied().chain(carried).chain(program.kept_for_end())
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
mod tests {
    use covey_program::{ProgramBuilder, Window, op};
    use covey_protocols::Table;
    use covey_ring::Ring;

    use super::*;

    const RELU: Fusions = Fusions { relu: true, maxima: false, layers: false };

    /// An input, and a dense layer of it with its shift.
    fn layer() -> (ProgramBuilder, ValueId, ValueId) {
        let mut b = ProgramBuilder::new("fused", Ring::Pow2(32));
        let x = b.input("x", &[4], 8);
        let w = b.parameter("w", &[4, 4], 8);
        let product = b.node("fc", op::Dense, &[x, w]);
        b.bound(product, 24);
        let truncate = op::Truncate { bits: 8, rounding: Rounding::Exact };
        let short = b.node("fc", truncate, &[product]);
        b.bound(short, 16);
        (b, x, short)
    }

    /// The layer and its ReLU, in each of the ways they may meet.
    fn program(read_twice: bool) -> Program {
        let (mut b, _, short) = layer();
        let relu = b.node("relu", op::Relu, &[short]);
        b.output(relu);
        if read_twice {
            let sum = b.node("sum", op::Add, &[short, relu]);
            b.output(sum);
        }
        b.build().unwrap()
    }

    #[test]
    fn an_addition_joins_the_linear_layer_before_it_if_the_sum_leaves_room() {
        let schedule = |bits: u32| {
            let (mut b, x, short) = layer();
            let sum = b.node("sum", op::Add, &[x, short]);
            b.bound(sum, bits);
            let relu = b.node("relu", op::Relu, &[sum]);
            b.output(relu);
            Schedule::new(&b.build().unwrap(), RELU)
        };
        let joined = schedule(22);
        let [step] = joined.steps() else { panic!("{joined:?}") };
        assert_eq!((step.name.as_str(), step.truncate.unwrap().bound), ("fc+sum+relu", 30));
        assert_eq!((step.residual, step.relu.unwrap().bound), (Some(step.inputs[0]), 22));
        let names: Vec<_> = schedule(23).steps.into_iter().map(|step| step.name).collect();
        assert_eq!(names, ["fc", "sum", "relu"]);
    }

    #[test]
    fn the_later_of_two_layers_takes_in_the_earlier_one_whose_result_is_added() {
        let steps = |layers: bool, read_twice: bool, grouped: bool| -> Vec<_> {
            let mut b = ProgramBuilder::new("branches", Ring::Pow2(32));
            let x = b.input("x", &[2, 3, 3], 8);
            let (w, v) =
                (b.parameter("w", &[2, 2, 3, 3], 8), b.parameter("v", &[2, 2 - usize::from(grouped), 1, 1], 8));
            let layer = |name: &str, weight, pad, groups| {
                let window = Window::square(if name == "long" { 3 } else { 1 }, 1, pad);
                (name.to_string(), op::Conv2d { window, groups }, [x, weight])
            };
            let (name, conv, inputs) = layer("long", w, 1, 1);
            let long = b.node(&name, conv, &inputs);
            b.bound(long, 20);
            let (name, conv, inputs) = layer("short", v, 0, 1 + usize::from(grouped));
            let short = b.node(&name, conv, &inputs);
            b.bound(short, 20);
            let sum = b.node("sum", op::Add, &[long, short]);
            b.bound(sum, 21);
            let shifted = b.node("sum", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[sum]);
            b.bound(shifted, 13);
            let relu = b.node("relu", op::Relu, &[shifted]);
            b.output(relu);
            if read_twice {
                b.output(long);
            }
            let schedule = Schedule::new(&b.build().unwrap(), Fusions { layers, ..RELU });
            let found = |step: Step| {
                let nodes: Vec<u32> = step.layers().map(|layer| layer.node).collect();
                (step.name, nodes, step.truncate.map(|truncate| truncate.bound), step.last_uses.len())
            };
            schedule.steps.into_iter().map(found).collect()
        };
        // x, both weights and the result, which no step reads and which is opened.
        assert_eq!(steps(true, false, false), [("long+short+sum+relu".to_string(), vec![1, 0], Some(21), 3)]);
        let names = |steps: Vec<(String, Vec<u32>, Option<u32>, usize)>| -> Vec<String> {
            steps.into_iter().map(|step| step.0).collect()
        };
        for apart in [steps(false, false, false), steps(true, true, false)] {
            assert_eq!(names(apart), ["long", "short", "sum", "sum+relu"]);
        }
        // An addition behind the shift stays by itself, and so does its ReLU.
        let mut b = ProgramBuilder::new("skipped", Ring::Pow2(32));
        let x = b.input("x", &[4], 8);
        b.bound(x, 8);
        let layers = ["w", "v"].map(|name| {
            let weight = b.parameter(name, &[4, 4], 8);
            let layer = b.node(name, op::Dense, &[x, weight]);
            b.bound(layer, 20);
            layer
        });
        let sum = b.node("sum", op::Add, &layers);
        b.bound(sum, 21);
        let shifted = b.node("sum", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[sum]);
        b.bound(shifted, 13);
        let skip = b.node("skip", op::Add, &[shifted, x]);
        b.bound(skip, 14);
        let relu = b.node("relu", op::Relu, &[skip]);
        b.output(relu);
        let schedule = Schedule::new(&b.build().unwrap(), Fusions { layers: true, ..RELU });
        let found: Vec<_> = schedule.steps.into_iter().map(|step| (step.name, step.residual)).collect();
        assert_eq!(found, ["w+v+sum", "skip", "relu"].map(|name| (name.to_string(), None)));
        // Groups are the protocol's to refuse: it computes the layers one by one.
        assert_eq!(names(steps(true, false, true)), ["long+short+sum+relu"]);
    }

    #[test]
    fn a_maximum_takes_in_the_shift_and_the_relu_where_that_pays() {
        let names = |maxima| -> Vec<_> {
            let mut b = ProgramBuilder::new("pooled", Ring::Pow2(32));
            let x = b.input("x", &[1, 2, 2], 8);
            let window = Window::square(2, 2, 0);
            let largest = b.node("pool", op::MaxPool { window }, &[x]);
            b.bound(largest, 24);
            let short = b.node("pool", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[largest]);
            b.bound(short, 16);
            let relu = b.node("relu", op::Relu, &[short]);
            b.output(relu);
            let schedule = Schedule::new(&b.build().unwrap(), Fusions { maxima, ..RELU });
            schedule.steps.into_iter().map(|step| (step.name, step.truncate.is_some(), step.relu.is_some())).collect()
        };
        assert_eq!(names(true), [("pool+relu".to_string(), true, true)]);
        assert_eq!(names(false), [("pool".to_string(), false, false), ("pool+relu".to_string(), false, true)]);
    }

    #[test]
    fn a_clip_joins_the_table_that_alone_reads_it() {
        let names = |read_twice| -> Vec<_> {
            let mut b = ProgramBuilder::new("clipped", Ring::Pow2(32));
            let x = b.input("x", &[4], 12);
            let clipped = b.node("clip", op::Clip { low: Some(-8), high: Some(7) }, &[x]);
            b.bound(clipped, 4);
            let (values, slopes) = (vec![1, 2, 3, 4], Vec::new());
            let table = Table { low: -8, step: 2, values, slopes, shift: 0 };
            let result = b.node("table", op::Table::new(table), &[clipped]);
            b.bound(result, 3);
            b.output(result);
            if read_twice {
                b.output(clipped);
            }
            let schedule = Schedule::new(&b.build().unwrap(), Fusions::default());
            schedule.steps.into_iter().map(|step| (step.name, step.clipped.is_some(), step.inputs[0] == x)).collect()
        };
        assert_eq!(names(false), [("clip+table".to_string(), true, true)]);
        let apart = [("clip".to_string(), false, true), ("table".to_string(), false, false)];
        assert_eq!(names(true), apart);
    }

    #[test]
    fn a_half_and_the_shift_behind_it_join_their_product() {
        let steps = |half: i64, secret: bool, read_twice: bool, rectified: bool| -> Vec<_> {
            let mut b = ProgramBuilder::new("centred", Ring::Pow2(32));
            let x = b.input("x", &[4], 8);
            let y = if secret { b.input("y", &[4], 8) } else { b.constant("y", &[4], 8, vec![1, 2, 3, 4]) };
            let product = b.node("product", op::Mul, &[x, y]);
            b.bound(product, 20);
            let half = b.constant("half", &[], 16, vec![half]);
            let centred = b.node("centred", op::Add, &[product, half]);
            b.bound(centred, 21);
            let short = b.node("short", op::Truncate { bits: 8, rounding: Rounding::Exact }, &[centred]);
            b.bound(short, 13);
            let last = if rectified { b.node("relu", op::Relu, &[short]) } else { short };
            b.output(last);
            if read_twice {
                b.output(product);
            }
            let schedule = Schedule::new(&b.build().unwrap(), RELU);
            schedule.steps.into_iter().map(|step| (step.to_nearest, step.truncate, step.output == short)).collect()
        };
        let truncation = Truncation { bits: 8, rounding: Rounding::Exact, bound: 21 };
        assert_eq!(steps(128, true, false, false), [(true, Some(truncation), true)]);
        let apart = [(false, None, false), (false, None, false), (false, None, true)];
        for other in [steps(127, true, false, false), steps(128, false, false, false), steps(128, true, true, false)] {
            assert_eq!(other, apart);
        }
        // The shift joins the ReLU behind it.
        let rectified = steps(128, true, false, true);
        assert_eq!(rectified.iter().map(|step| step.0).collect::<Vec<_>>(), [false; 3]);
    }

    #[test]
    fn two_clips_and_an_addition_join_their_table() {
        let names = |low: Option<i64>, high: Option<i64>| -> Vec<_> {
            let mut b = ProgramBuilder::new("clipped", Ring::Pow2(32));
            let x = b.input("x", &[4], 12);
            let raised = b.node("gelu", op::Clip { low: Some(-8), high: None }, &[x]);
            b.bound(raised, 12);
            let inside = b.node("gelu", op::Clip { low, high }, &[raised]);
            b.bound(inside, 12);
            let table = Table { low: -8, step: 2, values: vec![1, 2, 3, 4], slopes: Vec::new(), shift: 0 };
            let drawn = b.node("gelu", op::Table::new(table), &[inside]);
            b.bound(drawn, 3);
            let sum = b.node("gelu", op::Add, &[raised, drawn]);
            b.bound(sum, 13);
            b.output(sum);
            let schedule = Schedule::new(&b.build().unwrap(), Fusions::default());
            schedule.steps.into_iter().map(|step| (step.clipped, step.inputs[0] == x, step.output == sum)).collect()
        };
        let ends = Ends { low: Some(-8), high: Some(7) };
        assert_eq!(names(None, Some(7)), [(Some(Clipped { ends, adds_input: true }), true, true)]);
        // The second clip and its table join, and nothing else.
        let apart =
            [(None, true, false), (Some(Clipped { ends, adds_input: false }), false, false), (None, false, true)];
        assert_eq!(names(Some(-8), Some(7)), apart);
    }

    #[test]
    fn a_relu_joins_its_linear_layer_where_the_protocol_gains_by_it() {
        let names = |program: &Program, relu| -> Vec<String> {
            Schedule::new(program, Fusions { relu, ..Fusions::default() })
                .steps
                .into_iter()
                .map(|step| step.name)
                .collect()
        };
        assert_eq!(names(&program(false), false), ["fc", "relu"]);
        assert_eq!(names(&program(false), true), ["fc+relu"]);
        assert_eq!(names(&program(true), true), ["fc", "relu", "sum"]);
        let fused = Schedule::new(&program(false), RELU);
        let step = &fused.steps[0];
        assert_eq!((step.truncate.unwrap().bound, step.relu.unwrap().bound, step.node), (24, 16, 0));
        assert_eq!(step.output, program(false).outputs()[0]);
    }
}
