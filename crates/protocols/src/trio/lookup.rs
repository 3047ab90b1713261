//! Public tables at a secret index.
//!
//! J = i + R mod 2^k is the index's C, at P1 and P2; R its masks, at P0. P1 draws q, 2^k bits, with P0, who sends P2 q' = q with
//! bit R flipped ([`crate::masked::lookup`]). For each table P1 and P2 add up a1 and a2, and a2 - a1 = σ·T[i] with σ = 1 - 2·q[R],
//! which P0 alone knows and of which |q'| at P2 and -|q| at P1 are shares. They open Z = σ·T[i] + ρ, ρ drawn with P0; P0 deals σ·ρ, and
//! T[i] = σ·Z - σ·ρ is re-shared. One q serves all tables of an index, and no other index.

use covey_kernels::{Buffer, constant_time, elementwise, vectorised};
use covey_ring::{Ring, Word};

use super::share::Role;
use super::site::{Site, purpose};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::lookup::Sets;
use crate::masked::subsets::Reversed;

const PRODUCT: u32 = purpose::DEAL; // σ·ρ, for one table after the other
pub(crate) const SET: u32 = purpose::DEAL + 1; // q

/// Who is sent a share of σ·ρ; the other draws. P2 is sent the set.
const DEAL_TO: usize = 1;
const SET_TO: usize = 2;

pub(crate) fn layout(len: usize, ring: Ring, sets: Sets, tables: usize) -> Layout {
    let mut layout = Layout::default();
    layout.words(Step::Offline, 0, SET_TO, len * sets.words(), sets.ring());
    layout.words(Step::Offline, 0, DEAL_TO, len * tables, ring);
    for (round, (from, to)) in [0, 1].into_iter().flat_map(|round| [(round, (1, 2)), (round, (2, 1))]) {
        layout.words(Step::Online(round), from, to, len * tables, ring);
    }
    layout
}

/// Tables over one tile, one after the other in the result.
pub(crate) struct Lookup<'a, W> {
    layout: Layout,
    pub(crate) sets: Sets,
    pub(crate) site: Site,
    /// R at P0, J at P1 and P2.
    pub(crate) place: Buffer<W>,
    tables: &'a [Reversed<W>],
    /// P2: q'.
    set: Buffer<u64>,
    /// P1, P2: shares of σ and σ·ρ. P0: σ.
    pub(crate) sign: Buffer<W>,
    product: Buffer<W>,
    /// P1, P2: Z, and what this party has of it before. P0: ρ.
    pub(crate) opened: Buffer<W>,
    pub(crate) own: Buffer<W>,
    pub(crate) first: Buffer<W>,
    pub(crate) second: Buffer<W>,
}

vectorised! {
    /// σ·ρ, σ = 1 - 2·held
    fn signed<W: Word>(out: &mut [W], rho: &[W], held: &[W]) {
        for ((out, &rho), &held) in out.iter_mut().zip(rho).zip(held) {
            *out = (rho ^ W::ZERO.sub(held)).add(held);
        }
    }

    /// σ·Z - σ·ρ, of shares of σ and σ·ρ
    fn term<W: Word>(out: &mut [W], opened: &[W], sign: &[W], product: &[W]) {
        for (((out, &opened), &sign), &product) in out.iter_mut().zip(opened).zip(sign).zip(product) {
            *out = sign.mul(opened).sub(product);
        }
    }
}

impl<'a, W: Word> Lookup<'a, W> {
    /// `place`: first + second of the index.
    pub fn new(site: Site, place: Buffer<W>, sets: Sets, tables: &'a [Reversed<W>]) -> Self {
        Lookup {
            layout: layout(site.len, site.ring, sets, tables.len()),
            sets,
            site,
            place,
            tables,
            set: Buffer::new(),
            sign: Buffer::new(),
            product: Buffer::new(),
            opened: Buffer::new(),
            own: Buffer::new(),
            first: Buffer::new(),
            second: Buffer::new(),
        }
    }

    /// Words of all tables from the key shared with `peer`.
    fn draw(&self, peer: usize, purpose: u32) -> Buffer<W> {
        let mut out = Buffer::stale(self.site.len * self.tables.len());
        self.site.generators.words_into(peer, self.site.position, purpose, &mut out);
        out
    }

    /// P0, all it ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let (site, ring) = (&self.site, self.site.ring);
        let mut set = self.site.draw_sets(1, SET, self.sets);
        let held = self.sets.toggle(&mut set, &self.place);
        out.words(SET_TO, &set, self.sets.ring());
        let mut sign = held.clone();
        sign.iter_mut().for_each(|sign| *sign = W::ONE.sub(sign.add(*sign)));
        let mut rho = self.draw(1, purpose::OPENING);
        elementwise::add_assign(&mut rho, &self.draw(2, purpose::OPENING));
        let mut product = Buffer::stale(rho.len());
        for (product, rho) in product.chunks_exact_mut(site.len).zip(rho.chunks_exact(site.len)) {
            signed(product, rho, &held);
        }
        elementwise::sub_assign(&mut product, &self.draw(3 - DEAL_TO, PRODUCT));
        out.words(DEAL_TO, &product, ring);
        (self.sign, self.opened) = (sign, rho);
        (self.first, self.second) = (self.draw(1, purpose::MASK), self.draw(2, purpose::MASK));
    }

    /// P1, P2: ρ1 - a1 and ρ2 + a2.
    fn open(&mut self, out: &mut Outbox) {
        let first = self.site.role == Role::P1;
        // J decides where tables are read.
        constant_time::public(&self.place);
        let set = if first { self.site.draw_sets(0, SET, self.sets) } else { std::mem::take(&mut self.set) };
        self.opened = Buffer::stale(self.site.len * self.tables.len());
        for (sums, table) in self.opened.chunks_exact_mut(self.site.len).zip(self.tables) {
            self.sets.sums(sums, &set, &self.place, table);
        }
        self.sign = self.sets.sizes(&set, self.site.len);
        if first {
            elementwise::neg_assign(&mut self.sign);
        }
        let rho = self.draw(0, purpose::OPENING);
        match first {
            true => elementwise::sub_from_assign(&mut self.opened, &rho),
            false => elementwise::add_assign(&mut self.opened, &rho),
        }
        out.words(self.site.other(), &self.opened, self.site.ring);
    }

    /// P1, P2: the own term of T[i] under a fresh mask.
    fn reshare(&mut self, out: &mut Outbox) {
        if self.site.role as usize != DEAL_TO {
            self.product = self.draw(0, PRODUCT);
        }
        self.own = Buffer::stale(self.opened.len());
        let len = self.site.len;
        let dealt = self.opened.chunks_exact(len).zip(self.product.chunks_exact(len));
        for (own, (opened, product)) in self.own.chunks_exact_mut(len).zip(dealt) {
            term(own, opened, &self.sign, product);
        }
        self.second = self.draw(0, purpose::MASK);
        let mut masked = self.own.clone();
        elementwise::add_assign(&mut masked, &self.second);
        out.words(self.site.other(), &masked, self.site.ring);
    }
}

impl<W: Word> Machine for Lookup<'_, W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.deal(out),
            (Role::P1 | Role::P2, Step::Online(0)) => self.open(out),
            (Role::P1 | Role::P2, Step::Online(_)) => self.reshare(out),
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let (len, ring, other) = (self.site.len, self.site.ring, self.site.other());
        let all = len * self.tables.len();
        match step {
            Step::Offline if self.site.role as usize == SET_TO => {
                self.set = inbox.elements(0, len * self.sets.words(), self.sets.ring());
            }
            Step::Offline => self.product = inbox.elements(0, all, ring),
            Step::Online(0) => elementwise::add_assign(&mut self.opened, &inbox.elements(other, all, ring)),
            Step::Online(_) => {
                self.first = inbox.elements(other, all, ring);
                elementwise::add_assign(&mut self.first, &self.own);
            }
        }
    }

    fn finish(self) -> Self::Output {
        let all = self.site.len * self.tables.len();
        let whole = |part: Buffer<W>| if part.len() == all { part } else { Buffer::zeros(all) };
        (whole(self.first), whole(self.second))
    }
}
