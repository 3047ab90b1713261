"""Elements by their rank in a row: medians, the k-th smallest, quantiles. Each is an end of what TopK puts in order."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value

WEIGHTS: dict[str, Callable[[float], float]] = {
    "linear": lambda fraction: fraction,
    "lower": lambda fraction: 0.0,
    "higher": lambda fraction: float(fraction > 0),
    "midpoint": lambda fraction: 0.5 * (fraction > 0),
}
"""How much of the next larger element a quantile takes that lies so far behind the smaller one."""


@from_torch("aten.kthvalue.default")
def _kth_value_aten(node: TorchNode) -> None:
    (rank,) = node.integers("k")
    _element(node, rank)


@from_torch("aten.median.dim", "aten.nanmedian.dim")
def _median_aten(node: TorchNode) -> None:
    """Of an even number of elements the lower one of the middle."""
    x = node.activation("self")
    (axis,) = node.inner_axes("dim", x)
    _element(node, (x.dims(1)[axis] + 1) // 2)


def _element(node: TorchNode, rank: int) -> None:
    """The element of this rank, the smallest of rank 1, and its place if anything reads that."""
    x = node.activation("self")
    (axis,) = node.inner_axes("dim", x)
    count = np.array([rank])
    least = node.apply_several("TopK", 2 if 1 in node.asked else 1, x, count, axis=axis, largest=0)
    last = np.array([rank - 1] if node.flag("keepdim") else rank - 1)
    node.results = [node.apply("Gather", part, last, axis=axis, suffix="last") for part in least]


@from_torch("aten.quantile.default", "aten.quantile.scalar", "aten.nanquantile.default", "aten.nanquantile.scalar")
def _quantile_aten(node: TorchNode) -> None:
    """Several fractions are a new first dimension."""
    x, fractions = node.activation("self"), np.asarray(node.constant("q"), dtype=np.float32)
    if not node.has("dim"):
        raise node.unsupported("it runs over the batch too", "give it a dim other than the batch")
    (axis,) = node.inner_axes("dim", x)
    size = x.dims(1)[axis]
    # PyTorch computes ranks in the type of x.
    ranks = np.clip(fractions.ravel() * np.float32(size - 1), 0, size - 1)
    how = str(node.argument("interpolation"))
    if how == "nearest":
        ranks, how = np.rint(ranks), "lower"
    if how not in WEIGHTS or not ranks.size:
        raise node.unsupported(f"its interpolation is '{how}'", "use linear, lower, higher, nearest or midpoint")
    found = [_between(node, *each) for each in _ordered(node, x, axis, [float(rank) for rank in ranks], how)]
    if not node.flag("keepdim"):
        found = [node.apply("Squeeze", value, np.array([axis]), suffix="alone") for value in found]
    if not fractions.ndim:
        node.alias(found[0])
        return
    rows = [node.apply("Unsqueeze", value, np.array([value.rank]), suffix="row") for value in found]
    last = found[0].rank
    joined = node.apply("Concat", *rows, axis=last, suffix="joined")
    node.become("Transpose", joined, perm=[last, *range(last)])


def _ordered(
    node: TorchNode, x: Value, axis: int, ranks: list[float], how: str
) -> list[tuple[Value, Value | None, float]]:
    """For each rank the element at or below it, and the next one if that has a weight. The fewer ends are sorted."""
    size = x.dims(1)[axis]
    weights = [WEIGHTS[how](rank - math.floor(rank)) for rank in ranks]
    first = min(math.floor(rank) for rank in ranks)
    last = max(math.floor(rank) + (weight > 0) for rank, weight in zip(ranks, weights, strict=True))
    largest = size - first < last + 1
    count = np.array([size - first if largest else last + 1])
    (ends,) = node.apply_several("TopK", 1, x, count, axis=axis, largest=int(largest))

    def at(rank: int) -> Value:
        place = size - 1 - rank if largest else rank
        return node.apply("Gather", ends, np.array([place]), axis=axis, suffix="element")

    below = [math.floor(rank) for rank in ranks]
    return [(at(rank), at(rank + 1) if weight else None, weight) for rank, weight in zip(below, weights, strict=True)]


def _between(node: TorchNode, lower: Value, upper: Value | None, weight: float) -> Value:
    if upper is None:
        return lower
    if weight == 1.0:
        return upper
    gap = node.apply("Mul", node.apply("Sub", upper, lower, suffix="gap"), weight, suffix="part")
    return node.apply("Add", lower, gap, suffix="between")
