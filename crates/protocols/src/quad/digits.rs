//! Digit trees, checked: every bit that P1 and P2 open is a sum of products of bits they know with bits that P0 and P3 know.
//!
//! A digit's propagate and generate bits are polynomials in the bits of C, whose coefficients follow from the digit of R: with f(j) the
//! result at digit j of C, that of monomial S is the sum of f(j) over the j whose bits lie in S. A node's sums are given as such.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_kernels::bits::{and, and_xor_assign, not_assign, xor_assign};
use covey_ring::wire;

use super::checks::TileChecks;
use crate::machine::Outbox;
use crate::masked::digits::circuit::{Block, Digit, Node, Opening, Propagate, Target};
use crate::masked::digits::{DigitCircuit, Digits, one_hot};

/// The masked messages and verification values of a program.
pub(super) struct Audit {
    circuit: Arc<DigitCircuit>,
    /// Planes sent masked: the bits of C, then products in the order of blocks.
    masked: usize,
    /// The wires verified, in order.
    verified: Vec<usize>,
}

impl Audit {
    pub fn new(circuit: &Arc<DigitCircuit>) -> Self {
        let mut audit = Audit { circuit: circuit.clone(), masked: circuit.bits(), verified: Vec::new() };
        for block in circuit.levels.iter().flat_map(|level| &level.blocks) {
            match block {
                Block::Digit(digit) => {
                    audit.masked += monomials(digit).count();
                    if let Some(Propagate::Opened(opening)) = &digit.propagate {
                        audit.verified.push(opening.wire);
                    }
                    audit.add(&digit.generate);
                }
                // Tables alone have fields, and Quad composes them.
                Block::Field(_) => {}
                Block::Node(node) => {
                    audit.masked += (0..node.publics.list.len()).filter(|&index| is_sent(node, index)).count();
                    node.sums.iter().for_each(|sum| audit.add(&sum.target));
                }
            }
        }
        audit
    }

    fn add(&mut self, target: &Target) {
        if let Target::Opened(opening) = target {
            self.verified.push(opening.wire);
        }
    }

    /// Bytes of P2's masked messages of `len` elements.
    pub fn masked_len(&self, len: usize) -> usize {
        wire::planes_len(len, 1) * self.masked
    }

    /// Bytes that P0 sends for the verification values of `len` elements.
    pub fn verified_len(&self, len: usize) -> usize {
        wire::planes_len(len, 1) * self.verified.len()
    }

    /// P1, P2, before the last round of the comparison or later.
    pub fn send_masked(&self, digits: &Digits, checks: &mut TileChecks, out: &mut Outbox) {
        let width = checks.width();
        let (c, public) = digits.opened();
        let mut planes = Buffer::stale(width * self.masked);
        let first = width * self.circuit.bits();
        planes[..first].copy_from_slice(&c[..first]);
        let mut next = planes[first..].chunks_exact_mut(width.max(1));
        for block in self.circuit.levels.iter().flat_map(|level| &level.blocks) {
            match block {
                Block::Digit(digit) => {
                    for monomial in monomials(digit) {
                        let plane = next.next().expect("counted");
                        plane.fill(u64::MAX);
                        for bit in (0..digit.bits).filter(|bit| monomial >> bit & 1 == 1) {
                            let factor = &c[(digit.low + bit) * width..][..width];
                            plane.iter_mut().zip(factor).for_each(|(plane, factor)| *plane &= factor);
                        }
                    }
                }
                Block::Field(_) => {}
                Block::Node(node) => {
                    let mut products = Buffer::stale(width * node.publics.list.len());
                    for (index, &(parent, wire)) in node.publics.list.iter().enumerate() {
                        let (before, product) = products.split_at_mut(index * width);
                        let factor = &public[wire * width..][..width];
                        match parent {
                            None => product[..width].copy_from_slice(factor),
                            Some(parent) => and(&mut product[..width], &before[parent * width..][..width], factor),
                        }
                        if is_sent(node, index) {
                            next.next().expect("counted").copy_from_slice(&product[..width]);
                        }
                    }
                }
            }
        }
        checks.send_masked_planes(&planes, out);
    }

    /// P1, P2, once all is open. Returns w of every wire, one after the other.
    pub fn verify(&self, digits: &Digits, checks: &mut TileChecks) -> Buffer<u64> {
        let width = checks.width();
        let (_, public) = digits.opened();
        let mut opened = Buffer::stale(width * self.verified.len());
        for (plane, &wire) in opened.chunks_exact_mut(width.max(1)).zip(&self.verified) {
            plane.copy_from_slice(&public[wire * width..][..width]);
        }
        let masks = checks.verify_planes(&opened);
        let mut wires = Buffer::zeros(width * self.circuit.wires);
        for (plane, &wire) in masks.chunks_exact(width.max(1)).zip(&self.verified) {
            wires[wire * width..][..width].copy_from_slice(plane);
        }
        wires
    }

    /// P0, P3: w or V of every wire, one after the other.
    pub fn verify_dealt(&self, digits: &Digits, checks: &mut TileChecks, out: &mut Outbox) -> Buffer<u64> {
        let width = checks.width();
        let (r, alpha) = digits.masks();
        let masked = checks.masked_planes(self.masked);
        let known = checks.verification_planes(self.verified.len());
        let mut checker = Checker {
            width,
            one: if checks.constants() { u64::MAX } else { 0 },
            r,
            alpha,
            next: self.circuit.bits(),
            masked,
            wires: Buffer::zeros(width * self.circuit.wires),
            kept: Buffer::zeros(width * self.circuit.kept),
            verified: 0,
            known,
            checks,
            out,
        };
        for block in self.circuit.levels.iter().flat_map(|level| &level.blocks) {
            match block {
                Block::Digit(digit) => checker.digit(digit),
                Block::Field(_) => {}
                Block::Node(node) => checker.node(node),
            }
        }
        let Checker { known, wires, checks, .. } = checker;
        checks.verified_planes(&known);
        wires
    }

    /// The first result's, of what there is of every wire.
    pub fn result(&self, wires: &[u64], width: usize) -> Buffer<u64> {
        Buffer::copy_of(&wires[self.circuit.outputs[0] * width..][..width])
    }
}

/// The products of a digit's bits.
fn monomials(digit: &Digit) -> impl Iterator<Item = usize> + use<> {
    (0..1usize << digit.bits).filter(|monomial| monomial.count_ones() > 1)
}

/// Whether a product of public bits is a coefficient, and not a bit that P3 has anyway.
fn is_sent(node: &Node, index: usize) -> bool {
    node.publics.list[index].0.is_some()
        && node.sums.iter().any(|sum| sum.terms.iter().any(|term| term.public == index))
}

/// P0 or P3 on its way through a program.
struct Checker<'a> {
    width: usize,
    /// What a constant 1 is: 1 at P3, nothing at P0.
    one: u64,
    r: &'a [u64],
    alpha: &'a [u64],
    masked: Buffer<u64>,
    next: usize,
    /// w or V of every wire.
    wires: Buffer<u64>,
    kept: Buffer<u64>,
    verified: usize,
    known: Buffer<u64>,
    checks: &'a mut TileChecks,
    out: &'a mut Outbox,
}

impl Checker<'_> {
    fn alpha(&self, wire: usize) -> &[u64] {
        &self.alpha[wire * self.width..][..self.width]
    }

    /// Adds what is constant.
    fn constant(one: u64, sum: &mut [u64], value: &[u64]) {
        sum.iter_mut().zip(value).for_each(|(sum, value)| *sum ^= value & one);
    }

    fn open(&mut self, opening: &Opening, sum: &mut [u64]) {
        let width = self.width;
        if let Some(sign) = opening.sign {
            xor_assign(sum, &self.masked[sign * width..][..width]);
            Self::constant(self.one, sum, &self.r[sign * width..][..width]);
        }
        Self::constant(self.one, sum, self.alpha(opening.wire));
        self.checks.verify_plane(&mut self.known, self.verified, sum, self.out);
        self.wires[opening.wire * width..][..width].copy_from_slice(&self.known[self.verified * width..][..width]);
        self.verified += 1;
    }

    fn store(&mut self, target: &Target, sum: &mut [u64]) {
        match target {
            Target::Kept(kept) => self.kept[kept * self.width..][..self.width].copy_from_slice(sum),
            Target::Opened(opening) => self.open(opening, sum),
        }
    }

    fn digit(&mut self, digit: &Digit) {
        let width = self.width;
        let entries = 1 << digit.bits;
        let mut equal = Buffer::stale(width * entries);
        one_hot(&mut equal, &self.r[digit.low * width..(digit.low + digit.bits) * width], digit.bits, width);
        // R greater than j: equal to one of those above.
        let mut greater = Buffer::zeros(width * entries);
        for entry in (0..entries - 1).rev() {
            let (own, above) = greater.split_at_mut((entry + 1) * width);
            let own = &mut own[entry * width..];
            own.copy_from_slice(&above[..width]);
            xor_assign(own, &equal[(entry + 1) * width..][..width]);
        }
        let first = self.next;
        self.next += monomials(digit).count();
        let mut sum = Buffer::stale(width);
        match &digit.propagate {
            Some(Propagate::Public(wire)) => {
                let bit = &self.masked[digit.low * width..][..width];
                self.wires[wire * width..][..width].copy_from_slice(bit);
            }
            Some(Propagate::Opened(opening)) => {
                self.look_up(digit, first, &mut equal, &mut sum);
                self.open(opening, &mut sum);
            }
            None => {}
        }
        self.look_up(digit, first, &mut greater, &mut sum);
        self.store(&digit.generate, &mut sum);
    }

    /// The table's value at the digit of C: Σ over monomials S of S times its coefficient.
    fn look_up(&self, digit: &Digit, mut product: usize, table: &mut [u64], sum: &mut [u64]) {
        let width = self.width;
        for bit in 0..digit.bits {
            for entry in (0..1usize << digit.bits).filter(|entry| entry >> bit & 1 == 1) {
                let (below, own) = table.split_at_mut(entry * width);
                xor_assign(&mut own[..width], &below[(entry ^ 1 << bit) * width..][..width]);
            }
        }
        sum.fill(0);
        Self::constant(self.one, sum, &table[..width]);
        for (monomial, coefficient) in table.chunks_exact(width.max(1)).enumerate().skip(1) {
            let plane = if monomial.is_power_of_two() {
                digit.low + monomial.trailing_zeros() as usize
            } else {
                product += 1;
                product - 1
            };
            and_xor_assign(sum, &self.masked[plane * width..][..width], coefficient);
        }
    }

    fn node(&mut self, node: &Node) {
        let width = self.width;
        let mut masks = Buffer::stale(width * node.masks.list.len());
        for (index, &(parent, wire)) in node.masks.list.iter().enumerate() {
            let (before, product) = masks.split_at_mut(index * width);
            match parent {
                None => product[..width].copy_from_slice(self.alpha(wire)),
                Some(parent) => and(&mut product[..width], &before[parent * width..][..width], self.alpha(wire)),
            }
        }
        let mask = |index: usize| &masks[index * width..][..width];
        // Planes of the public products: those sent masked by their number.
        let mut places = Vec::with_capacity(node.publics.list.len());
        for index in 0..node.publics.list.len() {
            places.push(is_sent(node, index).then_some(self.next));
            self.next += usize::from(is_sent(node, index));
        }
        let (mut sum, mut inner) = (Buffer::stale(width), Buffer::stale(width));
        for result in &node.sums {
            match result.kept {
                Some(kept) => sum.copy_from_slice(&self.kept[kept * width..][..width]),
                None => sum.fill(0),
            }
            for &wire in &result.linear {
                Self::constant(self.one, &mut sum, self.alpha(wire));
            }
            for &index in &result.constant {
                Self::constant(self.one, &mut sum, mask(index));
            }
            for term in &result.terms {
                inner.fill(0);
                if let Some(share) = term.share {
                    node.shares[share].1.iter().for_each(|&index| xor_assign(&mut inner, mask(index)));
                }
                for &wire in &term.linear {
                    xor_assign(&mut inner, self.alpha(wire));
                }
                if term.one {
                    not_assign(&mut inner);
                }
                let public = match places[term.public] {
                    Some(plane) => &self.masked[plane * width..][..width],
                    None => &self.wires[node.publics.list[term.public].1 * width..][..width],
                };
                and_xor_assign(&mut sum, public, &inner);
            }
            self.store(&result.target, &mut sum);
        }
    }
}
