//! The 128-bit strings of oblivious transfer.

use std::ops::{BitXor, BitXorAssign};

use zeroize::Zeroize;

use crate::vectorised;

/// 128 bits. Bit 0 is the lowest bit of byte 0.
///
/// Not `Debug`: blocks are secret.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Block(u128);

impl Block {
    /// Bytes of a block.
    pub const BYTES: usize = 16;
    /// All zero.
    pub const ZERO: Block = Block(0);

    /// From a number, little-endian.
    #[inline(always)]
    pub const fn new(value: u128) -> Self {
        Block(value)
    }

    /// The number.
    #[inline(always)]
    pub const fn to_u128(self) -> u128 {
        self.0
    }

    /// From bytes.
    #[inline(always)]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Block(u128::from_le_bytes(bytes))
    }

    /// The bytes.
    #[inline(always)]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Bits 0 to 63.
    #[inline(always)]
    pub const fn low(self) -> u64 {
        self.0 as u64
    }

    /// Bits 64 to 127.
    #[inline(always)]
    pub const fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The block where `bit` is 1, zero where it is 0; only bit 0 of `bit` counts.
    #[inline(always)]
    pub const fn times(self, bit: u64) -> Self {
        Block(self.0 & ((bit & 1) as u128).wrapping_neg())
    }
}

impl BitXor for Block {
    type Output = Block;

    #[inline(always)]
    fn bitxor(self, other: Block) -> Block {
        Block(self.0 ^ other.0)
    }
}

impl BitXorAssign for Block {
    #[inline(always)]
    fn bitxor_assign(&mut self, other: Block) {
        self.0 ^= other.0;
    }
}

impl Zeroize for Block {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

vectorised! {
    /// The lowest bit of each block as one plane of `blocks.len().div_ceil(64)` words; bits past the last are zero.
    pub fn lowest_bits(plane: &mut [u64], blocks: &[Block]) {
        assert_eq!(plane.len(), blocks.len().div_ceil(64), "a plane of {} bits", blocks.len());
        for (word, blocks) in plane.iter_mut().zip(blocks.chunks(64)) {
            *word = blocks.iter().enumerate().fold(0, |word, (bit, block)| word | (block.low() & 1) << bit);
        }
    }
}
