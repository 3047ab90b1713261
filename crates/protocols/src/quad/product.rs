//! Trio's product without a shift, checked: Z = xy + λz with XY sent masked.
//!
//! With λ = l1 + l2 and X = x + λ, every product of two secrets has XY = xy + Xλ' + λY' - λλ' (primes: of the weight, or y). P1's own
//! part is X·l1' + l1·Y', P2's X·(Y' - l2') - l2·Y', P0's λλ'; their sum is what Trio's gates take. Beside it each computes an
//! *aside* for P3's check: XY at P1 and P2, -(w·λ' + λ·w') at P0, and -(V·λ' + λ·(V' - λ')) at P3.
//!
//! What wide products open is checked by combinations (`folding.rs`). Then nobody computes asides: Z is the sum of the messages m1 and m2 of
//! P1 and P2, and each sends P3 its own under a mask as well, of which the other gives a digest. V is their sum, w that of the masks.

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word, wire};

use super::audit::{Audited, Beside, Site, masked_messages, masked_openings, verification_values};
use super::checks::{TileChecks, sum};
use super::fused::{of_the_other, received};
use super::share::Role;
use crate::machine::{Inbox, Layout, Outbox, Step};

/// The messages of [`Product`].
pub(super) fn layout(len: usize, ring: Ring, folded: bool) -> Layout {
    let mut layout = crate::trio::product::layout(len, ring);
    let words = wire::words_len(len, ring);
    if folded {
        masked_openings(&mut layout, words);
    } else {
        masked_messages(&mut layout, 0, words);
        verification_values(&mut layout, words);
    }
    layout
}

/// [`crate::trio::product::Product`], checked.
pub(super) struct Product<W> {
    inner: crate::trio::product::Product<W>,
    aside: Buffer<W>,
    ring: Ring,
    len: usize,
    /// Whether combinations check what P1 and P2 send each other, of a whole product at once, and not this gate.
    folded: bool,
    /// P1, P2: then the masks of both messages, and the other's message.
    masks: [Buffer<W>; 2],
    message: Buffer<W>,
}

impl<W: Word> Product<W> {
    pub fn new(site: &Site, folded: bool, own: Buffer<W>, aside: Buffer<W>) -> Self {
        let inner = crate::trio::product::Product::new(site.inner(), own);
        let (ring, len) = (site.ring, site.len);
        Product { inner, aside, ring, len, folded, masks: Default::default(), message: Buffer::new() }
    }
}

impl<W: Word> Audited for Product<W> {
    type Inner = crate::trio::product::Product<W>;
    type Extra = Beside<W>;

    const COMPUTES_FIRST: bool = true;

    fn inner(&mut self) -> &mut Self::Inner {
        &mut self.inner
    }

    fn into_inner(self) -> Self::Inner {
        self.inner
    }

    fn layout(&self) -> Layout {
        layout(self.len, self.ring, self.folded)
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        match (self.folded, round) {
            (false, 0) => checks.send_masked(std::mem::take(&mut self.aside), self.ring, out),
            (true, 0) => {
                let message = sum(&self.inner.own, &self.inner.second);
                self.masks = checks.send_opening_masked(&message, self.ring, out);
            }
            _ => {}
        }
    }

    fn receive(&mut self, step: Step, inbox: &Inbox) {
        if step == Step::Online(0) && self.folded {
            self.message = received(inbox, self.inner.site.other(), self.len, self.ring);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Beside<W> {
        if self.folded {
            let [one, two] = &self.masks;
            checks.note_opening(&self.message, &self.masks, self.ring);
            let messages = of_the_other(checks.role, std::mem::take(&mut self.message));
            return Beside { extra: sum(one, two), messages };
        }
        checks.verify(&sum(&self.inner.first, &self.inner.second), self.ring).into()
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Beside<W> {
        if self.folded {
            let [one, two] = checks.masked_openings::<W>(self.ring);
            let masks = (checks.role == Role::P3).then(|| self.inner.message_masks());
            return Beside { extra: sum(&one, &two), messages: masks.unwrap_or_default() };
        }
        let mut sum = checks.masked::<W>(self.ring);
        elementwise::add_assign(&mut sum, &self.aside);
        if checks.constants() {
            elementwise::add_assign(&mut sum, &self.inner.first);
            elementwise::add_assign(&mut sum, &self.inner.second);
        }
        checks.verified(sum, self.ring, out).into()
    }
}
