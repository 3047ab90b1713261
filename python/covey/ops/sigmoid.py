"""Sigmoid and Tanh as piecewise linear functions: one comparison for each knot, all of an element at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval, of_sums
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

MOST_KNOTS = 256
"""The most that are tried."""

SLOPE_BITS = 14
"""Fractional bits of the slopes, if the ring has room for them."""

FAR = 40.0
"""From here on the logistic function is 1 to the last bit of a float64."""


class Curve(Enum):
    """An S-shaped function as (stretch along x, stretch along y, offset) of the logistic function."""

    SIGMOID = (1.0, 1.0, 0.0)
    TANH = (2.0, 2.0, -1.0)

    def exact(self, x: Array) -> Array:
        """The function itself."""
        return np.asarray(np.tanh(x) if self is Curve.TANH else 0.5 * (1.0 + np.tanh(x / 2)))

    def knots(self, count: int) -> Array:
        """Where `count` pieces meet, upwards."""
        right = np.array([place for place, _ in _nearest(count // 2)[1]]) / self.value[0]
        return np.asarray(np.concatenate([-right[::-1], right]))

    def heights(self, count: int) -> Array:
        """The values there; beyond the outer knots the function is constant."""
        right = np.array([height for _, height in _nearest(count // 2)[1]])
        return np.asarray((0.5 + np.concatenate([-right[::-1], right])) * self.value[1] + self.value[2])

    def largest_error(self, count: int) -> float:
        """The largest distance between the pieces and the function, over all real numbers."""
        return _nearest(count // 2)[0] * float(self.value[1])


@cache
def _nearest(count: int) -> tuple[float, list[tuple[float, float]]]:
    """The pieces right of 0 that come nearest to the logistic function: their largest error, and the knots as pairs of
    place and height above 1/2. The left side mirrors them.

    Right of 0 the function is concave: pieces that start and end `error` above it are as long as they can be when they
    dip as far below. With a larger error they are longer, so that the smallest error for `count` knots is bracketed.
    """
    low, high = 0.0, 0.1
    for _ in range(40):
        middle = (low + high) / 2
        if 0.5 - _longest(count, middle)[-1][1] <= middle:
            high = middle
        else:
            low = middle
    return high, _longest(count, high)


def _longest(count: int, error: float) -> list[tuple[float, float]]:
    """At most `count` knots of the longest pieces that stay within `error`; the last reaches farthest."""
    knots = [(0.0, 0.0)]
    while len(knots) <= count and 0.5 - knots[-1][1] > error:
        low, high = knots[-1][0], FAR
        for _ in range(45):
            middle = (low + high) / 2
            if middle > knots[-1][0] and _dip(knots[-1], (middle, _above_half(middle) + error)) > error:
                high = middle
            else:
                low = middle
        knots.append((high, _above_half(high) + error))
    return knots[1:]


def _above_half(x: float) -> float:
    return 0.5 * math.tanh(x / 2)


def _dip(start: tuple[float, float], end: tuple[float, float]) -> float:
    """How far the line between two points dips below the function right of 0: most where the slopes are equal."""
    slope = (end[1] - start[1]) / (end[0] - start[0])
    equal = 2 * math.atanh(math.sqrt(max(0.0, 1 - 4 * slope))) if slope > 0 else end[0]
    place = min(max(equal, start[0]), end[0])
    return _above_half(place) - start[1] - slope * (place - start[0])


@dataclass(frozen=True)
class Pieces:
    """A piecewise linear function on integers: `start + sum of gains * max(x - knots, 0)`."""

    knots: Array
    gains: Array
    start: float

    def __call__(self, x: Array) -> Array:
        # Outside the knots it is constant; the piece that x is on starts at a value that is a sum of whole numbers.
        x = np.clip(x, self.knots[0], self.knots[-1])
        slopes = self.gains.cumsum()
        values = self.start + np.concatenate([[0.0], (np.diff(self.knots) * slopes[:-1]).cumsum()])
        piece = np.searchsorted(self.knots, x, side="right") - 1
        return np.asarray(values[piece] + slopes[piece] * (x - self.knots[piece]))

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
        knots = self.curve.knots(low.settings.knots)
        function = pieces(knots, self.curve.heights(low.settings.knots), x.scale, bits)
        count, size = len(function.knots), int(np.prod(x.shape, dtype=np.int64))
        magnitude = low.magnitude(node.inputs[0])
        far = None if magnitude is None else magnitude + float(knots[-1])
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
            # One interval a knot, over all elements: a tensor of them all would be the compiler's largest.
            interval=column.interval.hull - Interval.constant(function.knots),
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


@dataclass(frozen=True)
class Drawn(PiecewiseLinear):
    """A curve whose float reference is the pieces between so many knots: what they alone do to a network."""

    knots: int

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(np.interp(inputs[0], self.curve.knots(self.knots), self.curve.heights(self.knots)))


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
