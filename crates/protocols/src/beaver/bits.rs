//! Planes of bits: their conjunction, and the bits of a word.

use covey_kernels::Buffer;
use covey_kernels::bits::{and, and_xor_assign, to_planes, xor_assign};
use covey_ring::{BitTensor, Ring, Word};

use super::site::{Moves, Site, purpose};
use super::{Arith, Beaver, Bool, place_planes};
use crate::api::Result;
use crate::circuits::{Adder, CarryCircuit};
use crate::machine::{Inbox, Layout, Machine, Outbox, Step};
use crate::masked::{Table, select};

const PRODUCT: u32 = purpose::CIRCUIT;

/// x ∧ y over one tile of several planes, by a triple: d = x ⊕ a and e = y ⊕ b are opened, the dealer shares a·b.
pub(super) struct And {
    layout: Layout,
    site: Site,
    planes: usize,
    /// The share of x, then d; and of y, then e.
    values: [Buffer<u64>; 2],
    received: Buffer<u64>,
    result: Buffer<u64>,
}

/// Who is sent a share of the products.
fn receiver(table: Table) -> usize {
    table.parties - 1
}

impl And {
    pub fn layout(table: Table, len: usize, planes: usize) -> Layout {
        let mut layout = Layout::default();
        layout.open_planes(table, 0, len, 2 * planes);
        layout.deal_planes(table, receiver(table), len, planes);
        layout
    }

    pub fn new(site: Site, planes: usize, values: [Buffer<u64>; 2]) -> Self {
        let layout = Self::layout(site.seat.table, site.len(), planes);
        And { layout, site, planes, values, received: Buffer::new(), result: Buffer::new() }
    }

    fn masks(&self) -> [Buffer<u64>; 2] {
        [purpose::OPENING, purpose::SECOND].map(|purpose| self.site.draw_planes(purpose, self.planes))
    }
}

impl Machine for And {
    type Output = Buffer<u64>;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => {
                let [a, b] = self.masks();
                let mut product = Buffer::stale(a.len());
                and(&mut product, &a, &b);
                self.site.deal_planes(receiver(self.site.seat.table), PRODUCT, &product, self.planes, out);
            }
            (Some(_), Step::Online(_)) => {
                let [x, y] = &mut self.values;
                self.site.open_planes_send(x, purpose::OPENING, self.planes, out);
                self.site.open_planes_send(y, purpose::SECOND, self.planes, out);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        let (table, len) = (self.site.seat.table, self.site.len());
        if step == Step::Offline {
            self.received = inbox.bit_planes(table.dealer, len, self.planes);
            return;
        }
        for from in self.site.seat.others() {
            for value in &mut self.values {
                xor_assign(value, &inbox.bit_planes(from, len, self.planes));
            }
        }
        let [a, b] = self.masks();
        let [d, e] = &self.values;
        self.result = match self.site.is_dealt(receiver(table)) {
            true => std::mem::take(&mut self.received),
            false => self.site.draw_planes(PRODUCT, self.planes),
        };
        and_xor_assign(&mut self.result, d, &b);
        and_xor_assign(&mut self.result, e, &a);
        if self.site.is_first() {
            and_xor_assign(&mut self.result, d, e);
        }
    }

    fn finish(self) -> Buffer<u64> {
        self.site.output_planes(self.result, self.planes)
    }
}

/// What a word's bits start from: C = x + R mod 2^l, public, and shares of the bits of R.
pub(super) struct Bits<W> {
    layout: Layout,
    site: Site,
    value: Buffer<W>,
    received: Buffer<u64>,
}

/// The messages of [`Bits`].
pub(super) fn layout(table: Table, len: usize, ring: Ring) -> Layout {
    let mut layout = Layout::default();
    layout.open_words(table, 0, len, ring);
    layout.deal_planes(table, receiver(table), len, ring.bits() as usize);
    layout
}

impl<W: Word> Bits<W> {
    pub fn new(site: Site, value: Buffer<W>) -> Self {
        let layout = layout(site.seat.table, site.len(), site.ring);
        Bits { layout, site, value, received: Buffer::new() }
    }

    fn planes(&self) -> usize {
        self.site.ring.bits() as usize
    }

    /// The bits of words, plane after plane.
    fn planes_of(&self, words: &[W]) -> Buffer<u64> {
        let mut planes = Buffer::stale(self.site.seat.plane_words() * self.planes());
        to_planes(words, self.planes(), &mut planes);
        planes
    }
}

impl<W: Word> Machine for Bits<W> {
    /// The bits of C, and shares of those of R.
    type Output = (Buffer<u64>, Buffer<u64>);

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn local(&mut self, step: Step, out: &mut Outbox) {
        match (self.site.seat.party, step) {
            (None, Step::Offline) => {
                let r = self.planes_of(&self.site.draw::<W>(purpose::OPENING));
                self.site.deal_planes(receiver(self.site.seat.table), PRODUCT, &r, self.planes(), out);
            }
            (Some(_), Step::Online(_)) => {
                self.site.open_send(&mut self.value, purpose::OPENING, self.site.ring, out);
            }
            _ => {}
        }
    }

    fn absorb(&mut self, step: Step, inbox: &mut Inbox) {
        if step == Step::Offline {
            let table = self.site.seat.table;
            self.received = inbox.bit_planes(table.dealer, self.site.len(), self.planes());
            return;
        }
        self.site.open_receive(&mut self.value, self.site.ring, inbox);
        select::reduce(&mut self.value, self.site.ring.reduce(!W::ZERO));
    }

    fn finish(self) -> Self::Output {
        let (site, planes) = (&self.site, self.planes());
        let mask = match site.is_dealt(receiver(site.seat.table)) {
            true => self.received.clone(),
            false if site.seat.party.is_some() => site.draw_planes(PRODUCT, planes),
            false => Buffer::new(),
        };
        (site.output_planes(self.planes_of(&self.value), planes), site.output_planes(mask, planes))
    }
}

impl<W: Word> Beaver<W> {
    /// The bits of x: bit i is C_i ⊕ R_i ⊕ the borrow of C - R out of the bits below, by a prefix network.
    pub(super) fn bits_of(&mut self, x: &Arith<W>) -> Result<Bool> {
        let (len, planes, first) = (x.len(), self.party.ring.bits() as usize, self.number() == Some(0));
        let (mut c, mut r) = (BitTensor::zeros(len, planes), BitTensor::zeros(len, planes));
        self.each_tile(
            len,
            |site, range| Bits::new(site, x.tile(range)),
            |range, (public, shares)| {
                place_planes(&mut c, range.clone(), &public);
                place_planes(&mut r, range, &shares);
            },
        )?;
        let circuit = CarryCircuit::carries(planes - 1, Adder::LogDepth);
        // Of each range of bits: whether a borrow comes out of it, and whether one from below goes through.
        let (mut borrows, mut passes) = (Vec::with_capacity(circuit.ranges), Vec::with_capacity(circuit.ranges));
        for bit in 0..circuit.bits {
            let bits = c.plane(bit).iter().zip(r.plane(bit));
            borrows.push(bits.clone().map(|(c, r)| !c & r).collect::<Vec<u64>>());
            passes.push(bits.map(|(c, r)| if first { !c ^ r } else { *r }).collect::<Vec<u64>>());
        }
        for level in &circuit.levels {
            let through = level.iter().filter(|combine| combine.propagate);
            let highs = level.iter().chain(through.clone()).flat_map(|combine| &passes[combine.high]);
            let lows = level.iter().map(|combine| &borrows[combine.low]);
            let lows = lows.chain(through.clone().map(|combine| &passes[combine.low])).flatten();
            let products = level.len() + through.count();
            let [highs, lows] =
                [highs.copied().collect(), lows.copied().collect()].map(|bits| BitTensor::new(len, products, bits));
            let products = self.and_planes(&Bool(highs), &Bool(lows))?.0;
            let mut next = level.len();
            for (index, combine) in level.iter().enumerate() {
                let borrow = borrows[combine.high].iter().zip(products.plane(index)).map(|(high, low)| high ^ low);
                borrows.push(borrow.collect());
                passes.push(if combine.propagate { products.plane(next).to_vec() } else { Vec::new() });
                next += usize::from(combine.propagate);
            }
        }
        for bit in 0..planes {
            let plane = r.plane_mut(bit);
            if first {
                xor_assign(plane, c.plane(bit));
            }
            if bit > 0 {
                xor_assign(plane, &borrows[circuit.outputs[bit - 1]]);
            }
        }
        Ok(Bool(r))
    }
}
