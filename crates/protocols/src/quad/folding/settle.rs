//! The settling of what the openings of a product come to, tile by tile.

use covey_kernels::Buffer;
use covey_ring::{Ring, Word, wire};

use super::MESSAGES;
use crate::api::Result;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::quad::Quad;
use crate::quad::audit::{Site, settles};
use crate::quad::book::Book;
use crate::quad::share::Role;
use crate::quad::tape::{Digests, Line};

/// The messages of what is settled of both, of `len` elements.
pub(in crate::quad) fn layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    MESSAGES.iter().for_each(|_| settles(&mut layout, wire::words_len(len, ring)));
    layout
}

/// Settles a tile of both sums.
struct Settle<W> {
    layout: Layout,
    book: Book,
    ring: Ring,
    sums: [Buffer<W>; 2],
    /// Whether this party computes: P0 ahead of the inputs, the others once they are known.
    computes: bool,
}

impl<W: Word> Machine for Settle<W> {
    type Output = Digests;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if (self.book.role, step) == (Role::P0, Step::Offline) {
            for sum in std::mem::take(&mut self.sums) {
                self.book.settled(sum, self.ring, out);
            }
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        for message in self.layout.due(step, self.book.role as usize) {
            self.book.receive(step, inbox.take(message.from));
        }
    }

    fn finish(mut self) -> Digests {
        if self.computes && self.book.role != Role::P0 {
            for (sum, line) in std::mem::take(&mut self.sums).into_iter().zip([Line::P2ToP3, Line::P1ToP3]) {
                self.book.combine(sum, self.ring, line);
            }
        }
        self.book.close().digests()
    }
}

impl<W: Word> Quad<W> {
    /// Settles what a product's messages come to, in the ring it was opened in.
    pub(in crate::quad) fn settle_folded(&mut self, sums: [Vec<W>; 2], ring: Ring) -> Result<()> {
        if self.party.rests() {
            self.party.next_gate();
            return Ok(());
        }
        let (len, computes) = (sums[0].len(), self.party.computes());
        let machine = |site: Site, range: std::ops::Range<usize>| Settle {
            layout: layout(site.len, ring),
            book: site.book(),
            ring,
            sums: sums.each_ref().map(|sum| Buffer::copy_of(&sum[range.clone()])),
            computes,
        };
        self.each_tile(len, machine, |_, found| found)
    }
}
