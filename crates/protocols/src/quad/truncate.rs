//! Trio's shifts, checked, with the opening of C = v + R before them where v is a product.
//!
//! Exact and ulp: v≫f = [C≫f - m - offset] - R≫f - y + m·2y + 2^(l-f)·¬msb(C)·msb(R), where β = m ⊕ y: three values sent masked, of
//! which ulp has no m. Probabilistic: the result's public part is C≫f itself, which P2 sends P3 under the result's own mask.

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Word, wire};

use super::audit::{Audited, Beside, Site, masked_messages, verification_values};
use super::checks::TileChecks;
use super::comparison;
use super::fused::{not_bit, of_the_other, received};
use super::share::Role;
use crate::api::Rounding;
use crate::machine::{Inbox, Layout, Outbox, Step};
use crate::trio::truncate::{TruncationPlan as Inner, shifted_right};

/// A gate's plan, shared by its tiles.
#[derive(Clone)]
pub(super) struct CheckedTruncationPlan {
    inner: Inner,
    borrow: Option<comparison::Audit>,
    /// Whether what is opened first is checked by combinations, of a whole product at once (`folding.rs`), and not here.
    folded: bool,
}

impl CheckedTruncationPlan {
    pub fn new(inner: Inner, folded: bool) -> Self {
        let borrow = (inner.rounding == Rounding::Exact).then(|| comparison::Audit::new(&inner.circuit));
        CheckedTruncationPlan { inner, borrow, folded }
    }

    /// Whether P3 learns what is opened first.
    fn verifies_opening(&self) -> bool {
        self.inner.opens && !self.folded
    }

    /// Round before which all that is sent masked of the result is known.
    fn last(&self) -> usize {
        match self.inner.rounding {
            Rounding::Probabilistic => self.inner.start(),
            _ => self.inner.last(),
        }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let (plan, last) = (&self.inner, self.last());
        let mut layout = plan.layout(len);
        let words = wire::words_len(len, plan.ring);
        if self.verifies_opening() {
            masked_messages(&mut layout, 0, words);
            verification_values(&mut layout, words);
        }
        masked_messages(&mut layout, last, words);
        if let Some(borrow) = &self.borrow {
            masked_messages(&mut layout, last, borrow.masked_len(len) + words);
            verification_values(&mut layout, borrow.verified_len(len));
        }
        if plan.rounding != Rounding::Probabilistic {
            masked_messages(&mut layout, last, wire::words_len(len, plan.wrap_ring()));
            verification_values(&mut layout, words);
        }
        layout
    }
}

/// [`crate::trio::truncate::Truncate`], checked.
pub(super) struct Truncate<W> {
    plan: CheckedTruncationPlan,
    inner: crate::trio::truncate::Truncate<W>,
    /// Of an opening gate: the product of the public parts at P1 and P2; what P0 and P3 add up to their part of C's check.
    aside: Buffer<W>,
    len: usize,
    /// P1, P2: of a probabilistic shift, the result's mask.
    mask: Buffer<W>,
    /// P1, P2: the other's message in the opening, where it is checked with others.
    message: Buffer<W>,
}

impl<W: Word> Truncate<W> {
    pub fn new(site: &Site, plan: CheckedTruncationPlan, value: Buffer<W>, aside: Buffer<W>) -> Self {
        let inner = crate::trio::truncate::Truncate::new(site.inner(), plan.inner.clone(), value);
        Truncate { plan, inner, aside, len: site.len, mask: Buffer::new(), message: Buffer::new() }
    }

    /// P1, P2: C, offset included.
    fn public(&self) -> Buffer<W> {
        let Inner { rounding, opens, ring, .. } = self.plan.inner;
        let mut c = self.inner.value.clone();
        // A gate of a sharing adds the offset in its first round, of which this is ahead.
        let first = !opens && self.plan.last() == 0;
        let offset = if first { rounding.offset::<W>(ring) } else { W::ZERO };
        c.iter_mut().for_each(|c| *c = ring.reduce(c.add(offset)));
        c
    }
}

impl<W: Word> Audited for Truncate<W> {
    type Inner = crate::trio::truncate::Truncate<W>;
    type Extra = Beside<W>;

    fn inner(&mut self) -> &mut Self::Inner {
        &mut self.inner
    }

    fn into_inner(self) -> Self::Inner {
        self.inner
    }

    fn layout(&self) -> Layout {
        self.plan.layout(self.len)
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        let Inner { bits: f, rounding, ring, .. } = self.plan.inner;
        let opens = self.plan.verifies_opening();
        if round == 0 && opens {
            checks.send_masked(std::mem::take(&mut self.aside), ring, out);
        }
        if round != self.plan.last() {
            return;
        }
        let c = self.public();
        if opens {
            // As it was opened.
            let mut opened = c.clone();
            let offset = rounding.offset::<W>(ring);
            opened.iter_mut().for_each(|c| *c = c.sub(offset));
            checks.verify(&opened, ring);
        }
        let mut public = shifted_right(&c, f);
        if rounding == Rounding::Probabilistic {
            self.mask = checks.send_masked_under(&public, ring, out);
            return;
        }
        let offset = W::ONE.shl(ring.bits() - 2 - f);
        if let Some(audit) = &self.plan.borrow {
            let leaves = audit.send_masked(&self.inner.borrow, checks, out);
            audit.verify(&self.inner.borrow, &leaves, checks);
            let mut borrow = Buffer::<W>::stale(self.len);
            expand_bits(&self.inner.borrow.borrow().sum(), &mut borrow);
            elementwise::sub_assign(&mut public, &borrow);
            checks.send_masked(borrow, ring, out);
        }
        public.iter_mut().for_each(|public| *public = public.sub(offset));
        checks.send_masked(public, ring, out);
        checks.send_masked(not_bit(&c, ring.bits() - 1), self.plan.inner.wrap_ring(), out);
    }

    fn receive(&mut self, step: Step, inbox: &Inbox) {
        if step == Step::Online(0) && self.plan.folded {
            self.message = received(inbox, self.inner.site.other(), self.len, self.plan.inner.ring);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Beside<W> {
        let extra = self.verify_result(checks);
        Beside { extra, messages: of_the_other(checks.role, std::mem::take(&mut self.message)) }
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Beside<W> {
        let extra = self.verify_dealt_result(checks, out);
        let folds = self.plan.folded && checks.role == Role::P3;
        let masks = folds.then(|| self.inner.site.masks(crate::trio::site::purpose::OPENING));
        Beside { extra, messages: masks.unwrap_or_default().into() }
    }
}

impl<W: Word> Truncate<W> {
    fn verify_result(&mut self, checks: &mut TileChecks) -> Buffer<W> {
        if self.plan.inner.rounding == Rounding::Probabilistic {
            return std::mem::take(&mut self.mask);
        }
        let mut x = self.inner.first.clone();
        elementwise::add_assign(&mut x, &self.inner.second);
        checks.verify(&x, self.plan.inner.ring)
    }

    fn verify_dealt_result(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Buffer<W> {
        let Inner { bits: f, rounding, ring, .. } = self.plan.inner;
        let r = &self.inner.value;
        if self.plan.verifies_opening() {
            let mut sum = checks.masked::<W>(ring);
            elementwise::add_assign(&mut sum, &self.aside);
            if checks.constants() {
                elementwise::add_assign(&mut sum, r);
            }
            checks.verified(sum, ring, out);
        }
        if rounding == Rounding::Probabilistic {
            return checks.masked(ring);
        }
        let (mut bit, mut borrow) = (Buffer::zeros(self.len), Buffer::zeros(self.len));
        if let Some(audit) = &self.plan.borrow {
            audit.verify_dealt(&self.inner.borrow, checks, out);
            bit = checks.masked(ring);
            expand_bits(&self.inner.borrow.borrow().sum(), &mut borrow);
        }
        let mut sum = checks.masked::<W>(ring);
        let small = checks.masked::<W>(self.plan.inner.wrap_ring());
        let one = if checks.constants() { !W::ZERO } else { W::ZERO };
        shifted(&mut sum, &small, &bit, r, &borrow, one, f, ring.bits());
        if checks.constants() {
            elementwise::add_assign(&mut sum, &self.inner.first);
            elementwise::add_assign(&mut sum, &self.inner.second);
        }
        checks.verified(sum, ring, out)
    }
}

vectorised! {
    /// `sum + m·2y + 2^(l-f)·n·msb(R)`, and at P3 less R≫f + y
    #[allow(clippy::too_many_arguments)] // One pass over all of them.
    fn shifted<W: Word>(sum: &mut [W], small: &[W], bit: &[W], r: &[W], borrow: &[W], one: W, f: u32, l: u32) {
        for ((sum, (&small, &bit)), (&r, &y)) in sum.iter_mut().zip(small.iter().zip(bit)).zip(r.iter().zip(borrow)) {
            let wrap = small.mul(r.shr(l - 1)).shl(l - f);
            *sum = sum.add(bit.mul(y.add(y))).add(wrap).sub(r.shr(f).add(y) & one);
        }
    }
}
