"""A scalar function of every element, by a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.drawing import LEAST_UNITS, Drawing, Wanted, draw
from covey.errors import DoesNotFitError, NodeError, UnsupportedError
from covey.functions import Function, derived
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lookup import clipped, looked_up, told
from covey.lowering import Lowered, Lowering
from covey.ops.affine import bits_of

if TYPE_CHECKING:
    from covey.training.builder import Builder

GOAL = 4.5e-4
"""The largest error of a table unless less is needed: relative to the largest result of one that has no bound."""

CALIBRATION = "give calibration data (--calibration data.npy) or put a Clip before it"
CLIP = "put a Clip before it, or rescale what it reads"


@dataclass(frozen=True)
class Scalar(Op):
    """`function`, element by element."""

    function: Function

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return self.function(inputs[0])

    @property
    def label(self) -> str:
        return str(self.function)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        (x,) = inputs
        return [build.mul(gradient, slope_of(build, self.function, x, result))]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        try:
            drawing = self._drawing(low, node, x)
        except NodeError:
            if self.function not in WIDE:
                raise
            return WIDE[self.function](low, node, x)
        low.drawn.append(told(self.function, node, x.scale, drawing))
        magnitude = low.magnitude(node.inputs[0])
        outer = clipped(low, node, x, drawing.outer, magnitude, "near")
        inner = clipped(low, node, outer, drawing.inner, magnitude, "inside")
        table, alone = drawing.table, drawing.factor == 0
        name = None if alone else f"{node.output}.bend"
        drawn = looked_up(low, node, table, inner, drawing.result, name)
        if alone:
            return drawn
        line = _multiplied(low, node, outer, drawing, magnitude)
        # The table and the line as one function where they both go on; beyond, the line alone.
        beyond = Interval(outer.interval.low - inner.interval.low, outer.interval.high - inner.interval.high)
        interval = table.plus(drawing.factor).interval(inner.interval) + beyond.scaled(drawing.factor)
        return low.emit(node, pb.Add(), [line, drawn], shape=x.shape, scale=drawing.result, interval=interval)

    def _drawing(self, low: Lowering, node: Node, x: Lowered) -> Drawing:
        """The cheapest that is near enough, for the proved range of x if that will do, else for the data's."""
        nearest: tuple[float, Wanted] | None = None
        spans: list[tuple[float, float]] = []
        for least, most, proved in _ranges(low, self.function, node.inputs[0], x):
            spans.append((least, most))
            if not self.function.holds(least, most):
                continue
            # Results are as large as the data say, if there are any: exp(20) hides what exp(2) is off by.
            usual = low.graph.spans.get(node.inputs[0], (least, most))
            goal = wanted_error(self.function, *usual, low.settings.table_error, low.scale)
            wanted = Wanted(
                self.function,
                round(math.ldexp(least, x.scale)),
                round(math.ldexp(most, x.scale)),
                x.scale,
                low.scale,
                goal,
                low.settings.available_bits,
                proved,
                fraction=bits_of(self.function.slope, low.scale),
            )
            drawing = draw(wanted)
            # A finer one may be wanted than there is.
            enough = max(goal, wanted_error(self.function, *usual, GOAL, low.scale))
            if drawing is not None and drawing.error <= enough:
                return drawing
            nearest = nearest or (enough, wanted)
        raise self._refusal(low, node, spans, nearest, x)

    def _refusal(
        self,
        low: Lowering,
        node: Node,
        spans: list[tuple[float, float]],
        nearest: tuple[float, Wanted] | None,
        x: Lowered,
    ) -> NodeError:
        least, most = spans[-1]
        where = f"its input may be anything from {least:.4g} to {most:.4g}"
        way_out = CALIBRATION if low.magnitudes is None else CLIP
        if nearest is None:
            return UnsupportedError(node.name, node.source_op, f"{where}, where {self.function.needs}", way_out)
        goal, wanted = nearest
        roomy = draw(Wanted(**{**vars(wanted), "bits": 62, "goal": goal}))
        reason = f"{where}: no table of 4096 segments is within {goal:.2g} of {self.function} there"
        if roomy is None or roomy.error > goal:
            return UnsupportedError(node.name, node.source_op, reason, way_out)
        return DoesNotFitError(
            node.name,
            node.source_op,
            magnitude=max(abs(least), abs(most)),
            needed=low.settings.available_bits + 1,
            available=low.settings.available_bits,
            scale=low.scale,
            calibrated=x.calibrated,
            reason=f"{reason}, in this ring",
        )


def slope_of(build: Builder, function: Function, x: Value, result: Value) -> Value:
    """The derivative at x, of the function's result where it follows from that, else by a table of its own."""
    name = function.name
    if name == "Exp":
        return result
    if name == "Sigmoid":
        return build.mul(result, build.affine(result, -1.0, 1.0))
    if name == "Tanh":
        return build.affine(build.mul(result, result), -1.0, 1.0)
    if name == "Tan":
        return build.affine(build.mul(result, result), 1.0, 1.0)
    if name == "Reciprocal":
        return build.affine(build.mul(result, result), -1.0)
    if name == "Rsqrt":
        return build.affine(build.mul(build.mul(result, result), result), -0.5)
    if name in ("Elu", "Celu"):
        rising = build.affine(build.zeros_like(x), 1.0, function.slope)
        falling = build.affine(result, *SLOPE_BELOW[name](function))
        return build.select(build.positive(x), rising, falling)
    derivative = derived(function)
    if derivative is None:
        raise build.unsupported(f"the derivative of {function} is unknown")
    factor, function = derivative
    return build.affine(build.emit(Scalar(function), x, hint="slope"), factor)


SLOPE_BELOW: dict[str, Callable[[Function], tuple[float, float]]] = {
    "Elu": lambda function: (1.0, function.parameters[0] * function.parameters[1]),
    "Celu": lambda function: (1.0 / function.parameters[0], 1.0),
}
"""The derivative below 0 as a factor of the result and a summand."""


@dataclass(frozen=True)
class DrawnScalar(Scalar):
    """A function whose float reference is its table of so large an error: what that alone does to a network."""

    error: float

    def reference(self, *inputs: Array) -> Array:
        least, most = float(np.floor(inputs[0].min())), float(np.ceil(inputs[0].max()))
        if not self.function.holds(least, most):
            least, most = float(inputs[0].min()), float(inputs[0].max())
        goal = wanted_error(self.function, least, most, self.error, FINE)
        ends = (math.floor(math.ldexp(least, FINE)), math.ceil(math.ldexp(most, FINE)))
        drawing = draw(Wanted(self.function, *ends, FINE, FINE, goal, 62, fraction=FINE))
        if drawing is None:
            return self.function(inputs[0])
        return np.ldexp(drawing(np.rint(np.ldexp(inputs[0], FINE))), -drawing.result)


WIDE: dict[Function, Callable[[Lowering, Node, Lowered], Lowered]] = {}
"""How functions are computed whose input comes from a range that no table holds."""

FINE = 24
"""Fractional bits at which hardly anything is rounded."""


def wanted_error(function: Function, low: float, high: float, error: float, scale: int) -> float:
    """What is asked of a table at this scale: no less than rounding takes, and relative where there is no bound."""
    size = 1.0
    if function.needs_range:
        values = np.abs(function(np.linspace(low, high, 257)))
        size = max(size, float(values[np.isfinite(values)].max(initial=0.0)))
    return max(error * size, LEAST_UNITS * 2.0**-scale)


def _ranges(low: Lowering, function: Function, name: str, x: Lowered) -> Iterator[tuple[float, float, bool]]:
    """Where x lies: as proved, then as widely as calibration data say, half of their span more on either side."""
    ends = [math.ldexp(float(end), -x.scale) for end in (x.interval.low.min(), x.interval.high.max())]
    if not x.calibrated or not function.needs_range:
        yield ends[0], ends[1], not x.calibrated
    if name in low.graph.spans and function.needs_range:
        least, most = low.graph.spans[name]
        wide = (most - least) / 2 or 0.5
        lowest = least - wide if function.holds(least - wide, most) else least - (least - function.low) / 2
        highest = most + wide if function.holds(least, most + wide) else most + (function.high - most) / 2
        yield max(lowest, ends[0]), min(highest, ends[1]), False


def _multiplied(low: Lowering, node: Node, x: Lowered, drawing: Drawing, magnitude: float | None) -> Lowered:
    """x times the drawing's factor, at its scale."""
    bits = drawing.result - x.scale
    if magnitude is not None:
        magnitude = max(magnitude, *(abs(math.ldexp(end, -x.scale)) for end in drawing.outer if end is not None), 0.0)
    if drawing.factor == 1 << bits:
        return low.shift_left(node, x, drawing.result, magnitude, f"{node.output}.line")
    factor = np.array(float(drawing.factor))
    return low.emit(
        node,
        pb.Mul(),
        [x, low.constant(node, "factor", factor, bits)],
        shape=x.shape,
        scale=drawing.result,
        interval=x.interval.scaled(float(drawing.factor)),
        name=f"{node.output}.line",
        magnitude=None if magnitude is None else magnitude * math.ldexp(drawing.factor, -bits),
    )
