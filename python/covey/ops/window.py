"""Sliding windows, shared by convolution and pooling. What reaches the program slides over the last two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from covey._proto import program_pb2 as pb
from covey.errors import UnsupportedError
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
        """A view of x [.., H, W], padded with `fill`, as [.., OH, OW, KH, KW]."""
        top, left, bottom, right = self.pads
        padded = np.pad(x, (*((0, 0),) * (x.ndim - 2), (top, bottom), (left, right)), constant_values=fill)
        views = sliding_window_view(padded, self.extent, axis=(-2, -1))
        return views[..., :: self.strides[0], :: self.strides[1], :: self.dilations[0], :: self.dilations[1]]

    def counts(self, height: int, width: int, border: tuple[int, int, int, int]) -> npt.NDArray[np.int64]:
        """How many elements of each window lie in the input extended by `border` (top, left, bottom, right)."""
        return np.asarray(np.outer(*self._inside(height, width, border)), dtype=np.int64)

    def _inside(self, height: int, width: int, border: tuple[int, int, int, int]) -> list[npt.NDArray[np.int64]]:
        """How many rows and columns of each window do."""
        inside = []
        for axis, size, count in zip((0, 1), (height, width), self.output(height, width), strict=True):
            first = np.arange(count, dtype=np.int64) * self.strides[axis] - self.pads[axis]
            # The taps before the extended input, and those before its end.
            before, within = (
                np.clip(-((first - edge) // self.dilations[axis]), 0, self.kernel[axis])
                for edge in (-border[axis], size + border[axis + 2])
            )
            inside.append(within - before)
        return inside

    def check_padding(self, height: int, width: int) -> None:
        """Raise `ValueError` if the padding is as large as a window or a window holds nothing else."""
        if any(pad >= self.extent[side % 2] for side, pad in enumerate(self.pads)):
            raise ValueError(f"its pads {list(self.pads)} are as large as its window")
        if min(inside.min() for inside in self._inside(height, width, (0, 0, 0, 0))) < 1:
            raise ValueError("a window lies wholly in the padding")

    def proto(self) -> pb.Window:
        """As the program writes it."""
        return pb.Window(kernel=self.kernel, strides=self.strides, pads=self.pads, dilations=self.dilations)


@dataclass(frozen=True)
class Steps:
    """How a window slides along one dimension."""

    kernel: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def extent(self) -> int:
        """Positions from a window's first element to its last."""
        return (self.kernel - 1) * self.dilation + 1

    def output(self, size: int) -> int:
        """Positions of the window. Raises `ValueError` when there are none."""
        count = (size + self.before + self.after - self.extent) // self.stride + 1
        if count < 1:
            raise ValueError(f"its window of {self.extent} does not fit the padded input of {size}")
        return count


MOST_STEPS = 65_535
"""The largest number that may describe a window in a program."""

STILL = Steps(1)
"""Along a dimension the window does not slide over."""


def image_window(height: Steps, width: Steps) -> Window:
    """The window over the last two dimensions."""
    return Window(
        (height.kernel, width.kernel),
        (height.stride, width.stride),
        (height.before, width.before, height.after, width.after),
        (height.dilation, width.dilation),
    )


def read_pool(node: OnnxNode, rank: int, sizes: Sequence[int]) -> tuple[list[Steps], list[int]]:
    """`read_steps` of a pooling node. Refuses automatic pads that runtimes compute otherwise than ONNX says."""
    steps, declared = read_steps(node, read_kernel(node, rank), sizes)
    auto, ceil = node.attribute("auto_pad", "NOTSET"), node.flag("ceil_mode")
    for step, size in zip(steps, sizes, strict=True):
        odd = False
        if auto == "VALID":
            odd = ceil and _ceil(step, size) != step
        elif auto in ("SAME_UPPER", "SAME_LOWER"):
            odd = step.extent > step.kernel
        if odd:
            raise _odd(node, auto, size)
    return steps, declared


def _odd(node: OnnxNode, auto: str, size: int) -> UnsupportedError:
    return node.unsupported(
        f"its auto_pad {auto} with this window over {size} elements differs between runtimes",
        "export the model with pads in the place of auto_pad",
    )


def read_steps(node: OnnxNode, kernel: Sequence[int], sizes: Sequence[int]) -> tuple[list[Steps], list[int]]:
    """How the window of a Conv or pooling node slides over an input of `sizes`, and the pads the model declares.

    The window's own pads are larger where `ceil_mode` adds positions at the end.
    """
    rank = len(kernel)
    strides, dilations = _positive(node, "strides", rank), _positive(node, "dilations", rank)
    pads = node.integers("pads") or [0] * (2 * rank)
    if len(pads) != 2 * rank or min(pads) < 0:
        raise node.unsupported(f"its pads {pads} are not {2 * rank} non-negative numbers", "put a Slice before it")
    if max(*kernel, *strides, *dilations, *pads) > MOST_STEPS:
        raise node.unsupported(f"its window takes a number over {MOST_STEPS}", "check the model's shapes")
    auto = node.attribute("auto_pad", "NOTSET") or "NOTSET"
    ceil = node.flag("ceil_mode")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.unsupported(f"its auto_pad is '{auto}'", "use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    steps = [Steps(kernel[axis], strides[axis], pads[axis], pads[axis + rank], dilations[axis]) for axis in range(rank)]
    if auto == "VALID":
        steps = [replace(step, before=0, after=0) for step in steps]
    elif auto != "NOTSET":
        for step, size in zip(steps, sizes, strict=True):
            # Windows that end elements before the input does would stand in its middle.
            if _short(step, size) > 1:
                raise _odd(node, auto, size)
        steps = [_same(step, size, auto == "SAME_LOWER") for step, size in zip(steps, sizes, strict=True)]
    declared = [step.before for step in steps] + [step.after for step in steps]
    if ceil and auto == "NOTSET":
        steps = [_ceil(step, size) for step, size in zip(steps, sizes, strict=True)]
    return steps, declared


def read_kernel(node: OnnxNode, rank: int) -> list[int]:
    """The `kernel_shape` attribute of a pooling node."""
    kernel = node.integers("kernel_shape")
    if kernel is None or len(kernel) != rank or min(kernel) < 1:
        raise node.unsupported(f"its kernel_shape is {kernel}", f"give {rank} sizes of at least 1")
    return kernel


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


def _positive(node: OnnxNode, name: str, rank: int) -> list[int]:
    values = node.integers(name) or [1] * rank
    if len(values) != rank or min(values) < 1:
        raise node.unsupported(f"its {name} are {values}", f"give {rank} numbers of at least 1")
    return values


def _short(steps: Steps, size: int) -> int:
    """How many elements are behind the last window if there is one for every stride; negative: padding."""
    positions = -(-size // steps.stride)
    return size - (positions - 1) * steps.stride - steps.extent


def _same(steps: Steps, size: int, lower: bool) -> Steps:
    total = max(0, -_short(steps, size))
    small, large = total // 2, total - total // 2
    return replace(steps, before=large if lower else small, after=small if lower else large)


def _ceil(steps: Steps, size: int) -> Steps:
    """Pads at the end for the positions that rounding up adds; none may start past the declared padding's input."""
    padded = size + steps.before + steps.after
    positions = -(-(padded - steps.extent) // steps.stride) + 1
    if (positions - 1) * steps.stride >= size + steps.before:
        positions -= 1
    return replace(steps, after=steps.after + max(0, (positions - 1) * steps.stride + steps.extent - padded))
