"""PyTorch's moves of elements that are neither slices nor permutations: nothing is exchanged."""

from __future__ import annotations

import numpy as np

from covey.importers.torch_node import TorchNode, from_torch
from covey.ops.slicing import ALL


@from_torch("aten.flip.default")
def _flip_aten(node: TorchNode) -> None:
    x = node.activation("self")
    axes = node.inner_axes("dims", x)
    if not axes:
        node.alias(x)
        return
    count = len(axes)
    starts, ends, steps = (np.full(count, number) for number in (-1, -ALL, -1))
    node.become("Slice", x, starts, ends, np.array(axes), steps)


@from_torch("aten.diagonal.default")
def _diagonal_aten(node: TorchNode) -> None:
    x = node.activation("self")
    (offset,) = node.integers("offset")
    (rows,), (columns,) = node.inner_axes("dim1", x), node.inner_axes("dim2", x)
    sizes = x.dims(1)
    others = [axis for axis in range(x.rank) if axis not in (rows, columns)]
    start = (max(-offset, 0), max(offset, 0))
    count = min(sizes[rows] - start[0], sizes[columns] - start[1])
    if count < 1:
        raise node.unsupported(f"its offset {offset} is outside {x}", "repair the model")
    turned = node.apply("Transpose", x, perm=[*others, rows, columns], suffix="turned")
    kept = np.array([0] * len(others) + [-1])
    joined = node.apply("Reshape", turned, kept, suffix="joined")
    steps = np.arange(count)
    node.become("Gather", joined, (start[0] + steps) * sizes[columns] + start[1] + steps, axis=len(others))


@from_torch("aten.unfold.default")
def _unfold_aten(node: TorchNode) -> None:
    x = node.activation("self")
    (axis,) = node.inner_axes("dimension", x)
    (size,), (step,) = node.integers("size"), node.integers("step")
    starts = np.arange(0, x.dims(1)[axis] - size + 1, step)
    windows = node.apply("Gather", x, starts[:, None] + np.arange(size), axis=axis, suffix="windows")
    order = [place for place in range(windows.rank) if place != axis + 1]
    node.become("Transpose", windows, perm=[*order, axis + 1])


@from_torch("aten.im2col.default")
def _im2col_aten(node: TorchNode) -> None:
    """[N, C, H, W] to [N, C · window, windows]."""
    x = node.activation("self")
    if x.rank != 4:
        raise node.unsupported(f"it reads {x}", "give it [N, C, H, W]")
    channels = x.shape[0]
    kernel, dilation, padding, stride = (
        node.integers(name, 2) for name in ("kernel_size", "dilation", "padding", "stride")
    )
    padded = [size + 2 * pad for size, pad in zip(x.shape[1:], padding, strict=True)]
    if any(padding):
        x = node.apply("Pad", x, np.array([0, 0, *padding, 0, 0, *padding]), mode="constant", suffix="padded")
    along = []
    for size, width, apart, step in zip(padded, kernel, dilation, stride, strict=True):
        starts = np.arange(0, size - apart * (width - 1), step)
        along.append(apart * np.arange(width)[:, None] + starts)
    rows, columns = along
    places = rows[:, None, :, None] * padded[1] + columns[None, :, None, :]
    joined = node.apply("Reshape", x, np.array([0, 0, -1]), suffix="joined")
    windows = places.shape[2] * places.shape[3]
    flat = places.reshape(kernel[0] * kernel[1], windows)
    picked = node.apply("Gather", joined, flat, axis=2, suffix="picked")
    node.become("Reshape", picked, np.array([0, channels * kernel[0] * kernel[1], windows]))
