//! A tensor opened under masks that the dealer knows: the first half of every product.

use covey_kernels::Buffer;
use covey_ring::{Ring, Word};

use super::site::{Moves, Site};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::Table;

/// One tile of x opened as x - a.
pub(super) struct Masked<W> {
    layout: Layout,
    site: Site,
    purpose: u32,
    /// The share of x, then x - a; at the dealer nothing.
    value: Buffer<W>,
    /// The own part of a; at the dealer a.
    mask: Buffer<W>,
}

pub(super) fn layout(table: Table, len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.open_words(table, 0, len, ring);
    layout
}

impl<W: Word> Masked<W> {
    pub fn new(site: Site, purpose: u32, value: Buffer<W>) -> Self {
        let mask = Buffer::new();
        Masked { layout: layout(site.seat.table, site.len(), site.ring), site, purpose, value, mask }
    }
}

impl<W: Word> Machine for Masked<W> {
    /// x - a, and the own part of a; at the dealer zeros, and a.
    type Output = (Buffer<W>, Buffer<W>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => self.mask = self.site.draw(self.purpose),
            (Some(_), Step::Online(_)) => {
                self.mask = self.site.draw(self.purpose);
                covey_kernels::elementwise::sub_assign(&mut self.value, &self.mask);
                self.site.send(&self.value, self.site.ring, out);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        self.site.open_receive(&mut self.value, self.site.ring, inbox);
    }

    fn finish(self) -> (Buffer<W>, Buffer<W>) {
        let site = &self.site;
        let mask = if self.mask.len() == site.len() { self.mask } else { Buffer::zeros(site.len()) };
        (site.output(self.value), mask)
    }
}

/// One tile of words that are masked already, opened.
pub(super) struct Exchange<W> {
    layout: Layout,
    site: Site,
    value: Buffer<W>,
}

impl<W: Word> Exchange<W> {
    pub fn new(site: Site, value: Buffer<W>) -> Self {
        Exchange { layout: layout(site.seat.table, site.len(), site.ring), site, value }
    }
}

impl<W: Word> Machine for Exchange<W> {
    type Output = Buffer<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if let (Some(_), Step::Online(_)) = (self.site.seat.party, step) {
            self.site.send(&self.value, self.site.ring, out);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        self.site.open_receive(&mut self.value, self.site.ring, inbox);
    }

    fn finish(self) -> Buffer<W> {
        self.site.output(self.value)
    }
}
