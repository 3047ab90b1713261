"""Maximum over windows, or over the whole map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value, spatial
from covey.lowering import Lowered, Lowering
from covey.ops.average_pool import adaptive_pool, emit_global, image_rank, pool_rows, pool_volume
from covey.ops.concat import Concat
from covey.ops.window import STILL, Window, image_window, read_pool, torch_pooling

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class MaxPool(Op):
    """x [N, .., C, H, W] to the maximum of each window; padding never wins."""

    window: Window

    def shape(self, *inputs: Value) -> Shape:
        lead, channels, height, width = spatial(inputs[0])
        self.window.check_padding(height, width)
        return (*lead, channels, *self.window.output(height, width))

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(self.window.slide(inputs[0], -np.inf).max(axis=(-2, -1)))

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """The larger of pairs, the first of equal ones: gradients go where the largest came from."""
        (x,) = inputs
        if not build.learns(x):
            return build.emit(self, x)
        *lead, height, width = x.shape
        rows, columns = self.window.output(height, width)
        (high, wide), axis = self.window.kernel, len(lead)
        along: list[Sequence[int]] = [range(size) for size in lead]
        along += [
            [place for places in self._places(axis, size, count) for place in places]
            for axis, size, count in ((0, height, rows), (1, width, columns))
        ]
        windows = build.reshape(build.pick(x, along, "windows"), (*lead, rows, high, columns, wide))
        order = (axis + 1, axis + 3, *range(axis), axis, axis + 2)
        taps = build.reshape(build.transpose(windows, order), (high * wide, *lead, rows, columns))
        while (count := taps.shape[0]) > 1:
            first = build.pick_along(taps, 0, range(0, count - 1, 2))
            second = build.pick_along(taps, 0, range(1, count, 2))
            larger = build.select(build.negative(build.sub(first, second)), second, first)
            rest = [build.pick_along(taps, 0, [count - 1])] if count % 2 else []
            taps = build.emit(Concat(1), larger, *rest, hint="larger") if rest else larger
        return build.reshape(taps, taps.shape[1:])

    def _places(self, axis: int, size: int, count: int) -> list[list[int]]:
        """What each window reads along a dimension; in the place of padding its first element, again."""
        found = []
        for start in range(count):
            first = start * self.window.strides[axis] - self.window.pads[axis]
            taps = [first + tap * self.window.dilations[axis] for tap in range(self.window.kernel[axis])]
            inside = next(tap for tap in taps if 0 <= tap < size)
            found.append([tap if 0 <= tap < size else inside for tap in taps])
        return found

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return low.emit(
            node,
            pb.MaxPool(window=self.window.proto()),
            [x],
            shape=low.graph.values[node.output].shape,
            scale=x.scale,
            interval=self.interval(x.interval),
        )


@from_onnx("MaxPool")
def _max_pool(node: OnnxNode) -> None:
    node.only_first_output("the indices of the maxima")
    node.ignore("storage_order")
    x = node.activation(0)
    rank = image_rank(node, x)
    steps, _ = read_pool(node, rank, x.shape[1:])
    if rank == 1:
        pool_rows(node, x, MaxPool(image_window(STILL, steps[0])))
    elif rank == 2:
        node.emit(MaxPool(image_window(steps[0], steps[1])), [x])
    else:
        slices, depth = image_window(steps[1], steps[2]), image_window(steps[0], STILL)
        pool_volume(node, x, MaxPool(slices), MaxPool(depth))


@from_onnx("GlobalMaxPool")
def _global_max_pool(node: OnnxNode) -> None:
    x = node.activation(0)
    emit_global(node, x, lambda size: MaxPool(Window(size)))
    node.note("MaxPool over the whole map")


@from_torch("aten.max_pool1d.default", "aten.max_pool2d.default", "aten.max_pool3d.default")
def _max_pool_aten(node: TorchNode) -> None:
    x = node.activation("self")
    node.become("MaxPool", x, **torch_pooling(node, len(x.shape) - 1))


@from_torch("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def _max_pool_with_indices_aten(node: TorchNode) -> None:
    x = node.activation("self")
    node.first_of("MaxPool", x, **torch_pooling(node, len(x.shape) - 1))


@from_torch("aten.adaptive_max_pool1d.default", "aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def _adaptive_max_pool_aten(node: TorchNode) -> None:
    adaptive_pool(node, "MaxPool")
    node.results = [node.result]
