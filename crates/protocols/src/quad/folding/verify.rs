//! The verification values of what the openings of a product come to, tile by tile.

use covey_kernels::Buffer;
use covey_ring::{Ring, Word, wire};

use super::MESSAGES;
use crate::api::Result;
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::quad::Quad;
use crate::quad::audit::{Site, verification_values};
use crate::quad::checks::TileChecks;
use crate::quad::share::Role;
use crate::quad::transcript::{Digests, Line};

/// The messages for the verification values of both, of `len` elements.
pub(in crate::quad) fn layout(len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    MESSAGES.iter().for_each(|_| verification_values(&mut layout, wire::words_len(len, ring)));
    layout
}

/// Verifies a tile of both sums.
struct Verify<W> {
    layout: Layout,
    checks: TileChecks,
    ring: Ring,
    sums: [Buffer<W>; 2],
    /// Whether this party computes: P0 ahead of the inputs, the others once they are known.
    computes: bool,
}

impl<W: Word> Machine for Verify<W> {
    type Output = Digests;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        if (self.checks.role, step) == (Role::P0, Step::Offline) {
            for sum in std::mem::take(&mut self.sums) {
                self.checks.verified(sum, self.ring, out);
            }
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        for message in self.layout.due(step, self.checks.role as usize) {
            self.checks.receive(step, inbox.take(message.from));
        }
    }

    fn finish(mut self) -> Digests {
        if self.computes && self.checks.role != Role::P0 {
            for (sum, line) in std::mem::take(&mut self.sums).into_iter().zip([Line::P2ToP3, Line::P1ToP3]) {
                self.checks.combine(sum, self.ring, line);
            }
        }
        self.checks.close().digests()
    }
}

impl<W: Word> Quad<W> {
    /// Verifies what a product's messages come to, in the ring it was opened in.
    pub(in crate::quad) fn verify_folded(&mut self, sums: [Vec<W>; 2], ring: Ring) -> Result<()> {
        if self.party.rests() {
            self.party.next_gate();
            return Ok(());
        }
        let (len, computes) = (sums[0].len(), self.party.computes());
        let machine = |site: Site, range: std::ops::Range<usize>| Verify {
            layout: layout(site.len, ring),
            checks: site.checks(),
            ring,
            sums: sums.each_ref().map(|sum| Buffer::copy_of(&sum[range.clone()])),
            computes,
        };
        self.each_tile(len, machine, |_, found| found)
    }
}
