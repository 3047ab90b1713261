//! Trio's product without a shift, checked: Z = xy + λz with XY sent masked.
//!
//! With λ = l1 + l2 and X = x + λ, every product of two secrets has XY = xy + Xλ' + λY' - λλ' (primes: of the weight, or y). P1's own
//! part is X·l1' + l1·Y', P2's X·(Y' - l2') - l2·Y', P0's λλ'; their sum is what Trio's gates take. Beside it each computes an
//! *aside* for P3's check: XY at P1 and P2, -(w·λ' + λ·w') at P0, and -(V·λ' + λ·(V' - λ')) at P3.

use covey_kernels::{Buffer, elementwise};
use covey_ring::{Ring, Word, wire};

use super::audit::{Audited, Beside, Site, masked_messages, verification_values};
use super::checks::TileChecks;
use crate::machine::{Layout, Outbox};

/// The messages of [`Product`].
pub(super) fn layout(len: usize, ring: Ring) -> Layout {
    let mut layout = crate::trio::product::layout(len, ring);
    masked_messages(&mut layout, 0, wire::words_len(len, ring));
    verification_values(&mut layout, wire::words_len(len, ring));
    layout
}

/// [`crate::trio::product::Product`], checked.
pub(super) struct Product<W> {
    inner: crate::trio::product::Product<W>,
    aside: Buffer<W>,
    ring: Ring,
    len: usize,
}

impl<W: Word> Product<W> {
    pub fn new(site: &Site, own: Buffer<W>, aside: Buffer<W>) -> Self {
        let inner = crate::trio::product::Product::new(site.inner(), own);
        Product { inner, aside, ring: site.ring, len: site.len }
    }
}

impl<W: Word> Audited for Product<W> {
    type Inner = crate::trio::product::Product<W>;
    type Extra = Beside<W>;

    fn inner(&mut self) -> &mut Self::Inner {
        &mut self.inner
    }

    fn into_inner(self) -> Self::Inner {
        self.inner
    }

    fn layout(&self) -> Layout {
        layout(self.len, self.ring)
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        if round == 0 {
            checks.send_masked(std::mem::take(&mut self.aside), self.ring, out);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Beside<W> {
        let mut z = self.inner.first.clone();
        elementwise::add_assign(&mut z, &self.inner.second);
        checks.verify(&z, self.ring).into()
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Beside<W> {
        let mut sum = checks.masked::<W>(self.ring);
        elementwise::add_assign(&mut sum, &self.aside);
        if checks.constants() {
            elementwise::add_assign(&mut sum, &self.inner.first);
            elementwise::add_assign(&mut sum, &self.inner.second);
        }
        checks.verified(sum, self.ring, out).into()
    }
}
