"""Shifts that round to the nearest, or at random: what is added before a shift costs nothing."""

from __future__ import annotations

import math

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Interval
from covey.ir import Node
from covey.lowering import Lowered, Lowering, Truncation


def half_added(low: Lowering, node: Node, x: Lowered, scale: int, hint: str) -> Lowered:
    """x as a shift to `scale` that rounds to the nearest reads it: half of what the shift leaves as one more.

    Inexact shifts have no use for it: they are off by more.
    """
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


def dither_added(low: Lowering, node: Node, x: Lowered, scale: int, seed: int, hint: str) -> Lowered:
    """x as a shift to `scale` reads it that rounds up or down, right on average, by the public coins of a seed.

    A number between 0 and what the shift leaves as one is added to each element (stochastic rounding, Gupta et al.,
    arXiv:1502.02551).
    """
    bits = x.scale - scale
    if bits <= 0:
        return x
    most = Interval(np.array(0.0), np.array(math.ldexp(1.0, bits) - 1.0))
    return low.emit(
        node,
        pb.Dither(seed=seed, bits=bits),
        [x],
        shape=x.shape,
        scale=x.scale,
        interval=x.interval + most,
        name=f"{node.output}.{hint}.dithered",
        magnitude=math.ldexp(x.interval.magnitude + float(most.high), -x.scale),
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
