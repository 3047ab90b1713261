//! Trio's shifts, checked, with the opening of C = v + R before them where v is a product.
//!
//! Exact and ulp: v≫f = [C≫f - m - offset] - R≫f - y + m·2y + 2^(l-f)·¬msb(C)·msb(R), where β = m ⊕ y: three values disclosed, of
//! which ulp has no m. Probabilistic: the result's public part is C≫f itself, which P2 sends P3 under the result's own mask.

use covey_kernels::bits::expand_bits;
use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Word, wire};

use super::audit::{Audited, Beside, Site, discloses, settles};
use super::book::Book;
use super::comparison;
use super::fused::{not_bit, of_the_other, received};
use super::share::Role;
use crate::api::Rounding;
use crate::machine::{Inbox, Layout, Outbox, Step};
use crate::trio::truncate::{Form as Inner, shifted_right};

/// A gate's form, shared by its tiles.
#[derive(Clone)]
pub(super) struct Form {
    inner: Inner,
    borrow: Option<comparison::Audit>,
    /// Whether what is opened first is checked by combinations, of a whole product at once (`folding.rs`), and not here.
    folded: bool,
}

impl Form {
    pub fn new(inner: Inner, folded: bool) -> Self {
        let borrow = (inner.rounding == Rounding::Exact).then(|| comparison::Audit::new(&inner.circuit));
        Form { inner, borrow, folded }
    }

    /// Whether P3 learns what is opened first.
    fn settles_opening(&self) -> bool {
        self.inner.opens && !self.folded
    }

    /// Round before which all that is disclosed of the result is known.
    fn last(&self) -> usize {
        match self.inner.rounding {
            Rounding::Probabilistic => self.inner.start(),
            _ => self.inner.last(),
        }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let (form, last) = (&self.inner, self.last());
        let mut layout = form.layout(len);
        let words = wire::words_len(len, form.ring);
        if self.settles_opening() {
            discloses(&mut layout, 0, words);
            settles(&mut layout, words);
        }
        discloses(&mut layout, last, words);
        if let Some(borrow) = &self.borrow {
            discloses(&mut layout, last, borrow.disclosed_len(len) + words);
            settles(&mut layout, borrow.settled_len(len));
        }
        if form.rounding != Rounding::Probabilistic {
            discloses(&mut layout, last, wire::words_len(len, form.wrap_ring()));
            settles(&mut layout, words);
        }
        layout
    }
}

/// [`crate::trio::truncate::Truncate`], checked.
pub(super) struct Truncate<W> {
    form: Form,
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
    pub fn new(site: &Site, form: Form, value: Buffer<W>, aside: Buffer<W>) -> Self {
        let inner = crate::trio::truncate::Truncate::new(site.inner(), form.inner.clone(), value);
        Truncate { form, inner, aside, len: site.len, mask: Buffer::new(), message: Buffer::new() }
    }

    /// P1, P2: C, offset included.
    fn public(&self) -> Buffer<W> {
        let Inner { rounding, opens, ring, .. } = self.form.inner;
        let mut c = self.inner.value.clone();
        // A gate of a sharing adds the offset in its first round, of which this is ahead.
        let first = !opens && self.form.last() == 0;
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
        self.form.layout(self.len)
    }

    fn disclose(&mut self, round: usize, book: &mut Book, out: &mut Outbox) {
        let Inner { bits: f, rounding, ring, .. } = self.form.inner;
        let opens = self.form.settles_opening();
        if round == 0 && opens {
            book.disclose(std::mem::take(&mut self.aside), ring, out);
        }
        if round != self.form.last() {
            return;
        }
        let c = self.public();
        if opens {
            // As it was opened.
            let mut opened = c.clone();
            let offset = rounding.offset::<W>(ring);
            opened.iter_mut().for_each(|c| *c = c.sub(offset));
            book.settle(&opened, ring);
        }
        let mut public = shifted_right(&c, f);
        if rounding == Rounding::Probabilistic {
            self.mask = book.disclose_under(&public, ring, out);
            return;
        }
        let offset = W::ONE.shl(ring.bits() - 2 - f);
        if let Some(audit) = &self.form.borrow {
            let leaves = audit.disclose(&self.inner.borrow, book, out);
            audit.settle(&self.inner.borrow, &leaves, book);
            let mut borrow = Buffer::<W>::stale(self.len);
            expand_bits(&self.inner.borrow.borrow().sum(), &mut borrow);
            elementwise::sub_assign(&mut public, &borrow);
            book.disclose(borrow, ring, out);
        }
        public.iter_mut().for_each(|public| *public = public.sub(offset));
        book.disclose(public, ring, out);
        book.disclose(not_bit(&c, ring.bits() - 1), self.form.inner.wrap_ring(), out);
    }

    fn receive(&mut self, step: Step, inbox: &Inbox) {
        if step == Step::Online(0) && self.form.folded {
            self.message = received(inbox, self.inner.site.other(), self.len, self.form.inner.ring);
        }
    }

    fn settle(&mut self, book: &mut Book) -> Beside<W> {
        let extra = self.settle_result(book);
        Beside { extra, messages: of_the_other(book.role, std::mem::take(&mut self.message)) }
    }

    fn settle_dealt(&mut self, book: &mut Book, out: &mut Outbox) -> Beside<W> {
        let extra = self.settle_dealt_result(book, out);
        let folds = self.form.folded && book.role == Role::P3;
        let masks = folds.then(|| self.inner.site.masks(crate::trio::site::purpose::OPENING));
        Beside { extra, messages: masks.unwrap_or_default().into() }
    }
}

impl<W: Word> Truncate<W> {
    fn settle_result(&mut self, book: &mut Book) -> Buffer<W> {
        if self.form.inner.rounding == Rounding::Probabilistic {
            return std::mem::take(&mut self.mask);
        }
        let mut x = self.inner.first.clone();
        elementwise::add_assign(&mut x, &self.inner.second);
        book.settle(&x, self.form.inner.ring)
    }

    fn settle_dealt_result(&mut self, book: &mut Book, out: &mut Outbox) -> Buffer<W> {
        let Inner { bits: f, rounding, ring, .. } = self.form.inner;
        let r = &self.inner.value;
        if self.form.settles_opening() {
            let mut sum = book.disclosed::<W>(ring);
            elementwise::add_assign(&mut sum, &self.aside);
            if book.constants() {
                elementwise::add_assign(&mut sum, r);
            }
            book.settled(sum, ring, out);
        }
        if rounding == Rounding::Probabilistic {
            return book.disclosed(ring);
        }
        let (mut bit, mut borrow) = (Buffer::zeros(self.len), Buffer::zeros(self.len));
        if let Some(audit) = &self.form.borrow {
            audit.settle_dealt(&self.inner.borrow, book, out);
            bit = book.disclosed(ring);
            expand_bits(&self.inner.borrow.borrow().sum(), &mut borrow);
        }
        let mut sum = book.disclosed::<W>(ring);
        let small = book.disclosed::<W>(self.form.inner.wrap_ring());
        let one = if book.constants() { !W::ZERO } else { W::ZERO };
        shifted(&mut sum, &small, &bit, r, &borrow, one, f, ring.bits());
        if book.constants() {
            elementwise::add_assign(&mut sum, &self.inner.first);
            elementwise::add_assign(&mut sum, &self.inner.second);
        }
        book.settled(sum, ring, out)
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
