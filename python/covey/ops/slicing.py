"""Cutting activations: Slice and Split. The batch stays whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covey.importers.onnx_node import BATCH, OnnxNode, from_onnx
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.ops.gather import data_axis, emit_pick

ALL = 2**63 - 1
"""Where a slice ends that takes everything."""


@from_onnx("Slice")
def _slice(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    if node.opset < 10:
        starts, ends = node.integers("starts") or [], node.integers("ends") or []
        axes = node.integers("axes") or list(range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts, ends = node.constant_integers(1, "starts"), node.constant_integers(2, "ends")
        axes = node.constant_integers(3, "axes") if node.has(3) else list(range(len(starts)))
        steps = node.constant_integers(4, "steps") if node.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.unsupported(f"its starts {starts}, ends {ends}, axes {axes}, steps {steps} do not fit", "repair it")
    along: list[Sequence[int]] = [range(extent) for extent in x.shape]
    of_batch = np.zeros(len(starts), dtype=bool)
    for index in (1, 2) if node.opset >= 10 else ():
        of_batch |= node.scope.depends_on_batch(node.inputs[index]).ravel()
    for number, (start, end, axis, step) in enumerate(zip(starts, ends, axes, steps, strict=True)):
        batch = max(BATCH, node.scope.exported_batch or 1)
        if axis in (0, -x.rank) and start == 0 and step == 1 and (end >= batch or end == node.scope.exported_batch):
            continue
        place = data_axis(node, x, axis)
        if of_batch[number]:
            raise node.unsupported("it cuts other dimensions by the number of samples", "use constants instead")
        size = x.shape[place]
        # ONNX clamps what lies outside; for negative steps "before the first" is -1, which `slice` would wrap.
        low, high = (0, size) if step > 0 else (-1, size - 1)
        start, end = (min(max(end + size if end < 0 else end, low), high) for end in (start, end))
        along[place] = range(start, end, step)
    emit_pick(node, x, along)


@from_onnx("Split")
def _split(node: OnnxNode) -> None:
    x = node.activation(0, index_allowed=True)
    axis = data_axis(node, x, int(node.attribute("axis", 0)))
    size, count = x.shape[axis], len(node.outputs)
    if node.has(1):
        parts = node.constant_integers(1, "split")
    else:
        part = -(-size // int(node.attribute("num_outputs", count)))
        parts = node.integers("split") or [min(part, size - part * index) for index in range(count)]
    if len(parts) != count or sum(parts) != size or min(parts) < 1:
        raise node.unsupported(f"its parts {parts} do not make up the {size} of dimension {axis + 1}", "repair it")
    start = 0
    for output, part in zip(node.outputs, parts, strict=True):
        along: list[Sequence[int]] = [range(extent) for extent in x.shape]
        along[axis] = range(start, start + part)
        start += part
        if output:
            emit_pick(node, x, along, output=output)


@from_torch("aten.slice.Tensor")
def _slice_aten(node: TorchNode) -> None:
    x = node.activation("self")
    start = node.integers("start") if node.has("start") else [0]
    end = node.integers("end") if node.has("end") else [ALL]
    axis, step = node.axis("dim", x.rank), node.integers("step")
    sizes = x.dims(1)
    if axis != x.place and not range(sizes[axis])[slice(start[0], end[0], step[0])]:
        # As the part of a head that is not turned, where all of it is: `cat` leaves that out.
        node.constant_result(np.zeros((*sizes[:axis], 0, *sizes[axis + 1 :])))
        return
    if (start[0], step[0]) == (0, 1) and end[0] == ALL:
        node.alias(x)
        return
    node.become("Slice", x, *(np.array(numbers) for numbers in (start, end, [axis], step)))


@from_torch("aten.split.Tensor")
def _split_aten(node: TorchNode) -> None:
    x = node.activation("self")
    (part,) = node.integers("split_size")
    axis = node.axis("dim", x.rank)
    size = x.dims(1)[axis]
    parts = [min(part, size - start) for start in range(0, size, part)]
    node.become_several("Split", len(parts), x, np.array(parts), axis=axis)


@from_torch("aten.split_with_sizes.default")
def _split_with_sizes_aten(node: TorchNode) -> None:
    x = node.activation("self")
    parts, axis = node.integers("split_sizes"), node.axis("dim", x.rank)
    sizes, kept = x.dims(1), [part for part in parts if part]
    found = iter(node.apply_several("Split", len(kept), x, np.array(kept), axis=axis))
    # A part of size 0 is a constant, which `cat` leaves out.
    empty = Constant(f"{node.output}.empty", np.zeros((*sizes[:axis], 0, *sizes[axis + 1 :])))
    node.results = [next(found) if part else empty for part in parts]


@from_torch("aten.unbind.int")
def _unbind_aten(node: TorchNode) -> None:
    x = node.activation("self")
    axis = node.axis("dim", x.rank)
    count = x.dims(1)[axis]
    parts = node.apply_several("Split", count, x, np.ones(count, dtype=np.int64), axis=axis)
    node.results = [node.apply("Squeeze", part, np.array([axis]), suffix="part") for part in parts]


@from_torch("aten.chunk.default")
def _chunk_aten(node: TorchNode) -> None:
    x = node.activation("self")
    (count,) = node.integers("chunks")
    axis = node.axis("dim", x.rank)
    size = x.dims(1)[axis]
    part = -(-size // count)
    parts = [min(part, size - start) for start in range(0, size, part)]
    node.become_several("Split", len(parts), x, np.array(parts), axis=axis)


@from_torch("aten.roll.default")
def _roll_aten(node: TorchNode) -> None:
    x = node.activation("self")
    shifts, dims = node.integers("shifts"), node.integers("dims")
    if not dims:
        raise node.unsupported("it rolls all dimensions as one", "name the dimensions, none of them the batch")
    for index, (shift, dim) in enumerate(zip(shifts, dims, strict=True)):
        axis = dim + x.rank if dim < 0 else dim
        order = np.roll(np.arange(x.dims(BATCH)[axis]), shift)
        if index == len(dims) - 1:
            node.become("Gather", x, order, axis=axis)
        else:
            x = node.apply("Gather", x, order, axis=axis)
