"""Whole numbers of a type that holds few: results beyond it would wrap around, which nothing here does."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from covey.errors import ParameterError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class Within(Op):
    """The first operand, where that of the last one lies in the range of the type; all others are refused.

    The last is what a cast rounded. No node of the program.
    """

    kind: str

    @property
    def limits(self) -> Interval:
        """The least and the largest number of the type."""
        limits = np.iinfo(self.kind)
        return Interval(np.array(float(limits.min)), np.array(float(limits.max)))

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, source = low.value(node.inputs[0]), low.value(node.inputs[-1])
        ends = [np.trunc(np.ldexp(end, -source.scale)) for end in (source.interval.low, source.interval.high)]
        least, most = float(ends[0].min()), float(ends[1].max())
        limits = self.limits
        if least < limits.low or most > limits.high:
            raise ParameterError(
                node.name,
                node.source_op,
                f"its numbers may lie from {least:g} to {most:g}, and {self.kind} wraps around",
                f"put a clamp to {limits.low:g}..{limits.high:g} before it, or let it be int64",
            )
        # A difference of two roundings does not show how far it reaches.
        narrowed = (np.clip(end, *np.ldexp(ends, x.scale)) for end in (x.interval.low, x.interval.high))
        return replace(x, interval=Interval(*narrowed))


@from_onnx("Within")
def _within(node: OnnxNode) -> None:
    """Not ONNX's own: the importer of PyTorch's nodes puts it behind those whose type is narrow."""
    operands = [node.activation(index) for index in range(len(node.inputs))]
    node.emit(Within(str(node.attribute("kind"))), operands)
