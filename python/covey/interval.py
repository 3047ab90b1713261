"""Interval arithmetic over whole tensors of integers: one interval an element, batch dimension 1.

Both ends are whole numbers in float64, rounded outward wherever an operation may have rounded them: an interval always
holds every value that the integers can take. Below 2^53 nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

EXACT = 2.0**53
"""Up to this magnitude float64 holds every integer."""


def _once(method: Callable[..., Interval]) -> Callable[..., Interval]:
    """Computed for one element where the intervals are the same for all: large tensors then take neither time nor
    memory."""

    @wraps(method)
    def each(*operands: Any) -> Interval:
        intervals = [operand for operand in operands if isinstance(operand, Interval)]
        if not all(interval.is_whole for interval in intervals):
            return method(*operands)
        shape = np.broadcast_shapes(*(interval.low.shape for interval in intervals))
        result = method(*(operand.one if isinstance(operand, Interval) else operand for operand in operands))
        return Interval(np.broadcast_to(result.low, shape), np.broadcast_to(result.high, shape))

    return each


@dataclass(frozen=True, repr=False)
class Interval:
    """`low <= value <= high`, element by element."""

    low: Array
    high: Array

    @staticmethod
    def constant(value: Array) -> Interval:
        """The interval that holds only `value`."""
        return Interval(value, value)

    @_once
    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high).outward()

    @_once
    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low).outward()

    @_once
    def __mul__(self, other: Interval) -> Interval:
        """All products of a value of each."""
        if other.low is other.high:
            ends = [self.low * other.low, self.high * other.low]
        else:
            ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(np.minimum.reduce(ends), np.maximum.reduce(ends)).outward()

    @cached_property
    def magnitude(self) -> float:
        """The largest absolute value of any element; NaN where an end is."""
        one = self.one if self.is_whole else self
        return abs(float(np.maximum(one.high.max(initial=0.0), -one.low.min(initial=0.0))))

    def within(self, other: Interval) -> bool:
        """Whether every element's interval lies in the other's."""
        return bool((self.low >= other.low).all() and (self.high <= other.high).all())

    @property
    def centre(self) -> Array:
        """Each element's midpoint, or a number next to it."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Array:
        """How far from `centre` an element's values reach, at least."""
        centre = self.centre
        radius = np.maximum(self.high - centre, centre - self.low)
        if self.magnitude < EXACT / 4:
            return radius
        return np.where(radius > 0.0, np.nextafter(radius, np.inf), radius)

    @property
    def bits(self) -> int:
        """The least b with |value| < 2^b for every element; the values are integers."""
        return integer_bits(self.magnitude)

    @property
    def positive(self) -> Interval:
        """Of `max(value, 0)`."""
        return Interval(np.maximum(self.low, 0), np.maximum(self.high, 0))

    @property
    def negative(self) -> Interval:
        """Of `min(value, 0)`."""
        return Interval(np.minimum(self.low, 0), np.minimum(self.high, 0))

    @property
    def hull(self) -> Interval:
        """One interval that holds all elements, with as many dimensions."""
        shape = (1,) * self.low.ndim
        return Interval(self.low.min().reshape(shape), self.high.max().reshape(shape))

    @property
    def whole(self) -> Interval:
        """The same for every element: one that holds all of them. It takes no memory for each."""
        if self.is_whole:
            return self
        return Interval(*(np.broadcast_to(end, self.low.shape) for end in (self.low.min(), self.high.max())))

    @property
    def is_constant(self) -> bool:
        """Whether it was made to hold one value alone."""
        return self.low is self.high

    @property
    def is_whole(self) -> bool:
        """Whether it is known to be the same for every element."""
        return all(size == 1 or not step for end in (self.low, self.high) for size, step in _dimensions(end))

    @property
    def one(self) -> Interval:
        """A single element, with as many dimensions."""
        low = self.low[(slice(0, 1),) * self.low.ndim]
        return Interval(low, low if self.high is self.low else self.high[(slice(0, 1),) * self.high.ndim])

    def reshape(self, shape: Sequence[int]) -> Interval:
        """The same elements in another shape."""
        return Interval(self.low.reshape(shape), self.high.reshape(shape))

    @_once
    def clamp(self, bound: float) -> Interval:
        """What is left of it within `[-bound, bound]`."""
        return Interval(np.clip(self.low, -bound, bound), np.clip(self.high, -bound, bound))

    @_once
    def widen(self, by: float) -> Interval:
        """`by` more on both sides."""
        return Interval(self.low - by, self.high + by).outward()

    def scaled(self, factor: Array | float) -> Interval:
        """Times a non-negative whole factor."""
        return Interval(self.low * factor, self.high * factor).outward()

    @_once
    def shifted_left(self, bits: int) -> Interval:
        """Times 2^bits."""
        return Interval(np.ldexp(self.low, bits), np.ldexp(self.high, bits))

    @_once
    def shifted_right(self, bits: int) -> Interval:
        """Each bound floored after division by 2^bits."""
        return Interval(np.floor(np.ldexp(self.low, -bits)), np.floor(np.ldexp(self.high, -bits)))

    @_once
    def divided(self, divisor: int) -> Interval:
        """Each bound floored after division by a positive whole number."""
        result = Interval(np.floor(self.low / divisor), np.floor(self.high / divisor))
        # A quotient that is rounded up to a whole number is one too large.
        return result if self.magnitude < EXACT else result.widen(1.0)

    @_once
    def outward(self) -> Interval:
        """The next float outside, for ends that one operation has made and may have rounded to the nearest."""
        if self.magnitude < EXACT:
            return self
        low = np.where(np.abs(self.low) >= EXACT, np.nextafter(self.low, -np.inf), self.low)
        high = np.where(np.abs(self.high) >= EXACT, np.nextafter(self.high, np.inf), self.high)
        return Interval(low, high)


def _dimensions(end: Array) -> zip[tuple[int, int]]:
    """The size of each, and the step in memory along it."""
    return zip(end.shape, end.strides, strict=True)


def integer_bits(magnitude: float) -> int:
    """The least b such that every integer of absolute value up to `magnitude` is below 2^b; 4096 when unbounded."""
    if not np.isfinite(magnitude):
        return 4096
    return int(np.floor(magnitude)).bit_length()


def of_sums(low: Array, high: Array, terms: int, largest: float) -> Interval:
    """`low` and `high` are sums of `terms` numbers whose magnitudes add up to `largest` at most, in any order.

    float64 may be off by gamma_n = n u / (1 - n u) of `largest`, u = 2^-53 (Higham, Accuracy and Stability of Numerical
    Algorithms, 2002, section 3.1). Twice that is allowed: an end may be the sum of two such sums, and `largest` is
    rounded itself. Below EXACT / 8 sums of products of halves are exact.
    """
    slack = largest * (terms + 8) * 2.0**-51 if not largest < EXACT / 8 else 0.0
    return Interval(np.ceil(low - slack), np.floor(high + slack))


def of_centre(centre: Array, radius: Array, terms: int, products: float, more: float = 0.0) -> Interval:
    """`centre ± radius` for sums of `terms` products of at most `products` and one number more of at most `more`."""
    return of_sums(centre - radius, centre + radius, terms + 1, terms * products + more)
