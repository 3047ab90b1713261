"""Functions of positive numbers from a wide range: normalised by a secret power of two, then looked up.

Thresholds part the range, each twice (for square roots four times) the one before. One comparison with each tells how
often a number has to be doubled until it is in the topmost part. The power is a sum of these bits with public factors;
what it makes of the number, cut to a mantissa of few bits, is looked up in a small table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.drawing import Drawing, Wanted, draw
from covey.errors import DoesNotFitError
from covey.functions import LOG, RECIPROCAL, RSQRT, SQRT, Function
from covey.interval import Array, Interval, of_sums
from covey.ir import Node, Shape
from covey.lookup import looked_up, told
from covey.lowering import MOST_SCALE, Lowered, Lowering
from covey.steps import interim

ERROR = 1.5e-4
"""The largest error of a mantissa's function: relative, but for the logarithm."""

TABLE_ERROR = 4.5e-4
"""What other tables may err by then."""

SLACK = 0.02
"""The topmost part reaches down by so much of a doubling more, where that saves a threshold."""

INVERSES = {1: RECIPROCAL, 2: RSQRT}


@dataclass(frozen=True)
class _Normal:
    """x · 2^(step · count) = mantissa · 2^top, up to what is cut off.

    `bits`, a row for each element, say which of the `levels` thresholds it is below; `count` is how many. The mantissa
    has `places` bits behind the one that is 1. Where x is clipped, there is a bit before and behind these: whether it
    is below the lower end, and whether it is not above the upper one.
    """

    low: Lowering
    node: Node
    hint: str
    step: int
    levels: int
    bits: Lowered | None
    mantissa: Lowered
    places: int
    cut: int
    goal: float
    clips: bool = False

    @property
    def top(self) -> int:
        return self.places + self.cut

    def power(self, step: int, hint: str, scale: int = 0) -> Lowered:
        """2^(step · count), an element a row."""
        return self.dense(self._weights(step), 1.0, scale, hint)

    def _weights(self, step: int) -> Array:
        # Whatever is below a threshold is below all that follow: the differences of powers add up to the power.
        levels = self.levels
        return np.array([2.0 ** (step * (levels - j)) - 2.0 ** (step * (levels - j - 1)) for j in range(levels)])

    def power_inside(self, scale: int) -> Lowered:
        """The power where x is not clipped, else 0."""
        weights = [-(2.0 ** (self.step * self.levels)), *self._weights(self.step), 1.0]
        return self.dense(np.array(weights), 0.0, scale, "power")

    def clipped_ends(self, least: float, most: float, scale: int) -> Lowered:
        """What `scaled` is where x is clipped, else 0."""
        size = self.mantissa.shape[0]
        weights = np.array([least * 2.0 ** (self.step * self.levels), *np.zeros(self.levels), -most])
        interval = Interval(np.zeros((1, size, 1)), np.full((1, size, 1), most))
        return self.dense(weights, most, scale, "ends", interval)

    def dense(self, weights: Array, offset: float, scale: int, hint: str, interval: Interval | None = None) -> Lowered:
        """The sum of the bits with public weights, at a scale that is only declared."""
        bits = self.bits
        assert bits is not None
        if self.clips and len(weights) == self.levels:
            weights = np.array([0.0, *weights, 0.0])
        low, node, name = self.low, self.node, f"{self.hint}.{hint}"
        column = weights[:, None]
        ends = [np.minimum(column, 0.0), np.maximum(column, 0.0)]
        shifted = [bits.interval.low @ ends[1] + bits.interval.high @ ends[0]]
        shifted.append(bits.interval.high @ ends[1] + bits.interval.low @ ends[0])
        if interval is None:
            terms = len(weights) + 1
            interval = of_sums(shifted[0] + offset, shifted[1] + offset, terms, float(np.abs(weights).sum()))
        operands = [
            bits,
            low.constant(node, f"{name}.weights", column, scale),
            low.constant(node, f"{name}.offset", np.array([offset]), scale),
        ]
        return self._inner(pb.Dense(), operands, (bits.shape[0], 1), scale, interval, hint)

    def table(self, function: Function, factor: float, *, relative: bool) -> tuple[Drawing, float]:
        """One of factor · function(mantissa), and what it is off by for numbers that have been cut as well."""
        low, mantissa, places = self.low, self.mantissa, self.places
        least, most = int(mantissa.interval.low.min()), int(mantissa.interval.high.max())
        # A cut number is half a unit more on average.
        offset = 0.5 if self.cut else 0.0
        shifted = Function(
            f"{function.name} of a mantissa",
            (factor, math.ldexp(offset, -places)),
            lambda m: factor * function(m + math.ldexp(offset, -places)),
            low=0.0,
        )
        result = math.ceil(math.log2(4 / self.goal)) + (0 if relative else 1)
        wanted = Wanted(
            shifted,
            least,
            most,
            places,
            result,
            self.goal * (0.75 if self.cut else 1.0),
            low.settings.available_bits,
            relative=relative,
        )
        drawing = draw(wanted)
        if drawing is None:
            raise self.refusal("has no room for its table")
        low.drawn.append(told(function, self.node, places, drawing))
        x = np.arange(least, most + 1)
        y = np.ldexp(drawing.table(x).astype(np.float64), -result)
        spread = (1 if low.settings.truncation.value == "exact" else 2) if self.cut else 0
        off = 0.0
        for end in (-spread + 1 if spread else 0, spread):
            exact = factor * function(np.ldexp((x + end).astype(np.float64), -places))
            off = max(off, float((np.abs(y - exact) / (exact if relative else 1.0)).max()))
        return drawing, off

    def refusal(self, reason: str) -> DoesNotFitError:
        """The error of a ring that is too small."""
        settings = self.low.settings
        return DoesNotFitError(
            self.node.name,
            self.node.source_op,
            magnitude=1.0,
            needed=settings.available_bits + 1,
            available=settings.available_bits,
            scale=settings.scale,
            calibrated=False,
            reason=f"Z_2^{settings.ring_bits} {reason}",
        )

    def _inner(
        self, op: Message, inputs: list[Lowered], shape: Shape, scale: int, interval: Interval, hint: str
    ) -> Lowered:
        return interim(self.low, self.node, op, inputs, shape, interval, f"{self.hint}.{hint}", scale)


def inverse(
    low: Lowering,
    node: Node,
    x: Lowered,
    step: int,
    over: float,
    hint: str,
    ends: tuple[float, float] | None = None,
) -> Lowered:
    """over / x where `step` is 1, the root of it where it is 2, with as many bits as it needs to be as near as said.

    x lies in an interval of positive integers, or is clipped to these `ends`.
    """
    normal = _normalise(low, node, x, step, hint, ends)
    if ends is not None:
        x = replace(x, interval=Interval(*(np.full_like(x.interval.low, end) for end in ends)))
    # x = mantissa / power · 2^(top - scale), so what is sought is the mantissa's function times power and `factor`.
    factor = (over * 2.0 ** (x.scale - normal.top)) ** (1 / step)
    mantissa, exponent = math.frexp(factor)
    drawing, error = normal.table(INVERSES[step], 2 * mantissa, relative=True)
    scale = drawing.result - (exponent - 1)
    if scale > MOST_SCALE:
        raise normal.refusal(f"has no room for results as small as {math.ldexp(1.0, -scale):.2g}")
    found = looked_up(low, node, drawing.table, normal.mantissa, max(scale, 0), f"{node.output}.{hint}.found")
    results = [(over * math.ldexp(1.0, x.scale) / end) ** (1 / step) for end in (x.interval.high, x.interval.low)]
    interval = Interval(
        np.floor(np.ldexp(results[0] * (1 - error) * (1 - 2.0**-40), scale)),
        np.ceil(np.ldexp(results[1] * (1 + error) * (1 + 2.0**-40), scale)),
    )
    if normal.bits is not None:
        column = interval.reshape((1, found.shape[0], 1))
        root = normal.power(1, "root")
        found = interim(low, node, pb.Mul(), [found, root], found.shape, column, f"{hint}.product")
    if scale < 0:
        found = low.shift_left(node, found, -scale, math.ldexp(interval.magnitude, -scale), f"{node.output}.{hint}")
    return _reshaped(low, node, found, x.shape, f"{hint}.inverse")


def root(low: Lowering, node: Node, x: Lowered, hint: str) -> Lowered:
    """The root of x, which lies in an interval of integers that are not negative; exactly 0 where x is."""
    zero = None
    if x.interval.low.min() < 1:
        zero, x = _zero_as_one(low, node, x, hint)
    normal = _normalise(low, node, x, 2, hint)
    mantissa, exponent = math.frexp(2.0 ** ((normal.top - x.scale) / 2 - normal.levels))
    drawing, error = normal.table(SQRT, 2 * mantissa, relative=True)
    scale = drawing.result - (exponent - 1)
    found = looked_up(low, node, drawing.table, normal.mantissa, scale, f"{node.output}.{hint}.found")
    power = None
    if normal.bits is not None:
        # Of the thresholds that x is below, each halves the power.
        power = normal.dense(-np.ldexp(1.0, np.arange(normal.levels)), 2.0**normal.levels, 0, "power")
    if zero is not None:
        if power is None:
            power = low.constant(node, f"{hint}.one", np.ones(1), 0)
        ends = Interval(np.maximum(power.interval.low - 1, 0.0), power.interval.high)
        power = interim(low, node, pb.Sub(), [power, zero], zero.shape, ends, f"{hint}.power_or_zero", 0)
    column = x.interval.reshape((1, found.shape[0], 1))
    roots = [np.sqrt(np.ldexp(end, -x.scale)) for end in (column.low, column.high)]
    least = np.floor(np.ldexp(roots[0] * (1 - error) * (1 - 2.0**-40), scale)) * (0.0 if zero is not None else 1.0)
    interval = Interval(least, np.ceil(np.ldexp(roots[1] * (1 + error) * (1 + 2.0**-40), scale)))
    if power is not None:
        found = interim(low, node, pb.Mul(), [found, power], found.shape, interval, f"{hint}.product", scale)
    return _reshaped(low, node, found, x.shape, f"{hint}.root")


def _zero_as_one(low: Lowering, node: Node, x: Lowered, hint: str) -> tuple[Lowered, Lowered]:
    """Where x is 0, an element a row, and x with 1 in the place of 0."""
    size = int(np.prod(x.shape, dtype=np.int64))
    column = _reshaped(low, node, x, (size, 1), f"{hint}.elements")
    zero = _below(low, node, column, np.ones(1), f"{hint}.zero")
    wide = low.constant(node, f"{hint}.unit", np.ones(1), x.scale)
    unit = interim(low, node, pb.Mul(), [zero, wide], zero.shape, zero.interval, f"{hint}.units", x.scale)
    interval = Interval(column.interval.low.clip(1.0), column.interval.high.clip(1.0))
    positive = interim(low, node, pb.Add(), [column, unit], column.shape, interval, f"{hint}.positive", x.scale)
    return zero, _reshaped(low, node, positive, x.shape, f"{hint}.from_one")


def logarithm(low: Lowering, node: Node, x: Lowered, hint: str) -> Lowered:
    """The natural logarithm of x, which lies in an interval of positive integers."""
    normal = _normalise(low, node, x, 1, hint)
    drawing, error = normal.table(LOG, 1.0, relative=False)
    scale = drawing.result
    found = looked_up(low, node, drawing.table, normal.mantissa, scale, f"{node.output}.{hint}.found")
    offset = float(np.rint(np.ldexp((normal.top - x.scale) * math.log(2), scale)))
    column = x.interval.reshape((1, found.shape[0], 1))
    slack = error + (normal.levels + 1) * 2.0**-scale
    ends = [np.log(np.ldexp(end, -x.scale)) for end in (column.low, column.high)]
    interval = Interval(np.floor(np.ldexp(ends[0] - slack, scale)), np.ceil(np.ldexp(ends[1] + slack, scale)))
    if normal.bits is not None:
        weights = np.full(normal.levels, -np.rint(np.ldexp(math.log(2), scale)))
        other = normal.dense(weights, offset, scale, "exponent")
    else:
        other = low.constant(node, f"{hint}.exponent", np.array([offset]), scale)
    total = interim(low, node, pb.Add(), [found, other], found.shape, interval, f"{hint}.sum", scale)
    return _reshaped(low, node, total, x.shape, f"{hint}.logarithm")


def _normalise(
    low: Lowering, node: Node, x: Lowered, step: int, hint: str, ends: tuple[float, float] | None = None
) -> _Normal:
    least, most = ends or (float(x.interval.low.min()), float(x.interval.high.max()))
    assert least >= 1, f"{x.name} may not be positive"
    goal = ERROR * min(1.0, low.settings.table_error / TABLE_ERROR)
    places = math.ceil(math.log2(2 / goal))
    levels = max(0, math.ceil(math.log2((most + 1) / least) / step - SLACK) - 1)
    size = int(np.prod(x.shape, dtype=np.int64))
    column = _reshaped(low, node, x, (size, 1), f"{hint}.column")
    floor = least
    thresholds = np.ceil((most + 1) / 2.0 ** (step * (levels - np.arange(levels))))
    if levels:
        floor = min(least * 2.0 ** (step * levels), math.ceil((most + 1) / 2**step))
    if ends is not None:
        thresholds = np.array([least, *thresholds, most + 1])
    bits = _below(low, node, column, thresholds, hint) if thresholds.size else None
    top = int(floor).bit_length() - 1
    cut = max(0, top - places)
    normal = _Normal(low, node, hint, step, levels, bits, column, top - cut, cut, goal, ends is not None)
    scaled = column
    # A shift may not leave fewer than no fractional bits, so what is to be shifted is said to have enough.
    declared = max(0, cut - x.scale)
    if bits is not None or declared:
        one = np.ones(1)
        if ends is not None:
            power = normal.power_inside(declared)
        else:
            power = normal.power(step, "power", declared) if bits else low.constant(node, f"{hint}.one", one, declared)
        interval = Interval(np.full((1, size, 1), 0.0 if ends else floor), np.full((1, size, 1), most))
        scaled = interim(
            low, node, pb.Mul(), [column, power], (size, 1), interval, f"{hint}.scaled", x.scale + declared
        )
    if ends is not None:
        other = normal.clipped_ends(least, most, scaled.scale)
        interval = Interval(np.full((1, size, 1), floor), np.full((1, size, 1), most))
        scaled = low.emit(
            node,
            pb.Add(),
            [scaled, other],
            shape=(size, 1),
            scale=scaled.scale,
            interval=interval,
            name=f"{node.output}.{hint}.clipped",
            unconditional=True,
        )
    if cut:
        low.count_wraps(node, scaled, scaled.interval)
        interval = low.rounded(scaled.interval.shifted_right(cut))
        op = pb.Truncate(bits=cut, rounding=low.rounding)
        scaled = interim(low, node, op, [scaled], (size, 1), interval, f"{hint}.mantissa", scaled.scale - cut)
    return replace(normal, mantissa=scaled)


def _below(low: Lowering, node: Node, column: Lowered, thresholds: Array, hint: str) -> Lowered:
    """A row for each element: 1 for each threshold that it is below."""
    shape = (column.shape[0], len(thresholds))
    interval = column.interval - Interval.constant(thresholds)
    operands = [column, low.constant(node, f"{hint}.thresholds", thresholds, column.scale)]
    gaps = interim(low, node, pb.Sub(), operands, shape, interval, f"{hint}.gaps", column.scale)
    return low.emit(
        node,
        pb.LessThanZero(),
        [gaps],
        shape=shape,
        scale=0,
        interval=Interval((interval.high < 0).astype(np.float64), (interval.low < 0).astype(np.float64)),
        name=f"{node.output}.{hint}.bits",
        magnitude=1.0,
    )


def _reshaped(low: Lowering, node: Node, x: Lowered, shape: Shape, hint: str) -> Lowered:
    if x.shape == shape:
        return x
    return interim(low, node, pb.Reshape(), [x], shape, x.interval.reshape((1, *shape)), hint)
