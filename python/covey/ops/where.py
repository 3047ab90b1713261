"""Choosing between two values: by secret truth values a product, by public ones a move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.add import Add, both_truths, truth_as_number
from covey.ops.gather import ABSENT, flat
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.softmax import MASKING
from covey.ops.tile import expand_to

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Where(Op):
    """x where the condition is 1, y where it is 0: y + condition * (x - y)."""

    elementwise = True

    def shape(self, *inputs: Value) -> Shape:
        condition, x, y = inputs
        batched = [len(value.shape) for value in inputs if value.batched]
        if min(batched) != max(batched) or max(len(x.shape), len(y.shape)) > max(batched):
            raise ValueError(f"operands {condition}, {x} and {y} differ in rank")
        try:
            return tuple(np.broadcast_shapes(condition.shape, x.shape, y.shape))
        except ValueError:
            raise ValueError(f"operands {condition}, {x} and {y} do not broadcast") from None

    def reference(self, *inputs: Array) -> Array:
        condition, x, y = inputs
        return np.where(condition > 0.5, x, y)

    def interval(self, *inputs: Interval) -> Interval:
        condition, x, y = inputs
        shape = np.broadcast_shapes(condition.low.shape, x.low.shape, y.low.shape)
        low, high = np.minimum(x.low, y.low), np.maximum(x.high, y.high)
        return Interval(np.broadcast_to(low, shape), np.broadcast_to(high, shape))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        condition, x, y = inputs
        taken = build.mul(condition, gradient)
        return [None, build.part(x, lambda: taken), build.part(y, lambda: build.sub(gradient, taken))]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, y = low.operands_at_one_scale(node, node.inputs[1:])
        return self._chosen(low, node, x, y, low.magnitude_sum(*node.inputs[1:]))

    def _chosen(self, low: Lowering, node: Node, x: Lowered, y: Lowered, magnitude: float | None) -> Lowered:
        """The result; `magnitude` bounds x - y over the calibration data."""
        condition = low.value(node.inputs[0])
        shape = low.graph.values[node.output].shape
        gap = x.interval - y.interval
        between = np.broadcast_shapes(x.shape, y.shape)
        difference = low.emit(
            node,
            pb.Sub(),
            [x, y],
            shape=between,
            scale=x.scale,
            interval=gap,
            name=f"{node.output}.difference",
            magnitude=magnitude,
        )
        zeros = np.zeros((1, *shape))
        chosen = low.emit(
            node,
            pb.Mul(),
            [condition, difference],
            shape=shape,
            scale=x.scale,
            interval=Interval(np.minimum(gap.low, zeros), np.maximum(gap.high, zeros)),
            name=f"{node.output}.chosen",
            magnitude=magnitude,
        )
        interval = Where().interval(condition.interval, x.interval, y.interval)
        return low.emit(node, pb.Add(), [y, chosen], shape=shape, scale=x.scale, interval=interval)


@dataclass(frozen=True)
class Below(Where):
    """A choice whose one operand, the first or the second, stands for a number below all that the other may be."""

    first: bool

    def _operands(self, x: Array, y: Array) -> list[Array]:
        least = np.nextafter(np.asarray((y if self.first else x).min()), -np.inf)
        return [least, y] if self.first else [x, least]

    def reference(self, *inputs: Array) -> Array:
        condition, x, y = inputs
        return super().reference(condition, *self._operands(x, y))

    def interval(self, *inputs: Interval) -> Interval:
        condition, x, y = inputs
        lows, highs = self._operands(x.low, y.low), self._operands(x.high, y.high)
        return super().interval(condition, *map(Interval, lows, highs))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        name = node.inputs[2 if self.first else 1]
        other = low.value(name)
        least = low.constant(node, "least", np.array(np.floor(other.interval.low.min()) - 1.0), other.scale)
        x, y = (least, other) if self.first else (other, least)
        magnitude = low.magnitude(name)
        return self._chosen(low, node, x, y, None if magnitude is None else 2 * magnitude)


@from_onnx("Where")
def _where(node: OnnxNode) -> None:
    if node.is_constant(0):
        _by_constant(node)
        return
    condition = node.boolean(0, "condition")
    operands = [
        node.beside(index, what, condition, masking=True) if node.is_constant(index) else node.activation(index, what)
        for index, what in ((1, "first choice"), (2, "second choice"))
    ]
    if not any(value.batched for value in operands):
        _of_constants(node, condition, *operands)
        return
    node.emit(Where(), [condition, *operands])


def _of_constants(node: OnnxNode, condition: Value, first: Value, second: Value) -> None:
    """y + condition * (x - y); a mask stays apart from numbers that are added to scores, for it would absorb them."""
    name = node.outputs[0]
    x, y = (node.scope.graph.parameters[value.name] for value in (first, second))
    masks = [bool((choice <= MASKING).all()) for choice in (x, y)]
    bias = None
    if masks[0] != masks[1]:
        bias = second if masks[0] else first
        zero = np.zeros((1,) * x.ndim)
        x, y = (x, zero) if masks[0] else (zero, y)
        second = node.parameter(y, f"{name}.mask_otherwise")
    gap = node.parameter(x - y, f"{name}.gap")
    chosen = node.emit(Mul(), [condition, gap], output=f"{name}.chosen")
    if bias is None or not node.scope.graph.parameters[bias.name].any():
        node.emit(Add(), [chosen, second])
        return
    node.emit(Add(), [node.emit(Add(), [chosen, second], output=f"{name}.mask"), bias])


def _by_constant(node: OnnxNode) -> None:
    """Each choice with zeros where the other is taken, and their sum: nothing is exchanged."""
    activations = [node.activation(index) for index in (1, 2) if not node.is_constant(index)]
    rank = max(value.rank for value in activations)
    mask = of_one_sample(node.constant(0, "condition").astype(bool), rank)
    if mask.ndim >= rank:
        raise node.unsupported("its constant condition differs between samples", "make it independent of the batch")
    if mask.all() or not mask.any():
        index = 1 if mask.any() else 2
        x, other = (None if node.is_constant(each) else node.activation(each) for each in (index, 3 - index))
        shape = other.shape if other is not None else of_one_sample(node.constant(3 - index, "choice"), rank).shape
        if x is not None and len(shape) < rank and np.broadcast_shapes(shape, mask.shape, x.shape) == x.shape:
            node.alias(x)
            node.note("removed: its condition is the same everywhere, and public")
            return
    name = node.outputs[0]
    parts: list[Value] = []
    for index, chosen in ((1, mask), (2, ~mask)):
        if node.is_constant(index):
            constant = node.beside(index, "choice", activations[0], masking=True)
            values = node.scope.graph.parameters[constant.name]
            parts.append(node.parameter(np.where(chosen, values, 0.0), f"{node.inputs[index]}.masked"))
            continue
        x = node.activation(index)
        target = tuple(np.broadcast_shapes(x.shape, mask.shape))
        x = expand_to(node, x, target, f"{name}.{index}.expanded")
        positions = np.where(np.broadcast_to(chosen, target), np.arange(x.size).reshape(target), ABSENT)
        taken = node.emit(flat(positions), [x], output=f"{name}.{index}.taken")
        parts.append(node.emit(Reshape(target), [taken], output=f"{name}.{index}.part"))
    node.emit(Add(), parts)
    node.note("moves: the condition is public")


@from_torch("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def _where_aten(node: TorchNode) -> None:
    _choose(node, "condition", "self", "other")


@from_torch("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill_aten(node: TorchNode) -> None:
    _choose(node, "mask", "value", "self")


def _choose(node: TorchNode, condition: str, first: str, second: str) -> None:
    given = node.argument(condition)
    known = given if isinstance(given, Value) else node.constant(condition)
    truths = both_truths(node, first, second)
    if truths is not None and isinstance(known, Value):
        chosen = node.apply("And", known, truths[0], suffix="chosen")
        otherwise = node.apply("And", node.apply("Not", known, suffix="not"), truths[1], suffix="otherwise")
        node.become("Or", chosen, otherwise)
        return
    node.become("Where", known, *(truth_as_number(node, node.operand(name)) for name in (first, second)))
