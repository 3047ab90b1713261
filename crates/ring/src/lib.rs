//! The plain data every other crate speaks of: rings, words, tensors of words, bit planes, the fixed-point codec and
//! the packing of l-bit values on the wire. No I/O, no `unsafe`, no protocol.

mod bits;
pub mod fixed;
mod modulus;
mod ring;
mod tensor;
pub mod wire;
mod word;

pub use bits::BitTensor;
pub use modulus::{Modulus, from_signed};
pub use ring::{Ring, RingError};
pub use tensor::Tensor;
pub use word::Word;
