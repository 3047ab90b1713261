"""Permuting dimensions; the batch stays first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Transpose(Op):
    """`permutation` is over all dimensions, the batch included and first."""

    permutation: tuple[int, ...]

    def shape(self, *inputs: Value) -> Shape:
        x = inputs[0]
        if sorted(self.permutation) != list(range(x.rank)):
            raise ValueError(f"{list(self.permutation)} is no permutation of the dimensions of {x}")
        if self.permutation[0] != 0:
            raise ValueError(f"its permutation {list(self.permutation)} moves the batch dimension")
        return tuple(x.shape[axis - 1] for axis in self.permutation[1:])

    def reference(self, *inputs: Array) -> Array:
        return np.transpose(inputs[0], self.permutation)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        return build.emit(Transpose((0, 1, *(place + 1 for place in self.permutation[1:]))), *inputs)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        back = sorted(range(len(self.permutation) - 1), key=lambda place: self.permutation[place + 1])
        return [build.transpose(gradient, back)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return low.emit(
            node,
            pb.Transpose(permutation=self.permutation),
            [x],
            shape=low.graph.values[node.output].shape,
            scale=x.scale,
            interval=self.interval(x.interval),
        )


@from_onnx("Transpose")
def _transpose(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    permutation = node.integers("perm") or list(reversed(range(x.rank)))
    node.emit(Transpose(tuple(permutation)), [x], dtype=x.dtype)


@from_torch("aten.permute.default")
def _permute_aten(node: TorchNode) -> None:
    x = node.activation("self")
    node.become("Transpose", x, perm=[axis % x.rank for axis in node.integers("dims")])


@from_torch("aten.transpose.int", "aten.t.default")
def _transpose_aten(node: TorchNode) -> None:
    x = node.activation("self")
    axes = (node.axis("dim0", x.rank), node.axis("dim1", x.rank)) if node.has("dim0") else (0, 1)
    order = list(range(x.rank))
    order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
    node.become("Transpose", x, perm=order)
