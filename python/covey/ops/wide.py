"""Reciprocals, roots and logarithms of positive numbers from a range that no table holds."""

from __future__ import annotations

from covey.functions import LOG, RECIPROCAL, RSQRT, SQRT
from covey.ir import Node
from covey.lowering import Lowered, Lowering
from covey.normalising import logarithm, root
from covey.ops.quotient import Inverse, positive
from covey.ops.scalar import WIDE
from covey.rounding import half_added


def _root(low: Lowering, node: Node, x: Lowered) -> Lowered:
    if x.interval.low.min() < 0 or x.calibrated:
        x = positive(low, node, x, node.inputs[0], SQRT)
    return half_added(low, node, root(low, node, x, "input"), low.scale, "result")


def _logarithm(low: Lowering, node: Node, x: Lowered) -> Lowered:
    x = positive(low, node, x, node.inputs[0], LOG)
    return half_added(low, node, logarithm(low, node, x, "input"), low.scale, "result")


WIDE.update(
    {
        RECIPROCAL: lambda low, node, x: Inverse(1, 1.0).lower(low, node),
        RSQRT: lambda low, node, x: Inverse(2, 1.0).lower(low, node),
        SQRT: _root,
        LOG: _logarithm,
    }
)
