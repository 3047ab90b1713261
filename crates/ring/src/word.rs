//! Storage words: the machine integers that carry ring elements.

use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, BitXor, Not};

mod sealed {
    pub trait Sealed {}
}

/// A machine integer that stores one ring element: `u32` for rings of at most 32 bits, `u64` up to 64.
///
/// Arithmetic wraps modulo 2^`BITS`. Bits above the ring's own width are undefined between local operations and are
/// reduced where bits leave them: on the wire, in comparisons, shifts and openings (see [`crate::Ring::reduce`]).
///
/// Sealed: `covey-kernels` relies on a word being exactly `u32` or `u64`.
pub trait Word:
    sealed::Sealed
    + Copy
    + Eq
    + Ord
    + Debug
    + Default
    + Send
    + Sync
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + 'static
{
    /// Width of the word in bits.
    const BITS: u32;
    /// Width of the word in bytes.
    const BYTES: usize;
    /// The additive identity.
    const ZERO: Self;
    /// The multiplicative identity.
    const ONE: Self;

    /// `self + other` modulo 2^`BITS`.
    fn add(self, other: Self) -> Self;
    /// `self - other` modulo 2^`BITS`.
    fn sub(self, other: Self) -> Self;
    /// `self * other` modulo 2^`BITS`.
    fn mul(self, other: Self) -> Self;
    /// `-self` modulo 2^`BITS`.
    fn neg(self) -> Self;
    /// `self * 2^bits` modulo 2^`BITS`; 0 when `bits >= BITS`.
    fn shl(self, bits: u32) -> Self;
    /// Logical right shift; 0 when `bits >= BITS`.
    fn shr(self, bits: u32) -> Self;
    /// The low `BITS` bits of `value`.
    fn from_u64(value: u64) -> Self;
    /// Zero-extended to 64 bits.
    fn to_u64(self) -> u64;
    /// The low `BITS` bits of the two's complement of `value`.
    fn from_i64(value: i64) -> Self {
        Self::from_u64(value as u64)
    }
    /// Little-endian bytes appended to `out`.
    fn extend_le(values: &[Self], out: &mut Vec<u8>);
    /// `values.len()` words read from little-endian `bytes`, which must hold exactly that many.
    fn read_le(bytes: &[u8], values: &mut [Self]);
}

macro_rules! word {
    ($type:ty) => {
        impl sealed::Sealed for $type {}

        impl Word for $type {
            const BITS: u32 = <$type>::BITS;
            const BYTES: usize = size_of::<$type>();
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn shl(self, bits: u32) -> Self {
                self.checked_shl(bits).unwrap_or(0)
            }
            #[inline(always)]
            fn shr(self, bits: u32) -> Self {
                self.checked_shr(bits).unwrap_or(0)
            }
            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn to_u64(self) -> u64 {
                self as u64
            }
            fn extend_le(values: &[Self], out: &mut Vec<u8>) {
                let start = out.len();
                out.resize(start + values.len() * Self::BYTES, 0);
                for (bytes, value) in out[start..].chunks_exact_mut(Self::BYTES).zip(values) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
            }
            fn read_le(bytes: &[u8], values: &mut [Self]) {
                assert_eq!(bytes.len(), values.len() * Self::BYTES);
                for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(Self::BYTES)) {
                    *value = <$type>::from_le_bytes(bytes.try_into().expect("exact chunk"));
                }
            }
        }
    };
}

word!(u32);
word!(u64);
