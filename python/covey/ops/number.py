"""Truth values, places and whole numbers of an input as numbers like others."""

from __future__ import annotations

from dataclasses import dataclass

from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class Number(Op):
    """A truth value or a whole number, which stands at scale 0, at the ordinary scale."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return low.shift_left(node, low.value(node.inputs[0]), low.scale, low.magnitude(node.output), name=node.output)
