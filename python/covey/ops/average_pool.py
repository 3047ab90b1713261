"""Mean over windows: a sum, then a division by a public number, which linear layers behind it may take over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.errors import UnsupportedError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval, integer_bits, of_sums
from covey.ir import Node, Op, Shape, Value, spatial
from covey.linear import can_divide
from covey.lowering import Division, Lowered, Lowering
from covey.ops.add import Add
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.gather import ABSENT
from covey.ops.reshape import Reshape
from covey.ops.window import STILL, Steps, Window, image_window, read_pool, torch_pooling

if TYPE_CHECKING:
    from covey.training.builder import Builder

FINEST_SHIFT = 24
"""The most bits a reciprocal is given."""

COARSEST_ERROR = 2.0**-10
"""The largest relative error of a reciprocal that is put up with."""

SHIFT_BITS_A_MEAN = 8
"""How many bits more, over all results of the layers behind, shifts may take for each division of a mean that goes."""


def spread(build: Builder, window: Window, x: Value, gradient: Value) -> Value:
    """The gradient of x where sums over windows have this one: each element's is the sum of those of its windows."""
    along: list[Sequence[int]] = [range(size) for size in gradient.shape]
    apart = all(s >= k and d == 1 for s, k, d in zip(window.strides, window.kernel, window.dilations, strict=True))
    for axis, size in enumerate(x.shape[-2:]):
        stride, taps, count = window.strides[axis], window.kernel[axis], gradient.shape[axis - 2]
        if apart:  # an element has one window at most
            places = (place + window.pads[axis] for place in range(size))
            along[axis - 2] = [p // stride if p // stride < count and p % stride < taps else ABSENT for p in places]
        else:
            reach = (taps - 1) * window.dilations[axis]
            places = (place - reach + window.pads[axis] for place in range(size + reach))
            last = (count - 1) * stride
            along[axis - 2] = [p // stride if 0 <= p <= last and p % stride == 0 else ABSENT for p in places]
    spread_out = build.pick(gradient, along, "spread")
    if apart:
        return spread_out
    return build.emit(SumPool(Window(window.kernel, (1, 1), (0, 0, 0, 0), window.dilations)), spread_out, hint="back")


@dataclass(frozen=True)
class SumPool(Op):
    """x [N, .., C, H, W] to the sum of each window; padding counts as 0."""

    window: Window

    def shape(self, *inputs: Value) -> Shape:
        lead, channels, height, width = spatial(inputs[0])
        self.window.check_padding(height, width)
        return (*lead, channels, *self.window.output(height, width))

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(self.window.slide(inputs[0], 0.0).sum(axis=(-2, -1)))

    def interval(self, *inputs: Interval) -> Interval:
        x, terms = inputs[0], math.prod(self.window.kernel)
        return of_sums(self.reference(x.low), self.reference(x.high), terms, terms * x.magnitude)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [spread(build, self.window, inputs[0], gradient)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return low.emit(
            node,
            pb.SumPool(window=self.window.proto()),
            [x],
            shape=low.graph.values[node.output].shape,
            scale=x.scale,
            interval=self.interval(x.interval),
        )


@dataclass(frozen=True)
class AveragePool(Op):
    """x [N, .., C, H, W] to the mean of each window.

    `counted` is how far the divisor counts padding (top, left, bottom, right); the window's own pads may be larger.
    """

    window: Window
    counted: tuple[int, int, int, int] = (0, 0, 0, 0)

    def shape(self, *inputs: Value) -> Shape:
        return SumPool(self.window).shape(*inputs)

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0]
        return SumPool(self.window).reference(x) / self.window.counts(x.shape[-2], x.shape[-1], self.counted)

    def divisor(self, x: Value) -> int:
        """The most elements that a window counts."""
        return int(self.window.counts(x.shape[-2], x.shape[-1], self.counted).max())

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        height, width = inputs[0].shape[-2:]
        counts = self.window.counts(height, width, self.counted)
        if counts.min() == counts.max():
            share = build.affine(gradient, 1.0 / float(counts.max()))
        else:
            share = build.mul(gradient, build.parameter(f"{result.name}.shares", 1.0 / counts))
        return [spread(build, self.window, inputs[0], share)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        shape = low.graph.values[node.output].shape
        counts = self.window.counts(x.shape[-2], x.shape[-1], self.counted)
        magnitude = low.magnitude(node.output)
        sums = low.emit(
            node,
            pb.SumPool(window=self.window.proto()),
            [x],
            shape=shape,
            scale=x.scale,
            interval=SumPool(self.window).interval(x.interval),
            name=f"{node.output}.sum",
            magnitude=None if magnitude is None else magnitude * float(counts.max()),
            headroom=self._headroom(low, counts),
        )
        if counts.max() == 1:
            return sums
        if sums.scale < low.scale:  # of whole numbers, whose mean is none
            largest = None if magnitude is None else magnitude * float(counts.max())
            sums = low.shift_left(node, sums, low.scale, largest)
        if low.settings.division is Division.EXACT:
            return self._divide(low, node, sums, counts)
        divided = replace(sums, divisor=int(counts.max()))
        if counts.min() == counts.max() and sums.scale == low.scale and _readers_divide(low, node.output, divided):
            return divided
        return self._multiply(low, node, sums, counts)

    def _divide(self, low: Lowering, node: Node, sums: Lowered, counts: npt.NDArray[np.int64]) -> Lowered:
        if counts.min() != counts.max():
            raise UnsupportedError(
                node.name,
                node.source_op,
                "its windows count different numbers of elements, which exact division cannot express",
                "compile with --division mul-shift or set count_include_pad",
            )
        divisor = int(counts.max())
        return low.emit(
            node,
            pb.DivExact(divisor=divisor),
            [sums],
            shape=sums.shape,
            scale=sums.scale,
            interval=sums.interval.divided(divisor),
        )

    def _multiply(self, low: Lowering, node: Node, sums: Lowered, counts: npt.NDArray[np.int64]) -> Lowered:
        shift = self._shift(low, sums, counts)
        multipliers = np.rint(2.0**shift / counts)
        products = sums.interval.scaled(multipliers)
        low.check_constant(node, _largest_product(sums, multipliers), sums.scale + shift, calibrated=sums.calibrated)
        low.count_wraps(node, sums, products)
        # A sum that was left at a product's scale is brought to the ordinary one by the same shift.
        beyond = max(0, sums.scale - low.scale)
        values = multipliers.astype(np.int64)
        uniform = values.min() == values.max()
        return low.emit(
            node,
            pb.MulShift(
                multipliers=[int(values.flat[0])] if uniform else values.ravel().tolist(),
                shift=shift + beyond,
                rounding=low.rounding,
            ),
            [sums],
            shape=sums.shape,
            scale=sums.scale - beyond,
            interval=low.rounded(products.shifted_right(shift + beyond)),
        )

    @staticmethod
    def _headroom(low: Lowering, counts: npt.NDArray[np.int64]) -> int:
        """Bits the products of sums and coarsest reciprocals may take beyond the sums."""
        if low.settings.division is Division.EXACT or counts.max() == 1:
            return 0
        return int(np.rint(2.0 ** _coarsest_shift(counts) / counts.min())).bit_length()

    @staticmethod
    def _shift(low: Lowering, sums: Lowered, counts: npt.NDArray[np.int64]) -> int:
        """The fewest bits whose reciprocals are exact to a unit of the scale, else the most the ring has room for."""
        shift = _coarsest_shift(counts)
        while shift < FINEST_SHIFT and _error(counts, shift) > 2.0 ** -(low.scale + 1):
            finer = _largest_product(sums, np.rint(2.0 ** (shift + 1) / counts))
            if integer_bits(finer) > low.settings.available_bits:
                break
            shift += 1
        return shift


def _readers_divide(low: Lowering, name: str, sums: Lowered) -> bool:
    """Whether all that read a mean are linear layers that can divide, perhaps behind a flattening."""
    readers = low.graph.consumers(name)
    return name not in low.graph.outputs and all(_divides(low, reader, sums) for reader in readers)


def _divides(low: Lowering, reader: Node, sums: Lowered) -> bool:
    if isinstance(reader.op, Reshape):
        flat = replace(sums, shape=reader.op.target, interval=reader.op.interval(sums.interval))
        return _readers_divide(low, reader.output, flat)
    if not isinstance(reader.op, Conv2d | Dense):
        return False
    # The layer's own shift gets longer, by log2 of the divisor.
    longer = low.graph.values[reader.output].size * (sums.divisor.bit_length() - 1)
    if longer > SHIFT_BITS_A_MEAN * math.prod(sums.shape):
        return False
    # An addition behind a layer joins its shift where that leaves room: a longer shift would leave less.
    after = low.graph.only_consumer(reader.output)
    added = after is not None and isinstance(after.op, Add) and not any(map(low.is_parameter, after.inputs))
    return not added and can_divide(low, reader, sums)


def _largest_product(sums: Lowered, multipliers: Array) -> float:
    """What the public bound of the sums, a power of two, allows their products with the reciprocals to reach."""
    return float(2.0**sums.interval.bits - 1) * float(multipliers.max())


def _error(counts: npt.NDArray[np.int64], shift: int) -> float:
    """The largest relative error of the reciprocals at `shift` bits."""
    return float(np.abs(np.rint(2.0**shift / counts) * counts / 2.0**shift - 1.0).max())


def _coarsest_shift(counts: npt.NDArray[np.int64]) -> int:
    shift = int(counts.max() - 1).bit_length()
    while shift < FINEST_SHIFT and _error(counts, shift) > COARSEST_ERROR:
        shift += 1
    return shift


def whole_map(x: Value) -> AveragePool:
    """The mean over all of x [N, C, H, W]."""
    _, _, height, width = spatial(x)
    return AveragePool(Window((height, width)))


@from_onnx("AveragePool")
def _average_pool(node: OnnxNode) -> None:
    x = node.activation(0)
    rank = image_rank(node, x)
    steps, declared = read_pool(node, rank, x.shape[1:])
    counted = declared if node.flag("count_include_pad") else [0] * (2 * rank)

    def window(image: Steps, width: Steps, axes: tuple[int | None, int | None]) -> Op:
        border = [0 if axis is None else counted[axis + side * rank] for side in (0, 1) for axis in axes]
        return AveragePool(image_window(image, width), (border[0], border[1], border[2], border[3]))

    if rank == 1:
        pool_rows(node, x, window(STILL, steps[0], (None, 0)))
    elif rank == 2:
        node.emit(window(steps[0], steps[1], (0, 1)), [x])
    else:
        # How many elements of a box are inside is the product of how many of its sides are.
        pool_volume(node, x, window(steps[1], steps[2], (1, 2)), window(steps[0], STILL, (0, None)))


def image_rank(node: OnnxNode, x: Value) -> int:
    """How many dimensions a pooling node slides over."""
    if not 2 <= len(x.shape) <= 4:
        raise node.unsupported(f"its input {x} is no image", "1-D, 2-D and 3-D pooling are supported")
    return len(x.shape) - 1


def pool_rows(node: OnnxNode, x: Value, pool: Op) -> None:
    """Pool x [N, C, L] as an image of one row."""
    name = node.outputs[0]
    rows = node.emit(Reshape((x.shape[0], 1, x.shape[1])), [x], output=f"{name}.rows")
    pooled = node.emit(pool, [rows], output=f"{name}.pooled")
    node.emit(Reshape((x.shape[0], pooled.shape[-1])), [pooled])


def pool_volume(node: OnnxNode, x: Value, slices: Op, depth: Op) -> None:
    """Pool x [N, C, D, H, W]: each slice first, then along the depth."""
    name = node.outputs[0]
    channels, deep, *_ = x.shape
    pooled = node.emit(slices, [x], output=f"{name}.slices")
    columns = node.emit(
        Reshape((channels, deep, pooled.shape[2] * pooled.shape[3])), [pooled], output=f"{name}.columns"
    )
    result = node.emit(depth, [columns], output=f"{name}.depth")
    node.emit(Reshape((channels, result.shape[1], *pooled.shape[2:])), [result])


@from_onnx("GlobalAveragePool")
def _global_average_pool(node: OnnxNode) -> None:
    x = node.activation(0)
    emit_global(node, x, lambda size: AveragePool(Window(size)))
    node.note("AveragePool over the whole map")


def emit_global(node: OnnxNode, x: Value, pool: Callable[[tuple[int, int]], Op]) -> None:
    """Pool over all dimensions of x behind the channels, which stay with size 1."""
    rank = image_rank(node, x)
    if rank == 2:
        node.emit(pool((x.shape[1], x.shape[2])), [x])
        return
    name = node.outputs[0]
    size = x.size // x.shape[0]
    rows = node.emit(Reshape((x.shape[0], 1, size)), [x], output=f"{name}.rows")
    pooled = node.emit(pool((1, size)), [rows], output=f"{name}.pooled")
    node.emit(Reshape((x.shape[0], *(1,) * rank)), [pooled])


@from_torch("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def _average_pool_aten(node: TorchNode) -> None:
    x = node.activation("self")
    counted, pooling = int(node.flag("count_include_pad")), torch_pooling(node, len(x.shape) - 1)
    if not node.has("divisor_override"):
        node.become("AveragePool", x, **pooling, count_include_pad=counted)
        return
    if pooling["ceil_mode"]:
        raise node.unsupported("it has a divisor and rounds its size up", "leave out one of the two")
    mean = node.apply("AveragePool", x, **pooling, count_include_pad=1, suffix="mean")
    node.become("Mul", mean, math.prod(pooling["kernel_shape"]) / node.number("divisor_override"))


@from_torch("aten.adaptive_avg_pool1d.default", "aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool3d.default")
def _adaptive_average_pool_aten(node: TorchNode) -> None:
    adaptive_pool(node, "AveragePool")


MOST_REPEATED = 64
"""The most elements a window may have once windows of different sizes are made equal."""


def adaptive_pool(node: TorchNode, operator: str) -> None:
    """Pooling to a given size."""
    x = node.activation("self")
    wanted = node.integers("output_size", len(x.shape) - 1)
    sizes = x.shape[1:]
    if list(sizes) == wanted:
        node.alias(x)
        node.note("removed: the map has that size already")
    elif all(size == 1 for size in wanted):
        node.become(f"Global{operator}", x)
    elif any(size % due for size, due in zip(sizes, wanted, strict=True)):
        _pool_unevenly(node, x, operator, wanted)
    else:
        steps = [size // due for size, due in zip(sizes, wanted, strict=True)]
        node.become(operator, x, kernel_shape=steps, strides=steps)
        node.note(f"{operator} with windows of {steps}")


def _pool_unevenly(node: TorchNode, x: Value, operator: str, wanted: list[int]) -> None:
    """Dimension by dimension; where windows differ in size, their elements repeat until they do not."""
    rank = len(wanted)
    for axis, (size, due) in enumerate(zip(x.shape[1:], wanted, strict=True)):
        if size == due:
            continue
        starts = [index * size // due for index in range(due)]
        counts = [-(-(index + 1) * size // due) - start for index, start in enumerate(starts)]
        whole = math.lcm(*counts)
        if whole > MOST_REPEATED:
            raise node.unsupported(
                f"its output size {wanted} divides the map {list(x.shape[1:])} too unevenly",
                "use images whose maps it divides",
            )
        reads = [
            start + place * count // whole
            for start, count in zip(starts, counts, strict=True)
            for place in range(whole)
        ]
        spread = node.apply("Gather", x, np.array(reads), suffix="windows", axis=axis + 2)
        steps = [whole if other == axis else 1 for other in range(rank)]
        x = node.apply(operator, spread, suffix="pooled", kernel_shape=steps, strides=steps)
    node.alias(x)
    node.note(f"{operator} over windows of different sizes, a dimension after the other")
