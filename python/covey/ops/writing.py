"""Assignments to a part of a tensor, which `torch.export` writes as functions: the parts joined, and taken in order."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import BATCH, of_one_sample
from covey.importers.torch_node import Constant, Operand, TorchNode, from_torch
from covey.ir import DType, Value
from covey.ops.reshape import Reshape
from covey.ops.slicing import ALL
from covey.ops.top_k import Index
from covey.ops.transpose import Transpose


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
    """`x[indices] = values`, or a sum: by constants, the same of each sample, or by truth values of each element."""
    indices, values = list(node.argument("indices")), node.argument("values")
    if len(indices) == 1 and isinstance(indices[0], Value) and indices[0].dtype is DType.BOOL:
        data = node.activation("self")
        several = isinstance(values, Value) or values.array.size != 1 or node.flag("accumulate")
        if several or indices[0].rank != data.rank:
            raise node.unsupported("it writes by truth values that depend on the input", "use torch.where")
        node.become("Where", indices[0], values.array.reshape(()).astype(np.float64), data)
        return
    x, shape = _whole(node)
    along = _of_a_sample(node, indices)
    try:
        places = np.arange(prod(shape)).reshape(shape)[along]
    except IndexError:
        raise node.unsupported(f"its indices do not lie in {list(shape)}", "repair the model") from None
    if not node.flag("accumulate") and len(np.unique(places)) < places.size:
        raise node.unsupported("it writes an element twice", "write each once")
    _put(node, x, shape, places, values, "add" if node.flag("accumulate") else "none")


@from_torch("aten.index_add.default")
def _index_add_aten(node: TorchNode) -> None:
    x, shape = _whole(node)
    index, source, axis = node.argument("index"), node.argument("source"), node.axis("dim", len(shape) + 1)
    if not isinstance(index, Constant) or axis == 0:
        raise node.unsupported(*SOME_OF_THEM)
    if (factor := node.number("alpha")) != 1.0:
        source = node.apply("Mul", source, factor, suffix="scaled") if isinstance(source, Value) else source
        source = replace(source, array=source.array * factor) if isinstance(source, Constant) else source
    places = np.arange(prod(shape)).reshape(shape)
    _put(node, x, shape, places[(slice(None),) * (axis - 1) + (np.atleast_1d(index.array),)], source, "add")


@from_torch("aten.index_reduce.default")
def _index_reduce_aten(node: TorchNode) -> None:
    x, shape = _whole(node)
    index, axis = node.argument("index"), node.axis("dim", len(shape) + 1)
    if not isinstance(index, Constant) or axis == 0:
        raise node.unsupported(*SOME_OF_THEM)
    places = np.arange(prod(shape)).reshape(shape)[(slice(None),) * (axis - 1) + (np.atleast_1d(index.array),)]
    how, attributes = REDUCED[node.argument("reduce")], {"include_self": int(node.flag("include_self"))}
    _put(node, x, shape, places, node.argument("source"), how, **attributes)


@from_torch("aten.col2im.default")
def _fold_aten(node: TorchNode) -> None:
    """The sum of the blocks that overlap at each point; what lies in the padding is left out."""
    x = node.activation("self")
    if x.rank != 3:
        raise node.unsupported(f"its input {x} has no batch", "give it [N, C * kernel, blocks]")
    names = ("output_size", "kernel_size", "dilation", "padding", "stride")
    sizes, kernel, dilation, padding, stride = (node.integers(name, 2) for name in names)
    along = []
    for size, taps, gap, pad, step in zip(sizes, kernel, dilation, padding, stride, strict=True):
        count = (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
        at = np.arange(taps)[:, None] * gap + np.arange(count) * step - pad
        along.append(np.where(at < size, at, -1))
    rows, columns = along[0][:, None, :, None], along[1][:, None]
    inside = (rows >= 0) & (columns >= 0)
    maps = np.arange(x.shape[0] // prod(kernel)).reshape(-1, 1, 1, 1, 1)
    places = np.where(inside, (maps * sizes[0] + rows) * sizes[1] + columns, -1).ravel()
    if places.size != x.size:
        raise node.unsupported(f"its blocks do not fit {x}", "repair the model")
    flattened = node.apply("Reshape", x, np.array([0, -1]), suffix="blocks")
    if places.min() < 0:
        flattened = node.apply("Gather", flattened, np.flatnonzero(places >= 0), axis=1, suffix="inside")
    shape = (maps.size, *sizes)
    _put(node, np.zeros((1, prod(shape))), shape, places[places >= 0], flattened, "add")


REDUCED = {
    "none": "none",
    "add": "add",
    "amax": "max",
    "amin": "min",
    "mean": "mean",
    "multiply": "mul",
    "prod": "mul",
    "sum": "add",
}
"""What PyTorch calls reductions, and ONNX."""

SOME_OF_THEM = ("it writes some of the samples, or at secret indices", "write x[:, constants] = values")


def _whole(node: TorchNode) -> tuple[Value | npt.NDArray[Any], tuple[int, ...]]:
    """What is written to, with the elements of a sample in a row, and a sample's shape."""
    x = node.numbers(node.argument("self"), truth=False)
    if isinstance(x, Constant):
        array = _once(node, x, x.array.ndim, "self").astype(np.float64)
        return array.reshape(1, -1), array.shape
    if not x.batch_first:
        raise node.unsupported(*SOME_OF_THEM)
    return node.apply("Reshape", x, np.array([0, -1]), suffix="whole"), x.shape


def _once(node: TorchNode, constant: Constant, rank: int, what: str) -> npt.NDArray[Any]:
    """A constant of one sample, where all samples have the same; `rank` counts the batch."""
    array = constant.of_one
    if constant.repeated is None:
        array = of_one_sample(array, rank, node.scope.exported_batch)
    if array.ndim >= rank:
        raise node.unsupported(f"its {what} may not differ between samples", "make it independent of the batch")
    return array


def _of_a_sample(node: TorchNode, indices: list[Any]) -> tuple[Any, ...]:
    """The indices within a sample; in front of them is nothing, or the number of the sample itself."""
    first, *others = indices
    if not all(isinstance(each, Constant | None) for each in indices):
        raise node.unsupported(*SOME_OF_THEM)
    if first is None:
        return tuple(slice(None) if each is None else each.array for each in others)
    arrays = [each.of_all for each in indices if each is not None]
    together = [each is not None for each in indices] == [place < len(arrays) for place in range(len(indices))]
    spread = np.broadcast_arrays(*arrays)
    rows = np.arange(len(spread[0])).reshape(-1, *(1,) * (spread[0].ndim - 1)) if spread[0].ndim else None
    own = rows is not None and rows.size in (BATCH, node.scope.exported_batch) and (spread[0] == rows).all()
    if not own or not together or any((each != each[:1]).any() for each in spread[1:]):
        raise node.unsupported(*SOME_OF_THEM)
    return tuple(each[0] for each in spread[1:])


def _put(
    node: TorchNode,
    x: Value | npt.NDArray[Any],
    shape: tuple[int, ...],
    places: npt.NDArray[np.int64],
    values: Any,
    how: str,
    **attributes: Any,
) -> None:
    """Write values at places of a sample's elements, or add them."""
    if isinstance(values, Value):
        part: Operand = node.apply("Expand", node.numbers(values), np.array([1, *places.shape]), suffix="values")
        part = node.apply("Reshape", part, np.array([0, -1]), suffix="flat")
    else:
        part = np.broadcast_to(_once(node, values, places.ndim + 1, "values"), places.shape).astype(np.float64)
        part = part.reshape(1, -1)
    written = node.apply(
        "ScatterElements", x, places.ravel(), part, axis=1, reduction=how, suffix="written", **attributes
    )
    node.become("Reshape", written, np.array([0, *shape]))


@from_torch(
    "aten.scatter.src",
    "aten.scatter.value",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
    "aten.scatter_add.default",
    "aten.scatter_reduce.two",
)
def _scatter_aten(node: TorchNode) -> None:
    x, index = node.numbers(node.argument("self"), truth=False), node.argument("index")
    updates = node.numbers(node.operand("value" if "value" in node.arguments else "src"))
    if isinstance(index, Value):
        _scatter_at_secrets(node, x, index, updates)
        return
    if isinstance(x, Constant):
        x = replace(x, array=x.array.astype(np.float64), repeated=None)
    index = Constant(index.name, index.of_one)
    if isinstance(updates, int | float):
        updates = np.full(index.array.shape, float(updates))
    rank = x.rank if isinstance(x, Value) else x.array.ndim
    if isinstance(updates, Value) and updates.shape != (read := index.array.shape[1 - rank :]):
        axes = np.arange(1, rank)
        updates = node.apply("Slice", updates, np.zeros_like(axes), np.array(read), axes, suffix="read")
    how = "add" if "scatter_add" in node.op_type else REDUCED[node.argument("reduce") or "none"]
    attributes = {} if node.argument("include_self") in (None, True) else {"include_self": 0}
    node.become("ScatterElements", x, index, updates, axis=node.axis("dim", rank), reduction=how, **attributes)


def _scatter_at_secrets(node: TorchNode, x: Value | Constant, index: Value, updates: Operand) -> None:
    """The sum of updates, each times the one-hot row of its index, and what they leave of x."""
    adds = "scatter_add" in node.op_type or REDUCED[node.argument("reduce") or "none"] == "add"
    if not index.batch_first:
        raise node.unsupported("it writes at secret indices of other samples", "keep the batch first")
    (axis,) = node.inner_axes("dim", index)
    sizes = x.dims(1) if isinstance(x, Value) else list(x.array.shape)
    if index.shape[: axis - 1] + index.shape[axis:] != (*sizes[1:axis], *sizes[axis + 1 :]):
        raise node.unsupported("it writes at secret indices of a part", "let its index have the shape of what it reads")
    if node.argument("reduce") not in (None, "add", "sum") or node.argument("include_self") is False:
        raise node.unsupported("it reduces at secret indices", "use a comparison and torch.where")
    if not adds and index.shape[axis - 1] > 1 and not _differ(node, index, axis):
        reason = "it writes at secret indices, of which several may be the same"
        raise node.unsupported(reason, "use those of topk, or scatter_add")
    rows = node.numbers(
        node.apply("OneHot", index, np.array(sizes[axis]), np.array([0.0, 1.0]), axis=-1, suffix="one_hot")
    )
    if isinstance(updates, Value) and updates.shape != index.shape:
        axes = np.arange(1, index.rank)
        updates = node.apply("Slice", updates, np.zeros_like(axes), np.array(index.shape), axes, suffix="read")
    if isinstance(updates, Value):
        updates = node.apply("Unsqueeze", updates, np.array([-1]), suffix="updates")
    elif isinstance(updates, Constant):
        updates = _once(node, updates, index.rank, "src")[..., None]
    # The last dimension of the rows takes the place of that of the indices.
    order = [*range(axis), index.rank - 1, *range(axis, index.rank - 1)]

    def summed(rows: Value, suffix: str) -> Value:
        total = node.apply("ReduceSum", rows, np.array([axis]), keepdims=0, suffix=f"{suffix}_total")
        return node.apply("Transpose", total, perm=order, suffix=suffix)

    written = summed(node.apply("Mul", rows, updates, suffix="weighted"), "written")
    left: Operand = x if isinstance(x, Value) else _once(node, x, index.rank, "self").astype(np.float64)
    if not adds:
        kept = node.apply("Sub", 1.0, summed(rows, "places"), suffix="kept")
        left = node.apply("Mul", kept, left, suffix="left")
    node.become("Add", written, left)
    node.note("one-hot rows of the indices times what is written")


def _differ(node: TorchNode, index: Value, axis: int) -> bool:
    """Whether indices along a dimension are those of a TopK along it, which differ."""
    graph = node.scope.graph
    made = graph.producer(index.name)
    while made is not None and isinstance(made.op, Reshape | Transpose):
        made = graph.producer(made.inputs[0])
    return made is not None and isinstance(made.op, Index) and axis == index.rank - 1


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
