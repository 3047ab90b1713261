//! Programs made in Rust, for tests and tools that do without the Python front end.

use covey_operators::{largest_bound, wire};
use covey_ring::Ring;
use prost::Message;

use crate::program::{Parts, Served, Serving};
use crate::{
    Bound, BoundSource, Carried, Kind, Node, Op, Postprocess, Program, ProgramError, ProgramHash, Value, ValueId,
    Visibility, WholeNumbers, container, encode, op,
};

/// Builds a [`Program`] node by node; result shapes and scales follow from the operations.
///
/// Values are bounded by l - 2 bits unless told otherwise. Nothing is checked before [`ProgramBuilder::build`].
///
/// ```
/// use covey_program::{ProgramBuilder, Rounding, op};
/// use covey_ring::Ring;
///
/// let mut builder = ProgramBuilder::new("tiny", Ring::Pow2(32));
/// let x = builder.input("x", &[4], 12);
/// let weight = builder.parameter("weight", &[4, 2], 12);
/// let product = builder.node("fc", op::Dense, &[x, weight]);
/// let y = builder.node("fc", op::Truncate { bits: 12, rounding: Rounding::Exact }, &[product]);
/// builder.output(y);
/// assert_eq!(builder.build().unwrap()[y].shape, [2]);
/// ```
#[derive(Clone, Debug)]
pub struct ProgramBuilder {
    parts: Parts,
}

impl ProgramBuilder {
    /// An empty program called `name` over `ring`.
    pub fn new(name: &str, ring: Ring) -> Self {
        let producer = concat!("covey ", env!("CARGO_PKG_VERSION")).to_string();
        let (values, nodes, inputs, outputs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (postprocess, carried) = (Vec::new(), Vec::new());
        let serving = None;
        let parts =
            Parts { name: name.into(), producer, ring, values, nodes, inputs, outputs, postprocess, carried, serving };
        ProgramBuilder { parts }
    }

    /// A batched secret input; `shape` is without the batch.
    pub fn input(&mut self, name: &str, shape: &[usize], scale: u32) -> ValueId {
        let id = self.value(Value { batched: true, kind: Kind::Input, ..self.blank(name, shape, scale) });
        self.parts.inputs.push(id);
        id
    }

    /// A value that the session carries from run to run; `shape` is without the batch. [`ProgramBuilder::carry`] says what it is next.
    pub fn carried(&mut self, name: &str, shape: &[usize], scale: u32) -> ValueId {
        self.value(Value { batched: true, kind: Kind::Carried, ..self.blank(name, shape, scale) })
    }

    /// `value` is in the next run what `next` is in this one.
    pub fn carry(&mut self, value: ValueId, next: ValueId) {
        self.parts.carried.push(Carried { value, next, opens: None });
    }

    /// The same, and where the client ends the sequence `opens` is revealed to it.
    pub fn carry_and_open(&mut self, value: ValueId, next: ValueId, opens: ValueId) {
        self.parts.carried.push(Carried { value, next, opens: Some(opens) });
    }

    /// A sequence of runs makes weights for another program: of each value, the parameter that it becomes.
    pub fn serve(&mut self, program: ProgramHash, weights: &[(ValueId, &str)]) {
        let served = |&(value, parameter): &(ValueId, &str)| Served { value, parameter: parameter.into() };
        self.parts.serving = Some(Serving { program, weights: weights.iter().map(served).collect() });
    }

    /// A secret parameter, whose integers stand in the weights file.
    pub fn parameter(&mut self, name: &str, shape: &[usize], scale: u32) -> ValueId {
        self.value(Value { kind: Kind::Parameter, ..self.blank(name, shape, scale) })
    }

    /// A public constant of `data`, row-major.
    pub fn constant(&mut self, name: &str, shape: &[usize], scale: u32, data: Vec<i64>) -> ValueId {
        let largest = data.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
        let bound = Bound { bits: 64 - largest.leading_zeros(), source: BoundSource::Proved };
        let blank = self.blank(name, shape, scale);
        let visibility = Visibility::Public;
        self.value(Value { kind: Kind::Constant, visibility, bound, constant: Some(data), ..blank })
    }

    fn value(&mut self, value: Value) -> ValueId {
        self.parts.values.push(value);
        ValueId((self.parts.values.len() - 1) as u32)
    }

    /// A node whose result, called `<name>:<number of the node>`, has the shape and scale that follow. Reshape and
    /// MulShift need [`ProgramBuilder::node_into`] or their own methods.
    pub fn node(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        let template = inputs.first().map(|&id| self.parts.values[id.index()].clone());
        let (shape, scale, batched) = template.map_or((Vec::new(), 0, false), |x| (x.shape, x.scale, x.batched));
        self.infer_node(name, op, inputs, &shape, scale, batched)
    }

    /// A reshape to `shape`, which is without the batch.
    pub fn reshape(&mut self, name: &str, x: ValueId, shape: &[usize]) -> ValueId {
        let Value { scale, batched, .. } = self.parts.values[x.index()];
        self.infer_node(name, op::Reshape, &[x], shape, scale, batched)
    }

    /// A MulShift whose result is read at `scale`.
    pub fn mul_shift(&mut self, name: &str, op: impl Into<Op>, x: ValueId, scale: u32) -> ValueId {
        let Value { shape, batched, .. } = self.parts.values[x.index()].clone();
        self.infer_node(name, op, &[x], &shape, scale, batched)
    }

    /// A node that writes values declared before.
    pub fn node_into(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId], outputs: &[ValueId]) {
        let op = op.into();
        let source_op = op.name().to_string();
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        self.parts.nodes.push(Node { name: name.into(), source_op, inputs, outputs, op });
    }

    /// Bounds a value by 2^`bits`, proved.
    pub fn bound(&mut self, id: ValueId, bits: u32) {
        self.parts.values[id.index()].bound = Bound { bits, source: BoundSource::Proved };
    }

    /// The real numbers an input promises to lie in.
    pub fn range(&mut self, id: ValueId, low: f64, high: f64) {
        self.parts.values[id.index()].range = Some((low, high));
    }

    /// An input whose data are whole numbers, `classes` of each, written one-hot: its value has the shape `[shape.., classes]`.
    pub fn one_hot(&mut self, name: &str, shape: &[usize], classes: u32) -> ValueId {
        let whole: Vec<usize> = shape.iter().copied().chain([classes as usize]).collect();
        let id = self.input(name, &whole, 0);
        self.bound(id, 1);
        self.range(id, 0.0, 1.0);
        self.parts.values[id.index()].whole = Some(WholeNumbers { shape: shape.to_vec(), classes: vec![classes] });
        id
    }

    /// A value, to change it before building.
    pub fn value_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.parts.values[id.index()]
    }

    /// Opens a value to the result's owner.
    pub fn output(&mut self, id: ValueId) {
        self.output_with(id, Postprocess::Nothing);
    }

    /// Opens a value to the result's owner, who does `postprocess` with it in the clear.
    pub fn output_with(&mut self, id: ValueId, postprocess: Postprocess) {
        self.parts.outputs.push(id);
        self.parts.postprocess.push(postprocess);
    }

    /// The program, encoded and read back through every check a file passes.
    pub fn build(self) -> Result<Program, ProgramError> {
        Program::from_bytes(&container::seal(&self.wire().encode_to_vec()))
    }

    pub(crate) fn wire(&self) -> wire::Program {
        encode::encode(&self.parts)
    }

    fn infer_node(
        &mut self,
        name: &str,
        op: impl Into<Op>,
        inputs: &[ValueId],
        shape: &[usize],
        scale: u32,
        batched: bool,
    ) -> ValueId {
        let op = op.into();
        let mut output = Value { batched, ..self.blank(&format!("{name}:{}", self.parts.nodes.len()), shape, scale) };
        let operands: Vec<&Value> = inputs.iter().map(|id| &self.parts.values[id.index()]).collect();
        // What does not fit is refused by `build`, which runs the same rules.
        if let Ok(result) = op.result_type(&operands, &output, self.parts.ring) {
            (output.batched, output.shape, output.scale) = (result.batched, result.shape, result.scale);
            if result.bits {
                output.bits = true;
                output.bound.bits = 1;
            }
        }
        if operands.iter().all(|operand| operand.visibility == Visibility::Public) {
            output.visibility = Visibility::Public;
        }
        let id = self.value(output);
        self.node_into(name, op, inputs, &[id]);
        id
    }

    fn blank(&self, name: &str, shape: &[usize], scale: u32) -> Value {
        Value {
            name: name.into(),
            shape: shape.to_vec(),
            batched: false,
            scale,
            kind: Kind::Intermediate,
            visibility: Visibility::Secret,
            bound: Bound { bits: largest_bound(self.parts.ring).saturating_sub(1), source: BoundSource::Proved },
            range: None,
            constant: None,
            whole: None,
            bits: false,
        }
    }
}
