//! Rings as values: Z_2^l and Z_n for odd n.

use std::fmt;

use crate::Word;
use crate::modulus::{self, Modulus};

/// The ring a program computes in. Elements are stored in [`Word`]s of at least [`Ring::bits`] bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ring {
    /// Z_2^l, 4 <= l <= 64; elements read as two's complement.
    Pow2(u32),
    /// Z_n for odd n >= 3, n < 2^63; elements above (n-1)/2 read as negative.
    Odd(u64),
}

/// A ring outside what Covey supports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// `Pow2(l)` with l outside 4..=64.
    #[error("ring Z_2^{0} is not supported: the width must be between 4 and 64 bits")]
    Width(u32),
    /// `Odd(n)` with n even, below 3 or not below 2^63.
    #[error("ring Z_{0} is not supported: the modulus must be odd, at least 3 and below 2^63")]
    Modulus(u64),
}

impl Ring {
    /// Z_2^`bits`, checked.
    pub fn pow2(bits: u32) -> Result<Ring, RingError> {
        if (4..=64).contains(&bits) { Ok(Ring::Pow2(bits)) } else { Err(RingError::Width(bits)) }
    }

    /// Z_`modulus`, checked.
    pub fn odd(modulus: u64) -> Result<Ring, RingError> {
        if modulus % 2 == 1 && (3..1 << 63).contains(&modulus) {
            Ok(Ring::Odd(modulus))
        } else {
            Err(RingError::Modulus(modulus))
        }
    }

    /// Bits one element takes on the wire: l, or ceil(log2 n).
    pub fn bits(self) -> u32 {
        match self {
            Ring::Pow2(bits) => bits,
            Ring::Odd(modulus) => 64 - (modulus - 1).leading_zeros(),
        }
    }

    /// The representative in `0..modulus` of `word` taken modulo the ring. For `Odd` rings `word` itself is reduced,
    /// so sums must be reduced before they pass the word's width.
    #[inline(always)]
    pub fn reduce<W: Word>(self, word: W) -> W {
        match self {
            Ring::Pow2(bits) if bits >= W::BITS => word,
            Ring::Pow2(bits) => word & W::from_u64((1u64 << bits) - 1),
            Ring::Odd(modulus) => W::from_u64(modulus::reduce(word.to_u64(), modulus)),
        }
    }

    /// The signed integer `word` stands for, in `-(m/2)..=(m-1)/2` for modulus m.
    #[inline(always)]
    pub fn signed<W: Word>(self, word: W) -> i64 {
        match self {
            Ring::Pow2(bits) => {
                let shift = 64 - bits;
                ((word.to_u64() << shift) as i64) >> shift
            }
            Ring::Odd(modulus) => {
                let value = modulus::reduce(word.to_u64(), modulus);
                let above = modulus::mask((modulus - 1) / 2, value);
                value.wrapping_sub(modulus & above) as i64
            }
        }
    }

    /// The ring element of `value`, wrapping.
    #[inline(always)]
    pub fn wrap<W: Word>(self, value: i128) -> W {
        match self {
            Ring::Pow2(_) => self.reduce(W::from_u64(value as u64)),
            Ring::Odd(modulus) => {
                let rest = Modulus::new(modulus).reduce(value.unsigned_abs());
                let negative = 0u64.wrapping_sub(u64::from(value < 0));
                // The modulus less a remainder of 0 is one too large.
                self.reduce(W::from_u64(rest & !negative | (modulus - rest) & negative))
            }
        }
    }

    /// The smallest and largest signed integer of the ring.
    pub fn signed_range(self) -> (i64, i64) {
        match self {
            Ring::Pow2(bits) => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
            Ring::Odd(modulus) => (-(((modulus - 1) / 2) as i64), ((modulus - 1) / 2) as i64),
        }
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ring::Pow2(bits) => write!(f, "Z_2^{bits}"),
            Ring::Odd(modulus) => write!(f, "Z_{modulus}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_ring_round_trips_signed_values() {
        for ring in [Ring::Pow2(4), Ring::Pow2(6), Ring::Odd(3), Ring::Odd(17), Ring::Odd(31)] {
            let (low, high) = ring.signed_range();
            for value in low..=high {
                assert_eq!(ring.signed(ring.wrap::<u32>(value as i128)), value, "{ring}");
                assert_eq!(ring.signed(ring.wrap::<u64>(value as i128)), value, "{ring}");
            }
        }
    }

    #[test]
    fn bounds_of_the_widest_rings() {
        assert_eq!(Ring::Pow2(64).signed_range(), (i64::MIN, i64::MAX));
        assert_eq!(Ring::Pow2(64).signed(u64::MAX), -1);
        assert_eq!(Ring::Pow2(32).signed(0x8000_0000u32), i32::MIN as i64);
        assert_eq!(Ring::Odd(4_293_918_721).bits(), 32);
        assert!(Ring::pow2(65).is_err() && Ring::pow2(3).is_err() && Ring::odd(4).is_err());
    }
}
