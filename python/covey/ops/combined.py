"""Sums of values times public factors, rounded once: what an optimiser makes of weights, gradients and its moments."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import UnsupportedError
from covey.interval import Array, Interval, integer_bits
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.rounding import half_added, rounded
from covey.steps import interim

DIGITS, FEWEST_DIGITS = 12, 10
"""Significant bits that factors are given as far as the ring has room, and those they need."""


@dataclass(frozen=True)
class Combined(Op):
    """The sum of operands of one shape, each times its factor; to the nearest."""

    factors: tuple[float, ...]

    reads_wide = True

    def shape(self, *inputs: Value) -> Shape:
        if any(value.shape != inputs[0].shape for value in inputs):
            raise ValueError(f"operands {', '.join(map(str, inputs))} differ in shape")
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(sum(factor * x for factor, x in zip(self.factors, inputs, strict=True)))

    def interval(self, *inputs: Interval) -> Interval:
        low = np.zeros(())
        total = Interval.constant(low)
        for factor, x in zip(self.factors, inputs, strict=True):
            total = total + x * Interval.constant(np.array(factor))
        return total

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = [low.value(name) for name in node.inputs]
        scale = self._scale(low, node, operands)
        if any(self._short(x, factor, scale) for x, factor in zip(operands, self.factors, strict=True)):
            # A shift of its own leaves room for the factor of a product.
            settled = low.settled_scale(node.output)
            operands = [rounded(low, node, x, settled, f"operand{index}") for index, x in enumerate(operands)]
            scale = self._scale(low, node, operands)
        terms = []
        for index, (x, factor) in enumerate(zip(operands, self.factors, strict=True)):
            bits = scale - x.scale
            integer = round(math.ldexp(factor, bits))
            if integer == 0:
                raise UnsupportedError(
                    node.name,
                    node.source_op,
                    f"the factor {abs(factor):g} rounds to 0 at the program's scale",
                    "use a larger learning rate or smaller minibatches, or fewer bits (--scale)",
                )
            constant = low.constant(node, f"factor{index}", np.array(float(integer)), bits)
            interval = x.interval * Interval.constant(np.array(float(integer)))
            terms.append(interim(low, node, pb.Mul(), [x, constant], x.shape, interval, f"term{index}", scale))
        total = terms[0]
        for index, term in enumerate(terms[1:], start=1):
            last = index == len(terms) - 1
            interval = total.interval + term.interval
            total = low.emit(
                node,
                pb.Add(),
                [total, term],
                shape=total.shape,
                scale=scale,
                interval=interval,
                name=None if last else f"{node.output}.sum{index}",
                magnitude=None if last else math.ldexp(interval.magnitude, -scale),
            )
        return half_added(low, node, total, low.settled_scale(node.output), "sum")

    @staticmethod
    def _short(x: Lowered, factor: float, scale: int) -> bool:
        """Whether a factor has fewer digits than it needs, if its operand is brought to a sum's scale."""
        return not float(factor).is_integer() and abs(math.ldexp(factor, scale - x.scale)) < 2.0 ** (FEWEST_DIGITS - 1)

    def _scale(self, low: Lowering, node: Node, operands: list[Lowered]) -> int:
        """Of the sum: it gives every factor its digits, as far as the ring has room for all products."""
        settled = low.settled_scale(node.output)
        wanted, most = settled, 0.0
        for x, factor in zip(operands, self.factors, strict=True):
            whole = float(factor).is_integer()
            digits = 0 if whole else DIGITS - math.frexp(factor)[1]
            wanted = max(wanted, x.scale + digits)
            most += abs(factor) * math.ldexp(x.interval.magnitude, -x.scale)
        room = low.settings.available_bits - 2 - integer_bits(most)
        return max(min(wanted, room), settled, *(x.scale for x in operands))
