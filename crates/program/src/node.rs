//! Nodes of a program.

use covey_operators::Op;

/// The index of a value in [`crate::Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in [`crate::Program::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One step of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The model's own node name; several nodes may stem from one.
    pub name: String,
    /// The model's operator, such as "Conv"; may be empty.
    pub source_op: String,
    /// Operands, in the order the operation gives them.
    pub inputs: Vec<ValueId>,
    /// Results; one for every operation so far.
    pub outputs: Vec<ValueId>,
    /// What is computed.
    pub op: Op,
}

/// What the result's owner does in the clear with an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Postprocess {
    /// Nothing.
    Nothing,
    /// Softmax over the last axis.
    Softmax,
}
