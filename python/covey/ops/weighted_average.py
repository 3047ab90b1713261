"""Softmax times a matrix, as attention has it, with the sum of the powers divided by last.

The averages have fewer elements than the weights where rows are long. Each then takes the product and the shift that
each weight would take.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval, integer_bits
from covey.ir import Node, Op, Shape, Value
from covey.lowering import MARGIN, Lowered, Lowering
from covey.normalising import inverse
from covey.ops.matmul import Matmul
from covey.ops.quotient import multiplied
from covey.ops.softmax import Rows, Softmax, sum_of_powers
from covey.rounding import rounded
from covey.steps import in_shape_of_result, interim

LEAST_BITS = 12
"""The least fractional bits of powers; where the ring has room for fewer, weights are computed one by one."""

LEAST_OPERAND_BITS = 8
"""The least of what the powers multiply."""


@dataclass(frozen=True, eq=False)
class Powers(Softmax):
    """The exponentials of Softmax, less the largest element of each row, without the division by their sum."""

    free_scale = True

    def reference(self, *inputs: Array) -> Array:
        x = self.masked(*inputs)
        return np.asarray(np.exp(x - x.max(axis=-1, keepdims=True)))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        rows = Rows.of(low, node, self)
        (reader,) = (each for each in low.graph.consumers(node.output) if isinstance(each.op, Average))
        scale = _scale(low, reader, rows.fine)
        if scale is None:
            scale = min(rows.fine, (low.settings.available_bits - 1) // 2)
        return in_shape_of_result(low, node, rows.powers(scale)[0])


@dataclass(frozen=True)
class RowSum(Op):
    """The sum of powers over the last dimension, which stays with size 1. One of them is that of 0."""

    free_scale = True

    def shape(self, *inputs: Value) -> Shape:
        return (*inputs[0].shape[:-1], 1)

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0].sum(axis=-1, keepdims=True))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        powers = low.value(node.inputs[0])
        shape = (1, math.prod(powers.shape[:-1]), powers.shape[-1])
        x = interim(low, node, pb.Reshape(), [powers], shape, powers.interval.reshape((1, *shape)), "rows")
        # A table of Exp is off by less than that of 1.
        return in_shape_of_result(low, node, sum_of_powers(low, node, x, math.ldexp(0.99, x.scale)))


@dataclass(frozen=True)
class Average(Op):
    """Of powers [N, .., M, K], their sums and x [N, .., K, P], powers times x over the sums."""

    def shape(self, *inputs: Value) -> Shape:
        powers, _, x = inputs
        return Matmul().shape(powers, x)

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(np.matmul(inputs[0], inputs[2]) / inputs[1])

    def interval(self, *inputs: Interval) -> Interval:
        x = inputs[2]
        ends = [x.low.min(axis=-2, keepdims=True), x.high.max(axis=-2, keepdims=True)]
        rows = np.ones((*inputs[0].low.shape[:-1], 1))
        return Interval(ends[0] * rows, ends[1] * rows)

    def operand_scale(self, low: Lowering, node: Node) -> int:
        most = _largest(low, node)
        if most is None:
            return low.scale
        room = low.settings.available_bits - integer_bits(1.01 * max(MARGIN * most, 1.0)) - LEAST_BITS
        # With too few, weights are computed, which leave it its bits.
        return min(low.scale, room) if room >= LEAST_OPERAND_BITS else low.scale

    def lower(self, low: Lowering, node: Node) -> Lowered:
        powers, total, x = (low.value(name) for name in node.inputs)
        most = float(total.interval.high.max()) / 2.0**total.scale
        factor = inverse(low, node, total, 1, 1.0, "sum")
        if _scale(low, node, powers.scale) is None:
            return self._of_weights(low, node, powers, factor, x)
        mixed = low.emit(
            node,
            pb.Matmul(),
            [powers, x],
            shape=low.graph.values[node.output].shape,
            scale=powers.scale + x.scale,
            interval=Matmul().interval(powers.interval, x.interval),
            name=f"{node.output}.mixed",
            magnitude=_largest(low, node),
        )
        # Both factors are as fine beside a sum of 1 and of `most`; the floor is nothing beside a sum.
        interval = self.interval(powers.interval, total.interval, x.interval)
        largest = math.ldexp(interval.magnitude, -x.scale)
        magnitude = low.magnitude(node.output)
        if magnitude is not None:
            largest = min(largest, max(MARGIN * magnitude, 1.0))
        room = low.settings.available_bits - 1 - math.frexp(largest)[1]
        scale = min(mixed.scale, max(1, (room - math.ceil(math.log2(most))) // 2 + 1))
        if bits := mixed.scale - scale:
            low.count_wraps(node, mixed, mixed.interval)
            op = pb.Truncate(bits=bits, rounding=low.rounding)
            interval = low.rounded(mixed.interval.shifted_right(bits))
            mixed = interim(low, node, op, [mixed], mixed.shape, interval, "shortened", scale)
        return multiplied(low, node, mixed, factor, largest)

    def _of_weights(self, low: Lowering, node: Node, powers: Lowered, factor: Lowered, x: Lowered) -> Lowered:
        """The ordinary way, of weights at the ordinary scale."""
        shape, room = powers.shape, low.settings.available_bits - 1 - powers.scale
        factor = rounded(low, node, factor, min(factor.scale, room), "inverse")
        scale = powers.scale + factor.scale
        exact = powers.interval * factor.interval
        most = math.ldexp(1.0 + 2.0**-8, scale)
        interval = Interval(exact.low.clip(0.0), exact.high.clip(0.0, most))
        weights = interim(low, node, pb.Mul(), [powers, factor], shape, interval, "weights", scale)
        weights = rounded(low, node, weights, min(scale, low.scale), "weights")
        return low.emit(
            node,
            pb.Matmul(),
            [weights, x],
            shape=low.graph.values[node.output].shape,
            scale=weights.scale + x.scale,
            interval=Matmul().interval(weights.interval, x.interval),
        )


def _largest(low: Lowering, node: Node) -> float | None:
    """What calibration data say of the products before the division: real and without the margin."""
    if low.magnitudes is None:
        return None
    return low.magnitudes[node.inputs[1]] * max(low.magnitudes[node.output], 1.0)


def _scale(low: Lowering, node: Node, fine: int) -> int | None:
    """Fractional bits of the powers with which their products with x fit the ring, if these are enough."""
    x = low.value(node.inputs[2])
    count = x.shape[-2]
    largest = count * math.ldexp(x.interval.magnitude, -x.scale)
    of_data = _largest(low, node)
    if of_data is not None:
        largest = min(largest, max(MARGIN * of_data, 1.0))
    # A table may be off at 1, and the whole numbers are not the reals.
    room = low.settings.available_bits - integer_bits(math.ldexp(largest * 1.01, x.scale))
    scale = min(fine, room)
    return scale if scale >= LEAST_BITS else None
