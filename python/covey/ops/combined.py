"""Sums of values times public factors, rounded once: what an optimiser makes of weights, gradients and its moments.

The factors may follow a schedule: then they are a table of integers in the program, one for each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import UnsupportedError
from covey.interval import Array, Interval, integer_bits
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.rounding import dither_added, half_added, rounded
from covey.steps import interim
from covey.training.schedules import Schedule

DIGITS, FEWEST_DIGITS = 12, 10
"""Significant bits that factors are given as far as the ring has room, and those they need."""

FEWEST_OF_LEAST = 6
"""Those that a schedule's least factor needs."""


@dataclass(frozen=True)
class Combined(Op):
    """The sum of operands of one shape, each times its factor; to the nearest, or up or down by public coins."""

    factors: tuple[float, ...]
    schedule: Schedule | None = field(default=None, kw_only=True)
    """What all factors but the first are multiplied by in each step."""

    dither: int | None = field(default=None, kw_only=True)
    """The seed of the coins that round."""

    reads_wide = True

    def in_run(self, run: int) -> Combined:
        if self.schedule is None:
            return self
        first, *others = self.factors
        return Combined((first, *(factor * self.schedule.at(run) for factor in others)))

    def shape(self, *inputs: Value) -> Shape:
        if any(value.shape != inputs[0].shape for value in inputs):
            raise ValueError(f"operands {', '.join(map(str, inputs))} differ in shape")
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(sum(factor * x for factor, x in zip(self.factors, inputs, strict=True)))

    def interval(self, *inputs: Interval) -> Interval:
        low = np.zeros(())
        total = Interval.constant(low)
        for index, x in enumerate(inputs):
            least, largest = self._ends(index)
            total = total + x * Interval(np.array(min(least, largest)), np.array(max(least, largest)))
        return total

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = [low.value(name) for name in node.inputs]
        scale = self._scale(low, node, operands)
        if any(self._short(x, index, scale) for index, x in enumerate(operands)):
            # A shift of its own leaves room for the factor of a product.
            settled = low.settled_scale(node.output)
            operands = [rounded(low, node, x, settled, f"operand{index}") for index, x in enumerate(operands)]
            scale = self._scale(low, node, operands)
        terms = []
        for index, x in enumerate(operands):
            integers, steps = self._integers(index, scale - x.scale)
            if 0 in integers:
                least = abs(self._ends(index)[0])
                when = f" at step {sum(steps[: integers.index(0)]) + 1}" if steps else ""
                raise UnsupportedError(
                    node.name,
                    node.source_op,
                    f"the factor {least:g}{when} rounds to 0 at the program's scale",
                    "use a larger learning rate or smaller minibatches, or fewer bits (--scale)",
                )
            terms.append(_times(low, node, x, integers, steps, scale, f"{index}"))
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
        settled = low.settled_scale(node.output)
        if self.dither is not None:
            return dither_added(low, node, total, settled, self.dither, "sum")
        return half_added(low, node, total, settled, "sum")

    def _ends(self, index: int) -> tuple[float, float]:
        """The factor that is nearest to 0 in any step, and the one that is furthest from it."""
        least, largest = (1.0, 1.0) if self.schedule is None or index == 0 else self.schedule.ends
        return self.factors[index] * least, self.factors[index] * largest

    def _integers(self, index: int, bits: int) -> tuple[list[int], list[int]]:
        """A factor with so many fractional bits in each step, and how many steps each but the last is that of."""
        if self.schedule is None or index == 0:
            return [round(math.ldexp(self.factors[index], bits))], []
        return self.schedule.integers(self.factors[index], bits)

    def _short(self, x: Lowered, index: int, scale: int) -> bool:
        """Whether a factor has fewer digits than it needs, if its operand is brought to a sum's scale."""
        least, largest = (abs(math.ldexp(end, scale - x.scale)) for end in self._ends(index))
        few = largest < 2.0 ** (FEWEST_DIGITS - 1) or least < 2.0 ** (FEWEST_OF_LEAST - 1)
        return few and not self._is_whole(index)

    def _is_whole(self, index: int) -> bool:
        return all(float(end).is_integer() for end in self._ends(index))

    def _scale(self, low: Lowering, node: Node, operands: list[Lowered]) -> int:
        """Of the sum: it gives every factor its digits, as far as the ring has room for all products."""
        settled = low.settled_scale(node.output)
        wanted, most = settled, 0.0
        for index, x in enumerate(operands):
            least, largest = self._ends(index)
            digits = max(DIGITS - math.frexp(largest)[1], FEWEST_DIGITS - math.frexp(least)[1])
            wanted = max(wanted, x.scale + (0 if self._is_whole(index) else digits))
            most += abs(largest) * math.ldexp(x.interval.magnitude, -x.scale)
        room = low.settings.available_bits - 2 - integer_bits(most)
        return max(min(wanted, room), settled, *(x.scale for x in operands))


def _times(
    low: Lowering, node: Node, x: Lowered, integers: list[int], steps: list[int], scale: int, hint: str
) -> Lowered:
    """x times an integer that changes after so many steps, or stays, at `scale`."""
    bits = scale - x.scale
    interval = x.interval * Interval(np.array(float(min(integers))), np.array(float(max(integers))))
    name = f"term{hint}"
    if steps:
        op = pb.Scheduled(multipliers=integers, runs=steps, scale=bits)
        return interim(low, node, op, [x], x.shape, interval, name, scale)
    constant = low.constant(node, f"factor{hint}", np.array(float(integers[0])), bits)
    return interim(low, node, pb.Mul(), [x, constant], x.shape, interval, name, scale)
