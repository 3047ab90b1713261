"""Remainders of a division by a public number, and quotients rounded to whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.floor import divisor_of
from covey.ops.relu import Relu
from covey.ops.sub import Sub, negated
from covey.public_division import Division

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Remainder(Op):
    """`x - divisor * floor(x / divisor)`, from 0 up to the divisor, which is positive and public."""

    divisor: float

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.remainder(inputs[0], self.divisor)

    def interval(self, *inputs: Interval) -> Interval:
        (x,) = inputs
        least, most = (np.floor_divide(end, self.divisor) for end in (x.low, x.high))
        within = least == most
        low = np.where(within, np.remainder(x.low, self.divisor), 0.0)
        return Interval(low, np.where(within, np.remainder(x.high, self.divisor), self.divisor))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [gradient]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return Division(low, node, self.divisor).remainder()


@from_onnx("Mod")
def _mod(node: OnnxNode) -> None:
    """With `fmod` the result has the sign of x, as in C; else that of the divisor."""
    from covey.ops.counting import counted  # which imports this module

    divisor, output = divisor_of(node), node.outputs[0]
    x, fmod = node.activation(0, index_allowed=True), node.flag("fmod")
    span = counted(node.scope.graph, x.name)
    if span is not None and span.low.min() >= 0 and span.high.max() < divisor:
        node.alias(x)
        node.note("removed: its operand is below its divisor")
        return
    x = node.activation(0)
    if fmod:
        positive = node.emit(Relu(), [x], output=f"{output}.positive")
        negative = node.emit(Sub(), [positive, x], output=f"{output}.negative")
        parts = [
            node.emit(Remainder(abs(divisor)), [part], output=f"{part.name}.remainder") for part in (positive, negative)
        ]
        node.emit(Sub(), parts)
    elif divisor > 0:
        node.emit(Remainder(divisor), [x])
    else:
        minus = negated(node, x, f"{output}.minus")
        negated(node, node.emit(Remainder(-divisor), [minus], output=f"{output}.remainder"))


@from_torch("aten.remainder.Scalar", "aten.remainder.Tensor")
def _remainder_aten(node: TorchNode) -> None:
    node.become("Mod", node.activation("self"), node.operand("other"))


@from_torch("aten.fmod.Scalar", "aten.fmod.Tensor")
def _fmod_aten(node: TorchNode) -> None:
    node.become("Mod", node.activation("self"), node.operand("other"), fmod=1)


@from_torch("aten.floor_divide.default", "aten.floor_divide.Scalar")
def _floor_divide_aten(node: TorchNode) -> None:
    node.become("Floor", node.activation("self"), node.operand("other"))


@from_torch("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode_aten(node: TorchNode) -> None:
    mode = node.argument("rounding_mode")
    if mode is None:
        node.become("Div", node.operand("self"), node.operand("other"))
    elif mode == "floor":
        node.become("Floor", node.activation("self"), node.operand("other"))
    else:
        node.become("TruncatedDiv", node.activation("self"), node.operand("other"))
