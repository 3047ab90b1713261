"""Squared distances of a row of features from each of some points, which are weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval, of_sums
from covey.ir import Node, Op, Shape, Value
from covey.lowering import MARGIN, Lowered, Lowering
from covey.rounding import half_added, rounded
from covey.steps import interim


@dataclass(frozen=True)
class SquaredDistances(Op):
    """x [N, F] and points [F, K] to the squares [N, K] of the distances between them.

    As |p|² - 2 p·x + |x|²: one dense layer and one product of the row with itself. Points are rounded as x is and
    nothing is rounded before the sum, so no distance is below 0.
    """

    widens = True

    def shape(self, *inputs: Value) -> Shape:
        x, points = inputs
        if len(x.shape) != 1 or len(points.shape) != 2 or points.shape[0] != x.shape[0]:
            raise ValueError(f"{x} has no distances from points of shape {list(points.shape)}")
        return (points.shape[1],)

    def reference(self, *inputs: Array) -> Array:
        x, points = inputs
        return np.stack([((x - point) ** 2).sum(axis=-1) for point in points.T], axis=-1)

    def interval(self, *inputs: Interval) -> Interval:
        gaps = Interval(inputs[0].low[..., None], inputs[0].high[..., None]) - inputs[1]
        largest = np.maximum(gaps.low**2, gaps.high**2)
        total = of_sums(np.zeros_like(largest).sum(axis=1), largest.sum(axis=1), largest.shape[1], float(largest.max()))
        return Interval(np.zeros_like(total.low), total.high)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        name, points = node.inputs
        x = low.value(name)
        most, of_row = self._bounds(low, node, x)
        x = rounded(low, node, x, max(1, min(x.scale, _scale(most + of_row, low.settings.available_bits))), "shortened")
        whole, count = low.integers(points, x.scale), x.shape[0]
        # Each value's bound is what is proved if that fits, else what these real numbers say.
        calibrated = {"distances": most / MARGIN, "row": of_row / MARGIN, "product": (most + of_row) / MARGIN}

        def emitted(op: pb.Matmul | pb.Dense | pb.Add, inputs: list[Lowered], interval: Interval, hint: str) -> Lowered:
            return low.emit(
                node,
                op,
                inputs,
                shape=interval.low.shape[1:],
                scale=2 * x.scale,
                interval=interval,
                name=f"{node.output}.{hint}",
                magnitude=None if low.magnitudes is None else calibrated[hint],
            )

        weights = low.whole_parameter(node, f"{points}.twice", -2 * whole, x.scale)
        # Beyond 2^53 floats are not exact.
        sums = (whole.astype(np.int64) ** 2).sum(axis=0)
        squares = low.whole_parameter(node, f"{points}.squares", sums, 2 * x.scale)
        interval = self.interval(x.interval, Interval.constant(whole))
        own = self.interval(x.interval, Interval.constant(np.zeros((count, 1))))
        sides = [
            interim(low, node, pb.Reshape(), [x], shape, x.interval.reshape((1, *shape)), f"side{index}")
            for index, shape in enumerate(((1, count), (count, 1)))
        ]
        row = emitted(pb.Matmul(), sides, own.reshape((1, 1, 1)), "row")
        row = interim(low, node, pb.Reshape(), [row], (1,), row.interval.reshape((1, 1)), "of_row")
        product = emitted(pb.Dense(), [x, weights, squares], interval - row.interval, "product")
        return half_added(low, node, emitted(pb.Add(), [product, row], interval, "distances"), low.scale, "result")

    def _bounds(self, low: Lowering, node: Node, x: Lowered) -> tuple[float, float]:
        """The largest distance, and the largest square of a row: as proved if that fits, else as data say."""
        points = low.graph.parameters[node.inputs[1]]
        real = Interval(np.ldexp(x.interval.low, -x.scale), np.ldexp(x.interval.high, -x.scale))
        most = self.interval(real, Interval.constant(points)).magnitude
        of_row = self.interval(real, Interval.constant(np.zeros((x.shape[0], 1)))).magnitude
        magnitude = low.magnitude(node.output)
        if magnitude is not None and (x.calibrated or _scale(most + of_row, low.settings.available_bits) < x.scale):
            most = min(most, max(MARGIN * magnitude, 1.0))
            # No row is farther from 0 than from any point and that point from 0.
            nearest = math.sqrt(float((points**2).sum(axis=0).min()))
            of_row = min(of_row, (math.sqrt(most) + nearest) ** 2)
        return most, of_row


def _scale(real: float, available: int) -> int:
    """The most fractional bits of numbers whose products with each other may be so large, one bit to spare."""
    return (available - 1 - max(0, math.frexp(real)[1])) // 2
