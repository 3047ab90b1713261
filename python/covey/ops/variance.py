"""Variances and standard deviations, as PyTorch has them: the sum of squares about a mean over a constant."""

from __future__ import annotations

from math import prod

import numpy as np

from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value


@from_torch("aten.var.dim", "aten.var.correction")
def _variance_aten(node: TorchNode) -> None:
    _variance(node, _axes(node), final=True)


@from_torch("aten.std.dim", "aten.std.correction")
def _deviation_aten(node: TorchNode) -> None:
    node.become("Sqrt", _variance(node, _axes(node)))


@from_torch("aten.var_mean.dim", "aten.var_mean.correction")
def _variance_and_mean_aten(node: TorchNode) -> None:
    axes = _axes(node)
    node.results = [_variance(node, axes), _mean(node, axes)]


@from_torch("aten.std_mean.dim", "aten.std_mean.correction")
def _deviation_and_mean_aten(node: TorchNode) -> None:
    axes = _axes(node)
    node.results = [node.apply("Sqrt", _variance(node, axes), suffix="root"), _mean(node, axes)]


def _axes(node: TorchNode) -> list[int]:
    axes = node.inner_axes("dim", node.activation("self"))
    if not axes:
        raise node.unsupported("it runs over the batch too", "give it dims other than the batch")
    return axes


def _mean(node: TorchNode, axes: list[int]) -> Value:
    x, keep = node.activation("self"), int(node.flag("keepdim"))
    return node.apply("ReduceMean", x, np.array(axes), keepdims=keep, suffix="mean")


def _variance(node: TorchNode, axes: list[int], final: bool = False) -> Value:
    x, keep = node.activation("self"), int(node.flag("keepdim"))
    sizes = x.dims(1)
    count = prod(sizes[axis] for axis in axes)
    unbiased = node.argument("correction" if "correction" in node.arguments else "unbiased")
    divisor = count - float(1 if unbiased is None else unbiased)
    if divisor <= 0:
        raise node.unsupported(f"it divides by {divisor:g}", "give it more elements, or a smaller correction")
    mean = node.apply("ReduceMean", x, np.array(axes), keepdims=1, suffix="center")
    rest = node.apply("Sub", x, mean, suffix="rest")
    squares = node.apply("ReduceSumSquare", rest, np.array(axes), keepdims=keep, suffix="squares")
    node.note("a mean, and a sum of squares about it")
    if final:
        node.become("Mul", squares, 1.0 / divisor)
        return squares
    return node.apply("Mul", squares, 1.0 / divisor, suffix="variance")
