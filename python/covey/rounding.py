"""Shifts that round to the nearest: half of what a shift leaves as one is added before it, which costs nothing."""

from __future__ import annotations

import math

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Interval
from covey.ir import Node
from covey.lowering import Lowered, Lowering, Truncation


def half_added(low: Lowering, node: Node, x: Lowered, scale: int, hint: str) -> Lowered:
    """x as a shift to `scale` reads it. Inexact shifts have no use for it: they are off by more."""
    if x.scale <= scale or low.settings.truncation is not Truncation.EXACT:
        return x
    half = np.array(math.ldexp(0.5, x.scale - scale))
    return low.emit(
        node,
        pb.Add(),
        [x, low.constant(node, f"{hint}.half", half, x.scale)],
        shape=x.shape,
        scale=x.scale,
        interval=x.interval + Interval.constant(half),
        name=f"{node.output}.{hint}.centred",
        magnitude=math.ldexp(x.interval.magnitude + float(half), -x.scale),
    )


def rounded(low: Lowering, node: Node, x: Lowered, scale: int, hint: str) -> Lowered:
    """x at `scale`, where it has more fractional bits."""
    if x.scale <= scale:
        return x
    wide = half_added(low, node, x, scale, hint)
    bits = x.scale - scale
    low.count_wraps(node, wide, wide.interval)
    interval = low.rounded(wide.interval.shifted_right(bits))
    return low.emit(
        node,
        pb.Truncate(bits=bits, rounding=low.rounding),
        [wide],
        shape=x.shape,
        scale=scale,
        interval=interval,
        name=f"{node.output}.{hint}.rounded",
        magnitude=math.ldexp(interval.magnitude, -scale),
    )
