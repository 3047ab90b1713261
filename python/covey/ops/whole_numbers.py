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
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.dense import Dense
from covey.ops.gather import ABSENT

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
class Lookup(Dense):
    """A dense layer on one-hot rows at scale 0: each row of the result is one of the weight's, exactly.

    Training moves no `padding` row. It has no gradients divided `by_frequency`, as PyTorch's scale_grad_by_freq asks.
    """

    padding: int = -1
    by_frequency: bool = False
    whole: bool = False
    """Whether the table holds whole numbers, which stay at scale 0."""

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
        scale = 0 if self.whole else max(low.scale_of(name) for name in node.inputs[1:])
        operands = [low.value(node.inputs[0]), *(low.parameter(node, name, scale) for name in node.inputs[1:])]
        return low.emit(
            node,
            pb.Dense(),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=scale,
            interval=self.interval(*(operand.interval for operand in operands)),
        )
