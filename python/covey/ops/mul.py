"""Multiplication element by element, of activations and with constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import ParameterError
from covey.functions import RECIPROCAL
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering, leading_zeros
from covey.ops.add import both_truths, elementwise_operands, truth_as_number
from covey.ops.scalar import Scalar

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Mul(Op):
    """Element by element, broadcasting; scales add."""

    widens = True

    elementwise = True

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        return inputs[0] * inputs[1]

    def interval(self, *inputs: Interval) -> Interval:
        return inputs[0] * inputs[1]

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, y = inputs

        def part(of: Value, other: Value) -> Value | None:
            if not build.learns(of):
                return None
            whole = other.batched and other.shape == gradient.shape
            return (
                build.products_to(gradient, other, of.shape)
                if whole
                else build.sum_to(build.mul(gradient, other), of.shape)
            )

        return [part(x, y), part(y, x)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        def encoded(name: str) -> Lowered:
            finer = 0 if name in low.graph.reach else leading_zeros(low.graph.parameters[name])
            return low.parameter(node, name, low.scale_of(name) + finer)

        operands = [encoded(name) if low.is_parameter(name) else low.value(name) for name in node.inputs]
        return low.emit(
            node,
            pb.Mul(),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=sum(operand.scale for operand in operands),
            interval=self._product(
                *(operand.interval for operand in operands), square=node.inputs[0] == node.inputs[1]
            ),
        )

    def _product(self, x: Interval, y: Interval, *, square: bool) -> Interval:
        """Where the result lies; a square is not negative."""
        product = self.interval(x, y)
        return Interval(np.maximum(product.low, 0.0), product.high) if square else product


@from_onnx("Mul")
def _mul(node: OnnxNode) -> None:
    node.emit(Mul(), elementwise_operands(node))


@from_onnx("Div")
def _div(node: OnnxNode) -> None:
    if not node.is_constant(1):
        _by_activation(node)
        return
    dividend = node.activation(0, "dividend")
    divisor = node.beside(1, "divisor", dividend)
    values = node.scope.graph.parameters[divisor.name]
    with np.errstate(divide="ignore", over="ignore"):
        inverse = 1.0 / values
    if not np.isfinite(inverse).all():
        raise ParameterError(node.name, node.op_type, "it divides by zero", "repair the model")
    node.emit(Mul(), [dividend, node.parameter(inverse, f"{node.inputs[1]}.inverse")])
    node.note("multiplication by the reciprocal")


def _by_activation(node: OnnxNode) -> None:
    """By numbers that are positive wherever they can lie: a table of the reciprocal says so of its input."""
    dividend, divisor = elementwise_operands(node)
    ones = dividend.name in node.scope.graph.parameters and bool(
        (node.scope.graph.parameters[dividend.name] == 1).all()
    )
    if ones and dividend.shape == ():
        node.emit(Scalar(RECIPROCAL), [divisor])
    else:
        inverse = node.emit(Scalar(RECIPROCAL), [divisor], output=f"{node.outputs[0]}.reciprocal")
        node.emit(Mul(), [dividend, inverse])
    node.note("multiplication by a table of the reciprocal")


@from_torch("aten.mul.Tensor", "aten.mul.Scalar")
def _mul_aten(node: TorchNode) -> None:
    truths = both_truths(node, "self", "other")
    if truths is not None:
        node.become("And", *truths)
        return
    node.become("Mul", truth_as_number(node, node.operand("self")), truth_as_number(node, node.operand("other")))


@from_torch("aten.div.Tensor", "aten.div.Scalar")
def _div_aten(node: TorchNode) -> None:
    node.become("Div", *(node.numbers(node.operand(name)) for name in ("self", "other")))
