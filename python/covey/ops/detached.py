"""Values through which no gradient goes, as PyTorch's `detach` and `torch.no_grad` leave them: in training alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.reshape import Reshape

if TYPE_CHECKING:
    from covey.training.builder import Builder

DETACHED = "covey_detached"
"""An attribute that Identity has here alone, where it stands for `detach` in training."""


@dataclass(frozen=True)
class Detached(Op):
    """x itself; what reads it does not depend on what is trained."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0]

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        value = build.emit(self, *inputs)
        build.learned.discard(value.name)
        return value

    def of_secrets(self, build: Builder, *inputs: Value) -> Value:
        return inputs[0]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return Reshape(low.graph.values[node.output].shape).lower(low, node)
