//! The values of sharings that are right modulo 2^k alone.
//!
//! With |x| < 2^(k-2) and C = x + 2^(k-2) + z mod 2^k public, z = l1 + l2 mod 2^k: x + 2^(k-2) = C - z + 2^k·¬msb(C)·msb(z). The result
//! keeps the low bits of the masks and draws those above anew, h1 and h2. With κ the carry of the low bits of l1 + l2, its public sum is
//! C + 2^k·Q for Q = κ + ¬msb(C)·msb(z) + h1 + h2, which P1 and P2 open; P0 deals κ and κ + msb(z).

use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Ring, Word};

use super::share::Role;
use super::site::{Moves, Site, purpose};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::fused::mask;
use crate::masked::select as loops;

const CARRY: u32 = purpose::DEAL; // κ
const WRAPPED: u32 = purpose::DEAL + 1; // κ + msb(z)

/// Who is sent a share of each; the other draws.
const CARRY_TO: usize = 2;
const WRAPPED_TO: usize = 1;

/// The messages of a gate over values of `bits` bits.
pub(crate) fn layout(len: usize, ring: Ring, bits: u32) -> Layout {
    let above = Ring::Pow2(ring.bits() - bits);
    let mut layout = Layout::default();
    layout.deal_words(CARRY_TO, len, above);
    layout.deal_words(WRAPPED_TO, len, above);
    layout.reshare_words(0, len, above);
    layout
}

vectorised! {
    /// The low bits of `mask`, and above them those that are drawn in `out`.
    fn above<W: Word>(out: &mut [W], mask: &[W], low: W) {
        out.iter_mut().zip(mask).for_each(|(out, &mask)| *out = (*out & !low) | (mask & low));
    }
}

/// The gate over one tile.
pub(crate) struct Widen<W> {
    layout: Layout,
    site: Site,
    bits: u32,
    first: Buffer<W>,
    second: Buffer<W>,
    carry: Buffer<W>,
    wrapped: Buffer<W>,
    /// P1, P2: C, then the result's first component.
    value: Buffer<W>,
    /// P1, P2: Q.
    own: Buffer<W>,
}

impl<W: Word> Widen<W> {
    /// Both components of a share of values of `bits` bits.
    pub fn new(site: Site, bits: u32, first: Buffer<W>, second: Buffer<W>) -> Self {
        let (carry, wrapped, value, own) = Default::default();
        Widen { layout: layout(site.len, site.ring, bits), site, bits, first, second, carry, wrapped, value, own }
    }

    fn low(&self) -> W {
        mask(Ring::Pow2(self.bits))
    }

    fn above(&self) -> Ring {
        Ring::Pow2(self.site.ring.bits() - self.bits)
    }

    /// 2^(k-2)
    fn offset(&self) -> W {
        W::ONE.shl(self.bits - 2)
    }

    /// P0, all it ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let (mut first, mut second) = self.site.masks::<W>(purpose::MASK);
        above(&mut first, &self.first, self.low());
        above(&mut second, &self.second, self.low());
        for (to, deal, top) in [(CARRY_TO, CARRY, W::ZERO), (WRAPPED_TO, WRAPPED, W::ONE)] {
            // This subtracts what it is given.
            let mut value = Buffer::zeros(self.site.len);
            loops::carry(&mut value, &first, &second, self.low(), self.bits, top);
            self.site.deal(to, deal, &value, self.above(), out);
        }
        (self.first, self.second) = (first, second);
    }

    /// P1, P2: the own part of Q.
    fn open(&mut self, out: &mut Outbox) {
        let mut drawn = self.site.draw::<W>(0, purpose::MASK);
        above(&mut drawn, &self.second, self.low());
        self.site.draw_dealt(CARRY_TO, CARRY, &mut self.carry);
        self.site.draw_dealt(WRAPPED_TO, WRAPPED, &mut self.wrapped);
        self.value = std::mem::take(&mut self.first);
        elementwise::add_assign(&mut self.value, &self.second);
        let offset = self.offset();
        loops::offset(&mut self.value, offset);
        self.second = drawn;
        self.own = Buffer::stale(self.site.len);
        let (carry, wrapped, ring) = (&self.carry, &self.wrapped, mask(self.site.ring));
        let low = self.low();
        loops::extend(&mut self.own, &mut self.value, carry, wrapped, &self.second, ring, low, self.bits);
        out.words(self.site.other(), &self.own, self.above());
    }
}

impl<W: Word> Machine for Widen<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.deal(out),
            (Role::P1 | Role::P2, Step::Online(_)) => self.open(out),
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let above = self.above();
        if step == Step::Offline {
            self.site.receive_dealt(CARRY_TO, above, inbox, &mut self.carry);
            self.site.receive_dealt(WRAPPED_TO, above, inbox, &mut self.wrapped);
            return;
        }
        elementwise::add_assign(&mut self.own, &inbox.elements(self.site.other(), self.site.len, above));
        loops::join(&mut self.value, &self.own, &self.second, self.bits);
        let offset = self.offset();
        loops::offset(&mut self.value, offset.neg());
    }

    fn finish(mut self) -> Self::Output {
        if self.site.role.is_online() {
            self.first = self.value;
        }
        self.site.output(self.first, self.second)
    }
}
