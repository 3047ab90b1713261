//! Right shifts, of a share or of a product whose opening is the gate's first round.
//!
//! The parties open C = v + R mod 2^l, the dealer knows R. Exact: with 2^(l-2) added so that 0 <= v < 2^(l-1),
//! v≫f = (C≫f) - (R≫f) - β + 2^(l-f)·¬msb(C)·msb(R), β = [C mod 2^f < R mod 2^f] from a digit tree. Ulp leaves β out.
//! Probabilistic leaves out the wrap too and adds nothing.

use std::sync::Arc;

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Ring, Word};

use super::site::{Moves, Site, purpose, spread, table_of};
use super::tree;
use crate::api::{Options, Rounding, Truncation};
use crate::circuits::digits::Root;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::digits::{self, DigitCircuit, Digits};
use crate::masked::{Table, select};

/// The shape of a shift, shared by its tiles.
#[derive(Clone)]
pub(super) struct TruncationPlan {
    bits: u32,
    rounding: Rounding,
    ring: Ring,
    table: Table,
    /// R≫f; unless probabilistic, msb(R) modulo 2^f; if exact, the dealer's part of β.
    deals: Vec<(Ring, usize)>,
    /// If exact.
    borrow: Option<Arc<DigitCircuit>>,
}

impl TruncationPlan {
    /// The plan over `count` elements.
    pub fn new(truncation: Truncation, ring: Ring, options: &Options, count: usize) -> Self {
        let Truncation { bits, rounding, .. } = truncation;
        let rings: &[Ring] = match rounding {
            Rounding::Exact => &[ring, Ring::Pow2(bits), ring],
            Rounding::Ulp => &[ring, Ring::Pow2(bits)],
            Rounding::Probabilistic => &[ring],
        };
        let mut sent = vec![0; options.parties];
        let deals = spread(rings.iter().copied(), &mut sent);
        let borrow =
            (rounding == Rounding::Exact).then(|| tree::alone(Root::Borrow, bits as usize, options, count, &sent));
        TruncationPlan { bits, rounding, ring, table: table_of(options), deals, borrow }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        layout.open_words(self.table, 0, len, self.ring);
        layout.deal_words(self.table, &self.deals, len);
        if let Some(borrow) = &self.borrow {
            digits::layout(borrow, self.table, len, 1, &mut layout);
        }
        layout
    }
}

/// The shift over one tile.
pub(super) struct Truncate<W> {
    layout: Layout,
    plan: TruncationPlan,
    site: Site,
    borrow: Option<Digits>,
    /// A party's share of v, then C with the offset; at the dealer what is taken off v's shares, then R.
    value: Buffer<W>,
    received: Vec<Buffer<W>>,
    result: Buffer<W>,
}

impl<W: Word> Truncate<W> {
    /// `value` as in [`super::fused::Fused::new`].
    pub fn new(site: Site, plan: TruncationPlan, value: Buffer<W>) -> Self {
        Truncate {
            layout: plan.layout(site.len()),
            borrow: plan.borrow.as_ref().map(|circuit| Digits::new(site.seat.clone(), circuit.clone())),
            plan,
            site,
            value,
            received: Vec::new(),
            result: Buffer::new(),
        }
    }

    fn deal(&mut self, out: &mut Outbox) {
        let (site, l) = (&self.site, self.plan.ring.bits());
        elementwise::add_assign(&mut self.value, &site.draw(purpose::OPENING));
        select::reduce(&mut self.value, self.plan.ring.reduce(!W::ZERO));
        let r = &self.value[..];
        let mut deals = self.plan.deals.iter().copied().zip(purpose::DEAL..);
        let mut deal = |value: &dyn Fn(&mut [W]), out: &mut Outbox| {
            if let Some((deal, purpose)) = deals.next() {
                site.deal(deal, purpose, value, out);
            }
        };
        if let Some(borrow) = &mut self.borrow {
            borrow.deal(r, out);
        }
        deal(&|share| select::whole(share, r, self.plan.bits), out);
        deal(&|share| select::whole(share, r, l - 1), out);
        if let Some(borrow) = &self.borrow {
            let mut bit = Buffer::<W>::stale(site.len());
            expand_bits(&borrow.output(0).value, &mut bit);
            deal(&|share| select::whole(share, &bit, 0), out);
        }
    }

    /// A party: C is complete, before the borrow is known.
    fn set_public(&mut self) {
        select::offset(&mut self.value, self.plan.rounding.offset(self.plan.ring));
        select::reduce(&mut self.value, self.plan.ring.reduce(!W::ZERO));
        match &mut self.borrow {
            Some(borrow) => borrow.set_public(&self.value),
            None => self.share(),
        }
    }

    /// A party: its share of the result.
    fn share(&mut self) {
        let (site, plan) = (&self.site, &self.plan);
        let dealt = site.dealt(&plan.deals, &mut self.received);
        let (first, f, l) = (site.first::<W>(), plan.bits, plan.ring.bits());
        let mut own = Buffer::stale(site.len());
        shifted(&mut own, &self.value, &dealt[0], first, f, plan.rounding.offset::<W>(plan.ring).shr(f));
        if let Some(wrap) = dealt.get(1) {
            wrapped(&mut own, &self.value, wrap, l, f);
        }
        if let (Some(borrow), Some(mask)) = (&self.borrow, dealt.get(2)) {
            let mut bit = Buffer::<W>::stale(site.len());
            expand_bits(&borrow.output(0).value, &mut bit);
            select::subtract_bit(&mut own, &bit, mask, first);
        }
        self.result = own;
    }
}

vectorised! {
    /// `first·((C≫f) - offset) - shifted`
    fn shifted<W: Word>(out: &mut [W], c: &[W], shifted: &[W], first: W, f: u32, offset: W) {
        for ((out, &c), &shifted) in out.iter_mut().zip(c).zip(shifted) {
            *out = first.mul(c.shr(f).sub(offset)).sub(shifted);
        }
    }

    /// Adds 2^(l-f)·wrap where the top bit of C is 0.
    fn wrapped<W: Word>(out: &mut [W], c: &[W], wrap: &[W], l: u32, f: u32) {
        for ((out, &c), &wrap) in out.iter_mut().zip(c).zip(wrap) {
            *out = out.add(wrap.shl(l - f) & c.shr(l - 1).sub(W::ONE));
        }
    }
}

impl<W: Word> Machine for Truncate<W> {
    type Output = Buffer<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => self.deal(out),
            (Some(_), Step::Online(0)) => self.site.open_send(&mut self.value, purpose::OPENING, self.plan.ring, out),
            (Some(_), Step::Online(round)) => {
                if let Some(borrow) = &mut self.borrow {
                    borrow.local(round - 1, out);
                }
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match (step, &mut self.borrow, &self.plan.borrow) {
            (Step::Offline, borrow, _) => {
                if let Some(borrow) = borrow {
                    borrow.absorb_deal(inbox);
                }
                self.received = self.site.receive_dealt(&self.plan.deals, inbox);
            }
            (Step::Online(0), ..) => {
                self.site.open_receive(&mut self.value, self.plan.ring, inbox);
                self.set_public();
            }
            (Step::Online(round), Some(borrow), Some(circuit)) => {
                borrow.absorb(round - 1, inbox);
                if round == circuit.levels.len() {
                    self.share();
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Buffer<W> {
        self.site.output(self.result)
    }
}
