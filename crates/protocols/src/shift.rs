//! Which shifts a protocol takes, and how it refuses the others.

use covey_ring::{Ring, Word};

use crate::api::{Rounding, Truncation};

impl Truncation {
    /// Half of what the shift leaves as one.
    pub(crate) fn half<W: Word>(self) -> W {
        W::ONE.shl(self.bits.max(1) - 1)
    }

    /// Whether a shift of v is exact that opens v + 2^(l-2) under a mask, or v itself where it need not be: Trio's and Beaver's.
    pub(crate) fn fits_masked(self, ring: Ring) -> bool {
        let l = ring.bits();
        let room = if self.rounding == Rounding::Probabilistic { l - 1 } else { l - 2 };
        (1..=l - 2).contains(&self.bits) && self.bound <= room
    }

    /// What a protocol that takes values of at most `most` bits refuses.
    pub(crate) fn refusal(self, ring: Ring, most: u32) -> String {
        let Truncation { bits, bound, .. } = self;
        format!(
            "shifting values of {bound} bits by {bits} in {ring}: it needs 1 to {} bits of shift and values of at most {most} \
             bits; compile with a larger ring or a smaller scale",
            ring.bits() - 2
        )
    }
}

impl Rounding {
    /// What masked shifts add before and take off, shifted, afterwards, so that nothing they open is negative: 2^(l-2).
    pub(crate) fn offset<W: Word>(self, ring: Ring) -> W {
        match self {
            Rounding::Probabilistic => W::ZERO,
            _ => W::ONE.shl(ring.bits() - 2),
        }
    }
}
