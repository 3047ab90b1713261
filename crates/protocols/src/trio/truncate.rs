//! Right shifts, of a shared value or of a product whose opening C is the gate's first round.
//!
//! P1 and P2 know C = v + R mod 2^l, P0 knows R. Exact: with 2^(l-2) added so that 0 <= v < 2^(l-1),
//! v≫f = (C≫f) - (R≫f) - β + 2^(l-f)·w with β = [C mod 2^f < R mod 2^f] from the borrow circuit and
//! w = [C < R] = ¬msb(C)·msb(R). Ulp leaves β out. Probabilistic leaves w out too, adds nothing, and so needs no reshare.

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Ring, Word};

use super::comparison::{Comparison, ComparisonPlan};
use super::share::Role;
use super::site::{Moves, Site, purpose};
use crate::api::{Options, Rounding, Truncation};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

const SHIFTED: u32 = purpose::DEAL; // R≫f
const WRAP: u32 = purpose::DEAL + 1; // msb(R), modulo 2^f
const BORROW: u32 = purpose::DEAL + 2; // P0's part of β

/// Who is sent a share of each; the other draws.
const SHIFTED_TO: usize = 2;
const WRAP_TO: usize = 1;
const BORROW_TO: usize = 1;

/// The shape of a truncation gate, shared by its tiles.
#[derive(Clone)]
pub(crate) struct TruncationPlan {
    pub(crate) bits: u32,
    pub(crate) rounding: Rounding,
    /// Whether the gate starts by opening C.
    pub(crate) opens: bool,
    pub(crate) ring: Ring,
    pub(crate) circuit: ComparisonPlan,
}

impl TruncationPlan {
    /// The plan over `count` elements.
    pub fn new(truncation: Truncation, opens: bool, ring: Ring, options: &Options, count: usize) -> Self {
        let (f, l) = (truncation.bits as usize, ring.bits() as usize);
        let dealt = [f + l, l];
        let circuit = ComparisonPlan::borrow(f, options, count, dealt);
        TruncationPlan { bits: truncation.bits, rounding: truncation.rounding, opens, ring, circuit }
    }

    /// Round in which the circuit, or else the reshare, starts.
    pub(crate) fn start(&self) -> usize {
        usize::from(self.opens)
    }

    /// Round of the last reshare.
    pub(crate) fn last(&self) -> usize {
        match self.rounding {
            Rounding::Exact => self.start() + self.circuit.rounds(),
            Rounding::Ulp => self.start(),
            Rounding::Probabilistic => usize::MAX,
        }
    }

    /// The ring in which msb(R) is dealt: times 2^(l-f), only its low f bits count.
    pub(crate) fn wrap_ring(&self) -> Ring {
        Ring::Pow2(self.bits)
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        if self.opens {
            layout.reshare_words(0, len, self.ring);
        }
        layout.deal_words(SHIFTED_TO, len, self.ring);
        if self.rounding == Rounding::Probabilistic {
            return layout;
        }
        layout.deal_words(WRAP_TO, len, self.wrap_ring());
        if self.rounding == Rounding::Exact {
            self.circuit.layout(len, self.start(), &mut layout);
            layout.deal_words(BORROW_TO, len, self.ring);
        }
        layout.reshare_words(self.last(), len, self.ring);
        layout
    }
}

/// The shift over one tile.
pub(crate) struct Truncate<W> {
    layout: Layout,
    pub(crate) plan: TruncationPlan,
    pub(crate) site: Site,
    /// R at P0, C at P1 and P2, offset included; before the opening, the own part of the product.
    pub(crate) value: Buffer<W>,
    /// P1, P2: shares of R≫f, msb(R) and P0's part of β.
    shifted: Buffer<W>,
    wrap: Buffer<W>,
    mask_bit: Buffer<W>,
    pub(crate) borrow: Comparison,
    pub(crate) own: Buffer<W>,
    pub(crate) first: Buffer<W>,
    pub(crate) second: Buffer<W>,
}

impl<W: Word> Truncate<W> {
    /// `value`: first + second of the share, or for an opening gate the product's own part: -v0 at P0 and the terms of
    /// `product.rs` at P1 and P2, each with its part of the bias.
    pub fn new(site: Site, plan: TruncationPlan, value: Buffer<W>) -> Self {
        Truncate {
            layout: plan.layout(site.len),
            borrow: Comparison::new(site.clone(), &plan.circuit),
            plan,
            site,
            value,
            shifted: Buffer::new(),
            wrap: Buffer::new(),
            mask_bit: Buffer::new(),
            own: Buffer::new(),
            first: Buffer::new(),
            second: Buffer::new(),
        }
    }

    fn is_exact(&self) -> bool {
        self.plan.rounding == Rounding::Exact
    }

    /// P0, all it ever does: R, the circuit's material, the deals, the output's masks.
    fn deal(&mut self, out: &mut Outbox) {
        let (site, ring, f) = (&self.site, self.plan.ring, self.plan.bits);
        if self.plan.opens {
            let (r01, r02) = site.masks::<W>(purpose::OPENING);
            elementwise::add_assign(&mut self.value, &r01);
            elementwise::add_assign(&mut self.value, &r02);
        }
        self.value.iter_mut().for_each(|r| *r = ring.reduce(*r));
        let shifted = shifted_right(&self.value, f);
        if self.plan.rounding == Rounding::Probabilistic {
            // The output's masks are the two halves of R≫f.
            self.first = site.draw(1, SHIFTED);
            self.second = shifted.clone();
            elementwise::sub_assign(&mut self.second, &self.first);
            site.deal(SHIFTED_TO, SHIFTED, &shifted, ring, out);
            return;
        }
        if self.is_exact() {
            self.borrow.deal(&self.value, out);
        }
        site.deal(SHIFTED_TO, SHIFTED, &shifted, ring, out);
        site.deal(WRAP_TO, WRAP, &shifted_right(&self.value, ring.bits() - 1), self.plan.wrap_ring(), out);
        if self.is_exact() {
            let mut mask_bit = Buffer::<W>::stale(site.len);
            expand_bits(&self.borrow.borrow().sum(), &mut mask_bit);
            site.deal(BORROW_TO, BORROW, &mask_bit, ring, out);
        }
        (self.first, self.second) = site.masks(purpose::MASK);
    }

    /// P1, P2: this party's message of the opening, in place of its own part: -a at P1, b at P2, C = -a + b.
    fn open(&mut self, out: &mut Outbox) {
        let mask = self.site.draw::<W>(0, purpose::OPENING);
        match self.site.role {
            Role::P1 => elementwise::sub_from_assign(&mut self.value, &mask),
            _ => elementwise::add_assign(&mut self.value, &mask),
        }
        out.words(self.site.other(), &self.value, self.plan.ring);
    }

    /// P1, P2: C is complete.
    fn set_public(&mut self) {
        let (ring, offset) = (self.plan.ring, self.plan.rounding.offset::<W>(self.plan.ring));
        self.value.iter_mut().for_each(|c| *c = ring.reduce(c.add(offset)));
        match self.plan.rounding {
            Rounding::Exact => self.borrow.set_public(&self.value),
            Rounding::Ulp => {}
            Rounding::Probabilistic => {
                self.second = if self.site.role == Role::P1 {
                    self.site.draw(0, SHIFTED)
                } else {
                    std::mem::take(&mut self.shifted)
                };
                let f = self.plan.bits;
                self.first = shifted_right(&self.value, f);
                elementwise::sub_assign(&mut self.first, &self.second);
            }
        }
    }

    /// P1, P2: t_i = -(R≫f)_i - (1 - 2m)·y_i + 2^(l-f)·¬msb(C)·r_i, and the public (C≫f) - m - 2^(l-2-f), where β = m ⊕ y.
    fn reshare(&mut self, out: &mut Outbox) {
        let (site, ring, f) = (&self.site, self.plan.ring, self.plan.bits);
        let l = ring.bits();
        site.draw_dealt(SHIFTED_TO, SHIFTED, &mut self.shifted);
        site.draw_dealt(WRAP_TO, WRAP, &mut self.wrap);
        if self.plan.rounding == Rounding::Exact {
            site.draw_dealt(BORROW_TO, BORROW, &mut self.mask_bit);
        }
        let mut borrow = Buffer::zeros(site.len);
        if self.is_exact() {
            expand_bits(&self.borrow.borrow().sum(), &mut borrow);
        } else {
            self.mask_bit = Buffer::zeros(site.len);
        }
        let offset = W::ONE.shl(l - 2 - f);
        // The public part takes the place of C, this party's that of its share of R≫f.
        let t = &mut self.shifted;
        terms(t, &mut self.value, &borrow, &self.wrap, &self.mask_bit, offset, f, l);
        self.second = site.reshare_send(purpose::MASK, t, out);
        self.own = std::mem::take(&mut self.value);
        elementwise::add_assign(&mut self.own, t);
    }
}

impl<W: Word> Machine for Truncate<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.deal(out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if self.plan.opens && round == 0 {
                    return self.open(out);
                }
                if round == 0 {
                    self.set_public();
                }
                if round == self.plan.last() {
                    self.reshare(out);
                } else if self.is_exact() {
                    self.borrow.local(round - self.plan.start(), out);
                }
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let ring = self.plan.ring;
        match step {
            Step::Offline => {
                let exact = self.is_exact();
                if exact {
                    self.borrow.absorb_deal(inbox);
                }
                self.site.receive_dealt(SHIFTED_TO, ring, inbox, &mut self.shifted);
                if self.plan.rounding != Rounding::Probabilistic {
                    self.site.receive_dealt(WRAP_TO, self.plan.wrap_ring(), inbox, &mut self.wrap);
                }
                if exact {
                    self.site.receive_dealt(BORROW_TO, ring, inbox, &mut self.mask_bit);
                }
            }
            Step::Online(0) if self.plan.opens => {
                self.value = self.site.reshare_receive(&self.value, inbox);
                self.set_public();
            }
            Step::Online(round) if round == self.plan.last() => {
                self.first = self.site.reshare_receive(&self.own, inbox)
            }
            Step::Online(round) => self.borrow.absorb(round - self.plan.start(), inbox),
        }
    }

    fn finish(mut self) -> Self::Output {
        // A probabilistic shift of a share exchanges nothing online, so no step has told P1 and P2 to compute it.
        // In a preprocessing run P2 holds no material and its output stays zero.
        let probabilistic = self.plan.rounding == Rounding::Probabilistic && !self.plan.opens;
        let ready = self.site.role == Role::P1 || !self.shifted.is_empty();
        if probabilistic && self.site.role.is_online() && ready {
            self.set_public();
        }
        self.site.output(self.first, self.second)
    }
}

/// `values` ≫ `bits`.
pub(crate) fn shifted_right<W: Word>(values: &[W], bits: u32) -> Buffer<W> {
    let mut out = Buffer::copy_of(values);
    elementwise::shr_assign(&mut out, bits);
    out
}

vectorised! {
    /// From `shifted`, (R≫f)_i, `c` and the borrow's public part m: t_i and the public part, in their places.
    #[allow(clippy::too_many_arguments)] // One pass over all of them.
    fn terms<W: Word>(
        shifted: &mut [W], c: &mut [W], m: &[W], wrap: &[W], mask_bit: &[W], offset: W, f: u32, l: u32,
    ) {
        for ((((t, c), &m), &wrap), &bit) in shifted.iter_mut().zip(c).zip(m).zip(wrap).zip(mask_bit) {
            // Multiplying by bits, not branching: m and C are public to both online parties but differ per element.
            let sign = W::ONE.sub(m.add(m));
            let not_msb = W::ONE.sub(c.shr(l - 1));
            *t = wrap.mul(not_msb).shl(l - f).sub(*t).sub(sign.mul(bit));
            *c = c.shr(f).sub(m).sub(offset);
        }
    }
}
