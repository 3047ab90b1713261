"""An input's declared range, which the parties enforce whatever its owner shared.

A share may stand for any element x of Z_2^l. max(x, low) takes the sign of low - x: wherever that is positive, the
result is low; else x is one of low, low + 1, .., low + 2^(l-1), modulo 2^l. Then x - high is at most
2^(l-1) - (high - low) and so does not wrap if low < high, and min(x, high) lies between both. Each step compares all
bits of the ring, one after the other: side by side, a number that wraps would be moved twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class EnforcedRange(Op):
    """The input itself within [low, high], else the nearest end, or any number between them where it wraps."""

    low: float
    high: float

    free_scale = True

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.clip(inputs[0], self.low, self.high)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        least, most = int(x.interval.low.min()), int(x.interval.high.max())
        # Of equal ends, the second step could wrap.
        interval = Interval(x.interval.low, np.maximum(x.interval.high, x.interval.low + 1))
        raised = low.emit(
            node,
            pb.Clip(low=least),
            [x],
            shape=x.shape,
            scale=x.scale,
            interval=interval,
            name=f"{node.output}.raised",
            # Its bound is that of the range, whatever the data reach.
            magnitude=float(np.ldexp(interval.magnitude, -x.scale)),
        )
        return low.emit(
            node,
            pb.Clip(high=max(most, least + 1)),
            [raised],
            shape=x.shape,
            scale=x.scale,
            interval=interval,
            name=node.output,
            unconditional=True,
        )
