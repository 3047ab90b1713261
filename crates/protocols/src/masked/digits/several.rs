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
