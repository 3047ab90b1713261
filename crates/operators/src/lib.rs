//! Operators of the program, one file each: message, rules and the secure layer, written once on
//! [`covey_protocols::Protocol`].
//!
//! An operator knows neither the program around it nor the protocol. Its layer takes whole tensors with their batch
//! dimension. Shapes come from a validated program; a shape that does not fit is
//! [`covey_protocols::ProtocolError::Internal`]. `docs/how-to-add-a-layer.md` says what a new operator needs.

#[macro_use]
mod registry;

mod broadcast;
mod coins;
mod indexing;
pub mod linear;
mod operand;
mod operator;
mod shift;
mod tensor_type;
mod tree;
mod value;
mod whole;
mod window;
pub mod wire;

use std::fmt;

use covey_protocols::{Geometry, Protocol, api};
use covey_ring::Ring;

pub use covey_protocols::Rounding;
pub use operand::Operand;
pub use operator::{Argument, Arguments, Fusion, Operator, OtherLayer, Requirements, Shared};
pub use tensor_type::{TensorType, largest_bound};
pub use value::{Bound, BoundSource, Kind, Value, Visibility};
pub use whole::WholeNumbers;
pub use window::Window;

operators! {
    $
    conv2d: Conv2d;
    dense: Dense;
    truncate: Truncate;
    mul_shift: MulShift;
    div_exact: DivExact;
    add: Add;
    sub: Sub;
    mul: Mul;
    shift_left: ShiftLeft;
    relu: Relu;
    clip: Clip;
    max_pool: MaxPool;
    sum_pool: SumPool;
    reshape: Reshape;
    transpose: Transpose;
    concat: Concat;
    pad: Pad;
    arg_max: ArgMax;
    matmul: Matmul;
    gather: Gather;
    less_than_zero: LessThanZero;
    is_negative: IsNegative;
    bits: And, Or, Not, BitToInteger;
    select: Select;
    table: Table;
    scheduled: Scheduled;
    dropout: Dropout;
    dither: Dither;
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Each of [`Operator`]'s methods, for whichever operator it is.
impl Op {
    /// [`Operator::options`].
    pub fn options(&self) -> String {
        dispatch!(self, op => op.options())
    }

    /// [`Operator::takes_bits`].
    pub fn takes_bits(&self, position: usize) -> bool {
        dispatch!(self, op => op.takes_bits(position))
    }

    /// [`Operator::result_type`].
    pub fn result_type(&self, operands: &[&Value], result: &Value, ring: Ring) -> Result<TensorType, String> {
        dispatch!(self, op => op.result_type(operands, result, ring))
    }

    /// [`Operator::largest_constant`].
    pub fn largest_constant(&self, operands: &[&Value]) -> u64 {
        dispatch!(self, op => op.largest_constant(operands))
    }

    /// [`Operator::requirements`].
    pub fn requirements(&self, x: &Value, result: &Value) -> Requirements {
        dispatch!(self, op => op.requirements(x, result))
    }

    /// [`Operator::depends_on_run`].
    pub fn depends_on_run(&self) -> bool {
        dispatch!(self, op => op.depends_on_run())
    }

    /// [`Operator::rearranges`].
    pub fn rearranges(&self) -> bool {
        dispatch!(self, op => op.rearranges())
    }

    /// [`Operator::factor_elements`].
    pub fn factor_elements(&self, operand: &Value, result: &Value) -> usize {
        dispatch!(self, op => op.factor_elements(operand, result))
    }

    /// [`Operator::scratch_elements`].
    pub fn scratch_elements(&self, x: &Value, result: &Value) -> usize {
        dispatch!(self, op => op.scratch_elements(x, result))
    }

    /// [`Operator::certain_bits`].
    pub fn certain_bits(&self, operands: &[u32], ring: Ring) -> u32 {
        dispatch!(self, op => op.certain_bits(operands, ring))
    }

    /// [`Operator::fusion`].
    pub fn fusion(&self) -> Fusion {
        dispatch!(self, op => op.fusion())
    }

    /// [`Operator::geometry`].
    pub fn geometry(&self, x: &[usize], weight: &[usize]) -> api::Result<Geometry> {
        dispatch!(self, op => op.geometry(x, weight))
    }

    /// [`Operator::run`].
    pub fn run<P: Protocol + ?Sized>(&self, protocol: &mut P, arguments: &Arguments<P>) -> api::Result<Shared<P>> {
        dispatch!(self, op => op.run(protocol, arguments))
    }
}
