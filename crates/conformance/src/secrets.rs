//! What is secret in a run under test, marked for Valgrind's memory checker in builds for `make constant-time`
//! ([`covey_kernels::constant_time`]); elsewhere marks are nothing.

use covey_kernels::constant_time;
use covey_ring::{BitTensor, Tensor, Word};

/// A key or a seed.
pub fn key<const N: usize>(key: [u8; N]) -> [u8; N] {
    constant_time::secret(&key);
    key
}

/// An input or a weight.
pub fn tensor<W: Word>(value: Tensor<W>) -> Tensor<W> {
    constant_time::secret(value.data());
    value
}

/// A result of whom it belongs to.
pub fn opened<W: Word>(value: Tensor<W>) -> Tensor<W> {
    constant_time::public(value.data());
    value
}

/// Bits that were opened.
pub fn opened_bits(bits: BitTensor) -> BitTensor {
    constant_time::public(bits.words());
    bits
}
