//! Gates that yield bits: the sign, all bits, and AND.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_ring::{BitTensor, Ring, Word};

use super::borrow::{self, Borrow};
use super::comparison::{Comparison, ComparisonPlan};
use super::share::{Role, Wire, and, dealt_term, p1_term, xor};
use super::site::{Moves, Site, purpose};
use crate::circuits::{Adder, CarryCircuit};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};

/// The sign of a shared x = C - R over one tile.
pub(crate) struct Sign<W> {
    layout: Layout,
    site: Site,
    /// C at P1 and P2, R = la at P0.
    pub(crate) sum: Buffer<W>,
    pub(crate) comparison: Comparison,
}

/// The messages of [`Sign`] with the circuit `plan`.
pub(crate) fn sign_layout(plan: &ComparisonPlan, len: usize) -> Layout {
    let mut layout = Layout::default();
    plan.layout(len, 0, &mut layout);
    layout
}

impl<W: Word> Sign<W> {
    pub fn new(site: Site, plan: &ComparisonPlan, sum: Buffer<W>) -> Self {
        let comparison = Comparison::new(site.clone(), plan);
        Sign { layout: sign_layout(plan, site.len), site, sum, comparison }
    }
}

impl<W: Word> Machine for Sign<W> {
    type Output = Vec<Wire>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.comparison.deal(&self.sum, out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if round == 0 {
                    self.comparison.set_public(&self.sum);
                }
                self.comparison.local(round, out);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => self.comparison.absorb_deal(inbox),
            Step::Online(round) => self.comparison.absorb(round, inbox),
        }
    }

    fn finish(self) -> Vec<Wire> {
        vec![self.comparison.sign()]
    }
}

/// Which circuit takes x = C - R apart.
#[derive(Clone)]
pub(crate) struct AllBitsPlan {
    pub(crate) circuit: Arc<CarryCircuit>,
    pub(crate) bits: usize,
}

impl AllBitsPlan {
    /// All l bits of x.
    pub fn new(ring: Ring, adder: Adder) -> Self {
        let bits = ring.bits() as usize;
        AllBitsPlan { circuit: Arc::new(CarryCircuit::carries(bits - 1, adder)), bits }
    }

    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        borrow::layout(&self.circuit, self.bits, len, 0, &mut layout);
        layout
    }
}

/// All bits of a shared x = C - R over one tile: the borrow circuit, then C ⊕ R ⊕ borrow.
pub(crate) struct All<W> {
    layout: Layout,
    pub(crate) plan: AllBitsPlan,
    site: Site,
    /// C at P1 and P2, R = la at P0.
    pub(crate) sum: Buffer<W>,
    pub(crate) borrow: Borrow,
}

impl<W: Word> All<W> {
    pub fn new(site: Site, plan: AllBitsPlan, sum: Buffer<W>) -> Self {
        let borrow = Borrow::new(site.clone(), plan.circuit.clone(), plan.bits);
        All { layout: plan.layout(site.len), plan, site, sum, borrow }
    }
}

impl<W: Word> Machine for All<W> {
    type Output = Vec<Wire>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.role, step) {
            (Role::P0, Step::Offline) => self.borrow.deal(&self.sum, out),
            (Role::P1 | Role::P2, Step::Online(round)) => {
                if round == 0 {
                    self.borrow.set_public(&self.sum);
                }
                self.borrow.local(round, out);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => self.borrow.absorb_deal(inbox),
            Step::Online(round) => self.borrow.absorb(round, inbox),
        }
    }

    fn finish(self) -> Vec<Wire> {
        let bit = |index: usize| {
            let borrow = (index > 0).then(|| self.borrow.output(index - 1));
            self.borrow.difference_bit(index, borrow.as_ref())
        };
        (0..self.plan.bits).map(bit).collect()
    }
}

/// x ∧ y over one tile of several planes: honest-majority multiplication over bits, one round.
pub(crate) struct And {
    layout: Layout,
    site: Site,
    pub(crate) x: Vec<Wire>,
    pub(crate) y: Vec<Wire>,
    dealt: Vec<Buffer<u64>>,
    own: Vec<Buffer<u64>>,
    pub(crate) result: Vec<Wire>,
}

impl And {
    pub fn layout(len: usize, planes: usize) -> Layout {
        let mut layout = Layout::default();
        layout.deal_planes(len, planes);
        layout.reshare_planes(0, len, planes);
        layout
    }

    pub fn new(site: Site, x: Vec<Wire>, y: Vec<Wire>) -> Self {
        let result = vec![Wire::zeros(site.len); x.len()];
        And { layout: Self::layout(site.len, x.len()), site, x, y, dealt: Vec::new(), own: Vec::new(), result }
    }
}

impl Machine for And {
    type Output = Vec<Wire>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        for (plane, (x, y)) in self.x.iter().zip(&self.y).enumerate() {
            let (mask, deal) = (purpose::CIRCUIT + 2 * plane as u32, purpose::CIRCUIT + 2 * plane as u32 + 1);
            match (self.site.role, step) {
                (Role::P0, Step::Offline) => {
                    let s1 = self.site.draw_plane(1, deal);
                    out.plane(2, &xor(&dealt_term(x, y), &s1), self.site.len);
                    let (first, second) = self.site.mask_planes(mask);
                    self.result[plane] = Wire { first, second };
                }
                (Role::P1 | Role::P2, Step::Online(_)) => {
                    let t = match self.site.role {
                        Role::P1 => xor(&self.site.draw_plane(0, deal), &p1_term(x, y)),
                        _ => xor(&self.dealt[plane], &and(&x.first, &y.first)),
                    };
                    self.result[plane].second = self.site.reshare_plane_send(mask, &t, out);
                    self.own.push(t);
                }
                _ => {}
            }
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        match step {
            Step::Offline => self.dealt = (0..self.x.len()).map(|_| inbox.bit_planes(0, self.site.len, 1)).collect(),
            Step::Online(_) => {
                for (result, own) in self.result.iter_mut().zip(std::mem::take(&mut self.own)) {
                    let mask = std::mem::take(&mut result.second);
                    *result = self.site.reshare_plane_receive(own, mask, inbox);
                }
            }
        }
    }

    fn finish(self) -> Vec<Wire> {
        self.result
    }
}

/// The tile `start..start + len` of plane `plane`; `start` is a multiple of 64.
pub(crate) fn tile_of(first: &BitTensor, second: &BitTensor, plane: usize, start: usize, len: usize) -> Wire {
    let words = start / 64..start / 64 + BitTensor::words_per_plane(len);
    Wire {
        first: Buffer::copy_of(&first.plane(plane)[words.clone()]),
        second: Buffer::copy_of(&second.plane(plane)[words]),
    }
}
