"""The index of the largest element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import DType, Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.affine import Affine
from covey.ops.number import Number

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class ArgMax(Op):
    """Along `axis` (over all dimensions, never the batch); of equals the first, or the last with `select_last`."""

    axis: int
    keep_dims: bool = True
    select_last: bool = False

    gives_places = True

    def shape(self, *inputs: Value) -> Shape:
        dims = list(inputs[0].shape)
        if not 1 <= self.axis <= len(dims):
            raise ValueError(f"axis {self.axis} of {inputs[0]} is the batch or does not exist")
        if self.keep_dims:
            dims[self.axis - 1] = 1
        else:
            del dims[self.axis - 1]
        return tuple(dims)

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0]
        if self.select_last:
            indices = x.shape[self.axis] - 1 - np.argmax(np.flip(x, self.axis), axis=self.axis)
        else:
            indices = np.argmax(x, axis=self.axis)
        result = indices.astype(np.float64)
        return np.expand_dims(result, self.axis) if self.keep_dims else result

    def interval(self, *inputs: Interval) -> Interval:
        low = np.zeros_like(self.reference(inputs[0].low))
        return Interval(low, low + inputs[0].low.shape[self.axis] - 1)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        return build.emit(ArgMax(self.axis + 1, self.keep_dims, self.select_last), *inputs)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return low.emit(
            node,
            pb.ArgMax(axis=self.axis, select_last=self.select_last, keep_dims=self.keep_dims),
            [x],
            shape=low.graph.values[node.output].shape,
            scale=0,
            interval=self.interval(x.interval),
            unconditional=True,
        )


@from_onnx("ArgMax")
def _arg_max(node: OnnxNode) -> None:
    _emit(node, _numbers(node))


@from_onnx("ArgMin")
def _arg_min(node: OnnxNode) -> None:
    x = _numbers(node)
    if x.dtype is not DType.FLOAT:
        x = node.emit(Number(), [x], output=f"{node.outputs[0]}.numbers")
    _emit(node, node.emit(Affine(-1.0), [x], output=f"{node.outputs[0]}.negative"))
    node.note("ArgMax of the negative")


def _numbers(node: OnnxNode) -> Value:
    """The operand; what has no fractions stays without, which makes comparisons cheaper."""
    x = node.activation(0, index_allowed=True)
    made = node.scope.graph.producer(x.name)
    return node.scope.graph.values[made.inputs[0]] if made is not None and isinstance(made.op, Number) else x


def _emit(node: OnnxNode, x: Value) -> None:
    axis = int(node.attribute("axis", 0))
    op = ArgMax(axis + x.rank if axis < 0 else axis, node.flag("keepdims", 1), node.flag("select_last_index"))
    node.emit(op, [x], dtype=DType.INDEX)


@from_torch("aten.argmax.default")
def _arg_max_aten(node: TorchNode) -> None:
    _aten(node, "ArgMax")


@from_torch("aten.argmin.default")
def _arg_min_aten(node: TorchNode) -> None:
    _aten(node, "ArgMin")


def _aten(node: TorchNode, operator: str) -> None:
    x = node.activation("self")
    if not node.has("dim"):
        raise node.unsupported("it runs over the batch too", "give it a dim")
    node.become(operator, x, axis=node.axis("dim", x.rank), keepdims=int(node.flag("keepdim")))
