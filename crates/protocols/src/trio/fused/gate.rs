//! The fused gate over one tile.

use covey_kernels::Buffer;
use covey_ring::{Ring, Word};

use super::super::share::Role;
use super::super::site::{Site, purpose};
use super::plan::{FusedReluPlan, Select};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::digits::Digits;
use crate::masked::fused::{Task, bits, mask};
use crate::masked::select as loops;

/// max(v≫f, 0).
///
/// P0 deals, A being R≫f and τ = 1 - σ:
/// - full and reduced: τ, -τ·A, -σ·A, and υ if there is a shift;
/// - flat: τ, τ·A, A, τ·b, b, where b is the mask of the borrow;
/// - and modulo 2^(bits of the ring above v≫f): full τ·msb(R), σ·msb(R); flat τ·msb(R), msb(R); reduced κ and κ + t, where κ
///   is the carry out of the low k-f bits of the result's masks and t the highest of those bits of their sum.
pub(crate) struct Fused<W> {
    layout: Layout,
    pub(crate) plan: FusedReluPlan,
    pub(crate) site: Site,
    pub(crate) digits: Digits,
    /// R at P0, C at P1 and P2; before the opening, the own part of the product.
    pub(crate) value: Buffer<W>,
    /// P1, P2: what P0 sent, by deal.
    dealt: Vec<Buffer<W>>,
    /// P1, P2: what is sent in the round under way.
    pub(crate) own: Buffer<W>,
    pub(crate) first: Buffer<W>,
    pub(crate) second: Buffer<W>,
}

impl<W: Word> Fused<W> {
    /// `value`: first + second of the share, or for an opening gate the product's own part: -v0 at P0 and the terms of
    /// `product.rs` at P1 and P2, each with its part of the bias.
    pub fn new(site: Site, plan: FusedReluPlan, value: Buffer<W>) -> Self {
        Fused {
            layout: plan.layout(site.len),
            digits: Digits::new(site.seat(), plan.digits.clone()),
            plan,
            site,
            value,
            dealt: Vec::new(),
            own: Buffer::new(),
            first: Buffer::new(),
            second: Buffer::new(),
        }
    }

    /// P0, all it ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let (site, task) = (&self.site, self.plan.task);
        let opened = mask(self.plan.task.opened());
        if task.opens {
            let (r01, r02) = site.masks::<W>(purpose::OPENING);
            loops::sum(&mut self.value, &r01, &r02, opened);
        } else {
            loops::reduce(&mut self.value, opened);
        }
        let cut = task.read(&self.value);
        self.digits.deal(cut.as_deref().unwrap_or(&self.value), out);
        (self.first, self.second) = site.masks(purpose::MASK);

        let sigma = bits::<W>(&self.digits, 0, site.len);
        let rest = if task.shift > 0 { bits::<W>(&self.digits, 1, site.len) } else { Buffer::new() };
        let (r, f, sign) = (&self.value[..], task.shift, task.compared - 1);
        let mut next = 0;
        // `value` turns the share that is drawn into the one that is sent.
        let mut deal = |value: &dyn Fn(&mut [W])| {
            let (ring, to) = self.plan.deals[next];
            let mut share = site.draw::<W>(3 - to, purpose::DEAL + next as u32);
            value(&mut share);
            out.words(to, &share, ring);
            next += 1;
        };
        // τ and σ as masks, and the signs of what they multiply.
        let (tau, just_sigma, plus, minus) = (!W::ZERO, W::ZERO, W::ZERO, !W::ZERO);
        deal(&|share| loops::one_less(share, &sigma));
        match self.plan.select {
            Select::Full | Select::Reduced => {
                deal(&|share| loops::product(share, r, &sigma, f, tau, minus));
                deal(&|share| loops::product(share, r, &sigma, f, just_sigma, minus));
                if f > 0 {
                    deal(&|share| loops::whole(share, &rest, 0));
                }
            }
            Select::Flat => {
                deal(&|share| loops::product(share, r, &sigma, f, tau, plus));
                deal(&|share| loops::whole(share, r, f));
                deal(&|share| loops::product(share, &rest, &sigma, 0, tau, plus));
                deal(&|share| loops::whole(share, &rest, 0));
            }
        }
        if task.above() == 0 {
            return;
        }
        let (low, shifted) = (mask(Ring::Pow2(task.shifted())), task.shifted());
        match self.plan.select {
            Select::Full => {
                deal(&|share| loops::product(share, r, &sigma, sign, tau, plus));
                deal(&|share| loops::product(share, r, &sigma, sign, just_sigma, plus));
            }
            Select::Flat => {
                deal(&|share| loops::product(share, r, &sigma, sign, tau, plus));
                deal(&|share| loops::whole(share, r, sign));
            }
            Select::Reduced => {
                deal(&|share| loops::carry(share, &self.first, &self.second, low, shifted, W::ZERO));
                deal(&|share| loops::carry(share, &self.first, &self.second, low, shifted, W::ONE));
            }
        }
    }

    /// P1, P2: this party's message of the opening, in place of its own part: -a at P1, b at P2, C = -a + b.
    fn open(&mut self, out: &mut Outbox) {
        let drawn = self.site.draw::<W>(0, purpose::OPENING);
        let negate = if self.site.role == Role::P1 { !W::ZERO } else { W::ZERO };
        loops::open(&mut self.value, &drawn, negate);
        out.words(self.site.other(), &self.value, self.plan.task.opened());
    }

    /// P1, P2: C is complete.
    fn set_public(&mut self) {
        loops::reduce(&mut self.value, mask(self.plan.task.opened()));
        let cut = self.plan.task.read(&self.value);
        self.digits.set_public(cut.as_deref().unwrap_or(&self.value));
    }

    /// This party's share of the result, sent under its mask.
    fn select(&mut self, out: &mut Outbox) {
        let task = self.plan.task;
        let me = self.site.role as usize;
        for (index, &(_, to)) in self.plan.deals.iter().enumerate() {
            if to != me {
                self.dealt.insert(index, self.site.draw(0, purpose::DEAL + index as u32));
            }
        }
        let sign = bits::<W>(&self.digits, 0, self.site.len);
        let rest = if task.shift > 0 { bits::<W>(&self.digits, 1, self.site.len) } else { Buffer::new() };
        // P1 adds what is public.
        let first = if me == 1 { W::ONE } else { W::ZERO };
        let (c, dealt, f) = (&self.value[..], &self.dealt, task.shift);
        self.own = Buffer::stale(self.site.len);
        let own = &mut self.own[..];
        match self.plan.select {
            Select::Full | Select::Reduced => {
                loops::select(own, c, &sign, &dealt[0], &dealt[1], &dealt[2], first, f);
                if f > 0 {
                    loops::subtract_bit(own, &rest, &dealt[3], first);
                }
            }
            Select::Flat => {
                loops::select_flat(own, c, &sign, &rest, &dealt[0], &dealt[1], &dealt[2], first, f);
                loops::subtract_flat(own, &sign, &rest, &dealt[3], &dealt[4]);
            }
        }
        if task.above() > 0 && self.plan.select != Select::Reduced {
            let at = dealt.len() - 2;
            let flat = if self.plan.select == Select::Flat { !W::ZERO } else { W::ZERO };
            loops::wrap(own, c, &sign, &dealt[at], &dealt[at + 1], flat, task.compared - 1, task.shifted());
        }
        self.second = self.site.draw(0, purpose::MASK);
        let mut masked = self.own.clone();
        loops::add(&mut masked, &self.second);
        out.words(self.site.other(), &masked, self.plan.selected());
        if self.plan.select == Select::Reduced {
            self.own = masked;
        }
        self.dealt.drain(..self.dealt.len() - if self.plan.select == Select::Reduced { 2 } else { 0 });
    }

    /// Reduced: Y = y + z mod 2^(k-f) is known; this party's share of what lies above it in the result's public sum.
    fn extend(&mut self, out: &mut Outbox) {
        let (shifted, ring) = (self.plan.task.shifted(), self.plan.task.ring);
        let low = mask(Ring::Pow2(shifted));
        let (carry, wrapped, second) = (&self.dealt[0], &self.dealt[1], &self.second);
        // What is extended must not be negative.
        loops::offset(&mut self.own, below_zero(self.plan.task));
        loops::extend(&mut self.value, &mut self.own, carry, wrapped, second, mask(ring), low, shifted);
        out.words(self.site.other(), &self.value, Ring::Pow2(self.plan.task.above()));
    }
}

/// How far below 0 the result may come out: not at all, unless bits are left out.
pub(crate) fn below_zero<W: Word>(task: Task) -> W {
    if task.skipped == 0 { W::ZERO } else { W::ONE.shl(task.skipped) }
}

impl<W: Word> Machine for Fused<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.deal(out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if round == 0 && self.plan.task.opens {
                    return self.open(out);
                }
                if round == 0 {
                    self.set_public();
                }
                if round < self.plan.last() {
                    self.digits.local(round - self.plan.start(), out);
                } else if round == self.plan.last() {
                    self.select(out);
                } else {
                    self.extend(out);
                }
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let len = self.site.len;
        let add = |own: &mut [W], received: Buffer<W>| loops::add(own, &received);
        match step {
            Step::Offline => {
                self.digits.absorb_deal(inbox);
                let me = self.site.role as usize;
                let mine = self.plan.deals.iter().filter(|(_, to)| *to == me);
                self.dealt = mine.map(|&(ring, _)| inbox.elements(0, len, ring)).collect();
            }
            Step::Online(round) => {
                let from = self.site.other();
                if round < self.plan.start() {
                    add(&mut self.value, inbox.elements(from, len, self.plan.task.opened()));
                    self.set_public();
                } else if round < self.plan.last() {
                    self.digits.absorb(round - self.plan.start(), inbox);
                } else if round == self.plan.last() {
                    add(&mut self.own, inbox.elements(from, len, self.plan.selected()));
                } else {
                    // The result's public sum is Y + 2^(k-f)·Q; without the own mask it is the first component.
                    let task = self.plan.task;
                    add(&mut self.value, inbox.elements(from, len, Ring::Pow2(task.above())));
                    loops::join(&mut self.own, &self.value, &self.second, task.shifted());
                    loops::offset(&mut self.own, W::ZERO.sub(below_zero(task)));
                }
            }
        }
    }

    fn finish(mut self) -> Self::Output {
        if self.site.role.is_online() {
            self.first = self.own;
        }
        self.site.output(self.first, self.second)
    }
}
