"""Multiplication by whole numbers in turn: sums over steps begin anew, and open in the last step alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class InTurn(Op):
    """x times the factor of the step; each is in force for so many steps, and the first one follows the last."""

    factors: tuple[int, ...]
    steps: tuple[int, ...]
    run: int = 0

    def in_run(self, run: int) -> InTurn:
        return replace(self, run=run)

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        ends = np.cumsum(self.steps)
        return inputs[0] * float(self.factors[int(np.searchsorted(ends, self.run % ends[-1], side="right"))])

    def interval(self, *inputs: Interval) -> Interval:
        return inputs[0] * Interval(np.array(float(min(self.factors))), np.array(float(max(self.factors))))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return low.emit(
            node,
            pb.Scheduled(multipliers=self.factors, runs=self.steps),
            [x],
            shape=x.shape,
            scale=x.scale,
            interval=self.interval(x.interval),
        )
