"""Elements at positions of their own: GatherElements and GatherND.

Nothing is exchanged where the positions are constants. Secret ones are chosen by one-hot rows (`covey.ops.selection`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import BATCH, OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.ir import Value
from covey.ops.gather import MOST_INDICES, data_axis, flat
from covey.ops.reshape import Reshape
from covey.ops.selection import indices_into, select, select_along

Positions = npt.NDArray[np.int64]


def constant_indices(node: OnnxNode, index: int, rank: int) -> Positions:
    """Constant indices of a sample, which are the same for every sample."""
    known = node.constant(index, "indices")
    if known.size == 0 or known.ndim == 0:
        raise node.unsupported(f"its indices of shape {list(known.shape)} are no list", "repair the model")
    if known.ndim == rank and known.shape[0] not in (BATCH, node.scope.exported_batch):
        shape = list(known.shape)
        raise node.unsupported(f"its indices of shape {shape} are not of every sample", "repeat them for each sample")
    array = of_one_sample(known, rank).astype(np.int64)
    if array.ndim != rank - 1:
        raise node.unsupported("its indices differ between samples", "make them independent of the batch")
    if array.size > MOST_INDICES:
        raise node.unsupported(f"it has more than {MOST_INDICES} indices", "check the model's shapes")
    return array


def places_along(node: OnnxNode, x: Value, axis: int, indices: Positions) -> Positions:
    """Where in a sample of x the elements are whose index along `axis` is given for each place."""
    shape, size = x.shape, x.shape[axis]
    others = zip(indices.shape, shape, strict=True)
    if any(mine > its for place, (mine, its) in enumerate(others) if place != axis):
        raise node.unsupported(f"its indices of shape {list(indices.shape)} reach beyond {x}", "repair the model")
    if indices.size == 0 or indices.min() < -size or indices.max() >= size:
        raise node.unsupported(f"its indices do not lie in dimension {axis + 1} of {x}", "repair the model")
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices % size
    return np.asarray(np.ravel_multi_index(tuple(np.broadcast_arrays(*places)), shape))


def taken(node: OnnxNode, x: Value, positions: Positions, shape: Sequence[int], output: str | None = None) -> Value:
    """The elements at positions of a sample of x, in a shape."""
    name = output or node.outputs[0]
    elements = node.emit(flat(positions), [x], output=f"{name}.elements", dtype=x.dtype)
    return node.emit(Reshape(tuple(shape)), [elements], output=output, dtype=x.dtype)


@from_onnx("GatherElements")
def _gather_elements(node: OnnxNode) -> None:
    x = node.activation(0, "data", index_allowed=True)
    axis = data_axis(node, x, int(node.attribute("axis", 0)))
    if not node.is_constant(1):
        select_along(node, x, 1, axis)
        return
    positions = places_along(node, x, axis, constant_indices(node, 1, x.rank))
    taken(node, x, positions, positions.shape)


@from_onnx("GatherND")
def _gather_nd(node: OnnxNode) -> None:
    """Indices are tuples; `batch_dims` dimensions in front are gone through side by side."""
    x = node.activation(0, "data", index_allowed=True)
    side = int(node.attribute("batch_dims", 0)) - 1
    if side < 0:
        raise node.unsupported("it gathers along the batch", "let its batch_dims be at least 1")
    if not node.is_constant(1):
        _gather_nd_secret(node, x, side)
        return
    indices = constant_indices(node, 1, node.constant(1, "indices").ndim)
    depth = indices.shape[-1]
    lead, sizes, rest = x.shape[:side], x.shape[side : side + depth], x.shape[side + depth :]
    if indices.shape[:side] != lead or len(sizes) < depth:
        raise node.unsupported(f"its indices of shape {list(indices.shape)} do not fit {x}", "repair the model")
    if (indices >= np.array(sizes)).any() or (indices < -np.array(sizes)).any():
        raise node.unsupported(f"its indices do not lie in {x}", "repair the model")
    middle = indices.shape[side:-1]
    places = np.ravel_multi_index(tuple(np.moveaxis(indices % np.array(sizes), -1, 0)), sizes)
    first = np.arange(int(np.prod(lead, dtype=np.int64))).reshape(*lead, *(1,) * len(middle))
    block, tail = int(np.prod(sizes, dtype=np.int64)), int(np.prod(rest, dtype=np.int64))
    positions = ((first * block + places)[..., None] * tail + np.arange(tail)).reshape(*lead, *middle, *rest)
    taken(node, x, positions, positions.shape)


def _gather_nd_secret(node: OnnxNode, x: Value, side: int) -> None:
    numbers = node.activation(1, "indices", index_allowed=True)
    *shape, depth = numbers.shape or (0,)
    if depth != 1 or side >= len(x.shape) or len(shape) < side:
        raise node.unsupported(
            f"its secret indices {numbers} are tuples of {depth}, or do not fit {x}",
            "gather along one dimension after the other",
        )
    flat = node.emit(Reshape(tuple(shape)), [numbers], output=f"{node.outputs[0]}.numbers", dtype=numbers.dtype)
    select(node, x, indices_into(node, flat, x.shape[side]), side)


@from_torch("aten.gather.default")
def _gather_aten(node: TorchNode) -> None:
    node.ignore("sparse_grad")
    source = node.argument("self")
    if not isinstance(source, Constant):
        x = node.activation("self")
        index = node.argument("index")
        if isinstance(index, Value):
            node.become("GatherElements", x, index, axis=node.axis("dim", x.rank))
            return
        known = index if isinstance(index, Constant) else node.constant("index")
        if isinstance(known, Constant) and x.batch_first:
            known = Constant(known.name, known.of_one)
        node.become("GatherElements", x, known, axis=node.axis("dim", x.rank))
        return
    # Where all of a constant are the same, any place has that.
    places = node.activation("index")
    if not (source.array == source.array.flat[0]).all():
        raise node.unsupported(
            "it picks by secret indices", "let an embedding, or Gather of a constant table, read them"
        )
    node.axis("dim", places.rank)
    node.constant_result(np.full((1, *places.shape), source.array.flat[0]))
