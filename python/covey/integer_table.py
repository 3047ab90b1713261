"""A piecewise linear function on integers, as the program's Table holds it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval

Integers = npt.NDArray[np.int64]

MOST_INDEX_BITS = 12
"""The most bits of a segment's number."""


@dataclass(frozen=True, eq=False)
class IntegerTable:
    """floor((values[i] + slopes[i] · r) / 2^shift) for x = low + i · 2^step + r, 0 <= r < 2^step."""

    low: int
    step: int
    values: Integers
    slopes: Integers
    shift: int

    @property
    def end(self) -> int:
        """The first integer above the domain."""
        return self.low + (len(self.values) << self.step)

    @property
    def index_bits(self) -> int:
        """Bits of a segment's number."""
        return (len(self.values) - 1).bit_length()

    def __call__(self, x: Integers) -> Integers:
        """The values at integers of the domain."""
        u = x - self.low
        i = u >> self.step
        r = u & ((1 << self.step) - 1)
        return np.asarray((self.values[i] + self.slopes[i] * r) >> self.shift)

    @property
    def bound(self) -> int:
        """The least b with |v| < 2^b for all values before the last shift."""
        last = self.values + self.slopes * ((1 << self.step) - 1)
        return int(max(np.abs(self.values).max(), np.abs(last).max())).bit_length()

    @property
    def largest(self) -> int:
        """The largest absolute value of a result."""
        lows, highs = self._levels[0]
        return int(max(np.abs(lows).max(), np.abs(highs).max()))

    def plus(self, factor: int) -> IntegerTable:
        """This function plus `factor` times its operand."""
        starts = self.low + (np.arange(len(self.values), dtype=np.int64) << self.step)
        values = self.values + ((starts * factor) << self.shift)
        return IntegerTable(self.low, self.step, values, self.slopes + (factor << self.shift), self.shift)

    def interval(self, x: Interval) -> Interval:
        """Where the results lie for operands within the domain: extremes are at the ends of segments and of `x`."""
        low, high = x.low.astype(np.int64), x.high.astype(np.int64)
        first, last = (low - self.low) >> self.step, (high - self.low) >> self.step
        ends = [self(low), self(high)]
        # The end of the segment that `low` is in and the start of that of `high`, where they differ.
        ends += [
            self(np.where(first < last, self.low + ((first + 1) << self.step) - 1, low)),
            self(np.where(first < last, self.low + (last << self.step), high)),
        ]
        least, most = np.minimum.reduce(ends), np.maximum.reduce(ends)
        # Whole segments between, by the extremes of 2^level segments each.
        count = last - first - 1
        for level, (lows, highs) in enumerate(self._levels):
            here = count.clip(min=1) >> level == 1
            here &= count > 0
            for start in (first + 1, last - (1 << level)):
                at = np.where(here, start, 0).clip(0, len(lows) - 1)
                least = np.where(here, np.minimum(least, lows[at]), least)
                most = np.where(here, np.maximum(most, highs[at]), most)
        return Interval(least.astype(np.float64), most.astype(np.float64))

    @cached_property
    def _levels(self) -> list[tuple[Integers, Integers]]:
        last = (self.values + self.slopes * ((1 << self.step) - 1)) >> self.shift
        first = self.values >> self.shift
        levels = [(np.minimum(first, last), np.maximum(first, last))]
        while (width := 1 << (len(levels) - 1)) * 2 <= len(self.values):
            lows, highs = levels[-1]
            levels.append((np.minimum(lows[:-width], lows[width:]), np.maximum(highs[:-width], highs[width:])))
        return levels

    def message(self) -> pb.Table:
        """As a program has it."""
        slopes = self.slopes.tolist() if self.slopes.any() else []
        return pb.Table(low=self.low, step=self.step, values=self.values.tolist(), slopes=slopes, shift=self.shift)

    @staticmethod
    def of(message: pb.Table) -> IntegerTable:
        """A program's."""
        values = np.array(message.values, dtype=np.int64)
        slopes = np.array(message.slopes, dtype=np.int64) if message.slopes else np.zeros_like(values)
        return IntegerTable(message.low, message.step, values, slopes, message.shift)

    def clipped(self, x: Array) -> Array:
        """The values at whole numbers, each taken to the nearest of the domain."""
        return np.asarray(self(np.clip(x, self.low, self.end - 1).astype(np.int64)), dtype=np.float64)
