//! Comparisons by digit trees: shares of a borrow or a sign of C - R, C known to the parties, R known to the dealer
//! ([`crate::circuits::digits`]).
//!
//! The dealer shares out one-hot tables of R's digits and products of masks. In each round the parties add shares that public
//! bits select, each adds a fresh mask, and they exchange the sums. Every opened bit has a mask of each party's, drawn by it.

pub(crate) mod circuit;
mod deal;
mod lanes;
mod online;
mod several;

use std::sync::Arc;

use covey_kernels::Buffer;
use covey_kernels::bits::{to_planes, xor};
use covey_ring::Word;

pub(crate) use circuit::DigitCircuit;
pub(crate) use deal::one_hot;
pub(crate) use several::Part;

use super::{Seat, Table};
use crate::machine::{Inbox, Layout, Outbox, Step};

/// The deepest trees considered: deeper ones save less than a bit in fifty.
pub(crate) const DEEPEST: usize = 6;

/// Numbers of draws that each circuit of a gate has: more than levels.
const DRAWS: u32 = 16;

/// Adds the messages of a program to a gate's layout; its online rounds start at `round`.
pub(crate) fn layout(circuit: &DigitCircuit, table: Table, len: usize, round: usize, layout: &mut Layout) {
    for (peer, &planes) in table.peers().zip(&circuit.sent) {
        layout.planes(Step::Offline, table.dealer, peer, len, planes);
    }
    for level in 0..circuit.levels.len() {
        for (from, to) in table.links() {
            layout.planes(Step::Online(round + level), from, to, len, circuit.opened(level));
        }
    }
}

/// A result y = Y ⊕ α over one tile.
#[derive(Clone)]
pub(crate) struct Output {
    /// Y at a party; α, which may have a part that the dealer alone knows, at the dealer.
    pub value: Buffer<u64>,
    /// The part of α that this party drew; at the dealer, the first party's.
    pub mask: Buffer<u64>,
}

impl Output {
    fn zeros(words: usize) -> Self {
        Output { value: Buffer::zeros(words), mask: Buffer::zeros(words) }
    }

    /// Both together.
    pub fn sum(&self) -> Buffer<u64> {
        let mut sum = Buffer::stale(self.value.len());
        xor(&mut sum, &self.value, &self.mask);
        sum
    }
}

/// One seat's state of a comparison over one tile.
pub(crate) struct Digits {
    seat: Seat,
    circuit: Arc<DigitCircuit>,
    outputs: Vec<Output>,
    dealt: deal::Masks,
    online: online::Online,
}

impl Digits {
    pub fn new(seat: Seat, circuit: Arc<DigitCircuit>) -> Self {
        Digits { seat, circuit, outputs: Vec::new(), dealt: deal::Masks::default(), online: online::Online::default() }
    }

    /// The dealer: deals everything, from R.
    pub fn deal<W: Word>(&mut self, r: &[W], out: &mut Outbox) {
        self.deal_each(&[r], out);
    }

    /// The same of a circuit of several operands.
    pub fn deal_each<W: Word>(&mut self, r: &[&[W]], out: &mut Outbox) {
        (self.outputs, self.dealt) = deal::deal(&self.circuit, &self.seat, r, out);
    }

    /// The dealer: the bits of R that it dealt, and α of every wire, planes one after the other.
    pub fn masks(&self) -> (&[u64], &[u64]) {
        (&self.dealt.r, &self.dealt.alpha)
    }

    /// A party: the bits of C, and X of every wire that is open by now, planes one after the other.
    pub fn opened(&self) -> (&[u64], &[u64]) {
        self.online.opened()
    }

    /// A party: what the dealer sent.
    pub fn absorb_deal(&mut self, inbox: &mut Inbox) {
        if let Some(party) = self.seat.party {
            let count = self.circuit.sent[party];
            self.online.dealt = inbox.bit_planes(self.seat.table.dealer, self.seat.len, count);
        }
    }

    /// A party: C becomes known; only its low bits matter.
    pub fn set_public<W: Word>(&mut self, c: &[W]) {
        self.set_each_public(&[c]);
    }

    /// The same of a circuit of several operands.
    pub fn set_each_public<W: Word>(&mut self, c: &[&[W]]) {
        self.online.set_public(&self.circuit, &self.seat, c);
    }

    /// A party: the message of round `round` of the comparison.
    pub fn local(&mut self, round: usize, out: &mut Outbox) {
        if let Some(party) = self.seat.party {
            self.online.local(&self.circuit, (&self.seat, party), round, out);
        }
    }

    /// A party: the others' messages of round `round`.
    pub fn absorb(&mut self, round: usize, inbox: &mut Inbox) {
        self.online.absorb(&self.circuit, &self.seat, round, inbox);
        if round + 1 == self.circuit.levels.len() {
            self.outputs = self.online.outputs(&self.circuit, &self.seat);
        }
    }

    /// Result `index`.
    pub fn output(&self, index: usize) -> Output {
        // In a preprocessing run the parties never computed it.
        self.outputs.get(index).cloned().unwrap_or_else(|| Output::zeros(self.seat.plane_words()))
    }
}

/// The draws of one level at party number `party`: the masks of what is opened, then the dealt shares it draws.
fn draw(circuit: &DigitCircuit, seat: &Seat, party: usize, level: usize) -> Buffer<u64> {
    let planes = circuit.levels[level].opened.len() + circuit.levels[level].drawn[party];
    seat.draw_planes(party, super::CIRCUIT + DRAWS * circuit.number + level as u32, planes)
}

/// The bits of all operands that enter a circuit, planes one after the other.
fn bits_of<W: Word>(circuit: &DigitCircuit, width: usize, operands: &[&[W]]) -> Buffer<u64> {
    let mut planes = Buffer::stale(width * circuit.bits());
    let mut rest = &mut planes[..];
    for (&bits, operand) in circuit.operands.iter().zip(operands) {
        let (own, others) = rest.split_at_mut(width * bits);
        to_planes(operand, bits, own);
        rest = others;
    }
    planes
}
