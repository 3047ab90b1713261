"""Sums up to each element, and triangles of matrices: public positions, so nothing is exchanged.

Maxima, minima and products up to each element are chains of steps.
"""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value
from covey.ops.average_pool import SumPool
from covey.ops.gather import ABSENT, MOST_INDICES, data_axis, flat, pick
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.window import MOST_STEPS, Window

MOST_SCANNED = 64
"""Beyond so many factors hardly any product is a number, and maxima take many comparisons."""

SCANS = {"cummax": "Max", "cummin": "Min", "cumprod": "Mul"}


@from_onnx("CumSum")
def _cumulative_sum(node: OnnxNode) -> None:
    """Windows over rows with as many zeros before them."""
    x, name = node.activation(0), node.outputs[0]
    place = data_axis(node, x, node.one_integer(1, "axis"))
    size = x.shape[place]
    if size > MOST_STEPS:
        raise node.unsupported(f"it runs over {size} elements", f"at most {MOST_STEPS} are supported")
    left_out = int(node.flag("exclusive"))
    elements = list(range(size))[:: -1 if node.flag("reverse") else 1]
    order = [*(other for other in range(1, x.rank) if other != place + 1), place + 1]
    turned = tuple(x.shape[other - 1] for other in order)
    if order != sorted(order):
        x = node.emit(Transpose((0, *order)), [x], output=f"{name}.turned")
    rows = x.size // size
    x = node.emit(Reshape((1, rows, size)), [x], output=f"{name}.rows")
    # One that is left out of its own sum is a zero more in front.
    columns = [ABSENT] * (size - 1 + left_out) + elements[: size - left_out]
    x = node.emit(pick(x.shape, [[0], range(rows), columns]), [x], output=f"{name}.behind_zeros")
    x = node.emit(SumPool(Window((1, size))), [x], output=f"{name}.sums")
    if elements[0] > 0:
        x = node.emit(pick(x.shape, [[0], range(rows), elements]), [x], output=f"{name}.back")
    if order == sorted(order):
        node.emit(Reshape(turned), [x])
    else:
        x = node.emit(Reshape(turned), [x], output=f"{name}.shaped")
        node.emit(Transpose((0, *(order.index(other) + 1 for other in range(1, x.rank)))), [x])
    node.note("sums over windows behind zeros")


@from_onnx("Trilu")
def _triangle(node: OnnxNode) -> None:
    """Zeros on one side of a diagonal of the last two dimensions."""
    x = node.activation(0)
    diagonal = node.one_integer(1, "diagonal") if node.has(1) else 0
    if len(x.shape) < 2:
        raise node.unsupported(f"one of the last two dimensions of {x} is the batch", "keep the batch out of it")
    if x.size > MOST_INDICES:
        raise node.unsupported(f"{x} is larger than {MOST_INDICES} elements", "multiply it with a constant mask")
    gaps = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
    kept = gaps >= diagonal if node.flag("upper", 1) else gaps <= diagonal
    places = np.where(np.broadcast_to(kept, x.shape), np.arange(x.size).reshape(x.shape), ABSENT)
    node.emit(Reshape(x.shape), [node.emit(flat(places), [x], output=f"{node.outputs[0]}.elements")])
    node.note("moves, and zeros in the place of the others")


@from_torch("aten.triu.default")
def _upper_aten(node: TorchNode) -> None:
    node.become("Trilu", node.activation("self"), np.array(node.integers("diagonal")), upper=1)


@from_torch("aten.tril.default")
def _lower_aten(node: TorchNode) -> None:
    node.become("Trilu", node.activation("self"), np.array(node.integers("diagonal")), upper=0)


@from_torch(*(f"aten.{name}.default" for name in SCANS))
def _scan_aten(node: TorchNode) -> None:
    """Each step joins runs of twice as many elements. The places of cummax and cummin are not computed."""
    node.ignore("dtype")
    kind = node.op_type.removeprefix("aten.")
    x = node.numbers(node.activation("self"), truth=kind == "cumprod")
    (axis,) = node.inner_axes("dim", x)
    size, reach = x.dims(1)[axis], 1
    if size > MOST_SCANNED:
        raise node.unsupported(f"it runs over {size} elements", f"at most {MOST_SCANNED} are supported")

    def part(start: int, end: int) -> Value:
        return node.apply("Slice", x, *(np.array([each]) for each in (start, end, axis)), suffix="part")

    while reach < size:
        joined = node.apply(SCANS[kind], part(reach, size), part(0, size - reach), suffix="runs")
        x, reach = node.apply("Concat", part(0, reach), joined, axis=axis, suffix="scanned"), 2 * reach
    node.alias(x)
    if kind != "cumprod":
        node.results = [x]
    node.note("joined runs of elements")
