//! What the gates that fuse a ReLU with the shift before it have in common: their task, and what they read of its operands.

use covey_kernels::Buffer;
use covey_kernels::bits::expand_bits;
use covey_ring::{Ring, Word};

use super::digits::Digits;
use super::select;
use crate::api::{Comparison, Options, Truncation};

/// What a gate computes: max(v≫f, 0) for |v| < 2^(k-1), from C = v + R mod 2^k or from the parts of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Whether C is opened first.
    pub opens: bool,
    /// k, at most the ring's bits.
    pub compared: u32,
    /// f, below k - 1; 0 for none.
    pub shift: u32,
    /// Bits of v≫f, from its lowest, that the comparison leaves out: it then errs for |v| < 2^(f + skipped).
    pub skipped: u32,
    /// The ring of the result.
    pub ring: Ring,
}

impl Task {
    /// A bound on the shifted value bounds v itself: |v≫f| < 2^b gives |v| < 2^(b+f).
    pub fn new(opens: bool, truncate: Option<Truncation>, relu: Comparison, ring: Ring, options: &Options) -> Self {
        let shift = truncate.map_or(0, |truncation| truncation.bits);
        let (read, skipped) = relu.read(ring.bits() - shift, options);
        Task { opens, compared: shift + skipped + read + 1, shift, skipped, ring }
    }

    /// The ring in which C is opened.
    pub fn opened(&self) -> Ring {
        Ring::Pow2(self.compared)
    }

    /// Bits of C and R that the tree compares.
    pub fn tree_bits(&self) -> usize {
        (self.compared - 1 - self.skipped) as usize
    }

    /// Bits of the shifted value.
    pub fn shifted(&self) -> u32 {
        self.compared - self.shift
    }

    /// Bits of the result's ring above those.
    pub fn above(&self) -> u32 {
        self.ring.bits() - self.shifted()
    }

    /// What the digit tree reads of C or R, where that is not all of it: without the bits that the comparison leaves out, whose
    /// borrow it takes to be that of the bits below. A wrong sign of v then needs C and R to agree above those bits, so C≫f - R≫f
    /// does not wrap.
    pub fn read<W: Word>(&self, value: &[W]) -> Option<Buffer<W>> {
        (self.skipped > 0).then(|| {
            let mut read = Buffer::copy_of(value);
            select::without(&mut read, self.shift, self.skipped);
            read
        })
    }
}

/// The low bits of a word that are a ring element.
pub(crate) fn mask<W: Word>(ring: Ring) -> W {
    ring.reduce(!W::ZERO)
}

/// A result of the digits, or at the dealer its mask, as words 0 and 1.
pub(crate) fn bits<W: Word>(digits: &Digits, index: usize, len: usize) -> Buffer<W> {
    let mut words = Buffer::stale(len);
    expand_bits(&digits.output(index).value, &mut words);
    words
}
