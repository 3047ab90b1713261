"""Normalizer: each sample over its norm. Only at the end of a model, where the result's owner divides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.errors import UnsupportedError
from covey.importers.onnx_node import ML_DOMAIN, OnnxNode, from_onnx
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.softmax import Softmax

NORMS: dict[str, float] = {"MAX": np.inf, "L1": 1, "L2": 2}


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
        raise refusal(node, at_input=False)


def refusal(node: Node, *, at_input: bool) -> UnsupportedError:
    """The error for a Normalizer before the end of a model."""
    way_out = (
        "it needs no secret: let the data's owner apply it, and compile the rest of the model"
        if at_input
        else "train the model without it, or with a StandardScaler in its place"
    )
    return UnsupportedError(node.name, node.source_op, "it divides each sample by its secret norm", way_out)


@from_onnx("Normalizer", domain=ML_DOMAIN)
def _normalizer(node: OnnxNode) -> None:
    _emit(node, str(node.attribute("norm", "MAX")))


@from_onnx("LpNormalization")
def _lp_normalization(node: OnnxNode) -> None:
    x = node.activation(0)
    axis = int(node.attribute("axis", -1))
    if axis not in (-1, x.rank - 1):
        raise node.unsupported(f"it runs over axis {axis} of {x}", "only the last dimension is supported")
    _emit(node, f"L{int(node.attribute('p', 2))}")


def _emit(node: OnnxNode, norm: str) -> None:
    x = node.activation(0)
    if norm not in NORMS or not x.shape:
        raise node.unsupported(f"its norm of {x} is {norm}", f"export the model with one of {', '.join(NORMS)}")
    producer = node.scope.graph.producer(x.name)
    if norm == "L1" and producer is not None and isinstance(producer.op, Softmax):
        node.alias(x)
        node.note("removed: probabilities add up to 1")
        return
    node.emit(Normalizer(norm), [x])
