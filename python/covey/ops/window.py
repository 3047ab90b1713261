"""Sliding windows over the last two dimensions, shared by convolution and pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode
from covey.importers.torch_node import TorchNode
from covey.interval import Array

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Kernel size, strides and dilations as (height, width); pads as (top, left, bottom, right)."""

    kernel: Pair
    strides: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: Pair = (1, 1)

    @property
    def extent(self) -> Pair:
        """Rows and columns from a window's first element to its last."""
        return (
            (self.kernel[0] - 1) * self.dilations[0] + 1,
            (self.kernel[1] - 1) * self.dilations[1] + 1,
        )

    @property
    def area(self) -> int:
        """Elements of one window."""
        return self.kernel[0] * self.kernel[1]

    def output(self, height: int, width: int) -> Pair:
        """Positions of the window. Raises `ValueError` when there are none."""
        rows = (height + self.pads[0] + self.pads[2] - self.extent[0]) // self.strides[0] + 1
        columns = (width + self.pads[1] + self.pads[3] - self.extent[1]) // self.strides[1] + 1
        if rows < 1 or columns < 1:
            raise ValueError(f"its window of {self.extent} does not fit the padded input of {height}x{width}")
        return rows, columns

    def slide(self, x: Array, fill: float) -> Array:
        """A view of x [N, C, H, W], padded with `fill`, as [N, C, OH, OW, KH, KW]."""
        top, left, bottom, right = self.pads
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
        views = sliding_window_view(padded, self.extent, axis=(2, 3))
        return views[:, :, :: self.strides[0], :: self.strides[1], :: self.dilations[0], :: self.dilations[1]]

    def counts(self, height: int, width: int, border: tuple[int, int, int, int]) -> npt.NDArray[np.int64]:
        """How many elements of each window lie in the input extended by `border` (top, left, bottom, right)."""
        rows, columns = self.output(height, width)
        inside = []
        for axis, size, count in ((0, height, rows), (1, width, columns)):
            first = np.arange(count)[:, None] * self.strides[axis] - self.pads[axis]
            at = first + np.arange(self.kernel[axis]) * self.dilations[axis]
            inside.append(((at >= -border[axis]) & (at < size + border[axis + 2])).sum(axis=1))
        return np.asarray(np.outer(*inside), dtype=np.int64)

    def check_padding(self, height: int, width: int) -> None:
        """Raise `ValueError` if the padding is as large as a window or a window holds nothing else."""
        if any(pad >= self.extent[side % 2] for side, pad in enumerate(self.pads)):
            raise ValueError(f"its pads {list(self.pads)} are as large as its window")
        if self.counts(height, width, (0, 0, 0, 0)).min() < 1:
            raise ValueError("a window lies wholly in the padding")

    def proto(self) -> pb.Window:
        """As the program writes it."""
        return pb.Window(kernel=self.kernel, strides=self.strides, pads=self.pads, dilations=self.dilations)


def read_window(node: OnnxNode, kernel: Pair, height: int, width: int) -> tuple[Window, tuple[int, int, int, int]]:
    """The window of a Conv or pooling node over an input of `height` x `width`, and the pads the model declares.

    The window's own pads are larger where `ceil_mode` adds positions at the bottom and right.
    """
    strides = _pair(node, "strides")
    dilations = _pair(node, "dilations")
    pads = tuple(node.integers("pads") or (0, 0, 0, 0))
    if len(pads) != 4 or min(pads) < 0:
        raise node.unsupported(f"its pads {list(pads)} are not four non-negative numbers", "use a Slice-free 2-D model")
    auto = node.attribute("auto_pad", "NOTSET") or "NOTSET"
    ceil = node.flag("ceil_mode")
    window = Window(kernel, strides, (pads[0], pads[1], pads[2], pads[3]), dilations)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        window = _same(window, (height, width), lower=auto == "SAME_LOWER")
    elif auto == "VALID":
        window = Window(kernel, strides, (0, 0, 0, 0), dilations)
    elif auto != "NOTSET":
        raise node.unsupported(f"its auto_pad is '{auto}'", "use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    declared = window.pads
    if ceil and auto == "NOTSET":
        window = _ceil(window, (height, width))
    return window, declared


def read_kernel(node: OnnxNode) -> Pair:
    """The `kernel_shape` attribute of a pooling node."""
    kernel = node.integers("kernel_shape")
    if kernel is None or len(kernel) != 2 or min(kernel) < 1:
        raise node.unsupported(f"its kernel_shape is {kernel}", "only 2-D windows are supported")
    return kernel[0], kernel[1]


def torch_pooling(node: TorchNode, rank: int) -> dict[str, Any]:
    """The window of a PyTorch pooling node over `rank` dimensions, as ONNX's attributes."""
    kernel = node.integers("kernel_size", rank)
    return {
        "kernel_shape": kernel,
        "strides": node.integers("stride", rank) or kernel,
        "pads": node.integers("padding", rank) * 2,
        "dilations": node.integers("dilation", rank) or [1] * rank,
        "ceil_mode": int(node.flag("ceil_mode")),
    }


def _pair(node: OnnxNode, name: str) -> Pair:
    values = node.integers(name) or [1, 1]
    if len(values) != 2 or min(values) < 1:
        raise node.unsupported(f"its {name} are {values}", "only 2-D windows with positive steps are supported")
    return values[0], values[1]


def _same(window: Window, size: Pair, *, lower: bool) -> Window:
    before, after = [], []
    for axis in (0, 1):
        positions = -(-size[axis] // window.strides[axis])
        total = max(0, (positions - 1) * window.strides[axis] + window.extent[axis] - size[axis])
        small, large = total // 2, total - total // 2
        before.append(large if lower else small)
        after.append(small if lower else large)
    return Window(window.kernel, window.strides, (before[0], before[1], after[0], after[1]), window.dilations)


def _ceil(window: Window, size: Pair) -> Window:
    """Pads at the end for the positions that rounding up adds; none may start past the declared padding's input."""
    pads = list(window.pads)
    for axis in (0, 1):
        padded = size[axis] + pads[axis] + pads[axis + 2]
        positions = -(-(padded - window.extent[axis]) // window.strides[axis]) + 1
        if (positions - 1) * window.strides[axis] >= size[axis] + pads[axis]:
            positions -= 1
        pads[axis + 2] += max(0, (positions - 1) * window.strides[axis] + window.extent[axis] - padded)
    return Window(window.kernel, window.strides, (pads[0], pads[1], pads[2], pads[3]), window.dilations)
