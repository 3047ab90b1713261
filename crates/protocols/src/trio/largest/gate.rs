//! The gate over one tile.

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::Word;

use super::super::convert::selected;
use super::super::share::Role;
use super::super::site::{Site, purpose};
use super::plan::{LargestPlan, pairs};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::digits::Digits;
use crate::masked::fused::mask;
use crate::masked::select as loops;

/// One of the values over one tile.
pub(crate) struct Row<W> {
    /// C at P1 and P2, R at P0.
    pub sum: Buffer<W>,
    /// l1 at P1, l2 at P2.
    pub mask: Buffer<W>,
}

/// max(the largest≫f, 0), or what the largest has more than the last value.
///
/// Bit i, I_i ⊕ ι_i, says whether value i is selected; I_i is known to P1 and P2, ι_i to P0. P0 deals for each, A being R_i, or less R of
/// the last value where that is left: ι_i and ι_i·A. With a shift A is R_i≫f, and it deals A as well, and modulo 2^f ι_i·msb(R_i) and
/// msb(R_i); after all of these the mask υ of the borrow of the selected value. Then, of each value,
/// t = (1-2I)·(C·ι - ι·A) - I·A beside the public I·C, as in [`super::super::convert::Select`].
pub(crate) struct Largest<W> {
    layout: Layout,
    pub(crate) plan: LargestPlan,
    pub(crate) site: Site,
    digits: Digits,
    rows: Vec<Row<W>>,
    /// P1, P2: what P0 sent, by deal.
    dealt: Vec<Buffer<W>>,
    pub(crate) own: Buffer<W>,
    first: Buffer<W>,
    second: Buffer<W>,
}

vectorised! {
    /// `t = t + 2^high·(I·w + (1-2I)·(ι·w))` where bit `top` of C is 0, w being msb(R).
    fn add_wrap<W: Word>(t: &mut [W], c: &[W], bit: &[W], product: &[W], whole: &[W], high: u32, top: u32) {
        for ((t, (&c, &bit)), (&product, &whole)) in t.iter_mut().zip(c.iter().zip(bit)).zip(product.iter().zip(whole)) {
            let wrap = bit.mul(whole).add(W::ONE.sub(bit.add(bit)).mul(product));
            *t = t.add(wrap.shl(high) & (c.shr(top) & W::ONE).sub(W::ONE));
        }
    }

    /// `out = out≫f`, of the low bits alone.
    fn shift<W: Word>(out: &mut [W], low: W, f: u32) {
        out.iter_mut().for_each(|out| *out = (*out & low).shr(f));
    }
}

impl<W: Word> Largest<W> {
    pub fn new(site: Site, plan: LargestPlan, rows: Vec<Row<W>>) -> Self {
        let (dealt, own, first, second) = Default::default();
        let digits = Digits::new(site.seat(), plan.digits.clone());
        Largest { layout: plan.layout(site.len), plan, site, digits, rows, dealt, own, first, second }
    }

    /// What the circuit compares: C's or R's.
    fn operands(&self) -> Vec<Buffer<W>> {
        let difference = |(i, j): (usize, usize)| {
            let mut difference = self.rows[i].sum.clone();
            elementwise::sub_assign(&mut difference, &self.rows[j].sum);
            difference
        };
        let mut operands: Vec<_> = pairs(self.plan.values).map(difference).collect();
        operands.extend(self.rows.iter().filter(|_| self.plan.rectifies).map(|row| row.sum.clone()));
        operands
    }

    /// Selects what each value has more than the last one.
    fn relate(&mut self) {
        if !self.plan.rectifies
            && let Some(last) = self.rows.pop()
        {
            for row in &mut self.rows {
                elementwise::sub_assign(&mut row.sum, &last.sum);
                // P0 has none.
                if !row.mask.is_empty() {
                    elementwise::sub_assign(&mut row.mask, &last.mask);
                }
            }
        }
    }

    /// A result of the digits, or its mask, as words 0 and 1.
    fn bit(&self, index: usize) -> Buffer<W> {
        let mut words = Buffer::stale(self.site.len);
        expand_bits(&self.digits.output(index).value, &mut words);
        words
    }

    /// C≫f or R≫f.
    fn shifted(&self, sum: &Buffer<W>) -> Buffer<W> {
        let mut shifted = sum.clone();
        shift(&mut shifted, mask(self.plan.ring), self.plan.shift);
        shifted
    }

    /// P0, all it ever does.
    fn deal(&mut self, out: &mut Outbox) {
        let operands = self.operands();
        self.digits.deal_each(&operands.iter().map(|operand| &operand[..]).collect::<Vec<_>>(), out);
        drop(operands);
        self.relate();
        let shifts = self.plan.shift > 0;
        let mut next = 0;
        let mut deal = |value: &[W]| {
            let (ring, to) = self.plan.deals[next];
            self.site.deal(to, purpose::LARGEST + next as u32, value, ring, out);
            next += 1;
        };
        for (i, row) in self.rows.iter().enumerate() {
            let iota = self.bit(i);
            let times = |value: &[W]| {
                let mut product = Buffer::stale(value.len());
                elementwise::mul(&mut product, &iota, value);
                product
            };
            let a = if shifts { self.shifted(&row.sum) } else { row.sum.clone() };
            deal(&iota);
            deal(&times(&a));
            if shifts {
                let mut highest = row.sum.clone();
                shift(&mut highest, mask(self.plan.ring), self.plan.ring.bits() - 1);
                deal(&a);
                deal(&times(&highest));
                deal(&highest);
            }
        }
        if shifts {
            deal(&self.bit(self.plan.values));
        }
        self.rows.clear();
        (self.first, self.second) = self.site.masks(purpose::MASK);
    }

    /// P1, P2: this party's share of the result, sent under its mask.
    fn select(&mut self, out: &mut Outbox) {
        let me = self.site.role as usize;
        let mut received = std::mem::take(&mut self.dealt).into_iter();
        let deals = self.plan.deals.iter().enumerate();
        let dealt: Vec<Buffer<W>> = deals
            .map(|(number, &(_, to))| match to == me {
                true => received.next().unwrap_or_default(),
                false => self.site.draw(0, purpose::LARGEST + number as u32),
            })
            .collect();
        self.relate();
        let (shift, top) = (self.plan.shift, self.plan.ring.bits() - 1);
        let mut public = Buffer::zeros(self.site.len);
        let mut sum = Buffer::zeros(self.site.len);
        let mut term = Buffer::stale(self.site.len);
        let of_value = if shift > 0 { 5 } else { 2 };
        for (i, (row, dealt)) in self.rows.iter().zip(dealt.chunks(of_value)).enumerate() {
            let bit = self.bit(i);
            let mut selects = bit.clone();
            if shift == 0 {
                selected(&mut term, &mut selects, &row.sum, &row.mask, &dealt[0], &dealt[1]);
            } else {
                selected(&mut term, &mut selects, &self.shifted(&row.sum), &dealt[2], &dealt[0], &dealt[1]);
                add_wrap(&mut term, &row.sum, &bit, &dealt[3], &dealt[4], top + 1 - shift, top);
            }
            elementwise::add_assign(&mut public, &selects);
            elementwise::add_assign(&mut sum, &term);
        }
        if shift > 0 {
            // P1 takes off what is public.
            let first = if me == 1 { W::ONE } else { W::ZERO };
            loops::subtract_bit(&mut sum, &self.bit(self.plan.values), &dealt[dealt.len() - 1], first);
        }
        self.rows.clear();
        self.second = self.site.reshare_send(purpose::MASK, &sum, out);
        elementwise::add_assign(&mut public, &sum);
        self.own = public;
    }
}

impl<W: Word> Machine for Largest<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.deal(out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if round == 0 {
                    let operands = self.operands();
                    self.digits.set_each_public(&operands.iter().map(|operand| &operand[..]).collect::<Vec<_>>());
                }
                if round < self.plan.last() {
                    self.digits.local(round, out);
                } else {
                    self.select(out);
                }
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => {
                self.digits.absorb_deal(inbox);
                let me = self.site.role as usize;
                let mine = self.plan.deals.iter().filter(|(_, to)| *to == me);
                self.dealt = mine.map(|&(ring, _)| inbox.elements(0, self.site.len, ring)).collect();
            }
            Step::Online(round) if round < self.plan.last() => self.digits.absorb(round, inbox),
            Step::Online(_) => self.first = self.site.reshare_receive(&self.own, inbox),
        }
    }

    fn finish(self) -> Self::Output {
        self.site.output(self.first, self.second)
    }
}
