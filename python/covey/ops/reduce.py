"""Sums, means, maxima and minima over dimensions of a sample: pooling over rows in which they stand last."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import DType, Op, Shape, Value
from covey.ops.affine import Affine
from covey.ops.average_pool import AveragePool, SumPool, whole_map
from covey.ops.max_pool import MaxPool
from covey.ops.number import Number
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.window import MOST_STEPS, Window

Pool = type[AveragePool] | type[SumPool] | type[MaxPool]


@from_onnx("ReduceMean")
def _reduce_mean(node: OnnxNode) -> None:
    _reduce(node, AveragePool)


@from_onnx("ReduceSum")
def _reduce_sum(node: OnnxNode) -> None:
    _reduce(node, SumPool)


@from_onnx("ReduceMax")
def _reduce_max(node: OnnxNode) -> None:
    _reduce(node, MaxPool)


@from_onnx("ReduceMin")
def _reduce_min(node: OnnxNode) -> None:
    _reduce(node, MaxPool, negated=True)


@from_torch("aten.mean.dim")
def _mean_aten(node: TorchNode) -> None:
    node.ignore("dtype")
    x, axes = node.activation("self"), node.integers("dim")
    if not axes:
        raise node.unsupported("it runs over the batch too", "give it dims other than the batch")
    node.become("ReduceMean", x, np.array(axes), keepdims=int(node.flag("keepdim")))


def _reduce(node: OnnxNode, pool: Pool, *, negated: bool = False) -> None:
    x = node.activation(0, index_allowed=True)
    counts = x.dtype is DType.BOOL
    x = node.emit(Number(), [x], output=f"{node.outputs[0]}.numbers") if counts else node.activation(0)
    places, keep = read_axes(node, x)
    if not places:
        node.alias(x)
        node.note("removed: it runs over no axes")
        return
    if negated:
        x = node.emit(Affine(-1.0), [x], output=f"{node.outputs[0]}.negative")
        largest = reduce(node, x, places, pool, keep, output=f"{node.outputs[0]}.largest")
        node.emit(Affine(-1.0), [largest])
    else:
        reduce(node, x, places, pool, keep)
    node.note("pooling over these dimensions")


def read_axes(node: OnnxNode, x: Value) -> tuple[list[int], bool]:
    """The dimensions that a node runs over, which count the batch, and whether they stay with size 1."""
    axes = node.constant_integers(1, "axes") if node.has(1) else node.integers("axes")
    keep, nothing = node.flag("keepdims", 1), node.flag("noop_with_empty_axes")
    if not axes and nothing:
        return [], keep
    places = sorted(node.places(axes, x.rank)) if axes else list(range(x.rank))
    if places[0] == 0:
        raise node.unsupported("it runs over the batch", "keep the batch out of its axes")
    return places, keep


def reduce(
    node: OnnxNode,
    x: Value,
    places: Sequence[int],
    pool: Pool,
    keep: bool,
    output: str | None = None,
) -> Value:
    """Pool over the dimensions `places`, which count the batch; they stay with size 1 if `keep`."""
    name = output or node.outputs[0]
    final = reduced_shape(x, places, keep)
    if pool is AveragePool and len(x.shape) == 3 and list(places) == [2, 3]:
        pooled: Op = whole_map(x)
        if keep:
            return node.emit(pooled, [x], output=output)
        result = node.emit(pooled, [x], output=f"{name}.pooled")
        return node.emit(Reshape(final), [result], output=output)
    x = rows_of(node, x, places, f"{name}.rows", lead=(1,))
    pooled_rows = node.emit(pool(Window((1, x.shape[-1]))), [x], output=f"{name}.pooled")
    return node.emit(Reshape(final), [pooled_rows], output=output)


def reduced_shape(x: Value, places: Sequence[int], keep: bool) -> Shape:
    """What is left of a sample's shape without these dimensions, or with sizes of 1 in their place."""
    sizes = enumerate(x.shape, start=1)
    if keep:
        return tuple(1 if place in places else size for place, size in sizes)
    return tuple(size for place, size in sizes if place not in places)


def rows_of(node: OnnxNode, x: Value, places: Sequence[int], hint: str, lead: Shape = ()) -> Value:
    """x as [N, rows, count], perhaps with `lead` before the rows: the dimensions `places` are a row."""
    order = (0, *(place for place in range(1, x.rank) if place not in places), *places)
    count = prod(x.shape[place - 1] for place in places)
    if count > MOST_STEPS:
        raise node.unsupported(f"it runs over {count} elements", f"at most {MOST_STEPS} are supported")
    rows = x.size // count
    if list(order) != sorted(order):
        x = node.emit(Transpose(order), [x], output=f"{hint}.turned")
    return node.emit(Reshape((*lead, rows, count)), [x], output=hint)


@from_torch("aten.sum.dim_IntList")
def _sum_aten(node: TorchNode) -> None:
    node.ignore("dtype")
    reduce_aten(node, "ReduceSum")


@from_torch("aten.amax.default")
def _amax_aten(node: TorchNode) -> None:
    reduce_aten(node, "ReduceMax")


@from_torch("aten.amin.default")
def _amin_aten(node: TorchNode) -> None:
    reduce_aten(node, "ReduceMin")


def reduce_aten(node: TorchNode, operator: str, x: Value | None = None) -> None:
    """A reduction over the node's `dim`: of its own operand, or of `x`, which was made of that."""
    x, axes = node.numbers(x or node.activation("self"), truth=False), node.integers("dim")
    if not axes:
        raise node.unsupported("it runs over the batch too", "give it dims other than the batch")
    node.become(operator, x, np.array(axes), keepdims=int(node.flag("keepdim")))


@from_torch("aten.max.dim", "aten.min.dim")
def _extreme_aten(node: TorchNode) -> None:
    """The values, and where they are."""
    x = node.numbers(node.activation("self"), truth=False)
    largest = node.op_type.startswith("aten.max")
    axis, keep = node.axis("dim", x.rank), int(node.flag("keepdim"))
    node.become("ReduceMax" if largest else "ReduceMin", x, np.array([axis]), keepdims=keep)
    places = node.apply("ArgMax" if largest else "ArgMin", x, axis=axis, keepdims=keep, suffix="places")
    node.results = [node.result, places]
