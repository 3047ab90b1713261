"""Taking elements at public positions: what Gather, Slice, Split, Tile, Expand and Resize have in common."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.reshape import Reshape
from covey.ops.whole_numbers import look_up

ABSENT = -1
"""The offset that stands for a zero."""

MOST_INDICES = 1 << 22
"""Programs list a gather's indices one by one."""


@dataclass(frozen=True)
class Gather(Op):
    """Element (i, j, ..) of each sample is the element of the row-major sample at the sum of its offsets.

    There is a tuple of offsets for each dimension of the result; where one of them is `ABSENT`, the result is 0.
    """

    axes: tuple[tuple[int, ...], ...]

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Where each element of a sample comes from, `ABSENT` where it is 0."""
        places = np.zeros((), dtype=np.int64)
        absent = np.zeros((), dtype=bool)
        for offsets in self.axes:
            along = np.array(offsets, dtype=np.int64)
            places = places[..., None] + along
            absent = absent[..., None] | (along == ABSENT)
        return np.where(absent, ABSENT, places)

    @property
    def repeats(self) -> bool:
        """Whether some element is taken more often than once, or a zero put in."""
        positions = self.positions
        return bool((positions == ABSENT).any()) or len(np.unique(positions)) < positions.size

    def shape(self, *inputs: Value) -> Shape:
        if sum(max(offsets, default=0) for offsets in self.axes) >= inputs[0].size:
            raise ValueError(f"it takes elements that {inputs[0]} does not have")
        return tuple(len(offsets) for offsets in self.axes)

    def reference(self, *inputs: Array) -> Array:
        flat = inputs[0].reshape(len(inputs[0]), -1)
        positions = self.positions
        return np.where(positions == ABSENT, 0.0, flat[:, positions.clip(min=0)])

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        offsets = [offset + 1 for axis in self.axes for offset in axis]
        return low.emit(
            node,
            pb.Gather(sizes=[len(axis) for axis in self.axes], offsets=offsets),
            [x],
            shape=low.graph.values[node.output].shape,
            scale=x.scale,
            interval=self.interval(x.interval),
        )


def strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours along each dimension."""
    return [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]


def pick(shape: Sequence[int], along: Sequence[Sequence[int]]) -> Gather:
    """The elements of a sample of `shape` at these indices along each of its dimensions; `ABSENT` is 0."""
    axes = (
        tuple(index if index == ABSENT else index * stride for index in indices)
        for indices, stride in zip(along, strides(shape), strict=True)
    )
    return Gather(tuple(axes))


def flat(positions: npt.NDArray[np.int64]) -> Gather:
    """The elements of a sample at these positions, one after another."""
    return Gather((tuple(int(position) for position in positions.ravel()),))


def data_axis(node: OnnxNode, x: Value, axis: int) -> int:
    """An axis of x as an index into the shape of a sample. Refuses the batch."""
    place = axis + x.rank if axis < 0 else axis
    if not 1 <= place < x.rank:
        raise node.unsupported(f"axis {axis} of {x} is the batch or does not exist", "keep the batch first and whole")
    return place - 1


def emit_pick(node: OnnxNode, x: Value, along: Sequence[Sequence[int]], output: str | None = None) -> Value:
    """Take `along` of x, or nothing but its name where that is all of x in order."""
    # Before they are listed: `along` may hold ranges of any length.
    node.check_shape([len(indices) for indices in along])
    if output is None and all(
        len(indices) == size and all(map(operator.eq, indices, range(size)))
        for indices, size in zip(along, x.shape, strict=True)
    ):
        node.alias(x)
        node.note("removed: it takes everything")
        return x
    if sum(map(len, along)) > MOST_INDICES:
        raise node.unsupported(f"it takes elements at more than {MOST_INDICES} indices", "check the model's shapes")
    return node.emit(pick(x.shape, along), [x], output=output, dtype=x.dtype)


@from_onnx("Gather")
def _gather(node: OnnxNode) -> None:
    if node.is_constant(0) and not node.is_constant(1):
        look_up(node)
        return
    x = node.activation(0, "data", index_allowed=True)
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
    x = node.activation("self")
    node.become("Gather", x, node.constant("index"), axis=node.axis("dim", x.rank))


@from_torch("aten.index.Tensor")
def _index_aten(node: TorchNode) -> None:
    """By constants; of the batch, all of it in order."""
    x = node.activation("self")
    indices = [None if entry is None else _index(node, entry) for entry in node.argument("indices")]
    # Two samples say what becomes of each: what is read of the first, and whether the second is like it.
    samples = np.arange(2 * x.size).reshape(2, *x.shape)
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
    if not np.array_equal(first + x.size, second):
        raise node.unsupported(f"it picks samples of {x}", "keep the batch first and whole")
    if first.ndim == 0:
        raise node.unsupported(f"it leaves no dimension of {x} but the batch", "take a slice of one element")
    if np.array_equal(first.ravel(), np.arange(x.size)):
        node.become("Reshape", x, np.array([0, *first.shape]))
        return
    source = node.apply("Reshape", x, np.array([0, -1]), suffix="flat")
    node.become("Gather", source, first, axis=1)


def _index(node: TorchNode, entry: object) -> npt.NDArray[np.int64]:
    if not isinstance(entry, Constant) or entry.array.dtype.kind != "i":
        raise node.unsupported("its indices are no constants, or truth values", "use constant whole numbers")
    return entry.array.astype(np.int64)


def _two_samples(batch: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """The index of the batch as one of two samples, if it takes all in order along its first dimension."""
    if batch.size != len(batch) or not np.array_equal(batch.ravel(), np.arange(len(batch))):
        return None
    return np.arange(2).reshape(2, *batch.shape[1:])
