//! The borrow circuit: shares of [C mod 2^k < R mod 2^k], C known to P1 and P2, R known to P0.
//!
//! The borrow of C - R is the carry of (¬C) + R: generate g = ¬C·R, propagate p = ¬C ⊕ R for each bit. P0 deals the bits of
//! R, which makes p a sharing at no further cost and g a sum of local terms. A leaf's g is re-shared only where a later
//! AND multiplies it; a leaf that is only ever the high part of a combination enters that AND as the local sum it is.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_kernels::bits::to_planes;
use covey_ring::Word;

use super::share::{Role, Wire, and, dealt_term, p1_term, xor};
use super::site::{Moves, Site, purpose};
use crate::circuits::CarryCircuit;
use crate::machine::{Inbox, Layout, Outbox};

/// Adds the messages of a circuit, over `dealt` bits of R, to a gate's layout; its online rounds start at `round`. Returns
/// how many it takes.
pub(crate) fn layout(circuit: &CarryCircuit, dealt: usize, len: usize, round: usize, layout: &mut Layout) -> usize {
    layout.deal_planes(len, dealt + circuit.ands());
    let multiplied = circuit.multiplied();
    layout.reshare_planes(round, len, (0..circuit.bits).filter(|&i| multiplied[i]).count());
    for (index, level) in circuit.levels.iter().enumerate() {
        let ands = level.iter().map(|c| 1 + usize::from(c.propagate)).sum();
        layout.reshare_planes(round + 1 + index, len, ands);
    }
    1 + circuit.levels.len()
}

/// One party's state of the circuit over one tile.
pub(crate) struct Borrow {
    site: Site,
    pub(crate) circuit: Arc<CarryCircuit>,
    pub(crate) multiplied: Vec<bool>,
    /// Low bits of R that P0 deals: those of the circuit, and more where the gate needs them.
    pub(crate) bits: usize,
    /// P1, P2: the own share of those bits, plane-major.
    dealt: Buffer<u64>,
    /// P2: the dealt halves of the ANDs, in circuit order.
    products: Vec<Buffer<u64>>,
    next_product: usize,
    /// ¬C, plane-major, at P1 and P2.
    pub(crate) not_c: Buffer<u64>,
    pub(crate) generate: Vec<Option<Wire>>,
    pub(crate) propagate: Vec<Option<Wire>>,
    /// Sharings of ¬C ⊕ R for the bits above the circuit.
    pub(crate) top: Vec<Option<Wire>>,
    /// Own terms of the round under way.
    pending: Vec<(Buffer<u64>, Buffer<u64>)>,
}

impl Borrow {
    pub fn new(site: Site, circuit: Arc<CarryCircuit>, bits: usize) -> Self {
        Borrow {
            multiplied: circuit.multiplied(),
            bits,
            dealt: Buffer::new(),
            products: Vec::new(),
            next_product: 0,
            not_c: Buffer::new(),
            generate: vec![None; circuit.ranges],
            propagate: vec![None; circuit.ranges],
            top: vec![None; bits - circuit.bits],
            pending: Vec::new(),
            site,
            circuit,
        }
    }

    /// Bits of R that P0 deals.
    pub fn bits(&self) -> usize {
        self.bits
    }

    fn draw_of(range: usize, what: u32) -> u32 {
        purpose::CIRCUIT + 4 * range as u32 + what
    }

    fn plane<'a>(&self, planes: &'a [u64], index: usize) -> &'a [u64] {
        let width = self.site.plane_words();
        &planes[index * width..(index + 1) * width]
    }

    /// P0: deals the bits of `r`, then one term for each AND from the masks of its operands.
    pub fn deal<W: Word>(&mut self, r: &[W], out: &mut Outbox) {
        let (len, bits) = (self.site.len, self.bits);
        let mut r_planes = Buffer::zeros(self.site.plane_words() * bits);
        to_planes(r, bits, &mut r_planes);
        let rho1 = self.site.draw_planes(1, purpose::BITS, bits);
        for bit in 0..bits {
            let first = Buffer::copy_of(self.plane(&rho1, bit));
            let second = xor(&first, self.plane(&r_planes, bit));
            out.plane(2, &second, len);
            *self.leaf(bit) = Some(Wire { first, second });
            if bit < self.circuit.bits && self.multiplied[bit] {
                self.generate[bit] = Some(self.fresh(bit, 0));
            }
        }
        let circuit = self.circuit.clone();
        for combine in circuit.levels.iter().flatten() {
            let high = self.propagate[combine.high].take().expect("marked");
            self.deal_and(&high, self.generate[combine.low].as_ref(), Self::draw_of(combine.out, 2), out);
            let generate = self.fresh(combine.out, 0);
            self.generate[combine.out] = Some(match &self.generate[combine.high] {
                Some(wire) => generate.xor(wire),
                None => generate,
            });
            if combine.propagate {
                self.deal_and(&high, self.propagate[combine.low].as_ref(), Self::draw_of(combine.out, 3), out);
                self.propagate[combine.out] = Some(self.fresh(combine.out, 1));
            }
            self.propagate[combine.high] = Some(high);
        }
    }

    /// P0's view of a freshly re-shared wire: its two masks.
    fn fresh(&self, range: usize, what: u32) -> Wire {
        let (first, second) = self.site.mask_planes(Self::draw_of(range, what));
        Wire { first, second }
    }

    /// P0 deals l2·l1' ⊕ l1·l2' ⊕ l1·l1' for the AND of two wires.
    fn deal_and(&self, x: &Wire, y: Option<&Wire>, purpose: u32, out: &mut Outbox) {
        let y = y.expect("an AND multiplies wires only");
        let s2 = xor(&dealt_term(x, y), &self.site.draw_plane(1, purpose));
        out.plane(2, &s2, self.site.len);
    }

    /// P2: what P0 dealt.
    pub fn absorb_deal(&mut self, inbox: &mut Inbox) {
        if self.site.role != Role::P2 {
            return;
        }
        self.dealt = inbox.bit_planes(0, self.site.len, self.bits);
        for _ in 0..self.circuit.ands() {
            self.products.push(inbox.bit_planes(0, self.site.len, 1));
        }
    }

    /// P1, P2: C becomes known; only its low bits matter.
    pub fn set_public<W: Word>(&mut self, c: &[W]) {
        let bits = self.bits;
        self.not_c = Buffer::zeros(self.site.plane_words() * bits);
        to_planes(c, bits, &mut self.not_c);
        self.not_c.iter_mut().for_each(|word| *word = !*word);
        if self.site.role == Role::P1 {
            self.dealt = self.site.draw_planes(0, purpose::BITS, bits);
        }
        for bit in 0..bits {
            let rho = Buffer::copy_of(self.plane(&self.dealt, bit));
            let wire = Wire { first: xor(self.plane(&self.not_c, bit), &rho), second: rho };
            *self.leaf(bit) = Some(wire);
        }
    }

    fn leaf(&mut self, bit: usize) -> &mut Option<Wire> {
        let bits = self.circuit.bits;
        if bit < bits { &mut self.propagate[bit] } else { &mut self.top[bit - bits] }
    }

    /// The local term ¬C·rho of a leaf's generate bit.
    fn leaf_term(&self, bit: usize) -> Buffer<u64> {
        and(self.plane(&self.not_c, bit), self.plane(&self.dealt, bit))
    }

    /// P1, P2: the messages of round `round` of the circuit.
    pub fn local(&mut self, round: usize, out: &mut Outbox) {
        if !self.site.role.is_online() {
            return;
        }
        self.pending.clear();
        if round == 0 {
            for bit in (0..self.circuit.bits).filter(|&bit| self.multiplied[bit]) {
                let t = self.leaf_term(bit);
                let z = self.site.reshare_plane_send(Self::draw_of(bit, 0), &t, out);
                self.pending.push((t, z));
            }
            return;
        }
        let circuit = self.circuit.clone();
        for combine in &circuit.levels[round - 1] {
            let high = self.propagate[combine.high].take().expect("marked");
            let product = self.next_product;
            self.next_product += 1 + usize::from(combine.propagate);
            let low = self.generate[combine.low].as_ref();
            let mut t = self.and_term(&high, low, product, Self::draw_of(combine.out, 2));
            if self.generate[combine.high].is_none() {
                t = xor(&t, &self.leaf_term(combine.high));
            }
            let z = self.site.reshare_plane_send(Self::draw_of(combine.out, 0), &t, out);
            self.pending.push((t, z));
            if combine.propagate {
                let low = self.propagate[combine.low].as_ref();
                let t = self.and_term(&high, low, product + 1, Self::draw_of(combine.out, 3));
                let z = self.site.reshare_plane_send(Self::draw_of(combine.out, 1), &t, out);
                self.pending.push((t, z));
            }
            self.propagate[combine.high] = Some(high);
        }
    }

    /// This party's term of the AND of two wires (honest-majority multiplication over bits).
    fn and_term(&self, x: &Wire, y: Option<&Wire>, product: usize, purpose: u32) -> Buffer<u64> {
        let y = y.expect("an AND multiplies wires only");
        if self.site.role == Role::P1 {
            return xor(&self.site.draw_plane(0, purpose), &p1_term(x, y));
        }
        xor(&self.products[product], &and(&x.first, &y.first))
    }

    /// P1, P2: the other's messages of round `round`.
    pub fn absorb(&mut self, round: usize, inbox: &mut Inbox) {
        let pending = std::mem::take(&mut self.pending);
        let mut pending = pending.into_iter();
        let mut receive = |site: &Site, inbox: &mut Inbox| {
            let (own, mask) = pending.next().expect("as many terms as messages");
            site.reshare_plane_receive(own, mask, inbox)
        };
        if round == 0 {
            for bit in (0..self.circuit.bits).filter(|&bit| self.multiplied[bit]) {
                self.generate[bit] = Some(receive(&self.site, inbox));
            }
            return;
        }
        let circuit = self.circuit.clone();
        for combine in &circuit.levels[round - 1] {
            let generate = receive(&self.site, inbox);
            self.generate[combine.out] = Some(match &self.generate[combine.high] {
                Some(wire) => generate.xor(wire),
                None => generate,
            });
            if combine.propagate {
                self.propagate[combine.out] = Some(receive(&self.site, inbox));
            }
        }
    }

    /// The borrow out of the bits up to and including those of result `index`.
    pub fn output(&self, index: usize) -> Wire {
        // In a preprocessing run P1 and P2 never computed it.
        self.generate[self.circuit.outputs[index]].clone().unwrap_or_else(|| Wire::zeros(self.site.len))
    }

    /// Bit `bit` of C - R, given the borrow into it: C ⊕ R ⊕ borrow.
    pub fn difference_bit(&self, bit: usize, borrow: Option<&Wire>) -> Wire {
        let bits = self.circuit.bits;
        let leaf = if bit < bits { &self.propagate[bit] } else { &self.top[bit - bits] };
        let mut wire = leaf.clone().unwrap_or_else(|| Wire::zeros(self.site.len));
        if self.site.role.is_online() {
            wire.first.iter_mut().for_each(|word| *word = !*word);
        }
        borrow.map_or(wire.clone(), |borrow| wire.xor(borrow))
    }
}
