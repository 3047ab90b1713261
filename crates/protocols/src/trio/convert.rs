//! Bits into the ring: Bit2A and select.
//!
//! A bit b = m ⊕ y, m known to P1 and P2, y to P0. As ring elements b = m + (1 - 2m)·y.

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Ring, Word};

use super::share::{Role, Wire};
use super::site::{Moves, Site, purpose};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

const BIT: u32 = purpose::DEAL; // y
const BIT_TIMES_MASK: u32 = purpose::DEAL + 1; // y·la

/// Who is sent a share of each; the other draws.
const BIT_TO: usize = 2;
const BIT_TIMES_MASK_TO: usize = 1;

/// b, or b·a for a shared a, as ring elements over one tile.
///
/// Select: with A = a + la known to P1 and P2, b·a = m·A - m·la + (1-2m)·(y·A - y·la): P0 deals y and y·la, then
/// t_i = (1-2m)·(A·y_i - (y·la)_i) - m·la_i beside the public m·A. Bit2A is the same with A = 1, la = 0.
pub(crate) struct Select<W> {
    layout: Layout,
    site: Site,
    pub(crate) bit: Wire,
    pub(crate) value: Option<Operand<W>>,
    dealt: Buffer<W>,
    dealt_product: Buffer<W>,
    pub(crate) own: Buffer<W>,
    pub(crate) first: Buffer<W>,
    pub(crate) second: Buffer<W>,
}

/// a over one tile.
pub(crate) struct Operand<W> {
    /// A = a + la at P1 and P2, la at P0.
    pub sum: Buffer<W>,
    /// l1 at P1, l2 at P2.
    pub mask: Buffer<W>,
}

pub(crate) fn layout(len: usize, ring: Ring, select: bool) -> Layout {
    let mut layout = Layout::default();
    layout.deal_words(BIT_TO, len, ring);
    if select {
        layout.deal_words(BIT_TIMES_MASK_TO, len, ring);
    }
    layout.reshare_words(0, len, ring);
    layout
}

vectorised! {
    /// This party's term of b·a, (1-2m)·(A·y - y·la) - m·la; `m` becomes the public m·A.
    pub(super) fn selected<W: Word>(t: &mut [W], m: &mut [W], sum: &[W], mask: &[W], bit: &[W], product: &[W]) {
        let operands = sum.iter().zip(mask).zip(bit.iter().zip(product));
        for ((t, m), ((&sum, &mask), (&bit, &product))) in t.iter_mut().zip(m).zip(operands) {
            let inner = sum.mul(bit).sub(product);
            *t = W::ONE.sub(m.add(*m)).mul(inner).sub(m.mul(mask));
            *m = m.mul(sum);
        }
    }

    /// This party's term of b, (1-2m)·y.
    fn converted<W: Word>(t: &mut [W], m: &[W], bit: &[W]) {
        t.iter_mut().zip(m).zip(bit).for_each(|((t, &m), &bit)| *t = W::ONE.sub(m.add(m)).mul(bit));
    }
}

impl<W: Word> Select<W> {
    pub fn new(site: Site, bit: Wire, value: Option<Operand<W>>) -> Self {
        Select {
            layout: layout(site.len, site.ring, value.is_some()),
            site,
            bit,
            value,
            dealt: Buffer::new(),
            dealt_product: Buffer::new(),
            own: Buffer::new(),
            first: Buffer::new(),
            second: Buffer::new(),
        }
    }

    /// m at P1 and P2, y at P0, as ring elements.
    fn bit_words(&self) -> Buffer<W> {
        let mut words = Buffer::stale(self.site.len);
        expand_bits(&self.bit.sum(), &mut words);
        words
    }
}

impl<W: Word> Machine for Select<W> {
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => {
                let y = self.bit_words();
                self.site.deal(BIT_TO, BIT, &y, self.site.ring, out);
                if let Some(value) = &self.value {
                    let mut product = Buffer::stale(y.len());
                    elementwise::mul(&mut product, &y, &value.sum);
                    self.site.deal(BIT_TIMES_MASK_TO, BIT_TIMES_MASK, &product, self.site.ring, out);
                }
                (self.first, self.second) = self.site.masks(purpose::MASK);
            }
            (Role::P1 | Role::P2, Step::Online(_)) => {
                self.site.draw_dealt(BIT_TO, BIT, &mut self.dealt);
                if self.value.is_some() {
                    self.site.draw_dealt(BIT_TIMES_MASK_TO, BIT_TIMES_MASK, &mut self.dealt_product);
                }
                let m = self.bit_words();
                let mut t = Buffer::stale(self.site.len);
                self.own = m;
                match &self.value {
                    Some(Operand { sum, mask }) => {
                        selected(&mut t, &mut self.own, sum, mask, &self.dealt, &self.dealt_product);
                    }
                    None => converted(&mut t, &self.own, &self.dealt),
                }
                self.second = self.site.reshare_send(purpose::MASK, &t, out);
                elementwise::add_assign(&mut self.own, &t);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => {
                let (site, ring) = (&self.site, self.site.ring);
                site.receive_dealt(BIT_TO, ring, inbox, &mut self.dealt);
                if self.value.is_some() {
                    site.receive_dealt(BIT_TIMES_MASK_TO, ring, inbox, &mut self.dealt_product);
                }
            }
            Step::Online(_) => self.first = self.site.reshare_receive(&self.own, inbox),
        }
    }

    fn finish(self) -> (Buffer<W>, Buffer<W>) {
        self.site.output(self.first, self.second)
    }
}
