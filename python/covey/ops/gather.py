"""Taking elements at public positions: what Gather, Slice, Split, Tile, Expand and Resize have in common."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder

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
            if self.has_absent:
                absent = absent[..., None] | (along == ABSENT)
        return np.where(absent, ABSENT, places) if self.has_absent else places

    @property
    def has_absent(self) -> bool:
        """Whether a zero is put in anywhere."""
        return any(ABSENT in offsets for offsets in self.axes)

    @property
    def repeats(self) -> bool:
        """Whether some element is taken more often than once, or a zero put in."""
        positions = self.positions
        return self.has_absent or len(np.unique(positions)) < positions.size

    def shape(self, *inputs: Value) -> Shape:
        if sum(max(offsets, default=0) for offsets in self.axes) >= inputs[0].size:
            raise ValueError(f"it takes elements that {inputs[0]} does not have")
        return tuple(len(offsets) for offsets in self.axes)

    def reference(self, *inputs: Array) -> Array:
        flat = inputs[0].reshape(len(inputs[0]), -1)
        positions = self.positions
        if not self.has_absent:
            return flat.take(positions, axis=1)
        return np.where(positions == ABSENT, 0.0, flat[:, positions.clip(min=0)])

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        (x,) = inputs
        size = x.size // build.count
        return build.emit(Gather((tuple(range(0, x.size, size)), *self.axes)), x)

    def along(self, shape: Shape) -> list[list[int]] | None:
        """The indices along each dimension of an operand of this shape, if it takes such."""
        if len(self.axes) != len(shape):
            return None
        found = []
        for offsets, step, size in zip(self.axes, strides(shape), shape, strict=True):
            if any(offset != ABSENT and (offset % step or offset // step >= size) for offset in offsets):
                return None
            found.append([offset if offset == ABSENT else offset // step for offset in offsets])
        return found

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        (x,) = inputs
        if (along := self.along(x.shape)) is not None:
            return [build.scatter(gradient, along, x.shape)]
        flattened = build.reshape(gradient, (gradient.size,))
        places = [int(position) for position in self.positions.ravel()]
        return [build.reshape(build.scatter(flattened, [places], (x.size,)), x.shape)]

    def proto(self) -> pb.Gather:
        """As the program writes it."""
        offsets = [offset + 1 for axis in self.axes for offset in axis]
        return pb.Gather(sizes=[len(axis) for axis in self.axes], offsets=offsets)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return low.emit(
            node,
            self.proto(),
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
