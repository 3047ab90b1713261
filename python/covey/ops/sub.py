"""Subtraction, of activations and of constants; negation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering
from covey.ops.add import elementwise_operands, times_alpha

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Sub(Op):
    """Element by element, broadcasting."""

    elementwise = True

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        return inputs[0] - inputs[1]

    def interval(self, *inputs: Interval) -> Interval:
        return inputs[0] - inputs[1]

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, y = inputs
        return [build.part(x, lambda: gradient), build.part(y, lambda: build.affine(gradient, -1.0))]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = low.operands_at_one_scale(node)
        return low.emit(
            node,
            pb.Sub(),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=operands[0].scale,
            interval=self.interval(*(operand.interval for operand in operands)),
        )


@from_onnx("Sub")
def _sub(node: OnnxNode) -> None:
    node.emit(Sub(), elementwise_operands(node))


@from_onnx("Neg")
def _neg(node: OnnxNode) -> None:
    negated(node, node.activation(0))
    node.note("subtraction from zero")


def negated(node: OnnxNode, x: Value, output: str | None = None) -> Value:
    """0 - x, by default as the node's own result."""
    zero = node.parameter(np.zeros(()), f"{output or node.outputs[0]}.zero")
    return node.emit(Sub(), [zero, x], output=output)


@from_torch("aten.sub.Tensor", "aten.sub.Scalar")
def _sub_aten(node: TorchNode) -> None:
    node.become("Sub", node.operand("self"), times_alpha(node))


@from_torch("aten.rsub.Tensor", "aten.rsub.Scalar")
def _rsub_aten(node: TorchNode) -> None:
    alpha = node.number("alpha")
    own = node.operand("self")
    node.become("Sub", node.operand("other"), own if alpha == 1.0 else node.apply("Mul", own, alpha, suffix="scaled"))


@from_torch("aten.neg.default")
def _neg_aten(node: TorchNode) -> None:
    node.become("Neg", node.activation("self"))
