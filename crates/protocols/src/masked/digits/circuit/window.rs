//! The root that tells a value inside a window from those beyond its ends.

use std::collections::BTreeMap;

use super::{Block, Compiler, Field, Generate, Inputs, Mask, Target};
use crate::circuits::digits::{RangePosition, Root, Tree, root_sums};
use crate::circuits::polynomial::{generate, propagate};

impl Compiler {
    /// Of an operand from bit `start` on: the wires of the results, and the level at which all are known.
    pub(super) fn window(
        &mut self,
        children: &[Tree],
        root: Root,
        (mut start, low, top): (usize, usize, usize),
    ) -> (Vec<usize>, usize) {
        let below = children.len() - 1;
        let mut inputs = Inputs { level: 0, wires: BTreeMap::new(), kept: None };
        for (i, child) in children[1..].iter().rev().enumerate() {
            let place = if i == 0 { RangePosition::Lowest } else { RangePosition::Middle };
            let range = self.range(child, start, place, false);
            start += child.bits();
            inputs.level = inputs.level.max(range.ready);
            inputs.wires.extend(range.propagate.map(|wire| (propagate(i), wire)));
            if let Generate::Wire(wire) = range.generate {
                inputs.wires.insert(generate(i), wire);
            }
        }
        let mut outputs: Vec<usize> = (low > 0).then(|| inputs.wires[&generate(0)]).into_iter().collect();
        let sums = root_sums(root, children.len());
        let slots = (0..(1 << top) - 1).map(|_| self.slot(0)).collect();
        let answers: Vec<_> = sums.iter().map(|_| (self.keep(), self.open(0, Mask::Fresh, false))).collect();
        inputs
            .wires
            .extend(answers.iter().enumerate().map(|(end, (_, opening))| (generate(below + end), opening.wire)));
        let sums = sums.into_iter().zip(&answers).map(|((sum, _), (kept, _))| {
            let opening = self.open(inputs.level, Mask::Constant, false);
            outputs.push(opening.wire);
            (sum, Some(*kept), Target::Opened(opening))
        });
        let sums = sums.collect();
        self.level(0).blocks.push(Block::Field(Field { low: start, bits: top, slots, answers }));
        self.node(&inputs, sums);
        (outputs, inputs.level + 1)
    }
}
