"""PyTorch's types of few whole numbers: arithmetic in them wraps around, so that results must lie in their range."""

from __future__ import annotations

from typing import Any

from covey.importers.torch_node import TorchNode
from covey.ir import DType, Value
from covey.ops.counting import counted
from covey.ops.within import Within

NARROW = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
"""The types that hold less than a ring."""


def fitting(node: TorchNode, value: Value, dtype: Any) -> Value:
    """A result that PyTorch has in this type: within its range, or refused."""
    kind = str(dtype).removeprefix("torch.")
    if kind not in NARROW or value.dtype is DType.BOOL:
        return value
    limits, span = Within(kind).limits, counted(node.scope.graph, value.name)
    if span is not None and span.low.min() >= limits.low and span.high.max() <= limits.high:
        return value
    if kind == "int32" and value.dtype is DType.INDEX and span is None:
        return value  # an input's numbers, which its owner has in such a type
    if value.dtype is DType.FLOAT or node.scope.graph.holds_input(value.name):
        return node.apply("Within", node.numbers(value), kind=kind, suffix="within")
    raise node.unsupported(f"{kind} may not hold its whole numbers", "cast to int64 instead")
