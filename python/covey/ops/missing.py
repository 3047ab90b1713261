"""What an imputer does to missing features, until a pass knows what stands for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class FillIn(Op):
    """x, and numbers that stand in for its features where those are missing. No program has it."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.where(np.isnan(inputs[0]), inputs[1], inputs[0])

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise AssertionError(f"no pass has replaced {node.name}")
