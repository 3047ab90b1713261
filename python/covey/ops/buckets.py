"""Which of several intervals numbers lie in: comparisons with all ends, and their sum. PyTorch's alone."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from covey.importers.torch_node import TorchNode, from_torch


@from_torch("aten.bucketize.Tensor")
def _bucketize_aten(node: TorchNode) -> None:
    _count(node, "self", "boundaries", includes=node.flag("right"))


@from_torch("aten.searchsorted.Tensor")
def _search_aten(node: TorchNode) -> None:
    if node.has("sorter"):
        raise node.unsupported("its sorter is given", "sort the boundaries before the model")
    _count(node, "self", "sorted_sequence", includes=node.flag("right") or node.argument("side") == "right")


def _count(node: TorchNode, numbers: str, ends: str, *, includes: bool) -> None:
    """How many of the ends are below each number, or not above it."""
    node.ignore("out_int32")
    boundaries = node.constant(ends)
    if boundaries.ndim != 1:
        raise node.unsupported(f"its {ends} have {boundaries.ndim} dimensions", "give one row for all numbers")
    column = node.apply("Unsqueeze", node.numbers(node.activation(numbers)), np.array([-1]), suffix="column")
    operator = "GreaterOrEqual" if includes else "Greater"
    above = node.apply(operator, column, boundaries.astype(np.float64), suffix="above")
    node.become("ReduceSum", node.apply("Cast", above, to=TensorProto.FLOAT, suffix="ones"), np.array([-1]), keepdims=0)
    node.note("a comparison with each boundary, and a sum")
