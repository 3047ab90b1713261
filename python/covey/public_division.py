"""Division of secrets by a public number, rounded down, and its remainder: an exact shift, and mostly a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import ParameterError
from covey.interval import Interval
from covey.ir import Node
from covey.lowering import Lowered, Lowering
from covey.ops.comparison import below_zero


@dataclass
class Division:
    """A node's operand divided by a public number: exact for the two as integers of one scale."""

    low: Lowering
    node: Node
    divisor: float

    def __post_init__(self) -> None:
        low, name = self.low, self.node.inputs[0]
        x = low.value(name)
        if x.scale < low.scale and not math.ldexp(self.divisor, x.scale).is_integer():
            x = low.shift_left(self.node, x, low.scale, low.magnitude(name))
        self.x = x
        self.units = round(math.ldexp(self.divisor, x.scale))
        if self.units == 0:
            raise ParameterError(
                self.node.name,
                self.node.source_op,
                f"its divisor {self.divisor:g} is 0 at scale {x.scale}",
                "compile with a larger --scale or a larger divisor",
            )

    def quotient(self, hint: str | None = None) -> Lowered:
        """floor(x / divisor) at scale 0."""
        low, node, x, units = self.low, self.node, self.x, self.units
        name = None if hint is None else f"{node.output}.{hint}"
        if units & (units - 1) == 0:
            bits = units.bit_length() - 1
            return self._shifted(x, 1 if bits else 2, max(bits, 1), name)
        # x less a multiple of the divisor, so that nothing is negative, times the reciprocal rounded down: at most one
        # too low, which a comparison finds.
        least = math.floor(float(x.interval.low.min()) / units)
        start = self.moved(x, -units * least, "start")
        bits = max(int(start.interval.high.max()), units).bit_length()
        quotient = self._shifted(start, (1 << bits) // units, bits, f"{node.output}.estimate")
        rest = self.less_multiple(quotient, "rest", start, 2 * units - 1)
        beyond = self.moved(rest, -units, "beyond")
        enough = below_zero(low, node, beyond, "enough")
        interval = Interval(*(np.floor(end / units) for end in (x.interval.low, x.interval.high)))
        most = low.emit(
            node,
            pb.Add(),
            [quotient, low.constant(node, "most", np.array(float(least + 1)), 0)],
            shape=x.shape,
            scale=0,
            interval=interval + Interval.constant(np.array(1.0)),
            name=f"{node.output}.most",
            magnitude=self._magnitude(1.0),
        )
        magnitude = self._magnitude()
        return low.emit(
            node, pb.Sub(), [most, enough], shape=x.shape, scale=0, interval=interval, name=name, magnitude=magnitude
        )

    def remainder(self) -> Lowered:
        """x less the divisor times the quotient."""
        return self.less_multiple(self.quotient("quotient"))

    def less_multiple(
        self, quotient: Lowered, hint: str | None = None, x: Lowered | None = None, most: int | None = None
    ) -> Lowered:
        """x less the divisor times a quotient, between 0 and `most`, by default below the divisor."""
        low, node, x = self.low, self.node, self.x if x is None else x
        factor = low.constant(node, "divisor", np.array(float(self.units)), x.scale)
        multiple = low.emit(
            node,
            pb.Mul(),
            [quotient, factor],
            shape=x.shape,
            scale=x.scale,
            interval=quotient.interval.scaled(float(self.units)),
            name=f"{node.output}.multiple",
            magnitude=self._magnitude(1.0, self.divisor),
        )
        return self.between(pb.Sub(), [x, multiple], x.scale, 0.0, self.units - 1 if most is None else most, hint)

    def odd(self, quotient: Lowered) -> Lowered:
        """1 where a quotient is odd, else 0."""
        low, node = self.low, self.node
        half = self._shifted(quotient, 1, 1, f"{node.output}.halved")
        two = low.constant(node, "two", np.array(2.0), 0)
        interval = half.interval.scaled(2.0)
        even = low.emit(
            node,
            pb.Mul(),
            [half, two],
            shape=half.shape,
            scale=0,
            interval=interval,
            name=f"{node.output}.even",
            magnitude=self._magnitude(1.0),
        )
        return self.between(pb.Sub(), [quotient, even], 0, 0.0, 1.0, "odd")

    def moved(self, x: Lowered, by: int, hint: str) -> Lowered:
        """x plus a constant in units of its scale."""
        low, node = self.low, self.node
        constant = low.constant(node, hint, np.array(float(by)), x.scale)
        return low.emit(
            node,
            pb.Add(),
            [x, constant],
            shape=x.shape,
            scale=x.scale,
            interval=x.interval + Interval.constant(np.array(float(by))),
            name=f"{node.output}.{hint}",
            magnitude=math.ldexp(max(1.0, x.interval.magnitude + abs(by)), -x.scale),
        )

    def between(
        self, op: pb.Sub | pb.Mul, operands: list[Lowered], scale: int, least: float, most: float, hint: str | None
    ) -> Lowered:
        """A result that lies between two integers whatever the network's input is."""
        shape = self.x.shape
        interval = Interval(np.full((1, *shape), least), np.full((1, *shape), most))
        name = None if hint is None else f"{self.node.output}.{hint}"
        return self.low.emit(
            self.node, op, operands, shape=shape, scale=scale, interval=interval, name=name, unconditional=True
        )

    def _shifted(self, x: Lowered, multiplier: int, bits: int, name: str | None) -> Lowered:
        """floor(x * multiplier / 2^bits) at scale 0; never off by one, whatever rounding is allowed elsewhere."""
        low, node = self.low, self.node
        product = x.interval.scaled(float(multiplier))
        low.check_constant(node, product.magnitude, x.scale, calibrated=x.calibrated)
        return low.emit(
            node,
            pb.MulShift(multipliers=[multiplier], shift=bits, rounding=pb.Rounding.EXACT),
            [x],
            shape=x.shape,
            scale=0,
            interval=product.shifted_right(bits),
            name=name,
            magnitude=math.ldexp(product.magnitude, -bits),
        )

    def _magnitude(self, more: float = 0.0, times: float = 1.0) -> float | None:
        """The largest quotient over the calibration data, and what a step on the way has more."""
        magnitude = self.low.magnitude(self.node.inputs[0])
        return None if magnitude is None else (magnitude / self.divisor + 1.0 + more) * times
