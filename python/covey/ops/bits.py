"""Bits that stay bits: comparison with zero, logic, selection, and bits as integers.

Parties share a bit in one bit instead of a ring element, and one comparison serves every selection by it. Shapes are
equal: nothing broadcasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder


def _equal_shapes(*inputs: Value) -> Shape:
    if any(value.shape != inputs[0].shape for value in inputs):
        raise ValueError(f"operands {', '.join(map(str, inputs))} differ in shape")
    return inputs[0].shape


@dataclass(frozen=True)
class _Bits(Op):
    """Gives bits, or the integers 0 and 1, at scale 0."""

    def shape(self, *inputs: Value) -> Shape:
        return _equal_shapes(*inputs)

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros(inputs[0].low.shape)
        return Interval(zeros, zeros + 1.0)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None for _ in inputs]

    def _lower(self, low: Lowering, node: Node, op: Message, bits: bool = True) -> Lowered:
        operands = [low.value(name) for name in node.inputs]
        interval = self.interval(*(operand.interval for operand in operands))
        shape = operands[0].shape
        return low.emit(node, op, operands, shape=shape, scale=0, interval=interval, unconditional=True, bits=bits)


@dataclass(frozen=True)
class IsNegative(_Bits):
    """The bit of `x < 0`."""

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0] < 0.0, dtype=np.float64)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return self._lower(low, node, pb.IsNegative())


@dataclass(frozen=True)
class And(_Bits):
    """Both bits."""

    def reference(self, *inputs: Array) -> Array:
        return np.minimum(inputs[0], inputs[1])

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return self._lower(low, node, pb.And())


@dataclass(frozen=True)
class Or(_Bits):
    """Either bit."""

    def reference(self, *inputs: Array) -> Array:
        return np.maximum(inputs[0], inputs[1])

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return self._lower(low, node, pb.Or())


@dataclass(frozen=True)
class Not(_Bits):
    """The other bit."""

    def reference(self, *inputs: Array) -> Array:
        return 1.0 - inputs[0]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return self._lower(low, node, pb.Not())


@dataclass(frozen=True)
class BitToInteger(_Bits):
    """The bit as an integer."""

    def reference(self, *inputs: Array) -> Array:
        return inputs[0]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return self._lower(low, node, pb.BitToInteger(), bits=False)


@dataclass(frozen=True)
class Select(Op):
    """x where the bit is 1, else y; operands bit, x, y."""

    def shape(self, *inputs: Value) -> Shape:
        return _equal_shapes(*inputs)

    def reference(self, *inputs: Array) -> Array:
        bit, x, y = inputs
        return np.where(bit > 0.5, x, y)

    def interval(self, *inputs: Interval) -> Interval:
        _, x, y = inputs
        return Interval(np.minimum(x.low, y.low), np.maximum(x.high, y.high))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        bit, x, y = inputs
        taken = [build.where_set(bit, gradient)] if build.learns(x) else []
        if not build.learns(y):
            left = None
        else:
            left = build.sub(gradient, taken[0]) if taken else build.where_not_set(bit, gradient)
        return [None, taken[0] if taken else None, left]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        bit = low.value(node.inputs[0])
        x, y = low.operands_at_one_scale(node, node.inputs[1:])
        interval = self.interval(bit.interval, x.interval, y.interval)
        return low.emit(node, pb.Select(), [bit, x, y], shape=bit.shape, scale=x.scale, interval=interval)
