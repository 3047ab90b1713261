"""Truth values, places and whole numbers of an input as numbers like others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Number(Op):
    """A truth value or a whole number, which stands at scale 0, at the ordinary scale."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0]

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return low.shift_left(node, low.value(node.inputs[0]), low.scale, low.magnitude(node.output), name=node.output)
