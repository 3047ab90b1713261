"""Types of whole numbers: results have no fraction, and in types of few numbers they must lie in their range."""

from __future__ import annotations

from typing import Any

from covey.importers.torch_node import TorchNode
from covey.ir import DType, Graph, Value
from covey.ops.counting import counted, is_whole
from covey.ops.within import Within

FRACTIONS = "cast to float before it"
"""The way out where the result of an operator on whole numbers is not exactly that on real ones."""

NARROW = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
"""The types that hold less than a ring."""


def fits(graph: Graph, value: Value, kind: str) -> bool:
    """Whether a type holds all numbers that a value may have, as far as is known at import."""
    limits, span = Within(kind).limits, counted(graph, value.name)
    if span is not None:
        return bool(span.low.min() >= limits.low and span.high.max() <= limits.high)
    source = graph.input_behind(value.name) if kind == "int32" else None
    if source is not None:  # numbers that may be indices stay as they are: their range says whether they fit
        graph.narrow_inputs.add(source)
    return kind == "int32" and value.dtype is DType.INDEX


def fitting(node: TorchNode, value: Value, dtype: Any) -> Value:
    """A result that PyTorch has in this type: whole, and within its range. Others are refused."""
    kind = str(dtype).removeprefix("torch.")
    scope = node.scope
    if kind in ("int64", *NARROW) and not is_whole(scope.graph, scope.moved.get(value.name, value.name)):
        raise node.unsupported(f"its results may have fractions, which {kind} has none of", FRACTIONS)
    if value.dtype is DType.BOOL and kind in ("int64", *NARROW):
        return node.numbers(value)  # of truth values, as from b & 1
    if kind not in NARROW or fits(scope.graph, value, kind):
        return value
    if value.dtype is DType.FLOAT or node.scope.graph.holds_input(value.name):
        return node.apply("Within", node.numbers(value), kind=kind, suffix="within")
    raise node.unsupported(f"{kind} may not hold its whole numbers", "cast to int64 instead")
