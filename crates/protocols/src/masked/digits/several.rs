//! Several comparisons side by side, and polynomials of their results opened in one round more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::circuit::{Compiler, DigitCircuit, Inputs, Mask, Target};
use crate::circuits::digits::{Root, Tree};
use crate::circuits::polynomial::{Monomial, Polynomial};

/// The comparison of one operand, its results sharings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    /// The tree over the operand's low bits.
    pub tree: Tree,
    /// What it yields.
    pub root: Root,
    /// Bits of the lowest child whose borrow is among that.
    pub low: usize,
}

impl DigitCircuit {
    /// Compares an operand for each part, and opens `sums` over all their results: result i, in the order of the parts, is variable
    /// 2^i. Only the dealer knows the masks of the sums.
    pub fn several(parts: &[Part], sums: &[Polynomial], sent: &[usize]) -> Arc<Self> {
        type Key = (Vec<Part>, Vec<Polynomial>, Vec<usize>);
        static COMPILED: LazyLock<Mutex<HashMap<Key, Arc<DigitCircuit>>>> = LazyLock::new(Mutex::default);
        let key = (parts.to_vec(), sums.to_vec(), sent.to_vec());
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.entry(key).or_insert_with(|| Arc::new(compile(parts, sums, sent))).clone()
    }
}

fn compile(parts: &[Part], sums: &[Polynomial], sent: &[usize]) -> DigitCircuit {
    let mut compiler = Compiler::new(0, sent);
    let mut inputs = Inputs { level: 0, wires: BTreeMap::new(), kept: None };
    for part in parts {
        let (wires, ready) = compiler.comparison(&part.tree, part.root, part.low);
        inputs.level = inputs.level.max(ready);
        for wire in wires {
            assert!(inputs.wires.len() < Monomial::BITS as usize, "a variable for each result");
            let variable: Monomial = 1 << inputs.wires.len();
            inputs.wires.insert(variable, wire);
        }
    }
    let opened = sums.iter().map(|sum| {
        let opening = compiler.open(inputs.level, Mask::Constant, false);
        compiler.circuit.outputs.push(opening.wire);
        (sum.clone(), None, Target::Opened(opening))
    });
    let opened = opened.collect();
    compiler.node(&inputs, opened);
    compiler.circuit
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::circuit::{Block, Level, Opening, Propagate, Slot};
    use super::*;
    use crate::api::{Comparison, Maximum, NetworkProfile, Options, Rounding, Truncation};
    use crate::trio::largest::LargestPlan;

    fn openings(level: &Level) -> Vec<&Opening> {
        fn opened(target: &Target) -> Option<&Opening> {
            match target {
                Target::Opened(opening) => Some(opening),
                Target::Kept(_) => None,
            }
        }
        let mut all = Vec::new();
        for block in &level.blocks {
            match block {
                Block::Digit(digit) => {
                    all.extend(digit.propagate.iter().filter_map(|propagate| match propagate {
                        Propagate::Opened(opening) => Some(opening),
                        Propagate::Public(_) => None,
                    }));
                    all.extend(opened(&digit.generate));
                }
                Block::Field(field) => all.extend(field.answers.iter().map(|(_, opening)| opening)),
                Block::Node(node) => all.extend(node.sums.iter().filter_map(|sum| opened(&sum.target))),
            }
        }
        all
    }

    fn slots(level: &Level) -> Vec<Slot> {
        let mut all = Vec::new();
        for block in &level.blocks {
            match block {
                Block::Digit(digit) => all.extend(&digit.slots),
                Block::Field(field) => all.extend(&field.slots),
                Block::Node(node) => all.extend(node.shares.iter().map(|(slot, _)| *slot)),
            }
        }
        all.extend(openings(level).iter().filter_map(|opening| match opening.mask {
            Mask::Shared(slot) => Some(slot),
            Mask::Fresh | Mask::Constant => None,
        }));
        all
    }

    /// Comparisons that share a value share neither a mask nor a pad: whatever is opened or dealt has its own.
    #[test]
    fn no_mask_and_no_pad_serves_twice() {
        let network = NetworkProfile { latency_us: 35_000, bits_per_second: 1_000_000_000 };
        let options = Options { network, ..Options::default() };
        let relu = Comparison::new(21, false);
        let shift = Truncation { bits: 10, rounding: Rounding::Exact, bound: 30 };
        let behind = [(None, None), (None, Some(relu)), (Some(shift), Some(relu))];
        for (values, (truncate, relu)) in (2..=4).flat_map(|values| behind.map(|behind| (values, behind))) {
            for count in [1000, 100_000, 1 << 22] {
                let maximum = Maximum { values, differences: Comparison::new(31, false), truncate, relu };
                let plan = LargestPlan::choose(&maximum, covey_ring::Ring::Pow2(32), &options, count);
                let (mut wires, mut sent) = (HashSet::new(), HashSet::new());
                for level in &plan.digits.levels {
                    let (mut indices, mut drawn) = (HashSet::new(), HashSet::new());
                    for opening in openings(level) {
                        assert!(wires.insert(opening.wire) && indices.insert(opening.index), "{maximum:?}");
                        assert_eq!(level.opened[opening.index], opening.wire);
                    }
                    assert_eq!(indices.len(), level.opened.len());
                    for slot in slots(level) {
                        assert!(sent.insert((slot.to, slot.sent)), "{maximum:?}");
                        // Of two seats the other draws.
                        assert!(drawn.insert((1 - slot.to, slot.drawn[1 - slot.to])), "{maximum:?}");
                    }
                    for party in 0..2 {
                        assert_eq!(drawn.iter().filter(|(by, _)| *by == party).count(), level.drawn[party]);
                    }
                }
                let [one, two] = [0, 1].map(|party| sent.iter().filter(|(to, _)| *to == party).count());
                assert_eq!([one, two], plan.digits.sent[..2]);
            }
        }
    }
}
