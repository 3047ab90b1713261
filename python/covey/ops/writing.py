"""Assignments to a part of a tensor, which `torch.export` writes as functions: the parts joined, and taken in order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covey.importers.torch_node import Constant, Operand, TorchNode, from_torch
from covey.ir import DType, Value
from covey.ops.slicing import ALL


@from_torch("aten.slice_scatter.default")
def _slice_scatter_aten(node: TorchNode) -> None:
    start = node.integers("start")[0] if node.has("start") else 0
    end = node.integers("end")[0] if node.has("end") else ALL
    (step,) = node.integers("step")
    if node.argument("dim") == 0 and (start, end, step) == (0, ALL, 1):
        node.ignore("self")
        _become(node, node.argument("src"))
        return
    axis, size = _axis(node)
    _write(node, node.argument("src"), range(size)[start:end:step], axis, size)


@from_torch("aten.select_scatter.default")
def _select_scatter_aten(node: TorchNode) -> None:
    axis, size = _axis(node)
    (index,) = node.integers("index")
    part = node.argument("src")
    if isinstance(part, Value):
        part = node.apply("Unsqueeze", part, np.array([axis]), suffix="part")
    else:
        part = replace(part, array=np.expand_dims(part.array, axis))
    _write(node, part, range(size)[index : index + 1 or None], axis, size)


@from_torch("aten.copy.default")
def _copy_aten(node: TorchNode) -> None:
    """The source, repeated to the shape of what it overwrites."""
    node.ignore("non_blocking")
    target, source = node.argument("self"), node.argument("src")
    sizes = target.dims(1) if isinstance(target, Value) else list(target.array.shape)
    if isinstance(source, Value) and source.dims(1) != sizes:
        node.become("Expand", source, np.array(sizes))
    else:
        _become(node, source)


@from_torch("aten.index_put.default")
def _index_put_aten(node: TorchNode) -> None:
    """`x[indices] = values`: by constants, the same of each sample, or by truth values of each element."""
    x, values = node.activation("self"), node.argument("values")
    indices = list(node.argument("indices"))
    if node.flag("accumulate"):
        raise node.unsupported("it adds to what is there", "assign the sum instead")
    if len(indices) == 1 and isinstance(indices[0], Value) and indices[0].dtype is DType.BOOL:
        if isinstance(values, Value) or values.array.size != 1 or indices[0].rank != x.rank:
            raise node.unsupported("it writes by truth values that depend on the input", "use torch.where")
        node.become("Where", indices[0], values.array.reshape(()).astype(np.float64), x)
        return
    if not x.batch_first or indices[0] is not None or not all(isinstance(each, Constant | None) for each in indices):
        raise node.unsupported("it writes some of the samples, or at secret indices", "write x[:, constants] = values")
    try:
        places = np.arange(x.size).reshape(x.shape)[tuple(slice(None) if e is None else e.array for e in indices[1:])]
    except IndexError:
        raise node.unsupported(f"its indices do not lie in {x}", "repair the model") from None
    if len(np.unique(places)) < places.size:
        raise node.unsupported("it writes an element twice", "write each once")
    if isinstance(values, Value):
        part: Operand = node.apply("Expand", values, np.array([1, *places.shape]), suffix="values")
        part = node.apply("Reshape", part, np.array([0, -1]), suffix="flat")
    else:
        part = np.broadcast_to(values.array, (1, *places.shape)).reshape(1, -1).astype(np.float64)
    order = np.arange(x.size)
    order[places.ravel()] = x.size + np.arange(places.size)
    whole = node.apply("Reshape", x, np.array([0, -1]), suffix="whole")
    joined = node.apply("Concat", whole, part, axis=1, suffix="joined")
    node.become("Reshape", node.apply("Gather", joined, order, axis=1, suffix="written"), np.array([0, *x.shape]))


@from_torch("aten.scatter.src", "aten.scatter.value")
def _scatter_aten(node: TorchNode) -> None:
    x, index = node.activation("self"), node.argument("index")
    updates = node.argument("src" if "src" in node.arguments else "value")
    if not isinstance(index, Constant):
        raise node.unsupported("it writes at secret indices", "use a comparison and torch.where")
    if isinstance(updates, int | float):
        updates = np.full(index.array.shape, float(updates))
    node.become("ScatterElements", x, index, updates, axis=node.axis("dim", x.rank))


def _axis(node: TorchNode) -> tuple[int, int]:
    """The dimension along which a part is written, and its size."""
    whole, part = node.argument("self"), node.argument("src")
    known = whole if isinstance(whole, Value) else part
    rank = whole.rank if isinstance(whole, Value) else whole.array.ndim
    axis = node.axis("dim", rank)
    if isinstance(known, Value) and axis == known.place:
        raise node.unsupported("it writes some of the samples", "write a part of every sample")
    return axis, (whole.dims(1) if isinstance(whole, Value) else whole.array.shape)[axis]


def _become(node: TorchNode, source: Value | Constant) -> None:
    if isinstance(source, Value):
        node.alias(source)
    else:
        node.known = source


def _write(node: TorchNode, part: Operand, places: range, axis: int, size: int) -> None:
    order = np.arange(size)
    order[places] = size + np.arange(len(places))
    if isinstance(part, Value) and places == range(size):
        node.ignore("self")
        node.alias(part)
        return
    joined = node.apply("Concat", node.operand("self"), part, axis=axis, suffix="joined")
    node.become("Gather", joined, order, axis=axis)
