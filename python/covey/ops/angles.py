"""Angles of points: the arc tangent of a quotient of at most 1, and signs for the rest of the circle."""

from __future__ import annotations

import math

from covey.importers.torch_node import TorchNode, from_torch


@from_torch("aten.atan2.default")
def _angle_aten(node: TorchNode) -> None:
    """Of the smaller of both lengths over the larger one, mirrored three times."""
    y, x = (node.numbers(node.operand(name)) for name in ("self", "other"))
    height, width = (node.apply("Abs", each, suffix="length") for each in (y, x))
    steep = node.apply("Less", width, height, suffix="steep")
    larger = node.apply("Where", steep, height, width, suffix="larger")
    smaller = node.apply("Sub", node.apply("Add", height, width, suffix="both"), larger, suffix="smaller")
    angle = node.apply("Atan", node.apply("Div", smaller, larger, suffix="quotient"), suffix="angle")
    angle = node.apply("Where", steep, node.apply("Sub", math.pi / 2, angle, suffix="upright"), angle, suffix="quarter")
    left = node.apply("Less", x, 0.0, suffix="left")
    angle = node.apply("Where", left, node.apply("Sub", math.pi, angle, suffix="beyond"), angle, suffix="half")
    below = node.apply("Less", y, 0.0, suffix="below")
    node.become("Where", below, node.apply("Neg", angle, suffix="opposite"), angle)
