"""The larger and the smaller of two values or more, element by element: Max and Min."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder

BEYOND = 2.0**64
"""No ring holds a number of that size."""


@dataclass(frozen=True)
class Extreme(Op):
    """With d = max(x - y, 0) the larger is y + d, the smaller x - d."""

    largest: bool

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        return np.maximum(*inputs) if self.largest else np.minimum(*inputs)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """Of equal ones it is the second; PyTorch halves the gradient there."""
        x, y = build.aligned(*inputs)
        if not any(map(build.learns, inputs)):
            return build.emit(self, x, y)
        excess = build.positive_part(build.sub(x, y))
        return build.add(y, excess) if self.largest else build.sub(x, excess)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, y = low.operands_at_one_scale(node)
        shape = low.graph.values[node.output].shape
        gap = x.interval - y.interval
        magnitude = low.magnitude_sum(*node.inputs)
        difference = low.emit(
            node,
            pb.Sub(),
            [x, y],
            shape=shape,
            scale=x.scale,
            interval=gap,
            name=f"{node.output}.difference",
            magnitude=magnitude,
        )
        excess = low.emit(
            node,
            pb.Relu(),
            [difference],
            shape=shape,
            scale=x.scale,
            interval=gap.positive,
            name=f"{node.output}.excess",
            magnitude=magnitude,
        )
        return low.emit(
            node,
            pb.Add() if self.largest else pb.Sub(),
            [y, excess] if self.largest else [x, excess],
            shape=shape,
            scale=x.scale,
            interval=self.interval(x.interval, y.interval),
        )


@from_onnx("Max")
def _max(node: OnnxNode) -> None:
    _chain(node, Extreme(largest=True))


@from_onnx("Min")
def _min(node: OnnxNode) -> None:
    _chain(node, Extreme(largest=False))


def _chain(node: OnnxNode, op: Extreme) -> None:
    activation = next((node.activation(i) for i in range(len(node.inputs)) if not node.is_constant(i)), None)
    if activation is None:
        raise node.unsupported("it has no operand that depends on the input", "repair the model")
    operands = [
        node.beside(index, f"operand {index}", activation) if node.is_constant(index) else node.activation(index)
        for index in range(len(node.inputs))
        if not (node.is_constant(index) and _beyond(node, node.constant(index, "operand"), activation, op))
    ]
    # Activations first: every pair then has one.
    operands.sort(key=lambda value: not value.batched)
    if len(operands) == 1:
        node.alias(operands[0])
        node.note("removed: it has one operand")
        return
    count = 0
    while len(operands) > 1:
        count += 1
        first, second, *rest = operands
        name = f"{node.outputs[0]}.{count}" if rest else None
        operands = [*rest, node.emit(op, [first, second], output=name)]
        operands.sort(key=lambda value: not value.batched)


def _beyond(node: OnnxNode, constant: npt.NDArray[Any], activation: Value, op: Extreme) -> bool:
    """Whether a constant is beyond all numbers that a ring holds, so that it is never the result."""
    of_sample = of_one_sample(constant, activation.rank, node.scope.exported_batch)
    if constant.dtype.kind != "f" or of_sample.ndim >= activation.rank:
        return False
    if any(size not in (1, have) for size, have in zip(of_sample.shape[::-1], activation.shape[::-1], strict=False)):
        return False
    return bool((constant <= -BEYOND if op.largest else constant >= BEYOND).all())


@from_torch("aten.maximum.default", "aten.max.other", "aten.fmax.default")
def _max_aten(node: TorchNode) -> None:
    node.become("Max", node.operand("self"), node.operand("other"))


@from_torch("aten.clamp.Tensor", "aten.clamp_min.Tensor", "aten.clamp_max.Tensor")
def _clamp_aten(node: TorchNode) -> None:
    """Between bounds of each element; the upper one wins where they cross."""
    x, bounds = node.operand("self"), [("Max", "min"), ("Min", "max")]
    given = [(operator, node.operand(side)) for operator, side in bounds if node.has(side)]
    for operator, bound in given[:-1]:
        x = node.apply(operator, x, bound, suffix="raised")
    node.become(given[-1][0], x, given[-1][1])


@from_torch("aten.minimum.default", "aten.min.other", "aten.fmin.default")
def _min_aten(node: TorchNode) -> None:
    node.become("Min", node.operand("self"), node.operand("other"))
