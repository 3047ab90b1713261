"""Draws a scalar function as a table of integers, as cheaply as a wanted error allows.

A table has uniform segments, a line each. Its ends are where the input's range ends, or where the function is near
enough to the line it approaches: what lies beyond is then clipped to the end, which costs a comparison. Where that line
rises, a multiple of the (clipped) input is added to the table's result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

import numpy as np

from covey.functions import Function, Line
from covey.integer_table import MOST_INDEX_BITS, Integers, IntegerTable
from covey.interval import Array

COMPARISON = 128
"""What a comparison counts in entries of a table: one that avoids it may be so much longer."""

LEAST_UNITS = 0.75
"""The least error that may be wanted, in units of the result's last place: rounding alone takes 0.5."""

MOST_CHECKED = 1 << 18
"""Up to so many integers, all of them are checked; of more, every so-manyth, with a bound on what lies between."""

POINTS = 33
"""Places of a segment that its line is fitted to."""

MOST_PLACE = 1 << 62
"""Domains end before it, so that differences fit 64 bits."""

MOST_BITS = 52
"""A table's numbers before the last shift are exact in float64."""


@dataclass(frozen=True)
class Wanted:
    """`function` for integers in [low, high] at `scale`, which is `proved`, with a result at scale `result`.

    `goal` is the largest error wanted, relative to the result if so said; `bits` are those a value before a shift may
    have. A `factor` that is not whole has `fraction` bits. Relative errors of results below `floor` count as those of
    it: results that are only summed may be off by so much each.
    """

    function: Function
    low: int
    high: int
    scale: int
    result: int
    goal: float
    bits: int
    proved: bool = True
    relative: bool = False
    fraction: int = 12
    floor: float = 0.0

    @property
    def far(self) -> float:
        """How near the function is to be to its line beyond an end."""
        return self.goal * self.floor / 2 if self.floor else self.goal

    def sized(self, off: Array, exact: Array) -> Array:
        """Errors as they count, where the function has the values `exact`."""
        return off / np.maximum(np.abs(exact), self.floor) if self.relative else off


@dataclass(frozen=True, eq=False)
class Drawing:
    """`factor` · A + table(B) at scale `result`, off by at most `error` for inputs that are in range.

    A is the input clipped to `outer`, B is A clipped to `inner`; ends that are None are open. `checked` integers gave
    the error: `exhaustive` says whether these are all.
    """

    table: IntegerTable
    factor: int
    outer: tuple[int | None, int | None]
    inner: tuple[int | None, int | None]
    result: int
    error: float
    checked: int
    exhaustive: bool

    @property
    def clips(self) -> int:
        """Comparisons an element."""
        return sum(end is not None for end in (*self.outer, *self.inner))

    def __call__(self, x: Array) -> Array:
        """The result at whole numbers."""
        outer = _clipped(x, self.outer)
        return np.asarray(self.factor * outer + self.table.clipped(_clipped(outer, self.inner)))


def _clipped(x: Array, ends: tuple[int | None, int | None]) -> Array:
    low, high = ends
    return np.clip(x, -math.inf if low is None else low, math.inf if high is None else high)


@dataclass(frozen=True)
class Drawn:
    """A function's table as the report shows it: on [low, high), off by at most `error`, and what holds beyond.

    `every` says that all integers of the domain were looked at; else what lies between is bounded.
    """

    node: str
    function: str
    segments: int
    low: float
    high: float
    error: float
    every: bool
    beyond: tuple[str, str]


@lru_cache(maxsize=512)
def draw(wanted: Wanted) -> Drawing | None:
    """Of the cheapest drawings with the wanted error the nearest; if none has it, the nearest of all.

    None where there is no table at all.
    """
    # Candidates beyond what a function or a float holds are infinite, and drop out.
    with np.errstate(all="ignore"):
        return _draw(wanted)


def _draw(wanted: Wanted) -> Drawing | None:
    tried: list[tuple[float, _Plan, IntegerTable]] = []
    for _, plans in groupby(sorted(_plans(wanted), key=lambda plan: (plan.cost, -plan.step)), lambda plan: plan.cost):
        alike: list[tuple[float, _Plan, IntegerTable]] = []
        for plan in plans:
            for shift in plan.shifts():
                table, off = plan.table(shift)
                alike.append((off, plan, table))
                if off <= wanted.goal:
                    break
        alike.sort(key=lambda entry: (entry[1].halves, entry[0]))
        # What a few places are off by nearly settles it.
        for off, plan, table in alike:
            if off > wanted.goal:
                continue
            drawing = plan.drawing(table)
            if drawing.error <= wanted.goal:
                return drawing
        tried += alike
    if not tried:
        return None
    _, plan, table = min(tried, key=itemgetter(0))
    return plan.drawing(table)


@dataclass(frozen=True)
class _Side:
    """One end of a domain, where inputs cannot pass or are clipped: to the range if there is no `tail`.

    With a tail, the function is to be so much there: `share` parts the line, the rest the function itself.
    """

    end: int
    clips: bool
    tail: Line | None = None
    share: float = 1.0


@dataclass(frozen=True)
class _Plan:
    """A domain with its segments, and what is added to the table's result."""

    wanted: Wanted
    left: _Side
    right: _Side
    low: int
    step: int
    count: int

    @property
    def cost(self) -> int:
        """Entries of the table as protocols have it, and comparisons."""
        return (1 << (self.count - 1).bit_length()) + COMPARISON * (self.left.clips + self.right.clips)

    @property
    def halves(self) -> int:
        """Ends where the result is not quite that of the line, in a function that has a rising one."""
        return self.wanted.function.slope != 0 and sum(
            side.tail is not None and side.share < 1 for side in (self.left, self.right)
        )

    @property
    def slope(self) -> float:
        """That of the lines, where one rises."""
        return next((side.tail.slope for side in (self.right, self.left) if side.tail and side.tail.slope), 0.0)

    @property
    def result(self) -> int:
        """The scale that the table's result has: that of the line, if there is one, or the one wanted."""
        wanted = self.wanted
        if not self.slope.is_integer():
            return wanted.scale + wanted.fraction
        return max(wanted.result, wanted.scale) if self.slope else wanted.result

    @property
    def rounding(self) -> float:
        """Half a unit of the wanted scale where the sum is still to be shifted to it, rounding down."""
        return 2.0 ** -(self.wanted.result + 1) if self.result > self.wanted.result else 0.0

    @property
    def factor(self) -> int:
        return round(math.ldexp(self.slope, self.result - self.wanted.scale))

    def exact(self, x: Integers) -> Array:
        """What the table's result should be, in units of its last place."""
        y = self.wanted.function(np.ldexp(x.astype(np.float64), -self.wanted.scale))
        return np.asarray(np.ldexp(y + self.rounding, self.result) - self.factor * x)

    def too_coarse(self) -> bool:
        """Whether half of what the function bends within a segment, and rounding, are more than the wanted error."""
        if self.step == 0:
            return False
        x = (self.low + (np.arange(self.count + 1) << self.step)).clip(self.left.end, self.right.end)
        y, middle = self.exact(x), self.exact((x[1:] + x[:-1]) // 2)
        off = np.ldexp(0.45 * np.abs(middle - (y[1:] + y[:-1]) / 2), -self.result) + 0.45 * 2.0**-self.wanted.result
        return bool((self.wanted.sized(off, np.ldexp(middle, -self.result)) > self.wanted.goal).any())

    def shifts(self) -> list[int]:
        """Guard bits of values and slopes: few first, none that the ring has no room for."""
        if (self.count - 1).bit_length() + self.step > self.wanted.bits:
            return []
        x = np.linspace(self.left.end, self.right.end, 257).astype(np.int64)
        largest = float(np.abs(self.exact(x)).max(initial=1.0))
        if not math.isfinite(largest):
            return []
        most = min(self.wanted.bits, MOST_BITS) - (math.floor(largest) + 2).bit_length()
        size = math.ldexp(self.wanted.floor or 1.0, self.result)
        goal = self.wanted.goal * (largest if self.wanted.relative and not self.wanted.floor else size)
        # A slope is off by half a unit: over a segment that may take a tenth of the error.
        least = max(0, math.ceil(self.step - math.log2(0.4 * goal)))
        return sorted({min(most, shift) for shift in (least, least + 2, least + 5)}) if most >= 0 else []

    def drawing(self, table: IntegerTable) -> Drawing:
        """With the largest error, of all integers as far as that is possible."""
        error, checked, exhaustive = self._error(table)
        for side in (self.left, self.right):
            error = max(error, self._tail_error(side, table))
        outer: list[int | None] = [None, None]
        inner: list[int | None] = [None, None]
        for index, side in enumerate((self.left, self.right)):
            if side.clips:
                # Beyond an end with a flat line the multiple of the input must not rise either.
                flat = self.factor != 0 and (side.tail is None or side.tail.slope == 0)
                (outer if flat else inner)[index] = side.end
        return Drawing(
            table, self.factor, (outer[0], outer[1]), (inner[0], inner[1]), self.result, error, checked, exhaustive
        )

    def table(self, shift: int) -> tuple[IntegerTable, float]:
        """Of a few slopes of each segment the one whose line stays nearest; what fitted places and tails are off by."""
        length = 1 << self.step
        starts = self.low + (np.arange(self.count, dtype=np.int64) << self.step)
        places = np.linspace(0, length - 1, min(length, POINTS)).astype(np.int64)
        x = (starts[:, None] + places).clip(self.left.end, self.right.end)
        r = x - starts[:, None]
        y = np.ldexp(self.exact(x), shift)
        slope = np.rint((y[:, -1] - y[:, 0]) / np.maximum(r[:, -1] - r[:, 0], 1))
        ends = self._ends(shift, starts)
        tries = [slope - 1, slope, slope + 1]
        for at, aim, place, _ in ends:
            # From where the function is at the segment's other end to what is to be met at this one.
            other = 0 if place else -1
            tilted = slope.copy()
            tilted[at] = np.rint((aim - y[at, other]) / ((place - r[at, other]) or 1))
            tries += [tilted, np.rint((tilted + slope) / 2)]
        unit = 2.0**shift
        best = np.full(self.count, np.inf)
        values, slopes = np.zeros(self.count), np.zeros(self.count)
        reached = r[:, -1] > r[:, 0]

        def fitted(tried: Array) -> tuple[Array, Array]:
            """Where the lines of these slopes begin, and what they are off by."""
            rest = y - tried[:, None] * r
            # The floor takes half a unit on average.
            start = np.rint((rest.max(axis=1) + rest.min(axis=1)) / 2 + (unit - 1) / 2)
            for at, aim, place, _ in ends:
                start[at] = np.clip(start[at], aim - tried[at] * place, aim - tried[at] * place + unit - 1)
            off = np.ldexp(np.abs(np.floor((start[:, None] + tried[:, None] * r) / unit) - y / unit), -self.result)
            worst = self.wanted.sized(off, np.ldexp(y / unit, -self.result)).max(axis=1)
            return start, worst + self.rounding

        for tried in (np.where(reached, slope, 0.0) for slope in tries):
            start, worst = fitted(tried)
            values, slopes = np.where(worst < best, start, values), np.where(worst < best, tried, slopes)
            best = np.minimum(best, worst)
        # A segment as flat as what lies beyond it stands for that too, where a protocol looks both up at once.
        level = np.full(self.count, -self.factor * unit)
        start, worst = fitted(level)
        for at in (at for at, _, _, flat in ends if flat and worst[at] <= self.wanted.goal):
            values[at], slopes[at], best[at] = start[at], level[at], worst[at]
        # A line may leave the ring where no input reaches, and the program must hold it all the same.
        if not (np.maximum(np.abs(values), np.abs(values + slopes * (length - 1))) < 2.0**self.wanted.bits).all():
            values, slopes, best = np.zeros(self.count), np.zeros(self.count), np.full(self.count, np.inf)
        table = IntegerTable(self.low, self.step, values.astype(np.int64), slopes.astype(np.int64), shift)
        return table, max(float(best.max()), *(self._tail_error(side, table) for side in (self.left, self.right)))

    def _ends(self, shift: int, starts: Integers) -> list[tuple[int, float, int, bool]]:
        """Of each end that a line is to meet: segment, least number before the shift, place, whether it is flat."""
        found = []
        for side in (self.left, self.right):
            if side.clips and side.tail is not None:
                at = (side.end - self.low) >> self.step
                x = np.ldexp(np.array([side.end], dtype=np.float64), -self.wanted.scale)
                due = side.share * side.tail(x) + (1 - side.share) * self.wanted.function(x)
                # Where the line rises as the multiple of the input does, what is left is its offset.
                rises = side.tail.slope != 0
                number = np.ldexp((side.tail.offset if rises else due[0]) + self.rounding, self.result)
                aim = np.rint(number) - (0 if rises else self.factor * side.end)
                found.append((at, float(np.ldexp(aim, shift)), side.end - int(starts[at]), not rises))
        return found

    def _error(self, table: IntegerTable) -> tuple[float, int, bool]:
        """The largest error over the domain's integers that inputs reach, and how many were looked at."""
        low, high = self.left.end, self.right.end
        if high - low < MOST_CHECKED:
            x = np.arange(low, high + 1, dtype=np.int64)
            return self._largest(table(x) - self.exact(x), x), len(x), True
        stride = min(1 << ((high - low) // MOST_CHECKED).bit_length(), 1 << self.step)
        starts = np.arange(table.low, table.end, stride, dtype=np.int64)
        at = np.concatenate([starts, starts + stride - 1]).clip(low, high)
        i, r = (at - table.low) >> table.step, (at - table.low) & ((1 << table.step) - 1)
        line = (table.values[i] - (2.0**table.shift - 1) / 2 + table.slopes[i] * r) / 2.0**table.shift
        # Between two places the function is as far from its chord as it bends there; the floor takes half a unit.
        bends = np.pad(np.abs(np.diff(self.exact(starts.clip(low, high)), 2)) / 4, 2, mode="edge")
        bend = np.tile(np.maximum.reduce([bends[:-2], bends[1:-1], bends[2:]]), 2)
        return self._largest(np.abs(line - self.exact(at)) + 0.5 + bend, at), len(at), False

    def _largest(self, off: Array, x: Integers) -> float:
        off = np.ldexp(np.abs(off), -self.result) + self.rounding
        exact = self.wanted.function(np.ldexp(x.astype(np.float64), -self.wanted.scale))
        return float(self.wanted.sized(off, exact).max())

    def _tail_error(self, side: _Side, table: IntegerTable) -> float:
        """What the line beyond an end is off by: as far as the result at the end is from the function and the line."""
        if not side.clips or side.tail is None:
            return 0.0
        end = np.array([side.end])
        x = np.ldexp(end.astype(np.float64), -self.wanted.scale)
        y = np.ldexp((table(end) + self.factor * end).astype(np.float64), -self.result) - self.rounding
        exact = self.wanted.function(x)
        off = np.maximum(np.abs(y - exact), np.abs(y - side.tail(x))) + self.rounding
        return float(self.wanted.sized(off, exact)[0])


def _plans(wanted: Wanted) -> Iterator[_Plan]:
    """Every domain and length of segments that may do."""
    longest = max(wanted.high - wanted.low, 1).bit_length()
    for step in range(min(longest, wanted.bits - 1), -1, -1):
        for left in _sides(wanted, step, -1):
            for right in _sides(wanted, step, 1):
                plan = _plan(wanted, left, right, step)
                if plan is not None and not plan.too_coarse():
                    yield plan


def _plan(wanted: Wanted, left: _Side, right: _Side, step: int) -> _Plan | None:
    """Segments of 2^step from end to end; tails begin later where the index has room for more segments."""
    if len({side.tail.slope for side in (left, right) if side.tail is not None} - {0.0}) > 1:
        return None
    length = 1 << step
    if left.tail is not None:
        low = left.end
    elif right.tail is not None or wanted.function.bent:
        low = left.end // length * length
    else:
        low = left.end
    count = max(2, -(-(right.end + 1 - low) // length))
    if right.end < left.end or count > 1 << MOST_INDEX_BITS:
        return None
    spare = (1 << (count - 1).bit_length()) - count
    grow = [side.tail is not None and not _on_line(wanted, side) for side in (left, right)]
    if any(grow):
        on_left = spare if not grow[1] else spare // 2 if grow[0] else 0
        on_right = spare - on_left if grow[1] else 0
        left, right = (
            replace(left, end=left.end - on_left * length),
            replace(right, end=right.end + on_right * length),
        )
        low, count = low - on_left * length, count + spare
    if low < -MOST_PLACE or low + count * length > MOST_PLACE:
        return None
    return _Plan(wanted, left, right, low, step, count)


def _on_line(wanted: Wanted, side: _Side) -> bool:
    """Whether the function is next to its line already, so that nothing is won by going further."""
    assert side.tail is not None
    x = np.ldexp(np.array([side.end], dtype=np.float64), -wanted.scale)
    return bool(np.abs(wanted.function(x) - side.tail(x))[0] < wanted.far / 16)


def _sides(wanted: Wanted, step: int, sign: int) -> list[_Side]:
    """What one end may be: the range's, and a multiple of the segments' length from where on the line is near enough.

    Where the line is flat, and not the 0 of a rectifier, the result there may be half-way to it: domains are shorter.
    """
    end = wanted.high if sign > 0 else wanted.low
    tail = wanted.function.right if sign > 0 else wanted.function.left
    if tail is None:
        return [_Side(end, not wanted.proved)]
    if sign < 0 and wanted.function.from_zero:
        return [_Side(end, False)]
    found = [_Side(end, False)] if wanted.proved else []
    exact = tail.slope != 0 or (tail.offset == 0 and wanted.function.slope != 0)
    for share in (1.0,) if exact or wanted.floor else (1.0, 0.5):
        reach = math.ldexp(_reach(wanted.function, sign, wanted.far / share), wanted.scale)
        if not abs(reach) < 2.0**60:
            continue
        length = 1 << step
        place = math.ceil(reach / length) * length - 1 if sign > 0 else math.floor(reach / length) * length
        inside = place < end if sign > 0 else place > end
        if (inside or not wanted.proved) and place not in [side.end for side in found]:
            found.append(_Side(place, True, tail, share))
    return found


@lru_cache(maxsize=512)
def _reach(function: Function, sign: int, goal: float) -> float:
    """Where it begins to stay within `goal` of its line on that side."""
    tail = function.right if sign > 0 else function.left
    assert tail is not None
    sizes = np.ldexp(1 + np.arange(32) / 32, np.arange(-12, 20)[:, None]).ravel()
    x = sign * np.concatenate([-sizes[::-1], [0.0], sizes])
    far = np.flatnonzero(~(np.abs(function(x) - tail(x)) <= goal))
    if not far.size:
        return float(x[0])
    if far[-1] + 1 == len(x):
        return sign * math.inf
    outside, inside = float(x[far[-1]]), float(x[far[-1] + 1])
    for _ in range(30):
        middle = np.array([(outside + inside) / 2])
        near = bool(np.abs(function(middle) - tail(middle))[0] <= goal)
        outside, inside = (outside, float(middle[0])) if near else (float(middle[0]), inside)
    return inside
