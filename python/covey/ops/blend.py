"""A number between two others, as a third says: the new state of a recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value, types
from covey.lowering import Lowered, Lowering
from covey.rounding import half_added
from covey.steps import interim

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Blend(Op):
    """y + weight · (x - y), three activations of one shape. With weights from 0 to 1 it lies between x and y."""

    widens = True

    def shape(self, *inputs: Value) -> Shape:
        if len({(value.batched, value.shape) for value in inputs}) > 1:
            raise ValueError(f"operands {types(inputs)} do not have one shape")
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        weight, x, y = inputs
        return y + weight * (x - y)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        weight, x, y = inputs
        taken = build.mul(weight, gradient)
        return [
            build.part(weight, lambda: build.mul(gradient, build.sub(x, y))),
            build.part(x, lambda: taken),
            build.part(y, lambda: build.sub(gradient, taken)),
        ]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        weight = low.value(node.inputs[0])
        x, y = low.operands_at_one_scale(node, node.inputs[1:])
        shape, bits, scale = weight.shape, weight.scale, weight.scale + x.scale
        gap = x.interval - y.interval
        difference = interim(low, node, pb.Sub(), [x, y], shape, gap, "difference")
        products = weight.interval * difference.interval
        product = interim(low, node, pb.Mul(), [weight, difference], shape, products, "product", scale)
        shifted = y.interval.shifted_left(bits)
        wide = interim(low, node, pb.ShiftLeft(bits=bits), [y], shape, shifted, "wide", scale)
        interval = _between(weight.interval, x.interval, y.interval, 2.0**bits)
        total = low.emit(node, pb.Add(), [wide, product], shape=shape, scale=scale, interval=interval)
        return half_added(low, node, total, low.scale, "sum")


def _between(weight: Interval, x: Interval, y: Interval, one: float) -> Interval:
    """Where weight · x + (one - weight) · y lies: linear in the weight, so its ends are at one of the weight's."""
    ends = [Interval.constant(end) * x + Interval.constant(one - end) * y for end in (weight.low, weight.high)]
    return Interval(np.minimum(ends[0].low, ends[1].low), np.maximum(ends[0].high, ends[1].high))
