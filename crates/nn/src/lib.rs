//! Secure layers, each written once on [`covey_protocols::Protocol`], one file a layer.
//!
//! A layer takes whole tensors with their batch dimension and knows neither the program nor the protocol. Shapes come from
//! a validated program; a shape that does not fit is [`covey_protocols::ProtocolError::Internal`]. `docs/how-to-add-a-layer.md`
//! says what a new layer needs.

pub mod arg_max;
pub mod arithmetic;
pub mod clip;
pub mod gather;
mod indexing;
pub mod linear;
pub mod max_pool;
pub mod mul_shift;
mod operand;
pub mod relu;
pub mod sign;
pub mod structure;
pub mod sum_pool;
mod tree;
mod window;

pub use operand::Operand;
pub use window::Window;
