//! Between rings of a session: shares of fewer bits than its ring, l, has (SIRNN's extensions and truncate-and-reduce, Rathee et al., S&P
//! 2021, sections III-B and III-C, on the carries of `comparison`).
//!
//! With x = x0 + x1 as integers less wrap·2^k: a share modulo 2^k is one modulo 2^l once wrap is shared modulo 2^(l-k), and
//! x≫s modulo 2^(l-s) needs no wrap at all, only the carry out of the low s bits.

use std::sync::Arc;

use covey_ring::{Ring, Tensor, Word};

use super::comparison::{self, Bits, Shape};
use super::gates::{converted, not_wrapped, plus_constant, ring_mask};
use super::plan::{self, Turns, choose};
use super::program::{Builder, GateProgram};
use super::{Arith, TwoParty};
use crate::api::{Options, Result};
use crate::cost::Cost;

/// This party's summand of a secret tensor in Z_2^bits, a smaller ring than the session's. Not `Debug`.
#[derive(Clone)]
pub struct Narrow<W> {
    bits: u32,
    share: Tensor<W>,
}

impl<W: Word> Narrow<W> {
    /// Bits of the ring.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        self.share.shape()
    }
}

/// How elements of Z_2^bits are read when the ring becomes wider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// As 0 to 2^bits - 1.
    Unsigned,
    /// As two's complement.
    Signed,
    /// As two's complement, `|x| < 2^(bits-2)`: no comparison is needed.
    Bounded,
}

/// A step between rings, with what its cost depends on; l is the session's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resize {
    /// [`TwoParty::extend`] from Z_2^bits to l bits.
    Extend {
        /// Of the narrow ring.
        bits: u32,
        /// How its elements are read.
        extension: Extension,
    },
    /// [`TwoParty::truncate_reduce`] to l - shift bits.
    TruncateReduce {
        /// Bits shifted out.
        shift: u32,
    },
}

impl Resize {
    /// Whether the rings are such that there is something to do.
    fn fits(self, ring: Ring) -> bool {
        match (ring, self) {
            (Ring::Odd(_), _) => false,
            (Ring::Pow2(l), Resize::Extend { bits, extension }) => {
                bits < l && bits >= if extension == Extension::Bounded { 3 } else { 1 }
            }
            (Ring::Pow2(l), Resize::TruncateReduce { shift }) => (1..l).contains(&shift),
        }
    }

    pub(super) fn program<W: Word>(self, l: u32, shape: Shape) -> Arc<GateProgram<W>> {
        match self {
            Resize::Extend { bits, extension } => extend(bits, l, extension, shape),
            Resize::TruncateReduce { shift } => truncate_reduce(l, shift, shape),
        }
    }

    fn turns<W: Word>(self, ring: Ring, options: &Options, count: usize) -> Turns<W> {
        choose(options, count, |shape| self.program(ring.bits(), shape))
    }
}

/// x≫s of the unsigned element, modulo 2^(l-s).
fn truncate_reduce<W: Word>(l: u32, s: u32, shape: Shape) -> Arc<GateProgram<W>> {
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let bits = Bits::of(&mut builder, x, s as usize);
    let (carry, _) = comparison::carry_out(&mut builder, &bits, 0..s as usize, 0, shape);
    let carry = converted(&mut builder, carry, Ring::Pow2(l - s), 0);
    let out = builder.local_words((&[x, carry], &[]), move |registers, out| {
        let (whole, narrow) = (ring_mask::<W>(l), ring_mask::<W>(l - s));
        let parts = registers.words(x).iter().zip(registers.words(carry));
        out.iter_mut().zip(parts).for_each(|(out, (&x, &carry))| *out = (x & whole).shr(s).add(carry) & narrow);
    });
    builder.finish(&[out], &[])
}

/// x modulo 2^l of an element of Z_2^k: raised by `offset` where it is signed, so that x0 + x1 - wrap·2^k is not negative.
fn extend<W: Word>(k: u32, l: u32, extension: Extension, shape: Shape) -> Arc<GateProgram<W>> {
    let (ring, missing) = (Ring::Pow2(l), Ring::Pow2(l - k));
    let mut builder = Builder::<W>::new();
    let x = builder.input_words();
    let offset = match extension {
        Extension::Unsigned => 0,
        Extension::Signed => 1u64 << (k - 1),
        Extension::Bounded => 1 << (k - 2),
    };
    let raised = plus_constant(&mut builder, x, offset, ring);
    // Of a bounded one the top bit is known to be clear: it wraps unless both summands' are.
    let known = extension == Extension::Bounded;
    let wrap = if known {
        not_wrapped(&mut builder, raised, k, missing, 1)
    } else {
        let bits = Bits::of(&mut builder, raised, k as usize);
        let (carry, _) = comparison::carry_out(&mut builder, &bits, 0..k as usize, 0, shape);
        converted(&mut builder, carry, missing, 0)
    };
    let out = builder.local_words((&[raised, wrap], &[]), move |registers, out| {
        let (first, mask) = (registers.me == 0, ring_mask::<W>(k));
        // P0 takes off the offset and, where `wrap` is the complement, its 1.
        let own = |first: bool, value: u64| if first { W::from_u64(value) } else { W::ZERO };
        let (offset, one) = (own(first, offset), own(first && known, 1));
        let parts = registers.words(raised).iter().zip(registers.words(wrap));
        out.iter_mut().zip(parts).for_each(|(out, (&x, &wrap))| {
            let wrap = if known { one.sub(wrap) } else { wrap };
            *out = (x & mask).sub(wrap.shl(k)).sub(offset);
        });
    });
    builder.finish(&[out], &[])
}

impl<W: Word> TwoParty<W> {
    /// x modulo 2^bits. Local.
    ///
    /// # Errors
    /// If the session's ring has no more bits than that, or is Z_n.
    pub fn reduce(&self, x: &Arith<W>, bits: u32) -> Result<Narrow<W>> {
        if !(Resize::Extend { bits, extension: Extension::Unsigned }).fits(self.party.ring) {
            return self.unsupported(format!(
                "elements of {} as {bits} bits; use fewer bits than the ring has",
                self.party.ring
            ));
        }
        let mask = ring_mask::<W>(bits);
        Ok(Narrow { bits, share: x.0.map(|x| x & mask) })
    }

    /// The elements of `x` in the session's ring, read as `extension` says.
    ///
    /// # Errors
    /// If a peer fails; if `x` is too narrow to be [`Extension::Bounded`].
    pub fn extend(&mut self, x: &Narrow<W>, extension: Extension) -> Result<Arith<W>> {
        self.resize(Resize::Extend { bits: x.bits, extension }, &x.share)
    }

    /// The top bits of x, all but the lowest `shift`, as an element of Z_2^(l-shift).
    ///
    /// # Errors
    /// If a peer fails; if the shift leaves no bits, or the ring is Z_n.
    pub fn truncate_reduce(&mut self, x: &Arith<W>, shift: u32) -> Result<Narrow<W>> {
        let share = self.resize(Resize::TruncateReduce { shift }, &x.0)?.0;
        Ok(Narrow { bits: self.party.ring.bits() - shift, share })
    }

    /// What a step between rings costs over `count` elements; nothing where it is refused.
    pub fn plan_resize(resize: Resize, count: usize, ring: Ring, options: &Options) -> Cost {
        match resize.fits(ring) {
            true => plan::of_program(&resize.turns::<W>(ring, options, count), count, options),
            false => Cost::default(),
        }
    }

    fn resize(&mut self, resize: Resize, x: &Tensor<W>) -> Result<Arith<W>> {
        if !resize.fits(self.party.ring) {
            return self.unsupported(format!(
                "{resize:?} in {}; use a ring Z_2^l between whose widths it fits",
                self.party.ring
            ));
        }
        let program = resize.turns(self.party.ring, &self.party.options, x.len());
        self.words(program, x.shape(), (&[x.data()], &[]))
    }
}
