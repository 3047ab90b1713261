"""HardSigmoid and HardSwish: a line between two ends, and its product with the input."""

from __future__ import annotations

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value
from covey.ops.affine import Affine
from covey.ops.clip import Clip
from covey.ops.mul import Mul


def hard_sigmoid(node: OnnxNode, x: Value, alpha: float, beta: float, output: str | None = None) -> Value:
    """`max(0, min(1, alpha * x + beta))`."""
    line = node.emit(Affine(alpha, beta), [x], output=f"{output or node.outputs[0]}.line")
    return node.emit(Clip(0.0, 1.0), [line], output=output)


@from_onnx("HardSigmoid")
def _hard_sigmoid(node: OnnxNode) -> None:
    alpha, beta = float(node.attribute("alpha", 0.2)), float(node.attribute("beta", 0.5))
    hard_sigmoid(node, node.activation(0), alpha, beta)
    node.note("a line, clipped to 0..1")


@from_onnx("HardSwish")
def _hard_swish(node: OnnxNode) -> None:
    x = node.activation(0)
    gate = hard_sigmoid(node, x, 1 / 6, 0.5, output=f"{node.outputs[0]}.gate")
    node.emit(Mul(), [x, gate])
    node.note("the input times a line clipped to 0..1")


@from_torch("aten.hardsigmoid.default")
def _hard_sigmoid_aten(node: TorchNode) -> None:
    node.become("HardSigmoid", node.activation("self"), alpha=1 / 6)


@from_torch("aten.hardswish.default")
def _hard_swish_aten(node: TorchNode) -> None:
    node.become("HardSwish", node.activation("self"))
