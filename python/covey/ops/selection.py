"""Elements at secret indices: those that the network computes, and whole numbers of an input.

Each index becomes a one-hot row, by a comparison with every number it may be, or as its client shares it. The rows
times the data are the elements, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode
from covey.interval import Array, Interval
from covey.ir import DType, Graph, Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.counting import counted
from covey.ops.gather import ABSENT, Gather, flat, pick
from covey.ops.matmul import Matmul
from covey.ops.renumbering import Renumbered, renumbered
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.steps import interim

if TYPE_CHECKING:
    from covey.training.builder import Builder

MOST_NUMBERS = 4096
"""A number is compared with no more than so many."""


@dataclass(frozen=True)
class Selector(Op):
    """1 at the place of each whole number among `first`, first + 1, .. (`count` of them), along a new last dimension.

    Numbers of an input are shared one-hot: a pass writes it as a move of what is shared.
    """

    first: int
    count: int

    def shape(self, *inputs: Value) -> Shape:
        return (*inputs[0].shape, self.count)

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0][..., None] == np.arange(self.first, self.first + self.count), dtype=np.float64)

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros((*inputs[0].low.shape, self.count))
        return Interval(zeros, zeros + 1.0)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        """Whether each number is at most the first, at most the second, ..; less whether it is below that."""
        x = low.value(node.inputs[0])
        shape = (*x.shape, self.count)
        zeros = np.zeros((1, *shape))

        def truths(op: Message, inputs: Sequence[Lowered], hint: str | None = None) -> Lowered:
            name = None if hint is None else f"{node.output}.{hint}"
            interval = Interval(zeros, zeros + 1.0)
            return low.emit(node, op, inputs, shape=shape, scale=0, interval=interval, name=name, unconditional=True)

        # Half way to the next number where there are fractions: inexact shifts may have left some.
        ends = np.arange(self.first, self.first + self.count) + (0.5 if x.scale else 1.0)
        constant = low.constant(node, "ends", np.ldexp(ends, x.scale), x.scale)
        column = interim(low, node, pb.Reshape(), [x], (*x.shape, 1), x.interval.reshape((1, *x.shape, 1)), "column")
        gap = interim(low, node, pb.Sub(), [column, constant], shape, column.interval - constant.interval, "gap")
        up_to = truths(pb.LessThanZero(), [gap], "up_to")
        along = [*(range(size) for size in x.shape), [ABSENT, *range(self.count - 1)]]
        return truths(pb.Sub(), [up_to, truths(pick(shape, along).proto(), [up_to], "below")])


@dataclass(frozen=True)
class Selected(Op):
    """Rows of y [N, .., K, P] at one-hot rows x [N, .., M, K], exactly: M of them."""

    def shape(self, *inputs: Value) -> Shape:
        return Matmul().shape(*inputs)

    def reference(self, *inputs: Array) -> Array:
        return Matmul().reference(*inputs)

    def interval(self, *inputs: Interval) -> Interval:
        x, y = inputs
        shape = (*x.low.shape[:-1], y.low.shape[-1])
        ends = (y.low.min(axis=-2, keepdims=True), y.high.max(axis=-2, keepdims=True))
        return Interval(*(np.broadcast_to(end, shape).copy() for end in ends))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, y = inputs
        return [None, build.part(y, lambda: build.matmul(build.swapped(x), gradient))]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, y = (low.value(name) for name in node.inputs)
        return low.emit(
            node,
            pb.Matmul(),
            [x, y],
            shape=low.graph.values[node.output].shape,
            scale=y.scale,
            interval=self.interval(x.interval, y.interval),
        )


@dataclass(frozen=True)
class Indices:
    """Secret whole numbers, and where they lie: None for those of an input, which classes say."""

    numbers: Value
    span: tuple[int, int] | None
    columns: tuple[int, ...] | None = None
    """The elements that an input's numbers 0, 1, .. stand for, where these are not the elements of the same number."""


def is_index(node: OnnxNode, numbers: Value) -> bool:
    """Whether numbers may be secret indices: an input's, or those of which a range is known."""
    graph = node.scope.graph
    return graph.holds_input(numbers.name) or counted(graph, numbers.name) is not None


def indices_of(node: OnnxNode, numbers: Value) -> Indices:
    """A value as secret indices. Refuses numbers of which no range is known."""
    if node.scope.graph.holds_input(numbers.name):
        return Indices(numbers, None)
    found = counted(node.scope.graph, numbers.name)
    if found is None:
        raise node.unsupported(
            f"its indices '{numbers.name}' are no whole numbers of an input, and none that the network counts",
            "let it read an input of type int64, which the client shares one-hot, or an ArgMax, or say its range: "
            "clamp(0, most), or bool() of a mask of 0 and 1",
        )
    return Indices(numbers, (int(found.low.min()), int(found.high.max())))


def indices_into(node: OnnxNode, numbers: Value, size: int) -> Indices:
    """The same for data of `size` elements; each index may also be computed from one number of an input."""
    graph, name = node.scope.graph, node.outputs[0]
    found = None if is_index(node, numbers) else renumbered(graph, numbers.name, 2 * size + 2)
    if isinstance(found, Renumbered) and (found.values == found.values[:, :1]).all():
        elements = found.values[:, 0]
        inside = (elements >= -size) & (elements < size)
        if inside[0] and not inside.all():
            moved = node.emit(flat(found.places), [found.source], output=f"{name}.source", dtype=DType.INDEX)
            shaped = node.emit(Reshape(numbers.shape), [moved], output=f"{name}.given", dtype=DType.INDEX)
            return Indices(shaped, None, tuple((elements[: int(inside.argmin())] % size).tolist()))
    return indices_of(node, numbers)


def one_hot(node: OnnxNode, indices: Indices, size: int, output: str) -> tuple[Value, list[int]]:
    """The one-hot rows of indices into `size` elements, and which element each of their columns stands for.

    Negative ones count from the end. Refuses indices that may be beyond.
    """
    if indices.columns is not None:
        return rows_of(node, indices, range(len(indices.columns)), output), list(indices.columns)
    low, high = indices.span or (0, size - 1)
    if low < -size or high >= size or high - low >= MOST_NUMBERS:
        reason = f"its indices '{indices.numbers.name}' are from {low} to {high}, and there are {size} elements"
        raise node.unsupported(reason, "clip them, give them as an input of type int64, or take a larger table")
    columns = range(low, high + 1)
    return rows_of(node, indices, columns, output), [column % size for column in columns]


def rows_of(node: OnnxNode, indices: Indices, columns: range, output: str) -> Value:
    """The one-hot rows of indices; those that another node needed are taken again."""
    op, graph = Selector(columns.start, len(columns)), node.scope.graph
    for other in graph.nodes:
        if other.op == op and other.inputs == [indices.numbers.name]:
            return graph.values[other.output]
    return node.emit(op, [indices.numbers], output=output, dtype=DType.BOOL)


def select(node: OnnxNode, x: Value, indices: Indices, side: int, output: str | None = None) -> Value:
    """Of x [L.., K, R..] the elements at secret indices [L.., M..]: [L.., M.., R..]. L are `side` dimensions."""
    name, numbers = output or node.outputs[0], indices.numbers
    lead, size, rest = x.shape[:side], x.shape[side], x.shape[side + 1 :]
    if numbers.shape[:side] != lead:
        raise node.unsupported(f"its indices {numbers} do not fit {x}", "repair the model")
    rows, columns = one_hot(node, indices, size, f"{name}.one_hot")
    middle = numbers.shape[side:]
    if columns != list(range(size)):
        x = node.emit(
            pick(x.shape, [*(range(n) for n in lead), columns, *(range(n) for n in rest)]),
            [x], output=f"{name}.candidates", dtype=x.dtype,
        )  # fmt: skip
    shapes = [(*lead, prod(middle), len(columns)), (*lead, len(columns), prod(rest))]
    operands = [
        value
        if value.shape == shape
        else node.emit(Reshape(shape), [value], output=f"{name}.{hint}", dtype=value.dtype)
        for value, shape, hint in zip((rows, x), shapes, ("rows", "data"), strict=True)
    ]
    found = node.emit(Selected(), operands, output=f"{name}.selected", dtype=x.dtype)
    node.note("one-hot rows of the indices times the data")
    return node.emit(Reshape((*lead, *middle, *rest)), [found], output=output, dtype=x.dtype)


def select_along(node: OnnxNode, x: Value, index: int, axis: int) -> None:
    """Of x the elements at secret indices of its rank along `axis`: each other dimension is gone through side by side.

    Along those in which the indices do not differ, one row of indices serves all.
    """
    name = node.outputs[0]
    indices = indices_into(node, node.activation(index, "indices", index_allowed=True), x.shape[axis])
    numbers = indices.numbers
    others = [place for place in range(len(x.shape)) if place != axis]
    if len(numbers.shape) != len(x.shape) or any(numbers.shape[place] > x.shape[place] for place in others):
        raise node.unsupported(f"its indices {numbers} reach beyond {x}", "repair the model")
    along = [range(x.shape[place] if place == axis else numbers.shape[place]) for place in range(len(x.shape))]
    if tuple(map(len, along)) != x.shape:
        x = node.emit(pick(x.shape, along), [x], output=f"{name}.part", dtype=x.dtype)
    alike = _alike(node.scope.graph, numbers.name)
    free = [place for place in others if place in alike]
    side = [place for place in others if place not in alike]
    along = [range(1 if place in free else size) for place, size in enumerate(numbers.shape)]
    if free:
        numbers = node.emit(pick(numbers.shape, along), [numbers], output=f"{name}.indices", dtype=numbers.dtype)
    numbers = _turned(node, numbers, [*side, axis, *free], f"{name}.indices_turned")
    shape = numbers.shape[: len(side) + 1]
    if numbers.shape != shape:
        numbers = node.emit(Reshape(shape), [numbers], output=f"{name}.indices_apart", dtype=numbers.dtype)
    order = [*side, axis, *free]
    data = _turned(node, x, order, f"{name}.turned")
    found = select(node, data, replace(indices, numbers=numbers), len(side), f"{name}.found")
    back = [order.index(place) for place in range(len(order))]
    node.emit(Transpose((0, *(place + 1 for place in back))), [found], dtype=x.dtype)


def _turned(node: OnnxNode, x: Value, order: Sequence[int], output: str) -> Value:
    """x with its dimensions in another order, those of a sample."""
    if list(order) == sorted(order):
        return x
    return node.emit(Transpose((0, *(place + 1 for place in order))), [x], output=output, dtype=x.dtype)


def _alike(graph: Graph, name: str) -> set[int]:
    """The dimensions of a value along which it repeats elements, as an Expand leaves them."""
    moves: list[Op] = []
    shape = graph.values[name].shape
    while (node := graph.producer(name)) is not None and isinstance(node.op, Gather | Reshape | Transpose):
        if isinstance(node.op, Gather) and node.op.has_absent:
            break
        moves.append(node.op)
        name = node.inputs[0]
    source = graph.values[name]
    places: npt.NDArray[np.float64] = np.arange(source.size, dtype=np.float64).reshape(1, *source.shape)
    for op in reversed(moves):
        places = op.reference(places)
    return {axis for axis in range(len(shape)) if (places == places.take([0], axis=axis + 1)).all()}
