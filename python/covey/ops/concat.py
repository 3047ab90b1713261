"""Joining activations along a dimension other than the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value, types
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class Concat(Op):
    """`axis` is over all dimensions, the batch included; never the batch itself."""

    axis: int

    def shape(self, *inputs: Value) -> Shape:
        first = inputs[0].shape
        at = self.axis - 1
        if not 0 <= at < len(first):
            raise ValueError(f"axis {self.axis} of {inputs[0]} is the batch or does not exist")
        for other in inputs[1:]:
            if other.shape[:at] != first[:at] or other.shape[at + 1 :] != first[at + 1 :]:
                raise ValueError(f"{types(inputs)} do not join along axis {self.axis}")
        return (*first[:at], sum(value.shape[at] for value in inputs), *first[at + 1 :])

    def reference(self, *inputs: Array) -> Array:
        return np.concatenate(inputs, axis=self.axis)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = low.operands_at_one_scale(node)
        return low.emit(
            node,
            pb.Concat(axis=self.axis),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=operands[0].scale,
            interval=self.interval(*(operand.interval for operand in operands)),
        )


@from_onnx("Concat")
def _concat(node: OnnxNode) -> None:
    values = [node.activation(index, f"operand {index}") for index in range(len(node.inputs))]
    axis = int(node.attribute("axis", 1))
    if len(values) == 1:
        node.alias(values[0])
        node.note("removed: it joins one operand")
        return
    node.emit(Concat(axis + values[0].rank if axis < 0 else axis), values)


@from_torch("aten.cat.default")
def _concat_aten(node: TorchNode) -> None:
    node.become("Concat", *node.argument("tensors"), axis=node.integers("dim")[0])


@from_torch("aten.stack.default")
def _stack_aten(node: TorchNode) -> None:
    axis = node.integers("dim")[0]
    parts = [node.apply("Unsqueeze", part, np.array([axis])) for part in node.argument("tensors")]
    node.become("Concat", *parts, axis=axis)
