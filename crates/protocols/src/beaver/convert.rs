//! One bit times a ring element, and one bit as a ring element.
//!
//! e = b ⊕ β is opened, and c = x + r; the dealer shares β and β·r. Then b = e + (1-2e)·β, so
//! b·x = c·e - e·r + (1-2e)·(c·β - β·r).

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Ring, Word};

use super::site::{Moves, Site, purpose, spread};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::Table;

const BIT: u32 = purpose::SECOND;

/// b·x over one tile, or b itself where x is nothing.
pub(super) struct Select<W> {
    layout: Layout,
    deals: Vec<(Ring, usize)>,
    site: Site,
    /// The share of b, then e.
    bit: Buffer<u64>,
    /// The share of x, then c.
    value: Option<Buffer<W>>,
    received: Vec<Buffer<W>>,
    result: Buffer<W>,
}

fn deals(table: Table, ring: Ring, selects: bool) -> Vec<(Ring, usize)> {
    spread(std::iter::repeat_n(ring, 1 + usize::from(selects)), &mut vec![0; table.parties])
}

pub(super) fn layout(table: Table, len: usize, ring: Ring, selects: bool) -> Layout {
    let mut layout = Layout::default();
    layout.open_planes(table, 0, len, 1);
    if selects {
        layout.open_words(table, 0, len, ring);
    }
    layout.deal_words(table, &deals(table, ring, selects), len);
    layout
}

impl<W: Word> Select<W> {
    pub fn new(site: Site, bit: Buffer<u64>, value: Option<Buffer<W>>) -> Self {
        let (table, selects) = (site.seat.table, value.is_some());
        Select {
            layout: layout(table, site.len(), site.ring, selects),
            deals: deals(table, site.ring, selects),
            site,
            bit,
            value,
            received: Vec::new(),
            result: Buffer::new(),
        }
    }

    fn deal(&self, out: &mut Outbox) {
        let site = &self.site;
        let mut beta = Buffer::<W>::stale(site.len());
        expand_bits(&site.draw_planes(BIT, 1), &mut beta);
        site.deal(self.deals[0], purpose::DEAL, |share| elementwise::sub_from_assign(share, &beta), out);
        if self.value.is_some() {
            let mut product = Buffer::stale(site.len());
            elementwise::mul(&mut product, &beta, &site.draw(purpose::OPENING));
            site.deal(self.deals[1], purpose::DEAL + 1, |share| elementwise::sub_from_assign(share, &product), out);
        }
    }

    /// A party: everything is open.
    fn share(&mut self) {
        let site = &self.site;
        let dealt = site.dealt(&self.deals, &mut self.received);
        let mut e = Buffer::<W>::stale(site.len());
        expand_bits(&self.bit, &mut e);
        let mut own = Buffer::stale(site.len());
        match &self.value {
            Some(c) => selected(&mut own, c, &e, &site.draw(purpose::OPENING), (&dealt[0], &dealt[1]), site.first()),
            None => converted(&mut own, &e, &dealt[0], site.first()),
        }
        self.result = own;
    }
}

vectorised! {
    /// `first·c·e - e·r + (1-2e)·(c·β - βr)`
    fn selected<W: Word>(out: &mut [W], c: &[W], e: &[W], r: &[W], dealt: (&[W], &[W]), first: W) {
        let operands = c.iter().zip(e).zip(r.iter().zip(dealt.0.iter().zip(dealt.1)));
        for (out, ((&c, &e), (&r, (&beta, &product)))) in out.iter_mut().zip(operands) {
            let inner = c.mul(beta).sub(product);
            *out = e.mul(first.mul(c).sub(r).sub(inner).sub(inner)).add(inner);
        }
    }

    /// `first·e + (1-2e)·β`
    fn converted<W: Word>(out: &mut [W], e: &[W], beta: &[W], first: W) {
        for ((out, &e), &beta) in out.iter_mut().zip(e).zip(beta) {
            *out = e.mul(first.sub(beta).sub(beta)).add(beta);
        }
    }
}

impl<W: Word> Machine for Select<W> {
    type Output = Buffer<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => self.deal(out),
            (Some(_), Step::Online(_)) => {
                self.site.open_planes_send(&mut self.bit, BIT, 1, out);
                if let Some(value) = &mut self.value {
                    self.site.open_send(value, purpose::OPENING, self.site.ring, out);
                }
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        if step == Step::Offline {
            self.received = self.site.receive_dealt(&self.deals, inbox);
            return;
        }
        // One peer after the other: each message holds the bits, then the words.
        for from in self.site.seat.others() {
            covey_kernels::bits::xor_assign(&mut self.bit, &inbox.bit_planes(from, self.site.len(), 1));
            if let Some(value) = &mut self.value {
                elementwise::add_assign(value, &inbox.elements(from, self.site.len(), self.site.ring));
            }
        }
        self.share();
    }

    fn finish(self) -> Buffer<W> {
        self.site.output(self.result)
    }
}
