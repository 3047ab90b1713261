"""Softmax. Only at the end of a network, where the result's owner computes it in the clear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.errors import UnsupportedError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class Softmax(Op):
    """Over the last dimension."""

    def shape(self, *inputs: Value) -> Shape:
        if not inputs[0].shape:
            raise ValueError("it would run over the batch")
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        powers = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros_like(inputs[0].low)
        return Interval(zeros, zeros + 1.0)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        raise refusal(node)


def refusal(node: Node) -> UnsupportedError:
    """The error for a Softmax inside a network."""
    return UnsupportedError(
        node.name,
        node.source_op,
        "it is not the network's last operation",
        "only a trailing Softmax is supported, done by the result's owner",
    )


@from_onnx("Softmax")
def _softmax(node: OnnxNode) -> None:
    x = node.activation(0)
    axis = int(node.attribute("axis", -1 if node.opset >= 13 else 1))
    axis = axis + x.rank if axis < 0 else axis
    # Before opset 13 it ran over all dimensions from `axis` on at once.
    trailing = x.shape[axis - 1 :] if node.opset < 13 else x.shape[axis - 1 : axis]
    last = axis == x.rank - 1 if node.opset >= 13 else axis >= 1 and all(s == 1 for s in trailing[:-1])
    if axis < 1 or not last:
        raise node.unsupported(f"it runs over axis {axis} of {x}", "only the last dimension is supported")
    node.emit(Softmax(), [x])


@from_torch("aten.softmax.int", "aten._softmax.default")
def _softmax_aten(node: TorchNode) -> None:
    node.ignore("dtype", "half_to_float")
    node.become(
        "Softmax", node.activation("self" if "self" in node.arguments else "input"), axis=node.integers("dim")[0]
    )
