//! Trio's gates that yield bits, checked: the sign, all bits, and AND.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{Word, wire};

use super::audit::{Audited, Site, masked_messages, verification_values};
use super::borrow::{self, constant, product};
use super::checks::TileChecks;
use super::comparison;
use super::share::Wire;
use crate::machine::{Layout, Outbox};
use crate::trio::bits::{All as InnerAll, AllBitsPlan as InnerPlan, And as InnerAnd, Sign as InnerSign, sign_layout};
use crate::trio::comparison::ComparisonPlan;
use crate::trio::share::and;

/// The sign's circuit, shared by a gate's tiles.
#[derive(Clone)]
pub(super) struct SignPlan {
    circuit: ComparisonPlan,
    audit: comparison::Audit,
    /// Bits up to the sign.
    bits: usize,
}

impl SignPlan {
    /// Bit `low` of a sharing.
    pub fn new(circuit: ComparisonPlan, low: usize) -> Self {
        SignPlan { audit: comparison::Audit::new(&circuit), circuit, bits: low + 1 }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = sign_layout(&self.circuit, len);
        masked_messages(&mut layout, self.circuit.rounds() - 1, self.audit.masked_len(len));
        verification_values(&mut layout, self.audit.verified_len(len));
        layout
    }
}

/// The sign of a sharing.
pub(super) struct Sign<W> {
    plan: SignPlan,
    inner: InnerSign<W>,
    len: usize,
    /// P1, P2: the masks of the bits of C.
    leaves: Buffer<u64>,
}

impl<W: Word> Sign<W> {
    pub fn new(site: &Site, plan: SignPlan, sum: Buffer<W>) -> Self {
        let inner = InnerSign::new(site.inner(), &plan.circuit, sum);
        Sign { plan, inner, len: site.len, leaves: Buffer::new() }
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
        self.plan.layout(self.len)
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        if round + 1 == self.plan.circuit.rounds() {
            self.leaves = self.plan.audit.send_masked(&self.inner.comparison, checks, out);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Self::Extra {
        let verified = self.plan.audit.verify(&self.inner.comparison, &self.leaves, checks);
        vec![verified.sign(self.plan.bits, false)]
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Self::Extra {
        let verified = self.plan.audit.verify_dealt(&self.inner.comparison, checks, out);
        vec![verified.sign(self.plan.bits, checks.constants())]
    }
}

/// The circuit that takes a sharing apart, shared by a gate's tiles.
#[derive(Clone)]
pub(super) struct AllBitsPlan {
    inner: InnerPlan,
    audit: Arc<borrow::Audit>,
}

impl AllBitsPlan {
    pub fn new(inner: InnerPlan) -> Self {
        AllBitsPlan { audit: Arc::new(borrow::Audit::new(&inner.circuit, inner.bits)), inner }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = self.inner.layout(len);
        masked_messages(&mut layout, self.rounds() - 1, self.audit.masked_len(len));
        verification_values(&mut layout, self.audit.verified_len(len));
        layout
    }

    /// Rounds of the circuit.
    fn rounds(&self) -> usize {
        1 + self.inner.circuit.levels.len()
    }

    fn extra(&self, verified: &borrow::Verified, constants: bool) -> Vec<Buffer<u64>> {
        (0..self.inner.bits).map(|bit| verified.difference_bit(bit, bit.checked_sub(1), constants)).collect()
    }
}

/// All bits of a sharing.
pub(super) struct All<W> {
    plan: AllBitsPlan,
    inner: InnerAll<W>,
    len: usize,
    /// P1, P2: the masks of the bits of C.
    leaves: Buffer<u64>,
}

impl<W: Word> All<W> {
    pub fn new(site: &Site, plan: AllBitsPlan, sum: Buffer<W>) -> Self {
        let inner = InnerAll::new(site.inner(), plan.inner.clone(), sum);
        All { plan, inner, len: site.len, leaves: Buffer::new() }
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
        self.plan.layout(self.len)
    }

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        if round + 1 == self.plan.rounds() {
            self.leaves = self.plan.audit.send_masked(&self.inner.borrow, checks, out);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Self::Extra {
        let verified = self.plan.audit.verify(&self.inner.borrow, &self.leaves, checks);
        self.plan.extra(&verified, false)
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Self::Extra {
        let verified = self.plan.audit.verify_dealt(&self.inner.borrow, checks, out);
        self.plan.extra(&verified, checks.constants())
    }
}

/// x ∧ y: Z = xy ⊕ λz with XY sent masked.
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
    masked_messages(&mut layout, 0, bytes);
    verification_values(&mut layout, bytes);
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

    fn send_masked(&mut self, round: usize, checks: &mut TileChecks, out: &mut Outbox) {
        if round == 0 {
            let planes: Vec<u64> =
                self.inner.x.iter().zip(&self.inner.y).flat_map(|(x, y)| and(&x.sum(), &y.sum()).to_vec()).collect();
            checks.send_masked_planes(&planes, out);
        }
    }

    fn verify(&mut self, checks: &mut TileChecks) -> Self::Extra {
        let opened: Vec<u64> = self.inner.result.iter().flat_map(|wire| wire.sum().to_vec()).collect();
        let width = checks.width();
        checks.verify_planes(&opened).chunks_exact(width.max(1)).map(Buffer::copy_of).collect()
    }

    fn verify_dealt(&mut self, checks: &mut TileChecks, out: &mut Outbox) -> Self::Extra {
        let (width, planes) = (checks.width(), self.x.len());
        let one = if checks.constants() { u64::MAX } else { 0 };
        let masked = checks.masked_planes(planes);
        let mut known = checks.verification_planes(planes);
        for (plane, both) in masked.chunks_exact(width.max(1)).enumerate() {
            let x = (self.x[plane].clone(), self.inner.x[plane].sum());
            let y = (self.y[plane].clone(), self.inner.y[plane].sum());
            let mut sum = product(Buffer::copy_of(both), &x, &y, one);
            constant(one, &mut sum, &self.inner.result[plane].sum());
            checks.verify_plane(&mut known, plane, &mut sum, out);
        }
        checks.verified_planes(&known);
        known.chunks_exact(width.max(1)).map(Buffer::copy_of).collect()
    }
}
