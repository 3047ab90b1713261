"""Each row over its norm: a division by a secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey.functions import SIGMOID
from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lookup import clipped
from covey.lowering import Lowered, Lowering
from covey.ops.gather import data_axis
from covey.ops.leaky_relu import TwoSlopes
from covey.ops.quotient import Quotient
from covey.ops.relu import Relu
from covey.ops.scalar import Scalar
from covey.ops.softmax import Softmax
from covey.ops.transpose import Transpose

if TYPE_CHECKING:
    from covey.training.builder import Builder

NORMS: dict[str, float] = {"MAX": np.inf, "L1": 1, "L2": 2}

ABS = TwoSlopes(-1.0)

LARGEST_SIZE = "MAX_ABS"
"""What the importer of scikit-learn's models writes for MAX, which is the largest size there."""


@dataclass(frozen=True)
class Normalizer(Op):
    """x over its norm along the last dimension: MAX, L1 or L2."""

    norm: str

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0]
        norm = np.linalg.norm(x, NORMS[self.norm], axis=-1, keepdims=True)
        return np.asarray(x / np.where(norm == 0.0, 1.0, norm))

    def interval(self, *inputs: Interval) -> Interval:
        ones = np.ones_like(inputs[0].low)
        return Interval(-ones, ones)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise AssertionError("a pass writes it as a division")


@dataclass(frozen=True)
class Positive(Op):
    """x, or one unit of its last place where it is less: a divisor that is not 0."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(np.maximum(inputs[0], np.finfo(np.float64).tiny))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.part(inputs[0], lambda: gradient)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return clipped(low, node, low.value(node.inputs[0]), (1, None), low.magnitude(node.output), "positive")


@dataclass(frozen=True)
class Share(Quotient):
    """x over a number that none of its row exceeds."""

    def limit(self, x: Lowered, y: Lowered) -> float:
        return 1 + 2.0**-10


@from_onnx("Normalizer", domain=ML_DOMAIN)
def _normalizer(node: OnnxNode) -> None:
    x, norm = node.activation(0), str(node.attribute("norm", "MAX"))
    if norm == "MAX" and not _never_negative(node, x):
        raise node.unsupported(
            f"its norm is MAX: runtimes divide {x} by its largest element or by the largest size",
            "use L1 or L2, or put a Relu before it",
        )
    _emit(node, "MAX" if norm == LARGEST_SIZE else norm)


def _never_negative(node: OnnxNode, x: Value) -> bool:
    """Whether the largest element is the largest size, too, by what computes it."""
    producer = node.scope.graph.producer(x.name)
    return producer is not None and (isinstance(producer.op, Relu | Softmax) or producer.op in (ABS, Scalar(SIGMOID)))


@from_onnx("LpNormalization")
def _lp_normalization(node: OnnxNode) -> None:
    x = node.activation(0)
    axis = data_axis(node, x, int(node.attribute("axis", -1)))
    norm, last, name = f"L{int(node.attribute('p', 2))}", len(x.shape) - 1, node.outputs[0]
    if axis == last:
        _emit(node, norm)
        return
    order = list(range(x.rank))
    order[axis + 1], order[-1] = order[-1], order[axis + 1]
    turned = node.emit(Transpose(tuple(order)), [x], output=f"{name}.turned")
    node.emit(Transpose(tuple(order)), [node.emit(_normalizer_of(node, norm, x), [turned], output=f"{name}.rows")])


def _emit(node: OnnxNode, norm: str) -> None:
    x = node.activation(0)
    op = _normalizer_of(node, norm, x)
    producer = node.scope.graph.producer(x.name)
    if norm == "L1" and producer is not None and isinstance(producer.op, Softmax):
        node.alias(x)
        node.note("removed: probabilities add up to 1")
        return
    node.emit(op, [x])


def _normalizer_of(node: OnnxNode, norm: str, x: Value) -> Normalizer:
    if norm not in NORMS or not x.shape:
        raise node.unsupported(f"its norm of {x} is {norm}", f"export the model with one of {', '.join(NORMS)}")
    return Normalizer(norm)
