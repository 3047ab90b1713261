"""Addition, of activations and of constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import Constant, Operand, TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import DType, Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering
from covey.ops.affine import Affine

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Add(Op):
    """Element by element, broadcasting."""

    elementwise = True

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        return inputs[0] + inputs[1]

    def interval(self, *inputs: Interval) -> Interval:
        return inputs[0] + inputs[1]

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.part(x, lambda: gradient) for x in inputs]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = low.operands_at_one_scale(node)
        return low.emit(
            node,
            pb.Add(),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=operands[0].scale,
            interval=self.interval(*(operand.interval for operand in operands)),
        )


def elementwise_operands(node: OnnxNode, *, masking: bool = False) -> list[Value]:
    """The two operands of an element-wise node, at least one of them an activation; a constant may be `masking`."""
    if node.opset < 7:
        node.ignore("broadcast")
    if node.is_constant(0):
        right = node.activation(1, "second operand")
        return [node.beside(0, "first operand", right, masking=masking), right]
    left = node.activation(0, "first operand")
    if node.is_constant(1):
        return [left, node.beside(1, "second operand", left, masking=masking)]
    return [left, node.activation(1, "second operand")]


@from_onnx("Add")
def _add(node: OnnxNode) -> None:
    node.emit(Add(), elementwise_operands(node, masking=True))


@from_onnx("Sum")
def _sum(node: OnnxNode) -> None:
    total = _chain(node, None)
    if total.name != node.outputs[0]:
        node.alias(total)
    node.note("a chain of additions")


@from_onnx("Mean")
def _mean(node: OnnxNode) -> None:
    total = _chain(node, f"{node.outputs[0]}.total")
    node.emit(Affine(1 / len(node.inputs)), [total])
    node.note("a chain of additions, and a product with a public number")


def _chain(node: OnnxNode, output: str | None) -> Value:
    """The sum of all operands."""
    if any(node.is_constant(index) for index in range(len(node.inputs))):
        raise node.unsupported("it sums constants and activations", "use Add")
    total = node.activation(0)
    for index in range(1, len(node.inputs)):
        last = index == len(node.inputs) - 1
        name = output if last else f"{node.outputs[0]}.{index}"
        total = node.emit(Add(), [total, node.activation(index)], output=name)
    return total


@from_torch("aten.add.Tensor", "aten.add.Scalar")
def _add_aten(node: TorchNode) -> None:
    truths = both_truths(node, "self", "other")
    if truths is not None:
        node.ignore("alpha")
        node.become("Or", *truths)
        return
    node.become("Add", truth_as_number(node, node.operand("self")), truth_as_number(node, times_alpha(node)))


def both_truths(node: TorchNode, *names: str) -> list[Operand] | None:
    """The arguments of these names where all are truth values, of which PyTorch's result is one."""
    given = [node.argument(name) for name in names]
    public = [isinstance(each, bool) or (isinstance(each, Constant) and each.array.dtype == np.bool_) for each in given]
    secret = [isinstance(each, Value) and each.dtype is DType.BOOL for each in given]
    if not all(one or other for one, other in zip(public, secret, strict=True)):
        return None
    return [each if isinstance(each, Value) else np.asarray(getattr(each, "array", each)) for each in given]


def truth_as_number(node: TorchNode, given: Operand) -> Operand:
    """An operand, which is 0 or 1 where it is a truth value."""
    return node.numbers(given) if isinstance(given, Value) and given.dtype is DType.BOOL else given


def times_alpha(node: TorchNode) -> Operand:
    """The argument `other`, times `alpha` where that is not 1."""
    other, alpha = node.operand("other"), node.number("alpha")
    if isinstance(other, Constant):
        return replace(other, array=other.array * alpha)
    if isinstance(other, Value):
        return other if alpha == 1.0 else node.apply("Mul", other, alpha, suffix="scaled")
    return other * alpha


@from_torch("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp_aten(node: TorchNode) -> None:
    """x + weight · (y - x)."""
    x = node.operand("self")
    gap = node.apply("Sub", node.operand("end"), x, suffix="gap")
    node.become("Add", x, node.apply("Mul", gap, node.operand("weight"), suffix="part"))
