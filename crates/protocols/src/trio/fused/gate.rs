//! The fused gate over one tile.

use covey_kernels::bits::expand_bits;
use covey_ring::{Ring, Word};

use super::super::digits::Digits;
use super::super::share::Role;
use super::super::site::{Site, purpose};
use super::form::{Form, Select};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// max(v≫f, 0).
///
/// P0 deals, A being R≫f and τ = 1 - σ:
/// - full and reduced: τ, -τ·A, -σ·A, and υ if there is a shift;
/// - flat: τ, τ·A, A, τ·b, b, where b is the mask of the borrow;
/// - and modulo 2^(bits of the ring above v≫f): full τ·msb(R), σ·msb(R); flat τ·msb(R), msb(R); reduced κ and κ + t, where κ
///   is the carry out of the low k-f bits of the result's masks and t the highest of those bits of their sum.
pub(in crate::trio) struct Fused<W> {
    layout: Layout,
    form: Form,
    site: Site,
    digits: Digits,
    /// R at P0, C at P1 and P2; before the opening, the own part of the product.
    value: Vec<W>,
    /// P1, P2: what P0 sent, by deal.
    dealt: Vec<Vec<W>>,
    /// P1, P2: what is sent in the round under way.
    own: Vec<W>,
    first: Vec<W>,
    second: Vec<W>,
}

impl<W: Word> Fused<W> {
    /// `value`: first + second of the share, or for an opening gate the product's own part: -v0 at P0 and the terms of
    /// `product.rs` at P1 and P2, each with its part of the bias.
    pub fn new(site: Site, form: Form, value: Vec<W>) -> Self {
        Fused {
            layout: form.layout(site.len),
            digits: Digits::new(site.clone(), form.program.clone()),
            form,
            site,
            value,
            dealt: Vec::new(),
            own: Vec::new(),
            first: Vec::new(),
            second: Vec::new(),
        }
    }

    /// P0, all it ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let (site, task) = (&self.site, self.form.task);
        let opened = self.form.opened();
        if task.opens {
            let (r01, r02) = site.masks::<W>(purpose::OPENING);
            self.value
                .iter_mut()
                .zip(r01.iter().zip(&r02))
                .for_each(|(r, (&x, &y))| *r = opened.reduce(r.add(x).add(y)));
        } else {
            self.value.iter_mut().for_each(|r| *r = opened.reduce(*r));
        }
        self.digits.deal(&self.value, out);
        (self.first, self.second) = site.masks(purpose::MASK);

        let sigma = bits::<W>(&self.digits, 0, site.len);
        let rest = if task.shift > 0 { bits::<W>(&self.digits, 1, site.len) } else { Vec::new() };
        let (f, sign) = (task.shift, task.compared - 1);
        let mut next = 0;
        let mut deal = |value: &dyn Fn(usize) -> W| {
            let (ring, to) = self.form.deals[next];
            let mut words = site.draw::<W>(3 - to, purpose::DEAL + next as u32);
            words.iter_mut().enumerate().for_each(|(i, word)| *word = value(i).sub(*word));
            out.words(to, &words, ring);
            next += 1;
        };
        let r = &self.value[..];
        // Multiplying by bits, not branching.
        let if_bit = |bit: W, value: W| value & W::ZERO.sub(bit);
        let if_not = |bit: W, value: W| value & bit.sub(W::ONE);
        deal(&|i| W::ONE.sub(sigma[i]));
        match self.form.select {
            Select::Full | Select::Reduced => {
                deal(&|i| if_not(sigma[i], r[i].shr(f)).neg());
                deal(&|i| if_bit(sigma[i], r[i].shr(f)).neg());
                if f > 0 {
                    deal(&|i| rest[i]);
                }
            }
            Select::Flat => {
                deal(&|i| if_not(sigma[i], r[i].shr(f)));
                deal(&|i| r[i].shr(f));
                deal(&|i| if_not(sigma[i], rest[i]));
                deal(&|i| rest[i]);
            }
        }
        if task.above() == 0 {
            return;
        }
        match self.form.select {
            Select::Full => {
                deal(&|i| if_not(sigma[i], r[i].shr(sign)));
                deal(&|i| if_bit(sigma[i], r[i].shr(sign)));
            }
            Select::Flat => {
                deal(&|i| if_not(sigma[i], r[i].shr(sign)));
                deal(&|i| r[i].shr(sign));
            }
            Select::Reduced => {
                let (low, shifted) = (Ring::Pow2(task.shifted()), task.shifted());
                let sum = |i: usize| low.reduce(self.first[i]).add(low.reduce(self.second[i]));
                deal(&|i| sum(i).shr(shifted));
                deal(&|i| sum(i).shr(shifted).add(low.reduce(sum(i)).shr(shifted - 1)));
            }
        }
    }

    /// P1, P2: this party's message of the opening, in place of its own part: -a at P1, b at P2, C = -a + b.
    fn open(&mut self, out: &mut Outbox) {
        let mask = self.site.draw::<W>(0, purpose::OPENING);
        let p1 = self.site.role == Role::P1;
        for (value, &mask) in self.value.iter_mut().zip(&mask) {
            *value = if p1 { mask.sub(*value) } else { value.add(mask) };
        }
        out.words(self.site.other(), &self.value, self.form.opened());
    }

    /// P1, P2: C is complete.
    fn set_public(&mut self) {
        let opened = self.form.opened();
        self.value.iter_mut().for_each(|c| *c = opened.reduce(*c));
        self.digits.set_public(&self.value);
    }

    /// This party's share of the result, sent under its mask.
    fn select(&mut self, out: &mut Outbox) {
        let task = self.form.task;
        let me = self.site.role as usize;
        for (index, &(_, to)) in self.form.deals.iter().enumerate() {
            if to != me {
                self.dealt.insert(index, self.site.draw(0, purpose::DEAL + index as u32));
            }
        }
        let sign = bits::<W>(&self.digits, 0, self.site.len);
        let rest = if task.shift > 0 { bits::<W>(&self.digits, 1, self.site.len) } else { Vec::new() };
        // P1 adds what is public.
        let first = if me == 1 { W::ONE } else { W::ZERO };
        let public = Public { sign: &sign, rest: &rest, c: &self.value, first, f: task.shift };
        self.own = match self.form.select {
            Select::Full | Select::Reduced => public.fused(&self.dealt),
            Select::Flat => public.flat(&self.dealt),
        };
        if task.above() > 0 && self.form.select != Select::Reduced {
            let at = self.dealt.len() - 2;
            let flat = self.form.select == Select::Flat;
            public.wrap(&self.dealt[at..], flat, (task.compared - 1, task.shifted()), &mut self.own);
        }
        self.second = self.site.draw(0, purpose::MASK);
        let masked: Vec<W> = self.own.iter().zip(&self.second).map(|(&y, &mask)| y.add(mask)).collect();
        out.words(self.site.other(), &masked, self.form.selected());
        if self.form.select == Select::Reduced {
            self.own = masked;
        }
        self.dealt.drain(..self.dealt.len() - if self.form.select == Select::Reduced { 2 } else { 0 });
    }

    /// Reduced: Y = y + z mod 2^(k-f) is known; this party's share of what lies above it in the result's public sum.
    fn extend(&mut self, out: &mut Outbox) {
        let (shifted, ring) = (self.form.task.shifted(), self.form.task.ring);
        let (low, above) = (Ring::Pow2(shifted), Ring::Pow2(self.form.task.above()));
        let (carry, wrapped) = (&self.dealt[0], &self.dealt[1]);
        self.value.clear();
        for (i, y) in self.own.iter_mut().enumerate() {
            *y = low.reduce(*y);
            // All ones where y's highest bit is 0.
            let small = y.shr(shifted - 1).sub(W::ONE);
            let share = carry[i] ^ ((carry[i] ^ wrapped[i]) & small);
            self.value.push(share.add(ring.reduce(self.second[i]).shr(shifted)));
        }
        out.words(self.site.other(), &self.value, above);
    }
}

/// What both online parties know at the select.
struct Public<'a, W> {
    /// S and U, or for the flat form B, as words.
    sign: &'a [W],
    rest: &'a [W],
    c: &'a [W],
    /// 1 at P1.
    first: W,
    f: u32,
}

impl<W: Word> Public<'_, W> {
    /// S ? first - x : x, that is the share of 1 - τ for a share of τ, `s` all ones where S.
    fn flip(&self, s: W, x: W) -> W {
        (x ^ s).sub(s).add(self.first & s)
    }

    /// T·(C≫f) + K_S - U ∓ υ, with T = S ? 1 - τ : τ.
    fn fused(&self, dealt: &[Vec<W>]) -> Vec<W> {
        let (tau, zero, one) = (&dealt[0][..], &dealt[1][..], &dealt[2][..]);
        let mut out: Vec<W> = Vec::with_capacity(self.c.len());
        for ((&c, &s), ((&tau, &zero), &one)) in self.c.iter().zip(self.sign).zip(tau.iter().zip(zero).zip(one)) {
            let s = W::ZERO.sub(s);
            out.push(self.flip(s, tau).mul(c.shr(self.f)).add(zero ^ ((zero ^ one) & s)));
        }
        if self.f > 0 {
            for ((y, &u), &upsilon) in out.iter_mut().zip(self.rest).zip(&dealt[3]) {
                let u = W::ZERO.sub(u);
                *y = y.sub(self.first & u).sub((upsilon ^ u).sub(u));
            }
        }
        out
    }

    /// T·(C≫f - B) - (τ·A)_S - (1-2B)·(τ·b)_S, with (τ·x)_S = S ? x - τ·x : τ·x.
    fn flat(&self, dealt: &[Vec<W>]) -> Vec<W> {
        let mut out: Vec<W> = Vec::with_capacity(self.c.len());
        for i in 0..self.c.len() {
            let (s, b) = (W::ZERO.sub(self.sign[i]), W::ZERO.sub(self.rest[i]));
            let chosen = |product: usize, whole: usize| (dealt[product][i] ^ s).sub(s).add(dealt[whole][i] & s);
            let (mask, borrow) = (chosen(1, 2), chosen(3, 4));
            let tau = self.flip(s, dealt[0][i]);
            out.push(tau.mul(self.c[i].shr(self.f).sub(self.rest[i])).sub(mask).sub((borrow ^ b).sub(b)));
        }
        out
    }

    /// Adds 2^(k-f) times the share of τ_S·msb(R) where msb(C) = 0.
    fn wrap(&self, dealt: &[Vec<W>], flat: bool, (sign, shifted): (u32, u32), out: &mut [W]) {
        for (i, y) in out.iter_mut().enumerate() {
            let s = W::ZERO.sub(self.sign[i]);
            let (zero, other) = (dealt[0][i], dealt[1][i]);
            let one = if flat { other.sub(zero) } else { other };
            let share = zero ^ ((zero ^ one) & s);
            let small = self.c[i].shr(sign).sub(W::ONE);
            *y = y.add(share.shl(shifted) & small);
        }
    }
}

/// A result of the digits as words 0 and 1.
fn bits<W: Word>(digits: &Digits, index: usize, len: usize) -> Vec<W> {
    let mut words = vec![W::ZERO; len];
    expand_bits(&digits.output(index).sum(), &mut words);
    words
}

impl<W: Word> Machine for Fused<W> {
    type Output = (Vec<W>, Vec<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.deal(out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if round == 0 && self.form.task.opens {
                    return self.open(out);
                }
                if round == 0 {
                    self.set_public();
                }
                if round < self.form.last() {
                    self.digits.local(round - self.form.start(), out);
                } else if round == self.form.last() {
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
        let add = |own: &mut [W], received: Vec<W>| own.iter_mut().zip(received).for_each(|(x, y)| *x = x.add(y));
        match step {
            Step::Offline => {
                self.digits.absorb_deal(inbox);
                let me = self.site.role as usize;
                let mine = self.form.deals.iter().filter(|(_, to)| *to == me);
                self.dealt = mine.map(|&(ring, _)| inbox.words(0, len, ring)).collect();
            }
            Step::Online(round) => {
                let from = self.site.other();
                if round < self.form.start() {
                    add(&mut self.value, inbox.words(from, len, self.form.opened()));
                    self.set_public();
                } else if round < self.form.last() {
                    self.digits.absorb(round - self.form.start(), inbox);
                } else if round == self.form.last() {
                    add(&mut self.own, inbox.words(from, len, self.form.selected()));
                } else {
                    // The result's public sum is Y + 2^(k-f)·Q; without the own mask it is the first component.
                    let task = self.form.task;
                    add(&mut self.value, inbox.words(from, len, Ring::Pow2(task.above())));
                    for ((y, &q), &mask) in self.own.iter_mut().zip(&self.value).zip(&self.second) {
                        *y = y.add(q.shl(task.shifted())).sub(mask);
                    }
                }
            }
        }
    }

    fn finish(mut self) -> Self::Output {
        let len = self.site.len;
        if self.site.role.is_online() {
            self.first = self.own;
        }
        // In a preprocessing run P1 and P2 never computed it.
        self.first.resize(len, W::ZERO);
        self.second.resize(len, W::ZERO);
        (self.first, self.second)
    }
}
