"""Interval arithmetic over whole tensors: one interval an element, batch dimension 1.

Bounds are float64. Integers below 2^53 are exact in it; sums that may pass that are widened by their rounding error, so
an interval always holds every value the integers can take.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

EXACT = 2.0**53
"""Below this magnitude float64 holds every integer."""


@dataclass(frozen=True, repr=False)
class Interval:
    """`low <= value <= high`, element by element."""

    low: Array
    high: Array

    @staticmethod
    def constant(value: Array) -> Interval:
        """The interval that holds only `value`."""
        return Interval(value, value)

    @property
    def magnitude(self) -> float:
        """The largest absolute value of any element."""
        return float(max(np.abs(self.low).max(initial=0.0), np.abs(self.high).max(initial=0.0)))

    @property
    def centre(self) -> Array:
        """Midpoint of each element's interval."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Array:
        """Half the width of each element's interval."""
        return (self.high - self.low) / 2

    @property
    def bits(self) -> int:
        """The least b with |value| < 2^b for every element; the values are integers."""
        return integer_bits(self.magnitude)

    def clamp(self, bound: float) -> Interval:
        """What is left of it within `[-bound, bound]`."""
        return Interval(np.clip(self.low, -bound, bound), np.clip(self.high, -bound, bound))

    def widen(self, by: float) -> Interval:
        """`by` more on both sides."""
        return Interval(self.low - by, self.high + by)

    def scaled(self, factor: Array | float) -> Interval:
        """Times a non-negative factor."""
        return Interval(self.low * factor, self.high * factor)

    def shifted_right(self, bits: int) -> Interval:
        """Each bound floored after division by 2^bits."""
        return Interval(np.floor(np.ldexp(self.low, -bits)), np.floor(np.ldexp(self.high, -bits)))


def integer_bits(magnitude: float) -> int:
    """The least b such that every integer of absolute value up to `magnitude` is below 2^b; 4096 when unbounded."""
    if not np.isfinite(magnitude):
        return 4096
    return int(np.floor(magnitude)).bit_length()


def of_centre(centre: Array, radius: Array, terms: int, products: float) -> Interval:
    """`centre ± radius` for sums of `terms` products of at most `products`, widened by what float64 may have lost."""
    largest = terms * products
    slack = largest * (terms + 2) * 2.0**-51 if largest >= EXACT / 4 else 0.0
    return Interval(centre - radius - slack, centre + radius + slack)
