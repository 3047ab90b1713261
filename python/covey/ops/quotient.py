"""Division by a secret, and by the root of one, where a single table does not hold the divisor's range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import DoesNotFitError, NodeError, UnsupportedError
from covey.functions import RECIPROCAL, RSQRT, Function
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value, broadcast
from covey.lowering import MARGIN, Lowered, Lowering
from covey.normalising import inverse
from covey.rounding import half_added, rounded

if TYPE_CHECKING:
    from covey.training.builder import Builder

CALIBRATION = "give calibration data (--calibration data.npy) or put a Clip before it"
CLIP = "put a Clip before it, or rescale what it reads"

LEAST_BITS = 3
"""Bits that the smallest inverse has at least behind its leading one."""


@dataclass(frozen=True)
class Quotient(Op):
    """x · `over` / y, or x times the root of `over` / y where `step` is 2. y is positive."""

    step: int = 1
    over: float = 1.0

    elementwise = True

    @property
    def function(self) -> Function:
        """The function that the divisor's range has to be known for."""
        return RECIPROCAL if self.step == 1 else RSQRT

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(inputs[0] * (self.over / inputs[1]) ** (1 / self.step))

    def interval(self, *inputs: Interval) -> Interval:
        ends = Interval(*((self.over / end) ** (1 / self.step) for end in (inputs[1].high, inputs[1].low)))
        return inputs[0] * ends

    def limit(self, x: Lowered, y: Lowered) -> float:
        """The largest absolute value of a result, where that is known of the operands together."""
        return math.inf

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, y = inputs
        factor = build.emit(Inverse(self.step, self.over), y, hint="inverse")

        def of_divisor() -> Value:
            power = build.mul(build.mul(gradient, result), factor)
            for _ in range(self.step - 1):
                power = build.mul(power, factor)
            return build.affine(power, -1.0 / (self.step * self.over))

        return [build.part(x, lambda: build.mul(gradient, factor)), build.part(y, of_divisor)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, y = (low.value_or_multiple(name) for name in node.inputs)
        # Both may stand for a share, the divisor for its square where the root of it divides.
        over = self.over * y.share / x.share**self.step
        ends = ends_of(low, node, y, node.inputs[1], self.function)
        limit = self.limit(x, y if ends is None else replace(y, interval=_between(y, ends)))
        factor = inverse(low, node, y, self.step, over, "divisor", ends)
        return multiplied(low, node, x, factor, limit)


@dataclass(frozen=True)
class Inverse(Op):
    """`over` / x, or the root of it where `step` is 2. x is positive."""

    step: int
    over: float

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.asarray((self.over / inputs[0]) ** (1 / self.step))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        power = build.mul(gradient, build.mul(result, result))
        for _ in range(self.step - 1):
            power = build.mul(power, result)
        return [build.affine(power, -1.0 / (self.step * self.over))]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value_or_multiple(node.inputs[0])
        over = self.over * x.share
        ends = ends_of(low, node, x, node.inputs[0], RECIPROCAL if self.step == 1 else RSQRT)
        return half_added(low, node, inverse(low, node, x, self.step, over, "input", ends), low.scale, "result")


def multiplied(low: Lowering, node: Node, x: Lowered, factor: Lowered, limit: float = math.inf) -> Lowered:
    """The node's result: x times a factor of more bits than the ring has room for, rounded to the ordinary scale."""
    available = low.settings.available_bits - 1
    exact = x.interval * factor.interval
    most = min(limit, math.ldexp(exact.magnitude, -x.scale - factor.scale))
    magnitude = low.magnitude(node.output)
    room = available - x.scale - _bits(most)
    if magnitude is not None and (x.calibrated or factor.calibrated or room < min(low.scale, factor.scale)):
        room = available - x.scale - _bits(min(most, max(MARGIN * magnitude, 1.0)))
    _check_factor(low, node, factor, min(factor.scale, room))
    factor = rounded(low, node, factor, max(1, min(factor.scale, room)), "factor")
    scale = x.scale + factor.scale
    end = math.ceil(math.ldexp(limit, scale)) if math.isfinite(limit) else math.inf
    product = low.emit(
        node,
        pb.Mul(),
        [x, factor],
        shape=low.graph.values[node.output].shape,
        scale=scale,
        interval=(x.interval * factor.interval).clamp(end),
        name=f"{node.output}.product",
        magnitude=magnitude,
    )
    return half_added(low, node, product, low.scale, "product")


def _check_factor(low: Lowering, node: Node, factor: Lowered, scale: int) -> None:
    """Refuse a ring with no room for the smallest factor: what it multiplies would be 0, or far off."""
    least = math.ldexp(float(factor.interval.low.min()), -factor.scale)
    missing = LEAST_BITS - (math.frexp(least)[1] - 1 + scale) if least > 0 else 0
    if scale < factor.scale and missing > 0:
        settings = low.settings
        raise DoesNotFitError(
            node.name,
            node.source_op,
            magnitude=1 / least,
            needed=settings.available_bits + missing,
            available=settings.available_bits,
            scale=low.scale,
            calibrated=factor.calibrated,
            reason=f"Z_2^{settings.ring_bits} has no room for inverses as small as {least:.2g}",
        )


def ends_of(low: Lowering, node: Node, y: Lowered, name: str, function: Function) -> tuple[float, float] | None:
    """What y is to be clipped to so that it is positive and in a known range; None where that is proved."""
    least, most = float(y.interval.low.min()), float(y.interval.high.max())
    if least >= 1:
        return (least, most) if y.calibrated else None
    span = low.graph.spans.get(name)
    if span is None:
        raise _unknown(low, node, y, function)
    # As far beyond the data as the margin of a calibrated bound, but never down to 0.
    least = max(1.0, math.floor(math.ldexp(span[0] * y.share / MARGIN, y.scale)))
    return least, max(least + 1, min(math.ceil(math.ldexp(span[1] * y.share * MARGIN, y.scale)), most))


def positive(low: Lowering, node: Node, y: Lowered, name: str, function: Function) -> Lowered:
    """y clipped to such ends."""
    ends = ends_of(low, node, y, name, function)
    if ends is None:
        return y
    return low.emit(
        node,
        pb.Clip(low=int(ends[0]), high=int(ends[1])),
        [y],
        shape=y.shape,
        scale=y.scale,
        interval=_between(y, ends),
        name=f"{node.output}.divisor.clipped",
        unconditional=True,
    )


def _between(y: Lowered, ends: tuple[float, float]) -> Interval:
    """Where y lies when it is clipped to `ends`, whatever the inputs are."""
    if y.calibrated:
        return Interval(*(np.full_like(y.interval.low, end) for end in ends))
    return Interval(y.interval.low.clip(*ends), y.interval.high.clip(*ends))


def _unknown(low: Lowering, node: Node, y: Lowered, function: Function) -> NodeError:
    least, most = (math.ldexp(float(end), -y.scale) for end in (y.interval.low.min(), y.interval.high.max()))
    reason = f"its input may be anything from {least:.4g} to {most:.4g}, where {function.needs}"
    return UnsupportedError(node.name, node.source_op, reason, CALIBRATION if low.magnitudes is None else CLIP)


def _bits(real: float) -> int:
    """The least b with real < 2^b."""
    return max(0, math.frexp(real)[1]) if math.isfinite(real) else 4096
