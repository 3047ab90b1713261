"""Sigmoid and Tanh as piecewise linear functions: one comparison for each knot, all of an element at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval, of_sums
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

KNOTS = (0.65895, 1.17151, 1.65349, 2.17176, 2.71355, 3.41867, 4.35646, 6.42058)
"""Where the pieces of the logistic function meet, right of 0; the left side mirrors them."""

ABOVE_HALF = (0.160462, 0.264842, 0.3408, 0.398989, 0.439243, 0.468872, 0.488759, 0.499389)
"""What the pieces reach there, less 1/2. With these knots no other values come nearer (the best for 16 knots, found by
linear programming for the values and by search for the knots)."""

SLOPE_BITS = 14
"""Fractional bits of the slopes, if the ring has room for them."""


class Curve(Enum):
    """An S-shaped function as (stretch along x, stretch along y, offset) of the logistic function."""

    SIGMOID = (1.0, 1.0, 0.0)
    TANH = (2.0, 2.0, -1.0)

    def exact(self, x: Array) -> Array:
        """The function itself."""
        return np.asarray(np.tanh(x) if self is Curve.TANH else 0.5 * (1.0 + np.tanh(x / 2)))

    @property
    def knots(self) -> Array:
        """Where the pieces meet, upwards."""
        right = np.array(KNOTS) / self.value[0]
        return np.asarray(np.concatenate([-right[::-1], right]))

    @property
    def heights(self) -> Array:
        """The values there; beyond the outer knots the function is constant."""
        right = np.array(ABOVE_HALF)
        return np.asarray((0.5 + np.concatenate([-right[::-1], right])) * self.value[1] + self.value[2])

    @property
    def largest_error(self) -> float:
        """The largest distance between the pieces and the function, over all real numbers."""
        return 0.0015 * float(self.value[1])


@dataclass(frozen=True)
class Pieces:
    """A piecewise linear function on integers: `start + sum of gains * max(x - knots, 0)`."""

    knots: Array
    gains: Array
    start: float

    def __call__(self, x: Array) -> Array:
        # Outside the knots it is constant.
        x = np.clip(x, self.knots[0], self.knots[-1])
        return np.asarray(self.start + (np.maximum(x[..., None] - self.knots, 0) * self.gains).sum(axis=-1))

    def interval(self, x: Interval) -> Interval:
        """Where the results lie: between those of the ends, and of the knots in between where some piece falls."""
        ends = [self(x.low), self(x.high)]
        if self.gains.cumsum().min() < 0:
            ends += [self(np.clip(knot, x.low, x.high)) for knot in self.knots]
        largest = abs(self.start) + float((self.knots[-1] - self.knots[0]) * np.abs(self.gains).sum())
        return of_sums(np.minimum.reduce(ends), np.maximum.reduce(ends), len(self.knots) + 1, largest)


def pieces(knots: Sequence[float] | Array, heights: Sequence[float] | Array, scale: int, bits: int) -> Pieces:
    """The function through these points, flat outside, for x at `scale` with slopes of `bits` fractional bits.

    Each slope aims at the next point from where the rounded ones before have arrived, so errors do not add up. The last
    gain undoes the sum of the others: far from the knots the function is exactly constant.
    """
    places = np.rint(np.ldexp(np.asarray(knots, dtype=np.float64), scale))
    aims = np.ldexp(np.asarray(heights, dtype=np.float64), scale + bits)
    start = reached = float(np.rint(aims[0]))
    slopes = [0.0]
    for width, aim in zip(np.diff(places), aims[1:], strict=True):
        slopes.append(float(np.rint((aim - reached) / width)) if width else 0.0)
        reached += slopes[-1] * width
    return Pieces(places, np.diff([*slopes, 0.0]), start)


@dataclass(frozen=True)
class PiecewiseLinear(Op):
    """A curve by its pieces."""

    curve: Curve

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return self.curve.exact(inputs[0])

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        # The result is below 2 in absolute value, at x's scale and that of the slopes.
        bits = max(1, min(SLOPE_BITS, low.settings.available_bits - x.scale - 2))
        function = pieces(self.curve.knots, self.curve.heights, x.scale, bits)
        count, size = len(function.knots), int(np.prod(x.shape, dtype=np.int64))
        magnitude = low.magnitude(node.inputs[0])
        far = None if magnitude is None else magnitude + float(self.curve.knots[-1])
        column = low.emit(
            node,
            pb.Reshape(),
            [x],
            shape=(size, 1),
            scale=x.scale,
            interval=x.interval.reshape((1, size, 1)),
            name=f"{node.output}.column",
            magnitude=magnitude,
        )
        shifted = low.emit(
            node,
            pb.Sub(),
            [column, low.constant(node, "knots", function.knots, x.scale)],
            shape=(size, count),
            scale=x.scale,
            interval=column.interval - Interval.constant(function.knots),
            name=f"{node.output}.shifted",
            magnitude=far,
        )
        hinges = low.emit(
            node,
            pb.Relu(),
            [shifted],
            shape=(size, count),
            scale=x.scale,
            interval=shifted.interval.positive,
            name=f"{node.output}.hinges",
            magnitude=far,
        )
        wide = x.scale + bits
        total = low.emit(
            node,
            pb.Dense(),
            [
                hinges,
                low.constant(node, "slopes", function.gains[:, None], bits),
                low.constant(node, "start", np.array([function.start]), wide),
            ],
            shape=(size, 1),
            scale=wide,
            interval=function.interval(column.interval.reshape((1, size))).reshape((1, size, 1)),
            name=f"{node.output}.sum",
            unconditional=True,
        )
        if wide > low.scale:
            total = low.truncate(node, total, wide - low.scale, name=f"{node.output}.flat")
        return low.emit(
            node,
            pb.Reshape(),
            [total],
            shape=x.shape,
            scale=total.scale,
            interval=total.interval.reshape(x.interval.low.shape),
        )


@from_onnx("Sigmoid")
def _sigmoid(node: OnnxNode) -> None:
    node.emit(PiecewiseLinear(Curve.SIGMOID), [node.activation(0)])


@from_onnx("Tanh")
def _tanh(node: OnnxNode) -> None:
    node.emit(PiecewiseLinear(Curve.TANH), [node.activation(0)])


@from_torch("aten.sigmoid.default")
def _sigmoid_aten(node: TorchNode) -> None:
    node.become("Sigmoid", node.activation("self"))


@from_torch("aten.tanh.default")
def _tanh_aten(node: TorchNode) -> None:
    node.become("Tanh", node.activation("self"))


@from_torch("aten.silu.default")
def _silu_aten(node: TorchNode) -> None:
    x = node.activation("self")
    node.become("Mul", x, node.apply("Sigmoid", x, suffix="gate"))
    node.note("the input times its sigmoid")
