"""Whole parts: Floor, Ceil, Round, Trunc. They are those of the fixed-point number, exactly; results have no fraction.

What differs from a whole number by less than 2^-scale may be that number in fixed point, as for comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.comparison import below_zero
from covey.ops.relu import Relu
from covey.ops.sub import Sub, negated
from covey.public_division import Division

if TYPE_CHECKING:
    from covey.training.builder import Builder


class WholePart(Op):
    """An operator whose results are whole numbers near its operand. It has no gradient."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None]


@dataclass(frozen=True)
class Floor(WholePart):
    """`floor(x / divisor)`, a whole number. The divisor is positive and public."""

    divisor: float = 1.0

    def reference(self, *inputs: Array) -> Array:
        return np.floor_divide(inputs[0], self.divisor)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return x if x.scale == 0 and self.divisor == 1 else Division(low, node, self.divisor).quotient()


@dataclass(frozen=True)
class Round(WholePart):
    """The nearest whole number; of two as near, the even one."""

    def reference(self, *inputs: Array) -> Array:
        return np.rint(inputs[0])

    def lower(self, low: Lowering, node: Node) -> Lowered:
        """The floor, and 1 more if the fraction is above a half, or a half and the floor odd."""
        x = low.value(node.inputs[0])
        if x.scale == 0:
            return x
        division = Division(low, node, 1.0)
        floor = division.quotient("floor")
        fraction = division.less_multiple(floor, "fraction")
        odd = division.odd(floor)
        half = math.ldexp(1.0, x.scale - 1)
        constant = low.constant(node, "half", np.array(half), x.scale)
        rest = division.between(pb.Sub(), [constant, fraction], x.scale, 1.0 - half, half, "rest")
        # By one unit of the last place: a half rounds up only there.
        unit = low.constant(node, "unit", np.array(1.0), x.scale)
        last = division.between(pb.Mul(), [odd, unit], x.scale, 0.0, 1.0, "last")
        rest = division.between(pb.Sub(), [rest, last], x.scale, -half, half, "compared")
        up = below_zero(low, node, rest, "up")
        interval = Interval(*(np.rint(np.ldexp(end, -x.scale)) for end in (x.interval.low, x.interval.high)))
        return low.emit(node, pb.Add(), [floor, up], shape=x.shape, scale=0, interval=interval)


@from_onnx("Floor")
def _floor(node: OnnxNode) -> None:
    """PyTorch's `//` has the divisor as a second operand."""
    divisor = divisor_of(node) if node.has(1) else 1.0
    x = node.activation(0)
    if divisor < 0:
        x, divisor = negated(node, x, f"{node.outputs[0]}.minus"), -divisor
    node.emit(Floor(divisor), [x])


@from_onnx("TruncatedDiv")
def _truncated_quotient(node: OnnxNode) -> None:
    """Not ONNX's own: a quotient without its fraction, as Div has it of whole numbers."""
    if not node.is_constant(1):
        raise node.unsupported(
            "it divides whole numbers by others that are no constant", "put a Cast to float before it"
        )
    toward_zero(node, node.activation(0, "dividend"), divisor_of(node))


def toward_zero(node: OnnxNode, x: Value, divisor: float = 1.0) -> None:
    """The result is x / divisor without its fraction: the floor of what is above zero less that of what is below."""
    name = node.outputs[0]
    positive = node.emit(Relu(), [x], output=f"{name}.positive")
    negative = node.emit(Sub(), [positive, x], output=f"{name}.negative")
    parts = [positive, negative] if divisor > 0 else [negative, positive]
    floor = Floor(abs(divisor))
    node.emit(
        Sub(),
        [node.emit(floor, [x], output=f"{name}.{hint}") for hint, x in zip(("above", "below"), parts, strict=True)],
    )
    node.note("the floors of what is above and below zero")


@from_onnx("Round")
def _round(node: OnnxNode) -> None:
    node.emit(Round(), [node.activation(0)])


@from_torch("aten.floor.default")
def _floor_aten(node: TorchNode) -> None:
    node.become("Floor", node.activation("self"))


@from_onnx("Ceil")
def _ceil(node: OnnxNode) -> None:
    name = node.outputs[0]
    minus = negated(node, node.activation(0), f"{name}.minus")
    negated(node, node.emit(Floor(), [minus], output=f"{name}.floor"))
    node.note("the floor of -x, with its sign changed")


def divisor_of(node: OnnxNode) -> float:
    """The second operand, a number other than 0."""
    divisor = node.one_number(1, "divisor")
    if divisor == 0 or not np.isfinite(divisor):
        raise node.unsupported(f"its divisor is {divisor:g}", "divide by another number")
    return divisor


@from_torch("aten.ceil.default")
def _ceil_aten(node: TorchNode) -> None:
    node.become("Ceil", node.activation("self"))


@from_torch("aten.round.default", "aten.round.decimals")
def _round_aten(node: TorchNode) -> None:
    x, factor = node.activation("self"), 10.0 ** int(node.argument("decimals") or 0)
    if factor == 1.0:
        node.become("Round", x)
    else:
        node.become("Mul", node.apply("Round", node.apply("Mul", x, factor)), 1 / factor)


@from_torch("aten.trunc.default", "aten.fix.default")
def _trunc_aten(node: TorchNode) -> None:
    node.become("TruncatedDiv", node.activation("self"), 1.0)


@from_torch("aten.frac.default")
def _frac_aten(node: TorchNode) -> None:
    node.become("Mod", node.activation("self"), 1.0, fmod=1)
