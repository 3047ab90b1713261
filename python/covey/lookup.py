"""Program nodes that look a value up in a table, and what the report says of them."""

from __future__ import annotations

import math

import numpy as np

from covey._proto import program_pb2 as pb
from covey.drawing import Drawing, Drawn
from covey.functions import Function
from covey.integer_table import IntegerTable
from covey.interval import Interval
from covey.ir import Node
from covey.lowering import Lowered, Lowering


def looked_up(
    low: Lowering, node: Node, table: IntegerTable, x: Lowered, scale: int, name: str | None = None
) -> Lowered:
    """The table's results for x, which lies within its domain. Without a name they are the node's own."""
    interval = table.interval(x.interval)
    # A table's own numbers must fit its bound, those that no input reaches as well.
    if table.largest.bit_length() > interval.bits:
        interval = Interval(interval.low, np.maximum(interval.high, table.largest))
    return low.emit(
        node,
        table.message(),
        [x],
        shape=x.shape,
        scale=scale,
        interval=interval,
        name=name,
        magnitude=None if name is None else math.ldexp(interval.magnitude, -scale),
    )


def clipped(
    low: Lowering, node: Node, x: Lowered, ends: tuple[int | None, int | None], magnitude: float | None, hint: str
) -> Lowered:
    """x between `ends`, where there are any."""
    given = {side: end for side, end in zip(("low", "high"), ends, strict=True) if end is not None}
    if not given:
        return x
    least, most = given.get("low", -math.inf), given.get("high", math.inf)
    interval = Interval(np.clip(x.interval.low, least, most), np.clip(x.interval.high, least, most))
    if x.calibrated and len(given) == 2:  # so much holds of any input
        interval = Interval(np.full_like(interval.low, least), np.full_like(interval.high, most))
    if magnitude is not None:
        magnitude = max(magnitude, *(abs(math.ldexp(end, -x.scale)) for end in given.values()))
    return low.emit(
        node,
        pb.Clip(**given),
        [x],
        shape=x.shape,
        scale=x.scale,
        interval=interval,
        name=f"{node.output}.{hint}",
        magnitude=magnitude,
        unconditional=len(given) == 2,
    )


def told(function: Function, node: Node, scale: int, drawing: Drawing) -> Drawn:
    """The table as the report shows it."""
    table = drawing.table
    sides = []
    for index, tail in enumerate((function.left, function.right)):
        ends = (drawing.outer[index], drawing.inner[index])
        if ends == (None, None):
            sides.append("proved")
        elif tail is None:
            sides.append("clipped to the calibration data's range")
        else:
            sides.append(f"the line {tail}")
    return Drawn(
        node.name,
        str(function),
        len(table.values),
        math.ldexp(table.low, -scale),
        math.ldexp(table.end, -scale),
        drawing.error,
        drawing.exhaustive,
        (sides[0], sides[1]),
    )
