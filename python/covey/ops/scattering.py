"""Updates at constant positions, which take the places of elements or are added to them: nothing is exchanged.

Several updates of one element are gathered side by side, zeros where there are fewer, and summed: no product, no shift.
"""

from __future__ import annotations

from math import prod

import numpy as np

from covey.importers.onnx_node import BATCH, OnnxNode, from_onnx, of_one_sample
from covey.interval import Array
from covey.ir import Shape, Value
from covey.ops.add import Add
from covey.ops.average_pool import SumPool
from covey.ops.concat import Concat
from covey.ops.gather import ABSENT, MOST_INDICES, data_axis, flat
from covey.ops.positions import Positions, constant_indices, places_along, taken
from covey.ops.reshape import Reshape
from covey.ops.scatter_reductions import reduce_updates
from covey.ops.window import MOST_STEPS, Window


@from_onnx("ScatterElements", "Scatter")
def _scatter_elements(node: OnnxNode) -> None:
    x = _data(node)
    axis = data_axis(node, x, int(node.attribute("axis", 0)))
    _scatter(node, x.shape, places_along(node, x, axis, constant_indices(node, 1, x.rank)))


@from_onnx("ScatterND")
def _scatter_nd(node: OnnxNode) -> None:
    """Indices are tuples. The first of each is the number of its sample."""
    x, known = _data(node), node.constant(1, "indices")
    samples = known.shape[0] if known.ndim > 1 else 0
    depth = known.shape[-1] - 1 if known.ndim > 1 else -1
    rows = np.arange(samples).reshape(-1, *(1,) * max(known.ndim - 2, 0))
    if samples not in (BATCH, node.scope.exported_batch) or (known[..., 0] != rows).any():
        raise node.unsupported("it writes some of the samples", "let each sample's indices begin with its own number")
    indices = known[:1, ..., 1:]
    if (known[..., 1:] != indices).any():
        raise node.unsupported("its indices differ between samples", "make them independent of the batch")
    sizes, rest = np.array(x.shape[:depth], dtype=np.int64), x.shape[depth:]
    if depth > len(x.shape) or (indices >= sizes).any() or (indices < -sizes).any():
        raise node.unsupported(f"its indices do not lie in {x}", "repair the model")
    blocks = np.zeros(indices.shape[1:-1], dtype=np.int64)
    if depth:
        blocks = np.ravel_multi_index(tuple(np.moveaxis(indices[0] % sizes, -1, 0)), tuple(sizes))
    size = prod(rest)
    _scatter(node, x.shape, (blocks[..., None] * size + np.arange(size)).reshape((*blocks.shape, *rest)))


def _data(node: OnnxNode) -> Value:
    """What is updated: an activation, or a constant as a value of the shape that each sample has."""
    if not node.is_constant(0):
        return node.activation(0, "data")
    data = node.weights(0, "data")
    array = of_one_sample(data, data.ndim, node.scope.exported_batch)
    if array.ndim == data.ndim:
        raise node.unsupported("its data differ between samples", "make them independent of the batch")
    return Value(node.inputs[0], array.shape)


def _scatter(node: OnnxNode, shape: Shape, positions: Positions) -> None:
    how, name = str(node.attribute("reduction", "none")), node.outputs[0]
    places, size = positions.ravel(), prod(shape)
    include_self = node.flag("include_self", 1)  # PyTorch's: ONNX includes it
    if how == "none" and len(np.unique(places)) < places.size:
        raise node.unsupported("it takes one of several updates", "reduce them, or write each element once")
    if how not in ("none", "add") or not include_self:
        _reduce(node, shape, positions, include_self=include_self)
        return
    written = np.isin(np.arange(size), places) if how == "none" else np.zeros(size, dtype=bool)
    constant = np.zeros(size)
    if node.is_constant(0):
        data = of_one_sample(node.weights(0, "data"), len(shape) + 1, node.scope.exported_batch)
        constant = np.where(written, 0.0, data.ravel())
    if node.is_constant(2):
        updates = of_one_sample(node.weights(2, "updates"), positions.ndim + 1, node.scope.exported_batch)
        if updates.ndim == positions.ndim + 1:
            raise node.unsupported("its constant updates differ between samples", "give them as an input")
        np.add.at(constant, places, np.broadcast_to(updates, positions.shape).ravel())
        x = node.activation(0, "data")
        if written.any():
            x = taken(node, x, np.where(written, ABSENT, np.arange(size)), shape, f"{name}.kept")
        node.emit(Add(), [x, node.parameter(constant.reshape(shape), f"{name}.spread")])
        return
    given = node.activation(2, "updates")
    if given.size != places.size:
        raise node.unsupported(f"its updates {given} are not {places.size} a sample", "repair the model")
    if node.is_constant(0):
        sums = _sums(node, given, places, shape, f"{name}.total" if constant.any() else None)
        if constant.any():
            node.emit(Add(), [sums, node.parameter(constant.reshape(shape), f"{name}.constant")])
        return
    x = node.activation(0, "data")
    if how == "add":
        node.emit(Add(), [x, _sums(node, given, places, shape, f"{name}.spread")])
        return
    where = np.arange(size)
    where[places] = size + np.arange(places.size)
    rows = [
        node.emit(Reshape((value.size,)), [value], output=f"{name}.row{index}")
        for index, value in enumerate((x, given))
    ]
    taken(node, node.emit(Concat(1), rows, output=f"{name}.joined"), where, shape)


def _reduce(node: OnnxNode, shape: Shape, positions: Positions, *, include_self: bool) -> None:
    data = _given(node, 0, "data", shape)
    updates = _given(node, 2, "updates", positions.shape)
    if updates.size != positions.size:
        raise node.unsupported(f"its updates are not {positions.size} a sample", "repair the model")
    reduce_updates(node, data, updates, positions.ravel(), shape, include_self=include_self)


def _given(node: OnnxNode, index: int, what: str, shape: Shape) -> Value | Array:
    """An operand: an activation, or what every sample has of a constant."""
    if not node.is_constant(index):
        return node.activation(index, what)
    array = of_one_sample(node.weights(index, what), len(shape) + 1, node.scope.exported_batch)
    if array.ndim == len(shape) + 1:
        raise node.unsupported(f"its constant {what} differ between samples", "give them as an input")
    return np.broadcast_to(array, shape)


def _sums(node: OnnxNode, given: Value, places: Positions, shape: Shape, output: str | None) -> Value:
    """For each element the sum of the updates that are at its place."""
    name, size = output or node.outputs[0], prod(shape)
    counts = np.bincount(places, minlength=size)
    most = int(counts.max())
    if most > MOST_STEPS or size * most > MOST_INDICES:
        raise node.unsupported(f"it adds up to {most} updates to an element", "sum what belongs together before it")
    order = np.argsort(places, kind="stable")
    nth = np.arange(places.size) - (np.cumsum(counts) - counts)[places[order]]
    side_by_side = np.full((size, most), ABSENT)
    side_by_side[places[order], nth] = order
    if most == 1:
        return taken(node, given, side_by_side, shape, output)
    found = node.emit(flat(side_by_side), [given], output=f"{name}.elements")
    rows = node.emit(Reshape((1, size, most)), [found], output=f"{name}.rows")
    sums = node.emit(SumPool(Window((1, most))), [rows], output=f"{name}.sums")
    return node.emit(Reshape(shape), [sums], output=output)
