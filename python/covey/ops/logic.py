"""And, Or, Xor and Not of truth values, which are 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import DType, Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering
from covey.ops.comparison import Not


@dataclass(frozen=True)
class Both(Op):
    """`sums * (x + y) + products * x * y`: and for (0, 1), or for (1, -1), exclusive or for (1, -2)."""

    sums: int
    products: int

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        x, y = inputs
        return self.sums * (x + y) + self.products * x * y

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros(np.broadcast_shapes(*(i.low.shape for i in inputs)))
        return Interval(zeros, zeros + 1.0)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = [low.value(name) for name in node.inputs]
        bit = self.interval(*(operand.interval for operand in operands))

        def step(op: Message, inputs: Sequence[Lowered], interval: Interval, hint: str = "") -> Lowered:
            shape = low.graph.values[node.output].shape
            name = f"{node.output}.{hint}" if hint else None
            return low.emit(node, op, inputs, shape=shape, scale=0, interval=interval, name=name, unconditional=True)

        if self.sums == 0:
            return step(pb.Mul(), operands, bit)
        product = step(pb.Mul(), operands, bit, "both")
        result = step(pb.Add(), operands, bit.scaled(2.0), "sum")
        for remaining in range(-self.products, 0, -1):
            result = step(pb.Sub(), [result, product], bit, "once" if remaining > 1 else "")
        return result


@from_onnx("And")
def _and(node: OnnxNode) -> None:
    _emit(node, Both(0, 1))


@from_onnx("Or")
def _or(node: OnnxNode) -> None:
    _emit(node, Both(1, -1))


@from_onnx("Xor")
def _xor(node: OnnxNode) -> None:
    _emit(node, Both(1, -2))


def _emit(node: OnnxNode, op: Both) -> None:
    node.emit(op, [node.boolean(0, "first operand"), node.boolean(1, "second operand")], dtype=DType.BOOL)


@from_onnx("Not")
def _not(node: OnnxNode) -> None:
    node.emit(Not(), [node.boolean(0, "operand")], dtype=DType.BOOL)


@from_torch("aten.logical_and.default", "aten.bitwise_and.Tensor", "aten.__and__.Tensor")
def _and_aten(node: TorchNode) -> None:
    node.become("And", node.activation("self"), node.activation("other"))


@from_torch("aten.logical_or.default", "aten.bitwise_or.Tensor", "aten.__or__.Tensor")
def _or_aten(node: TorchNode) -> None:
    node.become("Or", node.activation("self"), node.activation("other"))


@from_torch("aten.logical_xor.default", "aten.bitwise_xor.Tensor", "aten.__xor__.Tensor")
def _xor_aten(node: TorchNode) -> None:
    node.become("Xor", node.activation("self"), node.activation("other"))


@from_torch("aten.logical_not.default", "aten.bitwise_not.default")
def _not_aten(node: TorchNode) -> None:
    node.become("Not", node.activation("self"))
