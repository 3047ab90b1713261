"""Functions of two slopes that meet at zero: LeakyRelu, PRelu, Abs. One comparison an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering
from covey.ops.affine import bits_of

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class TwoSlopes(Op):
    """`below * x` where x < 0, else `above * x`: below * x + (above - below) * max(x, 0), rounded once."""

    below: float
    above: float = 1.0

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return np.where(inputs[0] < 0, self.below, self.above) * inputs[0]

    def interval(self, *inputs: Interval) -> Interval:
        x = inputs[0]
        ends = (self.reference(x.low), self.reference(x.high))
        crosses = (x.low <= 0) & (x.high >= 0)
        low, high = np.minimum(*ends), np.maximum(*ends)
        low, high = np.where(crosses, np.minimum(low, 0), low), np.where(crosses, np.maximum(high, 0), high)
        return Interval(low, high).outward()

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        (x,) = inputs
        if not build.learns(x):
            return build.emit(self, x)
        return build.total([build.affine(x, self.below), build.affine(build.positive_part(x), self.above - self.below)])

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        bits = max(bits_of(self.below, low.scale), bits_of(self.above, low.scale))
        below, above = (int(np.rint(np.ldexp(slope, bits))) for slope in (self.below, self.above))
        magnitude = low.magnitude(node.inputs[0])
        relu = low.emit(
            node,
            pb.Relu(),
            [x],
            shape=x.shape,
            scale=x.scale,
            interval=x.interval.positive,
            name=f"{node.output}.relu",
            magnitude=magnitude,
        )
        terms = []
        for value, factor, name in ((x, below, "below"), (relu, above - below, "gain")):
            multiplier = np.array(float(factor))
            terms.append(
                low.emit(
                    node,
                    pb.Mul(),
                    [value, low.constant(node, f"{name}.factor", multiplier, bits)],
                    shape=x.shape,
                    scale=x.scale + bits,
                    interval=value.interval * Interval.constant(multiplier),
                    name=f"{node.output}.{name}",
                    magnitude=None if magnitude is None else magnitude * abs(factor) * 2.0**-bits,
                )
            )
        return low.emit(
            node,
            pb.Add(),
            terms,
            shape=x.shape,
            scale=x.scale + bits,
            interval=TwoSlopes(float(below), float(above)).interval(x.interval),
        )


@dataclass(frozen=True)
class PRelu(Op):
    """`slope * x` where x < 0, else x; the slope is a parameter of the model: max(x, 0) + slope * (x - max(x, 0))."""

    widens = True

    def shape(self, *inputs: Value) -> Shape:
        if broadcast(*inputs) != inputs[0].shape:
            raise ValueError(f"its slope {inputs[1]} does not fit {inputs[0]}")
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        x, slope = inputs
        return np.where(x < 0, slope, 1.0) * x

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        x, slope = inputs
        if not (build.learns(x) or build.learns(slope)):
            return build.emit(self, x, slope)
        part = build.positive_part(x)
        return build.add(part, build.mul(build.sub(x, part), slope))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        slope = low.parameter(node, node.inputs[1], low.scale_of(node.inputs[1]))
        magnitude = low.magnitude(node.inputs[0])

        def part(op: Message, inputs: Sequence[Lowered], interval: Interval, hint: str) -> Lowered:
            name = f"{node.output}.{hint}"
            return low.emit(
                node, op, inputs, shape=x.shape, scale=x.scale, interval=interval, name=name, magnitude=magnitude
            )

        relu = part(pb.Relu(), [x], x.interval.positive, "relu")
        rest = part(pb.Sub(), [x, relu], x.interval.negative, "negative")
        largest = None if magnitude is None else magnitude * low.largest(node.inputs[1])
        wide = x.scale + slope.scale
        sloped = low.emit(
            node,
            pb.Mul(),
            [rest, slope],
            shape=x.shape,
            scale=wide,
            interval=x.interval.negative * slope.interval,
            name=f"{node.output}.sloped",
            magnitude=largest,
        )
        raised = low.shift_left(node, relu, wide, magnitude)
        interval = raised.interval + sloped.interval
        return low.emit(node, pb.Add(), [raised, sloped], shape=x.shape, scale=wide, interval=interval)


@from_onnx("LeakyRelu")
def _leaky_relu(node: OnnxNode) -> None:
    node.emit(TwoSlopes(float(node.attribute("alpha", 0.01))), [node.activation(0)])


@from_onnx("PRelu")
def _prelu(node: OnnxNode) -> None:
    x = node.activation(0)
    node.emit(PRelu(), [x, node.beside(1, "slope", x)])


@from_onnx("Abs")
def _abs(node: OnnxNode) -> None:
    node.emit(TwoSlopes(-1.0), [node.activation(0)])


@from_torch("aten.leaky_relu.default")
def _leaky_relu_aten(node: TorchNode) -> None:
    node.become("LeakyRelu", node.activation("self"), alpha=node.number("negative_slope"))


@from_torch("aten.rrelu.default")
def _random_relu_aten(node: TorchNode) -> None:
    """In inference the slope is the mean of the range that training draws it from."""
    node.ignore("generator")
    if node.flag("training") or node.scope.dropout:
        raise node.unsupported("its slope is random in training", "call eval() on the module, or train with LeakyReLU")
    slope = (node.number("lower") + node.number("upper")) / 2
    node.become("LeakyRelu", node.activation("self"), alpha=slope)
    node.note("LeakyReLU of the mean slope")


@from_torch("aten.prelu.default", "aten._prelu_kernel.default")
def _prelu_aten(node: TorchNode) -> None:
    x, slope = node.activation("self"), node.constant("weight").astype(np.float64)
    if slope.ndim == 1:
        # One slope a channel; ONNX aligns dimensions at the end.
        slope = slope.reshape(-1, *(1,) * (len(x.shape) - 1))
    node.become("PRelu", x, slope)


@from_torch("aten.abs.default")
def _abs_aten(node: TorchNode) -> None:
    node.become("Abs", node.activation("self"))
