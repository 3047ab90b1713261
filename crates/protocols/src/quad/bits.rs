//! Trio's gates that yield bits, checked: the sign, all bits, and AND.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{Word, wire};

use super::audit::{Audited, Site, discloses, settles};
use super::book::Book;
use super::borrow::{self, constant, product};
use super::comparison;
use super::share::Wire;
use crate::machine::{Layout, Outbox};
use crate::trio::bits::{All as InnerAll, AllForm as InnerForm, And as InnerAnd, Sign as InnerSign, sign_layout};
use crate::trio::comparison::Plan;
use crate::trio::share::and;

/// The sign's circuit, shared by a gate's tiles.
#[derive(Clone)]
pub(super) struct SignForm {
    plan: Plan,
    audit: comparison::Audit,
    /// Bits up to the sign.
    bits: usize,
}

impl SignForm {
    /// Bit `low` of a sharing.
    pub fn new(plan: Plan, low: usize) -> Self {
        SignForm { audit: comparison::Audit::new(&plan), plan, bits: low + 1 }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = sign_layout(&self.plan, len);
        discloses(&mut layout, self.plan.rounds() - 1, self.audit.disclosed_len(len));
        settles(&mut layout, self.audit.settled_len(len));
        layout
    }
}

/// The sign of a sharing.
pub(super) struct Sign<W> {
    form: SignForm,
    inner: InnerSign<W>,
    len: usize,
    /// P1, P2: the masks of the bits of C.
    leaves: Buffer<u64>,
}

impl<W: Word> Sign<W> {
    pub fn new(site: &Site, form: SignForm, sum: Buffer<W>) -> Self {
        let inner = InnerSign::new(site.inner(), &form.plan, sum);
        Sign { form, inner, len: site.len, leaves: Buffer::new() }
    }
}

impl<W: Word> Audited for Sign<W> {
    type Inner = InnerSign<W>;
    type Extra = Vec<Buffer<u64>>;

    // The first round sets the bits of C.
    const COMPUTES_FIRST: bool = true;

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
        if round + 1 == self.form.plan.rounds() {
            self.leaves = self.form.audit.disclose(&self.inner.comparison, book, out);
        }
    }

    fn settle(&mut self, book: &mut Book) -> Self::Extra {
        let settled = self.form.audit.settle(&self.inner.comparison, &self.leaves, book);
        vec![settled.sign(self.form.bits, false)]
    }

    fn settle_dealt(&mut self, book: &mut Book, out: &mut Outbox) -> Self::Extra {
        let settled = self.form.audit.settle_dealt(&self.inner.comparison, book, out);
        vec![settled.sign(self.form.bits, book.constants())]
    }
}

/// The circuit that takes a sharing apart, shared by a gate's tiles.
#[derive(Clone)]
pub(super) struct AllForm {
    inner: InnerForm,
    audit: Arc<borrow::Audit>,
}

impl AllForm {
    pub fn new(inner: InnerForm) -> Self {
        AllForm { audit: Arc::new(borrow::Audit::new(&inner.circuit, inner.bits)), inner }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = self.inner.layout(len);
        discloses(&mut layout, self.rounds() - 1, self.audit.disclosed_len(len));
        settles(&mut layout, self.audit.settled_len(len));
        layout
    }

    /// Rounds of the circuit.
    fn rounds(&self) -> usize {
        1 + self.inner.circuit.levels.len()
    }

    fn extra(&self, settled: &borrow::Settled, constants: bool) -> Vec<Buffer<u64>> {
        (0..self.inner.bits).map(|bit| settled.difference_bit(bit, bit.checked_sub(1), constants)).collect()
    }
}

/// All bits of a sharing.
pub(super) struct All<W> {
    form: AllForm,
    inner: InnerAll<W>,
    len: usize,
    /// P1, P2: the masks of the bits of C.
    leaves: Buffer<u64>,
}

impl<W: Word> All<W> {
    pub fn new(site: &Site, form: AllForm, sum: Buffer<W>) -> Self {
        let inner = InnerAll::new(site.inner(), form.inner.clone(), sum);
        All { form, inner, len: site.len, leaves: Buffer::new() }
    }
}

impl<W: Word> Audited for All<W> {
    type Inner = InnerAll<W>;
    type Extra = Vec<Buffer<u64>>;

    const COMPUTES_FIRST: bool = true;

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
        if round + 1 == self.form.rounds() {
            self.leaves = self.form.audit.disclose(&self.inner.borrow, book, out);
        }
    }

    fn settle(&mut self, book: &mut Book) -> Self::Extra {
        let settled = self.form.audit.settle(&self.inner.borrow, &self.leaves, book);
        self.form.extra(&settled, false)
    }

    fn settle_dealt(&mut self, book: &mut Book, out: &mut Outbox) -> Self::Extra {
        let settled = self.form.audit.settle_dealt(&self.inner.borrow, book, out);
        self.form.extra(&settled, book.constants())
    }
}

/// x ∧ y: Z = xy ⊕ λz with XY disclosed.
pub(super) struct And {
    inner: InnerAnd,
    /// w or V of the operands, plane by plane.
    x: Vec<Buffer<u64>>,
    y: Vec<Buffer<u64>>,
    len: usize,
}

/// The messages of [`And`].
pub(super) fn and_layout(len: usize, planes: usize) -> Layout {
    let mut layout = InnerAnd::layout(len, planes);
    let bytes = planes * wire::planes_len(len, 1);
    discloses(&mut layout, 0, bytes);
    settles(&mut layout, bytes);
    layout
}

impl And {
    pub fn new(site: &Site, x: Vec<Wire>, y: Vec<Wire>) -> Self {
        let split = |wires: Vec<Wire>| -> (Vec<_>, Vec<_>) { wires.into_iter().map(|w| (w.inner, w.extra)).unzip() };
        let ((x_inner, x), (y_inner, y)) = (split(x), split(y));
        And { inner: InnerAnd::new(site.inner(), x_inner, y_inner), x, y, len: site.len }
    }
}

impl Audited for And {
    type Inner = InnerAnd;
    type Extra = Vec<Buffer<u64>>;

    fn inner(&mut self) -> &mut InnerAnd {
        &mut self.inner
    }

    fn into_inner(self) -> InnerAnd {
        self.inner
    }

    fn layout(&self) -> Layout {
        and_layout(self.len, self.x.len())
    }

    fn disclose(&mut self, round: usize, book: &mut Book, out: &mut Outbox) {
        if round == 0 {
            let planes: Vec<u64> =
                self.inner.x.iter().zip(&self.inner.y).flat_map(|(x, y)| and(&x.sum(), &y.sum()).to_vec()).collect();
            book.disclose_planes(&planes, out);
        }
    }

    fn settle(&mut self, book: &mut Book) -> Self::Extra {
        let opened: Vec<u64> = self.inner.result.iter().flat_map(|wire| wire.sum().to_vec()).collect();
        let width = book.width();
        book.settle_planes(&opened).chunks_exact(width.max(1)).map(Buffer::copy_of).collect()
    }

    fn settle_dealt(&mut self, book: &mut Book, out: &mut Outbox) -> Self::Extra {
        let (width, planes) = (book.width(), self.x.len());
        let one = if book.constants() { u64::MAX } else { 0 };
        let disclosed = book.disclosed_planes(planes);
        let mut known = book.settling(planes);
        for (plane, both) in disclosed.chunks_exact(width.max(1)).enumerate() {
            let x = (self.x[plane].clone(), self.inner.x[plane].sum());
            let y = (self.y[plane].clone(), self.inner.y[plane].sum());
            let mut sum = product(Buffer::copy_of(both), &x, &y, one);
            constant(one, &mut sum, &self.inner.result[plane].sum());
            book.settle_plane(&mut known, plane, &mut sum, out);
        }
        book.settled_planes(&known);
        known.chunks_exact(width.max(1)).map(Buffer::copy_of).collect()
    }
}
