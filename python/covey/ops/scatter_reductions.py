"""Maxima, minima, products, means and sums of updates at constant positions: of what each element gets, side by side.

Elements that get as many numbers are rows of one matrix, which is reduced; the results are taken in order.
"""

from __future__ import annotations

from math import prod

import numpy as np

from covey.importers.onnx_node import IMPORTERS, OnnxNode
from covey.interval import Array
from covey.ir import Shape, Value
from covey.ops.add import Add
from covey.ops.concat import Concat
from covey.ops.gather import ABSENT, MOST_INDICES, flat
from covey.ops.positions import Positions, taken
from covey.ops.reshape import Reshape
from covey.ops.window import MOST_STEPS

REDUCTIONS = {"add": "ReduceSum", "max": "ReduceMax", "mean": "ReduceMean", "min": "ReduceMin", "mul": "ReduceProd"}
"""By ONNX's names of what scatters, but for the mean, which is PyTorch's alone."""


def reduce_updates(
    node: OnnxNode, data: Value | Array, updates: Value | Array, places: Positions, shape: Shape, *, include_self: bool
) -> None:
    """The node's result has the shape of the data. Without `include_self` elements that get updates are left out."""
    how, name, size = str(node.attribute("reduction")), node.outputs[0], prod(shape)
    row = _row(node, data, updates, f"{name}.data")
    joined = node.emit(Concat(1), [row, _row(node, updates, row, f"{name}.updates")], output=f"{name}.joined")
    counts = np.bincount(places, minlength=size)
    kept = (counts == 0) | include_self
    numbers = counts + kept
    if numbers.max() > MOST_STEPS or numbers.sum() > MOST_INDICES:
        raise node.unsupported(f"it joins up to {numbers.max()} numbers", "join what belongs together before it")
    in_order, starts = size + np.argsort(places, kind="stable"), np.cumsum(counts) - counts
    parts, where, end = [joined], np.arange(size), size + places.size
    for count in np.unique(numbers):
        elements = np.flatnonzero(numbers == count)
        updated = [in_order[starts[element] :][: counts[element]] for element in elements]
        sources = [[*([at] if kept[at] else []), *its] for at, its in zip(elements, updated, strict=True)]
        if count == 1:
            where[elements] = np.ravel(sources)
            continue
        found = node.emit(flat(np.array(sources)), [joined], output=f"{name}.found{count}")
        rows = node.emit(Reshape((len(elements), int(count))), [found], output=f"{name}.rows{count}")
        reduced = node.scope.graph.fresh(f"{name}.of{count}")
        attributes = {"axes": [2], "keepdims": 0}
        IMPORTERS[REDUCTIONS[how]](OnnxNode(node.scope, node.name, node.op_type, [rows.name], [reduced], attributes))
        parts.append(node.scope.graph.values[reduced])
        where[elements] = end + np.arange(len(elements))
        end += len(elements)
    every = node.emit(Concat(1), parts, output=f"{name}.every") if len(parts) > 1 else joined
    taken(node, every, where, shape)
    node.note("what each element gets, side by side")


def _row(node: OnnxNode, given: Value | Array, other: Value | Array, name: str) -> Value:
    """The elements of a sample in a row; a constant is added to zeros of the other."""
    if isinstance(given, Value):
        return node.emit(Reshape((given.size,)), [given], output=name)
    assert isinstance(other, Value), "one of them depends on the input"
    zeros = node.emit(flat(np.full(given.size, ABSENT)), [other], output=f"{name}_zeros")
    return node.emit(Add(), [zeros, node.parameter(given.ravel(), f"{name}_constant")], output=name)
