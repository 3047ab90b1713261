"""Normalisation by a sample's own statistics: LayerNormalization, RMSNormalization, groups and instances.

They are made of a mean, a sum of squares, and a product with the inverse of its root. Rows stand last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval, integer_bits, of_sums
from covey.ir import Node, Op, Shape, Value
from covey.lowering import MARGIN, Lowered, Lowering
from covey.ops.mul import Mul
from covey.ops.quotient import Inverse, Quotient
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.window import MOST_STEPS, Window
from covey.rounding import half_added, rounded
from covey.steps import in_shape_of_result, interim

if TYPE_CHECKING:
    from covey.training.builder import Builder

ROUNDING = 12**-0.5
"""The root mean square of what rounding to the nearest is off by, in units."""

ROUGH = 2e-3
"""What the rounding of a deviation may be beside the root mean square of its row."""

ENOUGH = 0.25
"""What a mean may be off by in units of the last place, besides its rounding."""


def _row(x: Value) -> Shape:
    if not x.shape:
        raise ValueError("it would run over the batch")
    if x.shape[-1] > MOST_STEPS:
        raise ValueError(f"it runs over {x.shape[-1]} elements where at most {MOST_STEPS} are supported")
    return (*x.shape[:-1], 1)


@dataclass(frozen=True)
class Mean(Op):
    """Over the last dimension, which stays with size 1; to the nearest, since rows of equal elements are to be 0."""

    def shape(self, *inputs: Value) -> Shape:
        return _row(inputs[0])

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0].mean(axis=-1, keepdims=True))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.affine(build.expand(gradient, inputs[0].shape), 1.0 / inputs[0].shape[-1])]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = _rows(low, node, low.value(node.inputs[0]))
        magnitude = low.magnitude(node.output)
        return in_shape_of_result(low, node, _mean(low, node, x, _sums(low, node, x, magnitude)))


@dataclass(frozen=True)
class Deviation(Op):
    """What elements are off the mean of the last dimension.

    n x less the sum needs no division. It stands for the deviation times n / 2^b, a share that normalisation undoes.
    Its scale is that of the squares' sum, where this leaves enough digits: one shift does for both.
    """

    free_scale = True

    def shape(self, *inputs: Value) -> Shape:
        _row(inputs[0])
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0]
        return np.asarray(x - x.mean(axis=-1, keepdims=True))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.sub(gradient, build.emit(Mean(), gradient, hint="mean"))]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = _rows(low, node, low.value(node.inputs[0]))
        count, magnitude = x.shape[-1], low.magnitude(node.output)
        bits = (count - 1).bit_length()
        share = math.ldexp(count, -bits)
        # Twice the operand times n, or what data say of the deviation.
        largest = x.interval.magnitude * count
        of_data = math.inf if magnitude is None else max(MARGIN * magnitude * share, 1.0) * 2.0 ** (x.scale + bits)
        if integer_bits(max(largest, min(2 * largest, of_data))) > low.settings.available_bits:
            of_mean = None if low.magnitudes is None else low.magnitudes[node.inputs[0]]
            mean = _mean(low, node, x, _sums(low, node, x, of_mean))
            interval = x.interval - mean.interval
            return in_shape_of_result(low, node, interim(low, node, pb.Sub(), [x, mean], x.shape, interval, "rest"))

        def times(y: Lowered, factor: int, hint: str) -> Lowered:
            constant = low.constant(node, f"{hint}.factor", np.array(float(factor)), bits)
            interval = y.interval.scaled(float(factor))
            return interim(low, node, pb.Mul(), [y, constant], y.shape, interval, hint, x.scale + bits)

        sums = _sums(low, node, x, math.ldexp(x.interval.magnitude, -x.scale))
        raised, sums = times(x, count, "raised"), times(sums, 1, "of_sums")
        wide = low.emit(
            node,
            pb.Sub(),
            [raised, sums],
            shape=x.shape,
            scale=raised.scale,
            interval=raised.interval - sums.interval,
            name=f"{node.output}.wide",
            magnitude=None if magnitude is None else magnitude * share,
        )
        near = rounded(low, node, wide, self._scale(low, node, x, share), "deviation")
        return replace(in_shape_of_result(low, node, near), share=share)

    def _scale(self, low: Lowering, node: Node, x: Lowered, share: float) -> int:
        """One that holds a unit of x; or that of the squares' sum, where its rounding is small beside all rows."""
        for reader in low.graph.consumers(node.output):
            span = low.graph.spans.get(reader.output)
            if isinstance(reader.op, SquareSum) and span is not None:
                scale = _scale(max(MARGIN * span[1] * share**2, 1.0), low.settings.available_bits)
                if ROUNDING * math.ldexp(1.0, -scale) <= ROUGH * share * math.sqrt(span[0] / x.shape[-1]):
                    return min(scale, x.scale)
        return x.scale + (share < 1.0)


def _rows(low: Lowering, node: Node, x: Lowered) -> Lowered:
    """x as [1, rows, count]."""
    shape = (1, math.prod(x.shape[:-1]), x.shape[-1])
    return interim(low, node, pb.Reshape(), [x], shape, x.interval.reshape((1, *shape)), "rows")


def _sums(low: Lowering, node: Node, x: Lowered, mean: float | None) -> Lowered:
    """The sum of each row, `mean` being the largest mean by calibration data."""
    count = x.shape[-1]
    ends = [end.sum(axis=-1, keepdims=True) for end in (x.interval.low, x.interval.high)]
    return low.emit(
        node,
        pb.SumPool(window=Window((1, count)).proto()),
        [x],
        shape=(*x.shape[:-1], 1),
        scale=x.scale,
        interval=of_sums(ends[0], ends[1], count, count * x.interval.magnitude),
        name=f"{node.output}.sum",
        magnitude=None if mean is None else mean * count,
        headroom=3,
    )


def _mean(low: Lowering, node: Node, x: Lowered, rest: Lowered) -> Lowered:
    """The mean of each row, from their sums."""
    count = x.shape[-1]
    total = part = _divided(low, node, rest, count)
    while _error(low, rest, count) > ENOUGH:  # the multiplier had too few bits: so it is once more with the rest
        rest = _without(low, node, rest, part, count)
        part = _divided(low, node, rest, count)
        total = interim(low, node, pb.Add(), [total, part], total.shape, total.interval + part.interval, "so_far")
    return total


def _multiplier(low: Lowering, sums: Lowered, count: int) -> tuple[int, int]:
    """1 / count as multiplier and shift, as finely as the ring has room for; at least 2 bits of it."""
    shift = math.ceil(math.log2(count)) + 1
    room = low.settings.available_bits - integer_bits(2.0**sums.interval.bits)
    shift += max(0, room - 2)
    shift = min(shift, math.ceil(math.log2(count)) + sums.interval.bits + 4, low.settings.ring_bits - 1)
    return round(2.0**shift / count), shift


def _error(low: Lowering, sums: Lowered, count: int) -> float:
    """What a division of these sums is off by, in units, besides rounding."""
    multiplier, shift = _multiplier(low, sums, count)
    return sums.interval.magnitude * abs(multiplier / 2.0**shift - 1 / count)


def _divided(low: Lowering, node: Node, sums: Lowered, count: int) -> Lowered:
    """Near sums / count, to the nearest of what the multiplier gives."""
    multiplier, shift = _multiplier(low, sums, count)
    half = np.array(float(count // 2))
    centred = interim(
        low,
        node,
        pb.Add(),
        [sums, low.constant(node, "half", half, sums.scale)],
        sums.shape,
        sums.interval + Interval.constant(half),
        "centred",
    )
    products = centred.interval.scaled(float(multiplier))
    largest = (2.0**centred.interval.bits - 1) * multiplier
    low.check_constant(node, largest, sums.scale, calibrated=sums.calibrated)
    low.count_wraps(node, centred, products)
    op = pb.MulShift(multipliers=[multiplier], shift=shift, rounding=low.rounding)
    return interim(low, node, op, [centred], sums.shape, low.rounded(products.shifted_right(shift)), "part")


def _without(low: Lowering, node: Node, sums: Lowered, part: Lowered, count: int) -> Lowered:
    """What sums leave of their mean so far."""
    times = np.array(float(count))
    products = part.interval.scaled(float(count))
    taken = interim(low, node, pb.Mul(), [part, low.constant(node, "count", times, 0)], part.shape, products, "taken")
    # The floor and the addition before it are off by one and a half at most; inexact shifts by one more.
    off = count * (_error(low, sums, count) + 3.0)
    ends = np.full_like(products.low, math.ceil(off))
    return interim(low, node, pb.Sub(), [sums, taken], part.shape, Interval(-ends, ends), "rest")


@dataclass(frozen=True)
class SquareSum(Op):
    """The sum of squares over the last dimension, which stays with size 1, and a positive `summand`.

    Its scale is what the ring has room for.
    """

    summand: float

    free_scale = True

    def shape(self, *inputs: Value) -> Shape:
        return _row(inputs[0])

    def reference(self, *inputs: Array) -> Array:
        return np.asarray((inputs[0] ** 2).sum(axis=-1, keepdims=True) + self.summand)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.affine(build.mul(gradient, inputs[0]), 2.0)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value_or_multiple(node.inputs[0])
        count, available, share = x.shape[-1], low.settings.available_bits, x.share**2
        magnitude, own = low.magnitude(node.output), self.summand * share
        if magnitude is not None:
            magnitude *= share
        real = math.ldexp(float(_squares(x.interval)[1].max(initial=0.0)), -2 * x.scale) + own
        scale = _scale(real, available)
        if magnitude is not None and (x.calibrated or scale < min(x.scale, low.scale)):
            scale = _scale(min(real, max(MARGIN * magnitude, 1.0)), available)
        x = rounded(low, node, x, max(1, min(scale, x.scale)), "shortened")
        ends = _squares(x.interval)
        interval = of_sums(ends[0], ends[1], count, float(ends[1].max(initial=0.0)))
        interval = Interval(interval.low.clip(0.0), interval.high)
        total = _sums_of_squares(low, node, x, interval, magnitude, headroom=1)
        # Squares are never negative, so the sum is positive whatever the operands are.
        summand = np.array(max(1.0, float(np.rint(math.ldexp(own, total.scale)))))
        nonnegative = Interval(total.interval.low.clip(0.0), total.interval.high)
        shifted = nonnegative + Interval.constant(summand)
        more = low.constant(node, "summand", summand, total.scale)
        total = interim(low, node, pb.Add(), [total, more], total.shape, shifted, "more")
        return replace(in_shape_of_result(low, node, total), share=share)


@dataclass(frozen=True)
class SquareMean(Op):
    """The sum of squares over the last dimension, which stays with size 1, over a public divisor."""

    divisor: int

    def shape(self, *inputs: Value) -> Shape:
        return _row(inputs[0])

    def reference(self, *inputs: Array) -> Array:
        return np.asarray((inputs[0] ** 2).sum(axis=-1, keepdims=True) / self.divisor)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        ends, magnitude = _squares(x.interval), low.magnitude(node.output)
        interval = of_sums(ends[0], ends[1], x.shape[-1], float(ends[1].max(initial=0.0)))
        magnitude = None if magnitude is None else magnitude * self.divisor
        total = _sums_of_squares(low, node, x, interval, magnitude)
        total = rounded(low, node, total, low.scale, "squares")
        bits = max(0, min(24, low.settings.available_bits - total.interval.bits - 1))
        factor = np.array(float(round(math.ldexp(1.0 / self.divisor, bits))))
        constant = low.constant(node, "factor", factor, bits)
        interval = total.interval.scaled(float(factor))
        mean = interim(low, node, pb.Mul(), [total, constant], total.shape, interval, "mean", low.scale + bits)
        return in_shape_of_result(low, node, half_added(low, node, mean, low.scale, "mean"))


def _sums_of_squares(
    low: Lowering, node: Node, x: Lowered, interval: Interval, magnitude: float | None, headroom: int = 0
) -> Lowered:
    """Each row of x times itself, [rows, 1, 1], within `interval`."""
    rows, count = math.prod(x.shape[:-1]), x.shape[-1]
    sides = [
        interim(low, node, pb.Reshape(), [x], shape, x.interval.reshape((1, *shape)), f"side{index}")
        for index, shape in enumerate(((rows, 1, count), (rows, count, 1)))
    ]
    return low.emit(
        node,
        pb.Matmul(),
        sides,
        shape=(rows, 1, 1),
        scale=2 * x.scale,
        interval=interval.reshape((1, rows, 1, 1)),
        name=f"{node.output}.squares",
        magnitude=magnitude,
        headroom=headroom,
    )


def _squares(x: Interval) -> tuple[Array, Array]:
    """Where the sums of squares of rows lie."""
    squares = np.maximum(x.low**2, x.high**2)
    least = np.where((x.low <= 0) & (x.high >= 0), 0.0, np.minimum(x.low**2, x.high**2))
    return least.sum(axis=-1, keepdims=True), squares.sum(axis=-1, keepdims=True)


def _scale(real: float, available: int) -> int:
    """The most fractional bits of numbers whose sum of squares is up to `real`."""
    return (available - 1 - max(0, math.frexp(real)[1])) // 2


def _scaled_rows(build: Builder, x: Value) -> tuple[Value, Value] | None:
    """A value [.., rows, count] without a secret factor of each row, and these factors [.., rows, 1], if it has any."""
    moves: list[Op] = []
    value, node = x, build.producers.get(x.name)
    while node is not None and isinstance(node.op, Reshape | Transpose):
        moves.insert(0, node.op)
        value = build.graph.values[node.inputs[0]]
        node = build.producers.get(value.name)
    if node is None or not isinstance(node.op, Mul):
        return None
    moved, factor = sorted((build.graph.values[name] for name in node.inputs), key=lambda each: -each.size)
    if not (factor.batched and moved.batched and moved.shape == value.shape):
        return None
    places = np.broadcast_to(np.arange(float(factor.size)).reshape(factor.shape), value.shape)[None]
    for move in moves:
        places = move.reference(places)
    if not np.array_equal(places[0, ..., 0].ravel(), np.arange(factor.size)) or np.ptp(places, axis=-1).any():
        return None
    for move in moves:
        moved = build.emit(move, moved, hint="moved")
    return moved, build.reshape(factor, (*x.shape[:-1], 1))


@dataclass(frozen=True)
class Standardised(Quotient):
    """x over the root of the mean of its row's squares, which the second operand is the sum of."""

    step: int = 2

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, y = inputs
        divisor = build.producers[y.name]
        if not isinstance(divisor.op, SquareSum) or divisor.inputs != [x.name]:
            return super().gradient(build, inputs, result, gradient)
        # Both ways to x at once: the row's products with its own direction are taken off.
        factor = build.emit(Inverse(2, self.over), y, hint="inverse")
        scaled = _scaled_rows(build, gradient)
        if scaled is not None:
            # A number that each row is multiplied by behind this is one of the row's, too.
            gradient, scale = scaled
            factor = build.mul(factor, scale)
        inner = build.products_to(gradient, result, (*result.shape[:-1], 1))
        along = build.mul(build.affine(inner, -1.0 / self.over), factor)
        return [build.of_rows((gradient, factor), (result, along)), None]

    def limit(self, x: Lowered, y: Lowered) -> float:
        # No element exceeds the root of the sum but by what shortening took from it.
        unit = math.ldexp(1.0, -(y.scale // 2))
        least = math.sqrt(math.ldexp(float(y.interval.low.min()), -y.scale))
        return math.sqrt(self.over) * (1 + unit / least) * (1 + 2.0**-10)
