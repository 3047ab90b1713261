"""Program nodes between a graph node's operands and its result, each with the bound that its operands' bounds give."""

from __future__ import annotations

import math
from collections.abc import Sequence

from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.interval import Interval
from covey.ir import Node, Shape
from covey.lowering import Lowered, Lowering


def interim(
    low: Lowering,
    node: Node,
    op: Message,
    inputs: Sequence[Lowered],
    shape: Shape,
    interval: Interval,
    hint: str,
    scale: int | None = None,
) -> Lowered:
    """A value called after the node and `hint`, by default at the first operand's scale.

    It lies in its interval if the operands lie in theirs: calibration data say nothing of it.
    """
    scale = inputs[0].scale if scale is None else scale
    return low.emit(
        node,
        op,
        inputs,
        shape=shape,
        scale=scale,
        interval=interval,
        name=f"{node.output}.{hint}",
        magnitude=math.ldexp(interval.magnitude, -scale),
    )


def in_shape_of_result(low: Lowering, node: Node, x: Lowered) -> Lowered:
    """The node's result: the elements of x in the shape that the graph declares."""
    shape = low.graph.values[node.output].shape
    return low.emit(
        node,
        pb.Reshape(),
        [x],
        shape=shape,
        scale=x.scale,
        interval=x.interval.reshape((1, *shape)),
        magnitude=math.ldexp(x.interval.magnitude, -x.scale),
    )
