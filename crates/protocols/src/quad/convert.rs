//! Bits into the ring, checked. A bit b = m ⊕ y, m known to P1 and P2, y to P0 and P3.
//!
//! Bit2A: b = y + m·(1-2y), m sent masked. Select, with A = a + la: b·a = mA·(1-2y) + A·y - m·la·(1-2y) - y·la, mA and m sent
//! masked; A is known to P3 under its mask.

use covey_kernels::{Buffer, elementwise, vectorised};
use covey_ring::{Ring, Word, wire};

use super::audit::{Audited, Beside, Site, masked_messages, verification_values};
use super::checks::TileChecks;
use super::fused::{times, words_of};
use crate::machine::{Layout, Outbox};
use crate::trio::convert::{Operand, Select as Inner};
use crate::trio::share::Wire;

/// The messages of [`Select`].
pub(super) fn layout(len: usize, ring: Ring, select: bool) -> Layout {
    let mut layout = crate::trio::convert::layout(len, ring, select);
    let words = wire::words_len(len, ring);
    masked_messages(&mut layout, 0, words * (1 + usize::from(select)));
    verification_values(&mut layout, words);
    layout
}

/// [`Inner`], checked.
pub(super) struct Select<W> {
    inner: Inner<W>,
    /// w or V of a.
    extra: Option<Buffer<W>>,
    ring: Ring,
    len: usize,
}

impl<W: Word> Select<W> {
    /// b, or b·a: a's part of Trio, and what is beside it.
    pub fn new(site: &Site, bit: Wire, value: Option<(Operand<W>, Buffer<W>)>) -> Self {
        let (value, extra) = value.unzip();
        Select { inner: Inner::new(site.inner(), bit, value), extra, ring: site.ring, len: site.len }
    }

    /// m at P1 and P2, y at P0 and P3.
    fn bit(&self) -> Buffer<W> {
        words_of(&self.inner.bit.sum(), self.len)
    }
}

impl<W: Word> Audited for Select<W> {
    type Inner = Inner<W>;
    type Extra = Beside<W>;

    fn inner(&mut self) -> &mut Inner<W> {
        &mut self.inner
    }

    fn into_inner(self) -> Inner<W> {
        self.inner
    }

    fn layout(&self) -> Layout {
        layout(self.len, self.ring, self.extra.is_some())
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        if round == 0 {
            let m = self.bit();
            if let Some(value) = &self.inner.value {
                checks.send_masked(times(&m, &value.sum), self.ring, out);
            }
            checks.send_masked(m, self.ring, out);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Beside<W> {
        let mut x = self.inner.first.clone();
        elementwise::add_assign(&mut x, &self.inner.second);
        checks.verify(&x, self.ring).into()
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Beside<W> {
        let y = self.bit();
        let one = if checks.constants() { W::ONE } else { W::ZERO };
        let mut sum = match (&self.inner.value, &self.extra) {
            (Some(value), Some(extra)) => {
                let mut sum = checks.masked::<W>(self.ring);
                let m = checks.masked::<W>(self.ring);
                selected(&mut sum, &m, extra, &value.sum, &y, one);
                sum
            }
            _ => {
                let mut sum = checks.masked::<W>(self.ring);
                converted(&mut sum, &y, one);
                sum
            }
        };
        if checks.constants() {
            elementwise::add_assign(&mut sum, &self.inner.first);
            elementwise::add_assign(&mut sum, &self.inner.second);
        }
        checks.verified(sum, self.ring, out).into()
    }
}

vectorised! {
    /// From mA in `sum`: mA·(1-2y) + A·y - m·la·(1-2y) - one·y·la
    fn selected<W: Word>(sum: &mut [W], m: &[W], a: &[W], la: &[W], y: &[W], one: W) {
        for ((sum, (&m, &a)), (&la, &y)) in sum.iter_mut().zip(m.iter().zip(a)).zip(la.iter().zip(y)) {
            let sign = W::ONE.sub(y.add(y));
            *sum = sum.sub(m.mul(la)).mul(sign).add(y.mul(a.sub(one.mul(la))));
        }
    }

    /// From m in `sum`: m·(1-2y) + one·y
    fn converted<W: Word>(sum: &mut [W], y: &[W], one: W) {
        sum.iter_mut().zip(y).for_each(|(sum, &y)| *sum = sum.mul(W::ONE.sub(y.add(y))).add(one.mul(y)));
    }
}
