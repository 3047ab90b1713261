//! The dealer's side: masks, one-hot tables and products of masks, all before the inputs are known.

use covey_kernels::Buffer;
use covey_kernels::bits::{and, xor, xor_assign};
use covey_kernels::vectorised;
use covey_ring::Word;

use super::circuit::{Block, Digit, DigitCircuit, Field, Mask, Node, Opening, Propagate, Slot, Target};
use super::lanes::{LANES, load, store};
use super::{Output, Seat, bits_of, draw};
use crate::machine::Outbox;

/// What the dealer knows of a comparison when it has dealt it, planes one after the other.
#[derive(Default)]
pub(super) struct Masks {
    /// The bits of R.
    pub r: Buffer<u64>,
    /// α of every wire.
    pub alpha: Buffer<u64>,
}

/// Deals `circuit` over the R of each operand. Returns the results' masks, and all of them.
pub(super) fn deal<W: Word>(circuit: &DigitCircuit, seat: &Seat, r: &[&[W]], out: &mut Outbox) -> (Vec<Output>, Masks) {
    let width = seat.plane_words();
    let parties = seat.table.parties;
    let mut dealer = Dealer {
        width,
        r: bits_of(circuit, width, r),
        alpha: Buffer::stale(width * circuit.wires),
        first: Buffer::zeros(width * circuit.wires),
        kept: Buffer::zeros(width * circuit.kept),
        messages: circuit.sent.iter().map(|planes| Buffer::stale(width * planes)).collect(),
        drawn: Vec::new(),
        opened: 0,
    };
    for (index, level) in circuit.levels.iter().enumerate() {
        dealer.drawn = (0..parties).map(|party| draw(circuit, seat, party, index)).collect();
        dealer.opened = level.opened.len();
        for block in &level.blocks {
            match block {
                Block::Digit(digit) => dealer.digit(digit),
                Block::Field(field) => dealer.field(field),
                Block::Node(node) => dealer.node(node),
            }
        }
    }
    for (to, message) in seat.table.peers().zip(&dealer.messages) {
        out.planes(to, message, seat.len);
    }
    let plane = |planes: &[u64], wire: usize| Buffer::copy_of(&planes[wire * width..(wire + 1) * width]);
    let output = |&wire: &usize| Output { value: plane(&dealer.alpha, wire), mask: plane(&dealer.first, wire) };
    let outputs = circuit.outputs.iter().map(output).collect();
    (outputs, Masks { r: dealer.r, alpha: dealer.alpha })
}

struct Dealer {
    width: usize,
    r: Buffer<u64>,
    /// α of every wire, and the part of it that the first party drew.
    alpha: Buffer<u64>,
    first: Buffer<u64>,
    /// The constants of kept sums.
    kept: Buffer<u64>,
    messages: Vec<Buffer<u64>>,
    /// Draws of this level by party, and how many planes of them are masks.
    drawn: Vec<Buffer<u64>>,
    opened: usize,
}

impl Dealer {
    fn share(&mut self, slot: Slot, value: &[u64]) {
        let width = self.width;
        let message = &mut self.messages[slot.to][slot.sent * width..][..width];
        let others = self.drawn.iter().enumerate().filter(|(party, _)| *party != slot.to);
        let mut pads = others.map(|(party, drawn)| {
            let start = (self.opened + usize::from(slot.drawn[party])) * width;
            &drawn[start..start + width]
        });
        if let Some(pad) = pads.next() {
            xor(message, value, pad);
        }
        pads.for_each(|pad| xor_assign(message, pad));
    }

    /// Masks an opened sum whose constant is `constant`.
    fn open(&mut self, opening: &Opening, constant: &mut [u64]) {
        let width = self.width;
        if let Some(sign) = opening.sign {
            xor_assign(constant, &self.r[sign * width..][..width]);
        }
        if let Mask::Shared(slot) = opening.mask {
            self.share(slot, constant);
        }
        let drawn = opening.index * width..(opening.index + 1) * width;
        let wire = opening.wire * width..(opening.wire + 1) * width;
        let [one, two, others @ ..] = &self.drawn[..] else { unreachable!("at least two parties") };
        self.first[wire.clone()].copy_from_slice(&one[drawn.clone()]);
        let alpha = &mut self.alpha[wire];
        xor(alpha, &one[drawn.clone()], &two[drawn.clone()]);
        others.iter().for_each(|other| xor_assign(alpha, &other[drawn.clone()]));
        if let Mask::Constant = opening.mask {
            xor_assign(alpha, constant);
        }
    }

    /// Shares out a digit's one-hot table.
    fn table(&mut self, low: usize, bits: usize, slots: &[Slot]) -> Buffer<u64> {
        let width = self.width;
        let mut table = Buffer::stale(width << bits);
        one_hot(&mut table, &self.r[low * width..(low + bits) * width], bits, width);
        for (slot, value) in slots.iter().zip(table.chunks_exact(width)) {
            self.share(*slot, value);
        }
        table
    }

    fn field(&mut self, field: &Field) {
        self.table(field.low, field.bits, &field.slots);
        for (_, opening) in &field.answers {
            self.open(opening, &mut Buffer::zeros(self.width));
        }
    }

    fn digit(&mut self, digit: &Digit) {
        let width = self.width;
        let table = self.table(digit.low, digit.bits, &digit.slots);
        let mut none = Buffer::zeros(width);
        match &digit.propagate {
            Some(Propagate::Public(wire)) => {
                self.alpha[wire * width..(wire + 1) * width].copy_from_slice(&table[..width]);
            }
            Some(Propagate::Opened(opening)) => self.open(opening, &mut none),
            None => {}
        }
        if let Target::Opened(opening) = &digit.generate {
            self.open(opening, &mut none);
        }
    }

    fn node(&mut self, node: &Node) {
        let width = self.width;
        let mut products = Buffer::stale(width * node.masks.list.len());
        for (index, (parent, wire)) in node.masks.list.iter().enumerate() {
            let (before, product) = products.split_at_mut(index * width);
            let alpha = &self.alpha[wire * width..(wire + 1) * width];
            match parent {
                None => product[..width].copy_from_slice(alpha),
                Some(parent) => {
                    let parent = &before[parent * width..(parent + 1) * width];
                    and(&mut product[..width], parent, alpha);
                }
            }
        }
        let mut sum = Buffer::stale(width);
        let add = |sum: &mut [u64], index: usize| {
            let product = &products[index * width..(index + 1) * width];
            xor_assign(sum, product);
        };
        for (slot, terms) in &node.shares {
            sum.fill(0);
            terms.iter().for_each(|&term| add(&mut sum, term));
            self.share(*slot, &sum);
        }
        for result in &node.sums {
            match result.kept {
                Some(kept) => sum.copy_from_slice(&self.kept[kept * width..(kept + 1) * width]),
                None => sum.fill(0),
            }
            result.constant.iter().for_each(|&term| add(&mut sum, term));
            match &result.target {
                Target::Kept(kept) => self.kept[kept * width..(kept + 1) * width].copy_from_slice(&sum),
                Target::Opened(opening) => self.open(opening, &mut sum),
            }
        }
    }
}

vectorised! {
    /// Planes [digit = j] for every j, from the digit's bits, lowest first.
    pub(crate) fn one_hot(out: &mut [u64], bits: &[u64], count: usize, width: usize) {
        let mut table = vec![[0u64; LANES]; 1 << count];
        for start in (0..width).step_by(LANES) {
            table[0] = [u64::MAX; LANES];
            for bit in 0..count {
                let b = load(&bits[bit * width..][..width], start);
                let (low, high) = table.split_at_mut(1 << bit);
                for (low, high) in low.iter_mut().zip(high) {
                    for lane in 0..LANES {
                        high[lane] = low[lane] & b[lane];
                        low[lane] ^= high[lane];
                    }
                }
            }
            for (plane, value) in out.chunks_exact_mut(width).zip(&table) {
                store(plane, start, value);
            }
        }
    }
}
