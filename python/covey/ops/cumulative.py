"""Sums up to each element, and triangles of matrices: public positions, so nothing is exchanged."""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ops.average_pool import SumPool
from covey.ops.gather import ABSENT, MOST_INDICES, data_axis, flat, pick
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.window import MOST_STEPS, Window


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
