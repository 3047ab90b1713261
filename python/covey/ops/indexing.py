"""Importers of what takes elements by indices: constants, whole numbers of an input, numbers the network counts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.ir import DType, Value
from covey.ops.gather import data_axis, emit_pick
from covey.ops.looking_up import look_up
from covey.ops.reshape import Reshape


@from_onnx("Gather")
def _gather(node: OnnxNode) -> None:
    if node.is_constant(0) and not node.is_constant(1):
        look_up(node)
        return
    x = node.activation(0, "data", index_allowed=True)
    if not node.is_constant(1):
        raise node.unsupported(
            f"it picks of every sample of {x} by each sample's indices",
            "use GatherElements, or GatherND with batch_dims",
        )
    indices = node.constant(1, "indices").astype(np.int64)
    axis = data_axis(node, x, int(node.attribute("axis", 0)))
    size = x.shape[axis]
    if indices.size == 0 or indices.min() < -size or indices.max() >= size:
        raise node.unsupported(f"its indices do not lie in dimension {axis + 1} of {x}", "repair the model")
    along: list[Sequence[int]] = [range(extent) for extent in x.shape]
    along[axis] = (indices.ravel() % size).tolist()
    if indices.ndim == 1:
        emit_pick(node, x, along)
        return
    taken = emit_pick(node, x, along, output=f"{node.outputs[0]}.flat")
    node.emit(Reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])), [taken], dtype=x.dtype)


@from_torch("aten.select.int")
def _select_aten(node: TorchNode) -> None:
    x = node.activation("self")
    (index,) = node.integers("index")
    node.become("Gather", x, np.array(index), axis=node.axis("dim", x.rank))


@from_torch("aten.index_select.default")
def _index_select_aten(node: TorchNode) -> None:
    source, index = node.argument("self"), node.argument("index")
    if isinstance(source, Constant) and isinstance(index, Value):
        node.become("Gather", node.operand("self"), index, axis=node.axis("dim", source.array.ndim))
        return
    x = node.activation("self")
    node.become("Gather", x, node.constant("index"), axis=node.axis("dim", x.rank))


@from_torch("aten.index.Tensor")
def _index_aten(node: TorchNode) -> None:
    """By constants, or along one dimension by secret indices; of the batch, all of it in order."""
    given = node.argument("indices")
    if any(isinstance(entry, Value) and entry.dtype is not DType.BOOL for entry in given):
        _by_secret(node, given)
        return
    x = node.activation("self")
    indices: list[npt.NDArray[np.int64] | None] = []
    for entry in given:
        if isinstance(entry, Constant) and entry.array.dtype == np.bool_:
            indices += np.nonzero(entry.of_all)
        else:
            indices.append(None if entry is None else _index(node, entry))
    # Two samples say what becomes of each: what is read of the first, and whether the second is like it.
    # A batch that is merged with other dimensions is one of more samples.
    rest = x.dims(1)[1:] if x.place == 0 else [*x.shape]
    size = prod(rest)
    samples = np.arange(2 * size).reshape(2, *rest)
    batch = indices[0]
    if batch is not None:
        indices[0] = samples_of = _two_samples(batch)
        if samples_of is None:
            raise node.unsupported(f"it picks samples of {x}", "keep the batch first and whole")
        others = [entry for entry in indices[1:] if entry is not None]
        if any(entry.ndim == batch.ndim and entry.shape[0] != 1 for entry in others):
            raise node.unsupported(f"its indices differ between samples of {x}", "make them independent of the batch")
    try:
        first, second = samples[tuple(slice(None) if entry is None else entry for entry in indices)]
    except (IndexError, ValueError):
        raise node.unsupported(f"its indices do not lie in {x}, or move its batch", "repair the model") from None
    if not np.array_equal(first + size, second):
        raise node.unsupported(f"it picks samples of {x}", "keep the batch first and whole")
    if first.ndim == 0:
        raise node.unsupported(f"it leaves no dimension of {x} but the batch", "take a slice of one element")
    if np.array_equal(first.ravel(), np.arange(size)):
        node.become("Reshape", x, np.array([0, *first.shape]))
        return
    source = node.apply("Reshape", x, np.array([0, -1]), suffix="flat")
    node.become("Gather", source, first, axis=1)


def _by_secret(node: TorchNode, given: Sequence[Value | Constant | None]) -> None:
    """`x[torch.arange(batch), indices]`, and the like along other dimensions; rows of a constant."""
    (place, *others) = [axis for axis, entry in enumerate(given) if isinstance(entry, Value)]
    batch, indices = given[0], given[place]
    assert isinstance(indices, Value)
    beside = [entry for axis, entry in enumerate(given) if axis not in (0, place) and entry is not None]
    if isinstance(node.argument("self"), Constant) and not others and not beside and (place == 0 or batch is None):
        node.become("Gather", node.operand("self"), indices, axis=place)
        return
    x = node.activation("self")
    whole = _two_samples(batch.array) is not None if isinstance(batch, Constant) and batch.array.ndim else False
    if others or beside or not whole or not isinstance(batch, Constant) or batch.array.ndim != indices.rank:
        raise node.unsupported(
            f"it picks of {x} by secret indices of several dimensions, or of other samples",
            "index x[torch.arange(len(x)), indices], with as many dimensions in both, or use torch.gather",
        )
    order = [0, place, *(axis for axis in range(1, x.rank) if axis != place)]
    turned = x if order == sorted(order) else node.apply("Transpose", x, perm=order, suffix="turned")
    node.become("GatherND", turned, node.apply("Unsqueeze", indices, np.array([-1])), batch_dims=1)


def _index(node: TorchNode, entry: object) -> npt.NDArray[np.int64]:
    if not isinstance(entry, Constant) or entry.array.dtype.kind != "i":
        raise node.unsupported("its indices are no constants", "use constant whole numbers or truth values")
    return entry.array.astype(np.int64)


def _two_samples(batch: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """The index of the batch as one of two samples, if it takes all in order along its first dimension."""
    if batch.size != len(batch) or not np.array_equal(batch.ravel(), np.arange(len(batch))):
        return None
    return np.arange(2).reshape(2, *batch.shape[1:])
