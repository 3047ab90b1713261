"""Whole numbers as indices: rows of a table, one-hot rows. The numbers are an input of the model, and secret.

What is imported here stands for operations on numbers; `covey.passes.whole_numbers` then decides how the input is
shared and writes them as products of one-hot rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey import whole
from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.affine import Affine
from covey.ops.dense import Dense
from covey.ops.gather import ABSENT
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Encode(Op):
    """An input of whole numbers as its owner's client shares it (see `covey.whole`). No node of the program."""

    classes: tuple[int, ...]

    def shape(self, *inputs: Value) -> Shape:
        return whole.encoded_shape(self.classes, inputs[0].shape)

    def reference(self, *inputs: Array) -> Array:
        return whole.encode(inputs[0], self.classes)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """The classes of the numbers of all samples, one behind another."""
        classes = self.classes if len(self.classes) == 1 else self.classes * build.count
        value = build.emit(Encode(classes), *inputs)
        return value if len(classes) == 1 else build.reshape(value, (build.count, value.size // build.count))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return low.value(node.inputs[0])


@dataclass(frozen=True)
class Take(Op):
    """The rows of a table [K, M] at numbers from 0 to K - 1; see `Lookup` on what training makes of them."""

    padding: int = -1
    by_frequency: bool = False

    def shape(self, *inputs: Value) -> Shape:
        return (*inputs[0].shape, inputs[1].shape[1])

    def reference(self, *inputs: Array) -> Array:
        return inputs[1][inputs[0].astype(np.int64)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise AssertionError("a pass writes it as a Lookup")


@dataclass(frozen=True)
class OneHot(Op):
    """1 at the number's place among `depth`, 0 elsewhere, along a new last dimension."""

    depth: int

    def shape(self, *inputs: Value) -> Shape:
        return (*inputs[0].shape, self.depth)

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0][..., None] == np.arange(self.depth), dtype=np.float64)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise AssertionError("a pass writes it as a Number")


@dataclass(frozen=True)
class Truth(Op):
    """Whether a number is not 0. Of an input without classes all numbers are then 0 or 1."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0] != 0, dtype=np.float64)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise AssertionError("a pass writes it as a move of what is shared")


@dataclass(frozen=True)
class Is(Op):
    """Whether a number is the one given."""

    number: int

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0] == self.number, dtype=np.float64)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise AssertionError("a pass writes it as an element of a one-hot row, or as a comparison")


@dataclass(frozen=True)
class Number(Op):
    """A truth value or a whole number, which stands at scale 0, at the ordinary scale."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return low.shift_left(node, low.value(node.inputs[0]), low.scale, low.magnitude(node.output), name=node.output)


@dataclass(frozen=True)
class Lookup(Dense):
    """A dense layer on one-hot rows at scale 0: each row of the result is one of the weight's, exactly.

    Training moves no `padding` row. It has no gradients divided `by_frequency`, as PyTorch's scale_grad_by_freq asks.
    """

    padding: int = -1
    by_frequency: bool = False

    widens = False

    def reference(self, *inputs: Array) -> Array:
        rows: Array = inputs[1][inputs[0].argmax(axis=-1)]
        return rows + inputs[2] if len(inputs) > 2 else rows

    def interval(self, *inputs: Interval) -> Interval:
        x, table = inputs[0], inputs[1]
        shape = (*x.low.shape[:-1], table.low.shape[1])
        found = Interval(
            np.broadcast_to(table.low.min(axis=0), shape).copy(), np.broadcast_to(table.high.max(axis=0), shape).copy()
        )
        return found + inputs[2] if len(inputs) > 2 else found

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        if self.by_frequency:
            raise build.unsupported(
                "it divides gradients by how often numbers occur (scale_grad_by_freq)",
                "freeze its table, or train it without",
            )
        rows, *others = inputs
        if self.padding >= 0:
            kept = [ABSENT if number == self.padding else number for number in range(rows.shape[-1])]
            rows = build.pick_along(rows, len(rows.shape) - 1, kept)
        return super().gradient(build, [rows, *others], result, gradient)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        scale = max(low.scale_of(name) for name in node.inputs[1:])
        operands = [low.value(node.inputs[0]), *(low.parameter(node, name, scale) for name in node.inputs[1:])]
        return low.emit(
            node,
            pb.Dense(),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=scale,
            interval=self.interval(*(operand.interval for operand in operands)),
        )


PADDING, BY_FREQUENCY = "covey_padding", "covey_by_frequency"
"""Attributes that Gather has here alone, where it is imported from an embedding for training."""


def look_up(node: OnnxNode) -> None:
    """Gather with a constant table and secret indices."""
    numbers = node.whole_numbers(1, "indices")
    table = node.weights(0, "table")
    if node.places([int(node.attribute("axis", 0))], table.ndim) != [0]:
        raise node.unsupported(
            "it takes columns of a table by secret indices", "transpose the table and gather along its axis 0"
        )
    take = Take(int(node.attribute(PADDING, -1)), bool(node.attribute(BY_FREQUENCY, 0)))
    rest = table.shape[1:]
    rows = node.parameter(table.reshape(len(table), -1), node.inputs[0])
    if len(rest) == 1:
        node.emit(take, [numbers, rows])
    else:
        taken = node.emit(take, [numbers, rows], output=f"{node.outputs[0]}.rows")
        node.emit(Reshape((*numbers.shape, *rest)), [taken])
    node.note("one-hot rows, which the client shares, times the table")


@from_onnx("OneHot")
def _one_hot(node: OnnxNode) -> None:
    numbers = node.whole_numbers(0, "indices")
    depth, values = node.one_number(1, "depth"), node.constant(2, "values").ravel()
    if len(values) != 2:
        raise node.unsupported(f"it has {len(values)} values", "give it one for off and one for on")
    off, on = (float(value) for value in values)
    rank = numbers.rank + 1
    (axis,) = node.places([int(node.attribute("axis", -1))], rank)
    if axis == 0:
        raise node.unsupported("it puts the classes before the batch", "keep the batch first")
    if depth < 1:
        raise node.unsupported(f"its depth is {depth}", "repair the model")
    order = tuple(range(rank - 1))
    moved = (*order[:axis], rank - 1, *order[axis:])
    steps: list[Op] = [OneHot(int(depth))]
    steps += [Transpose(moved)] if axis != rank - 1 else []
    steps += [Affine(on - off, off)] if (off, on) != (0.0, 1.0) else []
    value = numbers
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        value = node.emit(step, [value], output=None if last else f"{node.outputs[0]}.step{index}")
    node.note("one-hot rows, which the client shares")


@from_torch("aten.embedding.default")
def _embedding_aten(node: TorchNode) -> None:
    node.ignore("padding_idx", "scale_grad_by_freq", "sparse")
    training: dict[str, int] = {}
    if node.scope.trained:
        if node.has("padding_idx"):
            (training[PADDING],) = node.integers("padding_idx")
        training[BY_FREQUENCY] = int(bool(node.argument("scale_grad_by_freq")))
    node.become("Gather", node.operand("weight"), node.activation("indices"), axis=0, **training)


@from_torch("aten.one_hot.default")
def _one_hot_aten(node: TorchNode) -> None:
    (count,) = node.integers("num_classes")
    if count < 1:
        raise node.unsupported("its number of classes depends on the data", "name it: one_hot(x, num_classes)")
    node.become("OneHot", node.activation("self"), np.array(count), np.array([0.0, 1.0]), axis=-1)
