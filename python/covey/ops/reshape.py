"""Reshape and its relatives: Flatten, Squeeze, Unsqueeze. The batch dimension stays first and alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import BATCH, OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Reshape(Op):
    """To `target`, the shape of one sample."""

    target: Shape

    def shape(self, *inputs: Value) -> Shape:
        if int(np.prod(self.target, dtype=np.int64)) != inputs[0].size:
            raise ValueError(f"{inputs[0]} cannot take the shape {['N', *self.target]}")
        return self.target

    def reference(self, *inputs: Array) -> Array:
        return inputs[0].reshape(inputs[0].shape[0], *self.target)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        return build.emit(Reshape((build.count, *self.target)), *inputs)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.reshape(gradient, inputs[0].shape)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value_or_multiple(node.inputs[0])
        return replace(self._emit(low, node, x), divisor=x.divisor)

    def _emit(self, low: Lowering, node: Node, x: Lowered) -> Lowered:
        magnitude = low.magnitude(node.output)
        return low.emit(
            node,
            pb.Reshape(),
            [x],
            shape=self.target,
            scale=x.scale,
            interval=self.interval(x.interval),
            magnitude=None if magnitude is None else magnitude * x.divisor,
        )


@from_onnx("Reshape")
def _reshape(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    wanted = node.constant_integers(1, "target shape")
    copies = not node.flag("allowzero")
    dims = [BATCH, *x.shape]
    target = [dims[i] if size == 0 and copies and i < len(dims) else size for i, size in enumerate(wanted)]
    node.emit(Reshape(_per_sample(node, x, target)), [x], dtype=x.dtype)


def _per_sample(node: OnnxNode, x: Value, target: list[int]) -> Shape:
    """The shape of one sample, given the model's target for a whole batch."""
    refused = node.unsupported(
        f"its target {target} moves the batch dimension of {x}", "keep the batch first and alone"
    )
    if not target or target.count(-1) > 1:
        raise refused
    first, rest = target[0], target[1:]
    if any(size % BATCH == 0 and size != 0 for size in rest):
        raise refused
    known = int(np.prod([size for size in rest if size != -1], dtype=np.int64))
    if first == -1:
        if known != x.size:
            raise refused
        return tuple(rest)
    if first not in (BATCH, node.scope.exported_batch):
        raise refused
    if -1 in rest:
        if known < 1 or x.size % known:
            raise refused
        rest[rest.index(-1)] = x.size // known
    return tuple(rest)


@from_onnx("Flatten")
def _flatten(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    axis = int(node.attribute("axis", 1))
    axis = axis + x.rank if axis < 0 else axis
    if not 1 <= axis <= x.rank or any(size != 1 for size in x.shape[: axis - 1]):
        raise node.unsupported(f"axis {axis} merges the batch with other dimensions", "use axis 1")
    node.emit(Reshape((x.size,)), [x], dtype=x.dtype)


def _axes(node: OnnxNode) -> list[int]:
    return (node.constant_integers(1, "axes") if node.has(1) else node.integers("axes")) or []


@from_onnx("Squeeze")
def _squeeze(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    axes = _axes(node)
    if not axes:
        dims = tuple(size for size in x.shape if size != 1)
    else:
        places = node.places(axes, x.rank)
        if 0 in places or any(x.shape[place - 1] != 1 for place in places):
            raise node.unsupported(f"axes {axes} of {x} are not all of size 1", "keep the batch dimension")
        dims = tuple(size for place, size in enumerate(x.shape, start=1) if place not in places)
    node.emit(Reshape(dims), [x], dtype=x.dtype)
    node.note("Reshape")


@from_onnx("Unsqueeze")
def _unsqueeze(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    axes = _axes(node)
    rank = x.rank + len(axes)
    places = node.places(axes, rank)
    if 0 in places:
        raise node.unsupported("it puts a dimension before the batch", "keep the batch first")
    sizes = iter(x.shape)
    dims = tuple(1 if place in places else next(sizes) for place in range(1, rank))
    node.emit(Reshape(dims), [x], dtype=x.dtype)
    node.note("Reshape")


@from_torch("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
def _reshape_aten(node: TorchNode) -> None:
    size = "size" if "size" in node.arguments else "shape"
    node.become("Reshape", node.activation("self"), np.array(node.integers(size)))


@from_torch("aten.flatten.using_ints")
def _flatten_aten(node: TorchNode) -> None:
    x = node.activation("self")
    start, end = node.axis("start_dim", x.rank), node.axis("end_dim", x.rank)
    dims = node.scope.dims(x)
    merged = int(np.prod(dims[start : end + 1], dtype=np.int64))
    node.become("Reshape", x, np.array([*dims[:start], merged, *dims[end + 1 :]]))


@from_torch("aten.unflatten.int")
def _unflatten_aten(node: TorchNode) -> None:
    x = node.activation("self")
    axis = node.axis("dim", x.rank)
    dims = node.scope.dims(x)
    node.become("Reshape", x, np.array([*dims[:axis], *node.integers("sizes"), *dims[axis + 1 :]]))


@from_torch("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def _squeeze_aten(node: TorchNode) -> None:
    x = node.activation("self")
    dims = x.dims(BATCH)
    dims[x.place] = 1 if node.has("dim") else BATCH
    axes = [axis % x.rank for axis in node.integers("dim")] if node.has("dim") else range(x.rank)
    # Unlike ONNX, PyTorch leaves dimensions of other sizes as they are.
    single = [axis for axis in axes if dims[axis] == 1]
    if single:
        node.become("Squeeze", x, np.array(single, np.int64))
    else:
        node.alias(x)


@from_torch("aten.unsqueeze.default")
def _unsqueeze_aten(node: TorchNode) -> None:
    node.become("Unsqueeze", node.activation("self"), np.array(node.integers("dim")))
