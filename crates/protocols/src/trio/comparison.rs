//! The circuit of a comparison gate that stands alone: a digit tree, or a carry circuit over single bits.

use std::sync::Arc;

use covey_ring::Word;

use super::borrow::{self, Borrow};
use super::share::{Role, Wire};
use super::site::{Site, TABLE};
use crate::api::Options;
use crate::circuits::digits::{Root, Tree, cheapest};
use crate::circuits::{Adder, CarryCircuit};
use crate::machine::{Inbox, Layout, Outbox};
use crate::masked;
use crate::masked::digits::{self, DEEPEST, DigitCircuit, Digits, Output};

/// Estimated time of a gate: its rounds, and its bits an element through the busiest interface. That is the one of the dealer, or of an
/// online party, which receives half of the deals.
pub(super) fn nanoseconds(options: &Options, rounds: usize, (offline, online): (usize, usize), count: usize) -> u128 {
    let offline = options.network.delaying(offline);
    masked::nanoseconds(&options.network, rounds, offline.max((offline + online) / 2), count)
}

/// A circuit, shared by a gate's tiles.
#[derive(Clone)]
pub(crate) enum ComparisonPlan {
    /// A carry circuit, and the bits of R it deals.
    Bits(Arc<CarryCircuit>, usize),
    Digits(Arc<DigitCircuit>),
}

impl ComparisonPlan {
    /// The borrow of C - R out of `bits` bits, its mask known to P0. `sent`: bits that P0 sends to P1 and P2 besides.
    pub fn borrow(bits: usize, options: &Options, count: usize, sent: [usize; 2]) -> Self {
        Self::new(Root::Borrow, bits, options, count, sent)
    }

    /// Bit `low` of C - R as a sharing.
    pub fn sign(low: usize, options: &Options, count: usize) -> Self {
        Self::new(Root::SharedSign, low, options, count, [0; 2])
    }

    fn new(root: Root, bits: usize, options: &Options, count: usize, sent: [usize; 2]) -> Self {
        if !options.adder.has_digits() {
            let dealt = bits + usize::from(root != Root::Borrow);
            return ComparisonPlan::Bits(Arc::new(CarryCircuit::carry_out(bits, options.adder)), dealt);
        }
        ComparisonPlan::Digits(DigitCircuit::new(&Self::tree(root, bits, 0, options, count), root, 0, &sent))
    }

    /// The digit tree that the options name. `low`: see [`cheapest`].
    pub fn tree(root: Root, bits: usize, low: usize, options: &Options, count: usize) -> Tree {
        let circuits: Vec<_> = (1..=DEEPEST).filter_map(|depth| cheapest(root, bits, low, depth)).collect();
        let total = |depth: usize| {
            circuits.iter().filter(move |c| c.tree.depth() <= depth).min_by_key(|c| c.offline + c.online)
        };
        let chosen = match options.adder {
            Adder::FewestRounds => circuits.first(),
            Adder::Balanced => total(if bits > 36 { 4 } else { 3 }),
            Adder::Auto => circuits.iter().min_by_key(|c| {
                let time = nanoseconds(options, c.tree.depth(), (c.offline, c.online), count);
                (time, c.offline + c.online)
            }),
            _ => total(4),
        };
        chosen.or(circuits.first()).expect("a digit tree over at most 63 bits").tree.clone()
    }

    /// Rounds.
    pub fn rounds(&self) -> usize {
        match self {
            ComparisonPlan::Bits(circuit, _) => 1 + circuit.levels.len(),
            ComparisonPlan::Digits(circuit) => circuit.levels.len(),
        }
    }

    /// Adds the messages to a gate's layout; the online rounds start at `round`.
    pub fn layout(&self, len: usize, round: usize, layout: &mut Layout) {
        match self {
            ComparisonPlan::Bits(circuit, dealt) => drop(borrow::layout(circuit, *dealt, len, round, layout)),
            ComparisonPlan::Digits(circuit) => digits::layout(circuit, TABLE, len, round, layout),
        }
    }
}

/// One party's state of a circuit over one tile.
pub(crate) enum Comparison {
    Bits(Borrow),
    Digits(Digits, Role),
}

impl Comparison {
    pub fn new(site: Site, plan: &ComparisonPlan) -> Self {
        match plan {
            ComparisonPlan::Bits(circuit, dealt) => Comparison::Bits(Borrow::new(site, circuit.clone(), *dealt)),
            ComparisonPlan::Digits(circuit) => Comparison::Digits(Digits::new(site.seat(), circuit.clone()), site.role),
        }
    }

    /// P0: deals everything, from R.
    pub fn deal<W: Word>(&mut self, r: &[W], out: &mut Outbox) {
        match self {
            Comparison::Bits(borrow) => borrow.deal(r, out),
            Comparison::Digits(digits, _) => digits.deal(r, out),
        }
    }

    /// P1, P2: what P0 dealt.
    pub fn absorb_deal(&mut self, inbox: &mut Inbox) {
        match self {
            Comparison::Bits(borrow) => borrow.absorb_deal(inbox),
            Comparison::Digits(digits, _) => digits.absorb_deal(inbox),
        }
    }

    /// P1, P2: C becomes known.
    pub fn set_public<W: Word>(&mut self, c: &[W]) {
        match self {
            Comparison::Bits(borrow) => borrow.set_public(c),
            Comparison::Digits(digits, _) => digits.set_public(c),
        }
    }

    /// P1, P2: the messages of round `round` of the circuit.
    pub fn local(&mut self, round: usize, out: &mut Outbox) {
        match self {
            Comparison::Bits(borrow) => borrow.local(round, out),
            Comparison::Digits(digits, _) => digits.local(round, out),
        }
    }

    /// P1, P2: the other's messages of round `round`.
    pub fn absorb(&mut self, round: usize, inbox: &mut Inbox) {
        match self {
            Comparison::Bits(borrow) => borrow.absorb(round, inbox),
            Comparison::Digits(digits, _) => digits.absorb(round, inbox),
        }
    }

    /// The borrow: [`Wire::sum`] is public at P1 and P2 and its mask at P0.
    pub fn borrow(&self) -> Wire {
        match self {
            Comparison::Bits(borrow) => borrow.output(0),
            Comparison::Digits(digits, role) => wire(*role, digits.output(0)),
        }
    }

    /// The bit above the compared ones.
    pub fn sign(&self) -> Wire {
        match self {
            Comparison::Bits(borrow) => borrow.difference_bit(borrow.bits() - 1, Some(&borrow.output(0))),
            Comparison::Digits(digits, role) => wire(*role, digits.output(0)),
        }
    }
}

/// A result as a party holds one: P1 and P2 the public bit less the own part of its mask, and that part; P0 both parts.
fn wire(role: Role, output: Output) -> Wire {
    match role {
        Role::P0 => Wire { second: output.sum(), first: output.mask },
        _ => Wire { first: output.sum(), second: output.mask },
    }
}
