//! Exact right shifts in the ring of what they leave, which is then extended (`docs/trio.md`, "Shift"), of a shared value or of a
//! product.
//!
//! v = X1 + X2 - R mod 2^l with X1 known to P1, X2 to P2, R to P0; of a product R has the dealer's part of it. With 2^(l-2) added
//! v≫f = X1≫f + X2≫f + w - R≫f - β mod 2^(l-f), where w is the carry of the low f bits of X1 + X2 and β the borrow of that sum and R.
//! So P1 and P2 open the low bits alone, under masks of f bits. Of a shared value X1 is C, and X2 is 0.

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use super::comparison::{Comparison, ComparisonPlan, nanoseconds};
use super::share::Role;
use super::site::{Moves, Site, purpose};
use super::truncate::{TruncationPlan, shifted_right};
use crate::api::{Options, Rounding, Truncation};
use crate::circuits::Adder;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::fused::mask;
use crate::masked::select as loops;

/// Elements over which the forms of a shift are compared: messages end with whole bytes.
const COMPARED: usize = 1 << 10;

/// The gate of a shift.
#[derive(Clone)]
pub(crate) enum ShiftPlan {
    /// In the ring of the result.
    Full(TruncationPlan),
    /// Fewer bits in a round more.
    Reduced(ReducedPlan),
}

impl ShiftPlan {
    /// The form for `count` elements: named by the options, or the faster one on the network.
    pub fn choose(truncation: Truncation, opens: bool, ring: Ring, options: &Options, count: usize) -> Self {
        let full = TruncationPlan::new(truncation, opens, ring, options, count);
        if truncation.rounding != Rounding::Exact {
            return ShiftPlan::Full(full);
        }
        let reduced = || ReducedPlan::new(truncation.bits, opens, ring, options, count);
        match options.adder {
            Adder::FewestBytes => ShiftPlan::Reduced(reduced()),
            Adder::Auto => {
                let reduced = reduced();
                let time = |layout: Layout| nanoseconds(options, layout.rounds(), bits(&layout), count);
                match time(reduced.layout(COMPARED)) < time(full.layout(COMPARED)) {
                    true => ShiftPlan::Reduced(reduced),
                    false => ShiftPlan::Full(full),
                }
            }
            _ => ShiftPlan::Full(full),
        }
    }

    pub fn layout(&self, len: usize) -> Layout {
        match self {
            ShiftPlan::Full(plan) => plan.layout(len),
            ShiftPlan::Reduced(plan) => plan.layout(len),
        }
    }
}

/// Bits an element of a layout of `COMPARED`, offline and online.
fn bits(layout: &Layout) -> (usize, usize) {
    let of = |offline: bool| {
        let messages = layout.messages().iter().filter(|message| (message.step == Step::Offline) == offline);
        messages.map(|message| message.len * 8).sum::<usize>() / COMPARED
    };
    (of(true), of(false))
}

/// What P0 deals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deal {
    /// R≫f
    Shifted,
    /// Its part of β.
    Borrow,
    /// The carry of the result's masks in the narrow ring.
    Carry,
    /// The same and the highest bit of their sum.
    Wrapped,
}

/// The shape of the gate, shared by its tiles.
#[derive(Clone)]
pub(crate) struct ReducedPlan {
    bits: u32,
    /// Whether the gate starts by opening the low bits of a product.
    opens: bool,
    ring: Ring,
    circuit: ComparisonPlan,
    /// Each deal's ring, and who is sent a share of it; the other draws.
    deals: [(Deal, Ring, usize); 4],
}

impl ReducedPlan {
    /// The plan over `count` elements.
    pub fn new(bits: u32, opens: bool, ring: Ring, options: &Options, count: usize) -> Self {
        let (narrow, above) = (Ring::Pow2(ring.bits() - bits), Ring::Pow2(bits));
        let deals =
            [(Deal::Shifted, narrow, 2), (Deal::Borrow, narrow, 1), (Deal::Carry, above, 2), (Deal::Wrapped, above, 1)];
        let circuit = ComparisonPlan::borrow(bits as usize, options, count, [ring.bits() as usize; 2]);
        ReducedPlan { bits, opens, ring, circuit, deals }
    }

    /// The ring of v≫f.
    fn narrow(&self) -> Ring {
        Ring::Pow2(self.ring.bits() - self.bits)
    }

    /// The ring of the low bits, and of what lies above a narrow value.
    fn low(&self) -> Ring {
        Ring::Pow2(self.bits)
    }

    /// Round in which the circuit starts.
    fn start(&self) -> usize {
        usize::from(self.opens)
    }

    /// Round in which the narrow result is opened.
    fn select(&self) -> usize {
        self.start() + self.circuit.rounds()
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        if self.opens {
            layout.reshare_words(0, len, self.low());
        }
        self.circuit.layout(len, self.start(), &mut layout);
        self.deals.iter().for_each(|&(_, ring, to)| layout.deal_words(to, len, ring));
        layout.reshare_words(self.select(), len, self.narrow());
        layout.reshare_words(self.select() + 1, len, self.low());
        layout
    }
}

/// The shift over one tile.
pub(crate) struct Reduced<W> {
    layout: Layout,
    plan: ReducedPlan,
    site: Site,
    /// R at P0; at P1 and P2 C or the own part of the product, later X≫f and what lies above the result.
    value: Buffer<W>,
    borrow: Comparison,
    /// P1, P2: the own shares of the deals.
    dealt: [Buffer<W>; 4],
    /// P1, P2: what is opened in the round under way.
    own: Buffer<W>,
    first: Buffer<W>,
    second: Buffer<W>,
}

impl<W: Word> Reduced<W> {
    /// `value`: as [`super::truncate::Truncate::new`] takes it.
    pub fn new(site: Site, plan: ReducedPlan, value: Buffer<W>) -> Self {
        Reduced {
            layout: plan.layout(site.len),
            borrow: Comparison::new(site.clone(), &plan.circuit),
            plan,
            site,
            value,
            dealt: std::array::from_fn(|_| Buffer::new()),
            own: Buffer::new(),
            first: Buffer::new(),
            second: Buffer::new(),
        }
    }

    /// P0, all it ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let (site, plan) = (&self.site, &self.plan);
        if plan.opens {
            for mut drawn in <[Buffer<W>; 2]>::from(site.masks::<W>(purpose::OPENING)) {
                loops::reduce(&mut drawn, mask(plan.low()));
                elementwise::add_assign(&mut self.value, &drawn);
            }
        }
        loops::reduce(&mut self.value, mask(plan.ring));
        self.borrow.deal(&self.value, out);
        (self.first, self.second) = site.masks(purpose::MASK);
        let (narrow, low) = (plan.ring.bits() - plan.bits, mask(plan.narrow()));
        for (number, &(deal, ring, to)) in plan.deals.iter().enumerate() {
            let mut value = Buffer::zeros(site.len);
            match deal {
                Deal::Shifted => value = shifted_right(&self.value, plan.bits),
                Deal::Borrow => expand_bits(&self.borrow.borrow().sum(), &mut value),
                // These subtract what they are given.
                Deal::Carry => loops::carry(&mut value, &self.first, &self.second, low, narrow, W::ZERO),
                Deal::Wrapped => loops::carry(&mut value, &self.first, &self.second, low, narrow, W::ONE),
            }
            site.deal(to, purpose::DEAL + number as u32, &value, ring, out);
        }
    }

    /// 2^(l-2), shifted by so many bits.
    fn offset(&self, bits: u32) -> W {
        W::ONE.shl(self.plan.ring.bits() - 2 - bits)
    }

    /// P1, P2: X, and its low bits for the other.
    fn open(&mut self, out: &mut Outbox) {
        let mut drawn = self.site.draw::<W>(0, purpose::OPENING);
        loops::reduce(&mut drawn, mask(self.plan.low()));
        if self.site.role == Role::P1 {
            elementwise::sub_from_assign(&mut self.value, &drawn);
        } else {
            elementwise::add_assign(&mut self.value, &drawn);
            let offset = self.offset(0);
            loops::offset(&mut self.value, offset);
        }
        loops::reduce(&mut self.value, mask(self.plan.ring));
        self.own = self.value.clone();
        loops::reduce(&mut self.own, mask(self.plan.low()));
        out.words(self.site.other(), &self.own, self.plan.low());
    }

    /// P1, P2: the sum of both low parts is known; P1 takes their carry.
    fn opened(&mut self) {
        let mut low = std::mem::take(&mut self.own);
        self.value = shifted_right(&self.value, self.plan.bits);
        if self.site.role == Role::P1 {
            elementwise::add_assign(&mut self.value, &shifted_right(&low, self.plan.bits));
        }
        loops::reduce(&mut low, mask(self.plan.low()));
        self.borrow.set_public(&low);
    }

    /// P1, P2: C is known. P1 takes all of it.
    fn set_public(&mut self) {
        let offset = self.offset(0);
        loops::offset(&mut self.value, offset);
        loops::reduce(&mut self.value, mask(self.plan.ring));
        self.borrow.set_public(&self.value);
        self.value = match self.site.role {
            Role::P1 => shifted_right(&self.value, self.plan.bits),
            _ => Buffer::zeros(self.site.len),
        };
    }

    /// P1, P2: the own part of v≫f under its mask.
    fn select(&mut self, out: &mut Outbox) {
        for (number, &(_, _, to)) in self.plan.deals.iter().enumerate() {
            self.site.draw_dealt(to, purpose::DEAL + number as u32, &mut self.dealt[number]);
        }
        let mut borrow = Buffer::stale(self.site.len);
        expand_bits(&self.borrow.borrow().sum(), &mut borrow);
        // P1 adds what is public.
        let first = if self.site.role == Role::P1 { W::ONE } else { W::ZERO };
        self.own = std::mem::take(&mut self.value);
        elementwise::sub_assign(&mut self.own, &self.dealt[0]);
        loops::subtract_bit(&mut self.own, &borrow, &self.dealt[1], first);
        self.second = self.site.draw(0, purpose::MASK);
        elementwise::add_assign(&mut self.own, &self.second);
        out.words(self.site.other(), &self.own, self.plan.narrow());
    }

    /// P1, P2: the narrow result's public part is known; the own part of what lies above it.
    fn extend(&mut self, out: &mut Outbox) {
        let narrow = self.plan.narrow();
        let [_, _, carry, wrapped] = &self.dealt;
        let (low, ring) = (mask(narrow), mask(self.plan.ring));
        self.value = Buffer::stale(self.site.len);
        loops::extend(&mut self.value, &mut self.own, carry, wrapped, &self.second, ring, low, narrow.bits());
        out.words(self.site.other(), &self.value, self.plan.low());
    }
}

impl<W: Word> Machine for Reduced<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.deal(out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if round == 0 && self.plan.opens {
                    return self.open(out);
                }
                if round == 0 {
                    self.set_public();
                }
                match round.checked_sub(self.plan.select()) {
                    None => self.borrow.local(round - self.plan.start(), out),
                    Some(0) => self.select(out),
                    Some(_) => self.extend(out),
                }
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let Step::Online(round) = step else {
            self.borrow.absorb_deal(inbox);
            for (&(_, ring, to), share) in self.plan.deals.iter().zip(&mut self.dealt) {
                self.site.receive_dealt(to, ring, inbox, share);
            }
            return;
        };
        let (len, other) = (self.site.len, self.site.other());
        let plan = &self.plan;
        if round == 0 && plan.opens {
            elementwise::add_assign(&mut self.own, &inbox.elements(other, len, plan.low()));
            return self.opened();
        }
        match round.checked_sub(plan.select()) {
            None => self.borrow.absorb(round - plan.start(), inbox),
            Some(0) => elementwise::add_assign(&mut self.own, &inbox.elements(other, len, plan.narrow())),
            Some(_) => {
                elementwise::add_assign(&mut self.value, &inbox.elements(other, len, plan.low()));
                // Without the own mask the public sum is the first component.
                loops::join(&mut self.own, &self.value, &self.second, plan.narrow().bits());
                let offset = self.offset(self.plan.bits);
                loops::offset(&mut self.own, offset.neg());
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
