"""The rectifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Relu(Op):
    """`max(x, 0)`."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.maximum(inputs[0], 0.0)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        (x,) = inputs
        return build.positive_part(x) if build.learns(x) else build.emit(self, x)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return low.emit(node, pb.Relu(), [x], shape=x.shape, scale=x.scale, interval=self.interval(x.interval))


@from_onnx("Relu")
def _relu(node: OnnxNode) -> None:
    node.emit(Relu(), [node.activation(0)])


@from_torch("aten.relu.default")
def _relu_aten(node: TorchNode) -> None:
    node.become("Relu", node.activation("self"))
