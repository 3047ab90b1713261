//! Carry circuits over single bits, checked ([`crate::trio::borrow`]): a leaf's generate bit ¬C·R, and one product for each AND.

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_kernels::bits::{and_xor_assign, not_assign, xor_assign};
use covey_ring::wire;

use super::checks::TileChecks;
use super::comparison::xor;
use crate::circuits::{CarryCircuit, Combine};
use crate::machine::Outbox;
use crate::trio::borrow::Borrow;
use crate::trio::share::and;

/// The masked messages and verification values of a circuit.
pub(super) struct Audit {
    circuit: Arc<CarryCircuit>,
    /// Leaves whose generate bits are opened.
    leaves: Vec<usize>,
    /// Bits of C that are sent masked.
    bits: usize,
}

/// w or V of what a circuit opens.
pub(super) struct Verified {
    outputs: Vec<usize>,
    /// Of ¬C, bit by bit.
    leaves: Vec<Buffer<u64>>,
    generate: Vec<Option<Buffer<u64>>>,
}

impl Verified {
    /// Of [`Borrow::difference_bit`].
    pub fn difference_bit(&self, bit: usize, borrow: Option<usize>, constants: bool) -> Buffer<u64> {
        let mut plane = self.leaves[bit].clone();
        if constants {
            not_assign(&mut plane);
        }
        if let Some(borrow) = borrow.and_then(|index| self.generate[self.outputs[index]].as_ref()) {
            xor_assign(&mut plane, borrow);
        }
        plane
    }
}

impl Audit {
    pub fn new(circuit: &Arc<CarryCircuit>, dealt: usize) -> Self {
        let multiplied = circuit.multiplied();
        let leaves = (0..circuit.bits).filter(|&bit| multiplied[bit]).collect();
        Audit { circuit: circuit.clone(), leaves, bits: dealt }
    }

    fn combines(&self) -> impl Iterator<Item = &Combine> {
        self.circuit.levels.iter().flatten()
    }

    fn verified(&self) -> usize {
        self.leaves.len() + self.circuit.ands()
    }

    /// Bytes of P2's masked messages of `len` elements.
    pub fn masked_len(&self, len: usize) -> usize {
        wire::planes_len(len, 1) * (self.bits + self.circuit.ands())
    }

    /// Bytes that P0 sends for the verification values of `len` elements.
    pub fn verified_len(&self, len: usize) -> usize {
        wire::planes_len(len, 1) * self.verified()
    }

    /// The verification value of the generate bit of a combination: the higher range's is added to it afterwards.
    fn fresh(borrow: &Borrow, combine: &Combine) -> Buffer<u64> {
        let mut plane = sum(&borrow.generate[combine.out]);
        if let Some(high) = &borrow.generate[combine.high] {
            xor_assign(&mut plane, &high.sum());
        }
        plane
    }

    /// P1, P2, before the last round of the circuit or later. Returns the masks of the bits of C.
    pub fn send_masked(&self, borrow: &Borrow, checks: &mut TileChecks, out: &mut Outbox) -> Buffer<u64> {
        let first = checks.width() * self.bits;
        let mut planes: Vec<u64> = borrow.not_c[..first].to_vec();
        for combine in self.combines() {
            let high = sum(&borrow.propagate[combine.high]);
            planes.extend_from_slice(&and(&high, &sum(&borrow.generate[combine.low])));
            if combine.propagate {
                planes.extend_from_slice(&and(&high, &sum(&borrow.propagate[combine.low])));
            }
        }
        Buffer::copy_of(&checks.send_masked_planes_under(&planes, out)[..first])
    }

    /// P1, P2, once all is open.
    pub fn verify(&self, borrow: &Borrow, leaves: &[u64], checks: &mut TileChecks) -> Verified {
        let width = checks.width();
        let mut opened = Vec::with_capacity(width * self.verified());
        self.leaves.iter().for_each(|&leaf| opened.extend_from_slice(&sum(&borrow.generate[leaf])));
        for combine in self.combines() {
            opened.extend_from_slice(&Self::fresh(borrow, combine));
            if combine.propagate {
                opened.extend_from_slice(&sum(&borrow.propagate[combine.out]));
            }
        }
        let verified = checks.verify_planes(&opened);
        let mut verified = verified.chunks_exact(width.max(1));
        let mut next = || Buffer::copy_of(verified.next().expect("counted"));
        let mut generate = vec![None; self.circuit.ranges];
        self.leaves.iter().for_each(|&leaf| generate[leaf] = Some(next()));
        for combine in self.combines() {
            generate[combine.out] = Some(joined(next(), &generate[combine.high]));
            if combine.propagate {
                next();
            }
        }
        let leaves = leaves.chunks_exact(width.max(1)).map(Buffer::copy_of).collect();
        Verified { outputs: self.circuit.outputs.clone(), leaves, generate }
    }

    /// P0, P3.
    pub fn verify_dealt(&self, borrow: &Borrow, checks: &mut TileChecks, out: &mut Outbox) -> Verified {
        let width = checks.width();
        let one = if checks.constants() { u64::MAX } else { 0 };
        let masked = checks.masked_planes(self.bits + self.circuit.ands());
        let mut masked = masked.chunks_exact(width.max(1)).map(Buffer::copy_of);
        let leaves: Vec<Buffer<u64>> = masked.by_ref().take(self.bits).collect();
        let mut known = checks.verification_planes(self.verified());
        let mut index = 0;
        let mut verify = |mut plane: Buffer<u64>, mask: &[u64]| {
            constant(one, &mut plane, mask);
            checks.verify_plane(&mut known, index, &mut plane, out);
            index += 1;
            Buffer::copy_of(&known[(index - 1) * width..][..width])
        };
        let mut generate = vec![None; self.circuit.ranges];
        let mut propagate = vec![None; self.circuit.ranges];
        // A leaf's propagate bit is ¬C ⊕ R.
        (0..self.circuit.bits).for_each(|bit| propagate[bit] = Some(leaves[bit].clone()));
        let leaf_term = |bit: usize| and(&leaves[bit], &sum(&borrow.propagate[bit]));
        for &leaf in &self.leaves {
            generate[leaf] = Some(verify(leaf_term(leaf), &sum(&borrow.generate[leaf])));
        }
        for combine in self.combines() {
            let high = (propagate[combine.high].clone().expect("marked"), sum(&borrow.propagate[combine.high]));
            let low = (generate[combine.low].clone().expect("wires only"), sum(&borrow.generate[combine.low]));
            let mut plane = product(masked.next().expect("counted"), &high, &low, one);
            if borrow.generate[combine.high].is_none() {
                xor_assign(&mut plane, &leaf_term(combine.high));
            }
            let verified = verify(plane, &Self::fresh(borrow, combine));
            generate[combine.out] = Some(joined(verified, &generate[combine.high]));
            if combine.propagate {
                let low = (propagate[combine.low].clone().expect("marked"), sum(&borrow.propagate[combine.low]));
                let plane = product(masked.next().expect("counted"), &high, &low, one);
                propagate[combine.out] = Some(verify(plane, &sum(&borrow.propagate[combine.out])));
            }
        }
        checks.verified_planes(&known);
        Verified { outputs: self.circuit.outputs.clone(), leaves, generate }
    }
}

/// The public part of a wire, or its mask.
fn sum(wire: &Option<crate::trio::share::Wire>) -> Buffer<u64> {
    wire.as_ref().expect("a wire that is opened").sum()
}

fn joined(plane: Buffer<u64>, high: &Option<Buffer<u64>>) -> Buffer<u64> {
    match high {
        Some(high) => xor(&plane, high),
        None => plane,
    }
}

/// `sum ⊕ value`, where constants count
pub(super) fn constant(one: u64, sum: &mut [u64], value: &[u64]) {
    sum.iter_mut().zip(value).for_each(|(sum, value)| *sum ^= value & one);
}

/// The check of an AND's sum before its mask: XY ⊕ X·λy ⊕ Y·λx ⊕ λx·λy, of each operand what is known of X and λ.
pub(super) fn product(
    mut both: Buffer<u64>,
    (x, x_mask): &(Buffer<u64>, Buffer<u64>),
    (y, y_mask): &(Buffer<u64>, Buffer<u64>),
    one: u64,
) -> Buffer<u64> {
    and_xor_assign(&mut both, x, y_mask);
    and_xor_assign(&mut both, y, x_mask);
    constant(one, &mut both, &and(x_mask, y_mask));
    both
}
