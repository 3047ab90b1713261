//! The validated program.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use covey_ring::Ring;

use crate::{
    Kind, Node, Postprocess, ProgramError, ProgramHash, Value, ValueId, container, convert, dump, file, validate,
};

/// A compiled program, valid by construction: it comes from bytes that passed every check, and cannot be changed.
#[derive(Clone, PartialEq)]
pub struct Program {
    pub(crate) hash: ProgramHash,
    pub(crate) payload: Vec<u8>,
    pub(crate) parts: Parts,
    /// Of each value, the bits that are certain.
    pub(crate) certain: Vec<u32>,
}

/// What a program says, before and after it is checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parts {
    pub name: String,
    pub producer: String,
    pub ring: Ring,
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    pub postprocess: Vec<Postprocess>,
    pub carried: Vec<Carried>,
    pub serving: Option<Serving>,
}

/// A value that a session keeps in shares from one run to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// What steps read, of kind [`crate::Kind::Carried`]: 0 in a sequence's first run.
    pub value: ValueId,
    /// What it is in the next run.
    pub next: ValueId,
    /// What opens to the client where it ends the sequence.
    pub opens: Option<ValueId>,
}

/// Weights that a sequence of runs makes for another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// That program.
    pub program: ProgramHash,
    /// What becomes its weights.
    pub weights: Vec<Served>,
}

/// A value that becomes a parameter of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The value, as a run leaves it.
    pub value: ValueId,
    /// The parameter's name there.
    pub parameter: String,
}

impl Parts {
    /// [`Program::certain_bits`] of each value of valid parts.
    fn certain_bits(&self) -> Vec<u32> {
        let mut certain: Vec<u32> = self.values.iter().map(|value| value.comparison().certain).collect();
        for node in &self.nodes {
            let operands: Vec<u32> = node.inputs.iter().map(|id| certain[id.index()]).collect();
            let computed = node.outputs.iter().filter(|id| self.values[id.index()].kind == Kind::Intermediate);
            for id in computed {
                let bits = &mut certain[id.index()];
                *bits = (*bits).min(node.op.certain_bits(&operands, self.ring));
            }
        }
        certain
    }
}

impl Program {
    /// Reads and checks a `.covey` file. Errors name the file and what is wrong with it.
    pub fn read(path: impl AsRef<Path>) -> Result<Program, ProgramError> {
        let path = path.as_ref();
        let bytes = file::read_bounded(path, container::MAX_BYTES)
            .map_err(|source| ProgramError::Read { path: path.into(), source })?;
        Program::from_bytes(&bytes).map_err(|source| ProgramError::File { path: path.into(), source: Box::new(source) })
    }

    /// Parses and checks the content of a `.covey` file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Program, ProgramError> {
        let (hash, payload) = container::open(bytes)?;
        let parts = convert::decode(payload)?;
        validate::check(&parts)?;
        let certain = parts.certain_bits();
        Ok(Program { hash, payload: payload.to_vec(), parts, certain })
    }

    /// The content of a `.covey` file; what it was read from, byte for byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        container::seal(&self.payload)
    }

    /// Writes a `.covey` file: beside `path` first, then renamed.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), ProgramError> {
        let path = path.as_ref();
        file::write_atomically(path, &self.to_bytes(), false)
            .map_err(|source| ProgramError::Write { path: path.into(), source })
    }

    /// The hash that binds weights, stores and sessions to this program.
    pub fn hash(&self) -> ProgramHash {
        self.hash
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// What made it, such as "covey 0.1.0"; may be empty.
    pub fn producer(&self) -> &str {
        &self.parts.producer
    }

    /// The ring of every value.
    pub fn ring(&self) -> Ring {
        self.parts.ring
    }

    /// Every value, by id.
    pub fn values(&self) -> &[Value] {
        &self.parts.values
    }

    /// The value of an id of this program.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.parts.values[id.index()]
    }

    /// b with |v| < 2^b for every element v of a value, if operands of shifts keep their bounds: its own where proved, else what shifts
    /// and the operations behind them leave.
    pub fn certain_bits(&self, id: ValueId) -> u32 {
        self.certain[id.index()]
    }

    /// The value called `name`.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        let index = self.parts.values.iter().position(|value| value.name == name)?;
        Some(ValueId(index as u32))
    }

    /// Every node, in execution order.
    pub fn nodes(&self) -> &[Node] {
        &self.parts.nodes
    }

    /// What data owners share, in the model's order.
    pub fn inputs(&self) -> &[ValueId] {
        &self.parts.inputs
    }

    /// What is opened to the result's owner, in the model's order.
    pub fn outputs(&self) -> &[ValueId] {
        &self.parts.outputs
    }

    /// What the result's owner does in the clear with each output; as long as [`Program::outputs`].
    pub fn postprocess(&self) -> &[Postprocess] {
        &self.parts.postprocess
    }

    /// What a session keeps from one run to the next.
    pub fn carried(&self) -> &[Carried] {
        &self.parts.carried
    }

    /// What opens to the client where it ends a sequence.
    pub fn opened_at_end(&self) -> impl Iterator<Item = ValueId> {
        self.parts.carried.iter().filter_map(|pair| pair.opens)
    }

    /// The weights that a sequence of runs makes for another program, if it does.
    pub fn serving(&self) -> Option<&Serving> {
        self.parts.serving.as_ref()
    }

    /// What is kept of a sequence's last run for its end: what opens then, and what becomes another program's weights.
    pub fn kept_for_end(&self) -> Vec<ValueId> {
        self.opened_at_end().chain(self.served_alone()).collect()
    }

    /// What becomes another program's weights and does not open.
    pub fn served_alone(&self) -> Vec<ValueId> {
        let opens: HashSet<ValueId> = self.opened_at_end().collect();
        let served = self.parts.serving.iter().flat_map(|serving| &serving.weights).map(|served| served.value);
        served.filter(|id| !opens.contains(id)).collect()
    }

    /// The values in the weights file, by id.
    pub fn parameters(&self) -> impl Iterator<Item = (ValueId, &Value)> {
        let values = self.parts.values.iter().enumerate();
        values.filter(|(_, value)| value.in_weights_file()).map(|(index, value)| (ValueId(index as u32), value))
    }

    /// A readable listing, one line a value and a node. Everything in it is public.
    pub fn dump(&self) -> String {
        dump::dump(self)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program('{}', {})", self.name(), self.hash.short())
    }
}

impl std::ops::Index<ValueId> for Program {
    type Output = Value;

    fn index(&self, id: ValueId) -> &Value {
        self.value(id)
    }
}
