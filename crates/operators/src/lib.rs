//! Operators of the program, one file each: message, rules and the secure layer, written once on
//! [`covey_protocols::Protocol`].
//!
//! An operator knows neither the program around it nor the protocol. Its layer takes whole tensors with their batch
//! dimension. Shapes come from a validated program; a shape that does not fit is
//! [`covey_protocols::ProtocolError::Internal`]. `docs/how-to-add-a-layer.md` says what a new operator needs.

#[macro_use]
mod registry;

mod broadcast;
mod form;
mod indexing;
pub mod linear;
mod operand;
mod operator;
mod shift;
mod tree;
mod value;
mod whole;
mod window;
pub mod wire;

use std::fmt;

use covey_protocols::{Geometry, Protocol};
use covey_ring::Ring;

pub use covey_protocols::Rounding;
pub use form::{Form, largest_bound};
pub use operand::Operand;
pub use operator::{Asks, Call, Operator, Part};
pub use value::{Bound, BoundSource, Kind, Value, Visibility};
pub use whole::WholeNumbers;
pub use window::Window;

operators! {
    conv2d: Conv2d,
    dense: Dense,
    truncate: Truncate,
    mul_shift: MulShift,
    div_exact: DivExact,
    add: Add,
    sub: Sub,
    mul: Mul,
    shift_left: ShiftLeft,
    relu: Relu,
    clip: Clip,
    max_pool: MaxPool,
    sum_pool: SumPool,
    reshape: Reshape,
    transpose: Transpose,
    concat: Concat,
    pad: Pad,
    arg_max: ArgMax,
    matmul: Matmul,
    gather: Gather,
    less_than_zero: LessThanZero,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
