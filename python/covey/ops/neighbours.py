"""Which of some points, which are weights, are nearest to a row of features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OWN_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array, Interval
from covey.ir import DType, Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops import top_k
from covey.ops.comparison import below_zero, negated
from covey.ops.distances import SquaredDistances
from covey.ops.gather import MOST_INDICES
from covey.ops.mul import Mul
from covey.ops.number import Number
from covey.ops.sub import Sub
from covey.steps import in_shape_of_result, interim

USUAL = 16.0
"""What squared distances are scaled to on average: small, and far above what fixed-point numbers round."""


@dataclass(frozen=True)
class Smallest(Op):
    """Of each row [.., K]: 1 where an element is one of the `count` smallest, else 0. Of equal ones the first are."""

    count: int

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        order = np.argsort(inputs[0], axis=-1, kind="stable")[..., : self.count]
        found = np.zeros_like(inputs[0])
        np.put_along_axis(found, order, 1.0, axis=-1)
        return found

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros_like(inputs[0].low)
        return Interval(zeros, zeros + 1.0)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        size = x.shape[-1]
        shape = (math.prod(x.shape[:-1]), size)
        rows = interim(low, node, pb.Reshape(), [x], shape, x.interval.reshape((1, *shape)), "rows")
        # With its place as further digits no two are equal, so that exactly `count` are no worse than the last taken.
        keys = top_k.keys_of(low, node, rows, (size - 1).bit_length(), largest=False)
        last = top_k.taken(low, node, top_k.sort(low, node, keys, self.count), [self.count - 1], "last")
        worse = below_zero(low, node, top_k.minus(low, node, keys, last, "above_last"), "worse")
        return in_shape_of_result(low, node, negated(low, node, worse, f"{node.output}.near"))


@from_onnx("Neighbours", domain=OWN_DOMAIN)
def _neighbours(node: OnnxNode) -> None:
    x, points, count = node.activation(0), node.weights(1, "points"), int(node.attribute("count", 1))
    if points.ndim != 2 or x.shape != points.shape[1:] or not 1 <= count <= len(points):
        raise node.unsupported(f"{count} of {list(points.shape)} points are no neighbours of {x}", "fit it again")
    if 3 * sum(map(len, top_k.network(len(points), count))) > MOST_INDICES:
        reason = f"its {count} neighbours of {len(points)} samples take too many comparisons"
        raise node.unsupported(reason, "fit it on fewer samples, or take a support vector machine")
    name, centre = node.outputs[0], points.mean(axis=0)
    spread = float(((points - centre) ** 2).sum(axis=1).mean()) or 1.0
    factor = np.full(len(centre), math.sqrt(USUAL / spread))
    moved = node.emit(Sub(), [x, node.parameter(centre, f"{name}.centre")], output=f"{name}.moved")
    scaled = node.emit(Mul(), [moved, node.parameter(factor, f"{name}.factor")], output=f"{name}.scaled")
    vectors = node.parameter(np.ascontiguousarray(((points - centre) * factor).T), f"{name}.points")
    distances = node.emit(SquaredDistances(), [scaled, vectors], output=f"{name}.distances")
    near = node.emit(Smallest(count), [distances], output=f"{name}.near", dtype=DType.BOOL)
    node.emit(Number(), [near])
