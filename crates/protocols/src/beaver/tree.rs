//! Which digit tree a comparison takes (`circuits/digits.rs`). What is opened goes from every party to every other, so a tree that is
//! cheap for two parties need not be for more.

use std::sync::Arc;

use crate::api::Options;
use crate::circuits::Adder;
use crate::circuits::digits::{Circuit, Root, cheapest};
use crate::masked;
use crate::masked::digits::{DEEPEST, DigitCircuit};

/// Bits opened an element on all links, where a search for two parties found `online`.
pub(super) fn opened(online: usize, parties: usize) -> usize {
    online / 2 * parties * (parties - 1)
}

/// Estimated time of a gate: its rounds, and its bits an element through a party's interface.
pub(super) fn nanoseconds(options: &Options, rounds: usize, (offline, online): (usize, usize), count: usize) -> u128 {
    let n = options.parties;
    // The dealer's interface sends all that is dealt, a party's sends and receives what is opened.
    masked::nanoseconds(&options.network, rounds, offline.max(offline / n + online / n), count)
}

/// The depth at most that a named adder asks for.
pub(super) fn shallow(adder: Adder, bits: usize) -> usize {
    match adder {
        Adder::Balanced if bits <= 36 => 3,
        _ => 4,
    }
}

/// A comparison that stands alone: the one bit `root` yields of C - R over `bits` bits. `sent`: bits that the dealer sends each
/// party besides.
pub(super) fn alone(root: Root, bits: usize, options: &Options, count: usize, sent: &[usize]) -> Arc<DigitCircuit> {
    let n = options.parties;
    let circuits: Vec<Circuit> = (1..=DEEPEST).filter_map(|depth| cheapest(root, bits, 0, depth)).collect();
    let total = |c: &&Circuit| c.offline + opened(c.online, n);
    let deepest = shallow(options.adder, bits);
    let chosen = match options.adder {
        Adder::FewestRounds => circuits.first(),
        Adder::Auto => circuits
            .iter()
            .min_by_key(|c| (nanoseconds(options, c.tree.depth(), (c.offline, opened(c.online, n)), count), total(c))),
        _ => circuits.iter().filter(|c| c.tree.depth() <= deepest).min_by_key(total),
    };
    let chosen = chosen.or(circuits.first()).expect("a digit tree over at most 63 bits");
    DigitCircuit::new(&chosen.tree, root, 0, sent)
}
