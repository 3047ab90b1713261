//! The end of a product with nothing behind it: the dealer's shares of C = A·B join the parties' own terms.
//!
//! Each party is sent its shares of an equal run of a tile's elements and draws all others.

use std::ops::Range;

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word};

use super::site::{Site, purpose};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::Table;

/// One tile.
pub(super) struct Product<W> {
    layout: Layout,
    site: Site,
    /// What the dealer sent.
    received: Buffer<W>,
    /// C at the dealer, the own terms at a party.
    value: Buffer<W>,
}

/// The elements of which `party` is sent its share.
fn sent(table: Table, party: usize, len: usize) -> Range<usize> {
    party * len / table.parties..(party + 1) * len / table.parties
}

pub(super) fn layout(table: Table, len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    for (party, peer) in table.peers().enumerate() {
        layout.words(Step::Offline, table.dealer, peer, sent(table, party, len).len(), ring);
    }
    layout
}

impl<W: Word> Product<W> {
    pub fn new(site: Site, value: Buffer<W>) -> Self {
        let layout = layout(site.seat.table, site.len(), site.ring);
        Product { layout, site, received: Buffer::new(), value }
    }
}

impl<W: Word> Machine for Product<W> {
    type Output = Buffer<W>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        let (seat, ring) = (&self.site.seat, self.site.ring);
        if (seat.party, step) != (None, Step::Offline) {
            return;
        }
        // C less all draws, and for each party its own draw again.
        elementwise::sub_assign(&mut self.value, &self.site.draw(purpose::DEAL));
        for (party, peer) in seat.table.peers().enumerate() {
            let range = sent(seat.table, party, seat.len);
            let drawn = seat.draw::<W>(party, purpose::DEAL);
            elementwise::add_assign(&mut self.value[range.clone()], &drawn[range.clone()]);
            out.words(peer, &self.value[range], ring);
        }
    }

    fn absorb(&mut self, _: Step, inbox: &mut Inbox) {
        if let Some(party) = self.site.seat.party {
            let table = self.site.seat.table;
            self.received = inbox.elements(table.dealer, sent(table, party, self.site.len()).len(), self.site.ring);
        }
    }

    fn finish(mut self) -> Buffer<W> {
        if let Some(party) = self.site.seat.party {
            let range = sent(self.site.seat.table, party, self.site.len());
            let mut share = self.site.draw::<W>(purpose::DEAL);
            if self.received.len() == range.len() {
                share[range].copy_from_slice(&self.received);
            }
            elementwise::add_assign(&mut self.value, &share);
        }
        self.site.output(self.value)
    }
}
