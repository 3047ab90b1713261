"""Reductions that are made of others: norms, sums of squares, logarithms of sums, products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.functions import LOG, SQRT
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import Constant, Operand, TorchNode, from_torch
from covey.ir import Value
from covey.ops.average_pool import SumPool
from covey.ops.concat import Concat
from covey.ops.counting import is_whole
from covey.ops.gather import pick
from covey.ops.leaky_relu import TwoSlopes
from covey.ops.mul import Mul
from covey.ops.reduce import read_axes, reduce, reduce_aten, reduced_shape, rows_of
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.softmax import LogSoftmax
from covey.ops.standardising import SquareSum
from covey.ops.sub import Sub

MOST_FACTORS = 64
"""Beyond so many factors hardly any product is a number."""


def _places(node: OnnxNode, x: Value) -> tuple[list[int], bool]:
    places, keep = read_axes(node, x)
    if not places:
        raise node.unsupported("it runs over no axes", "remove it, or name its axes")
    return places, keep


@from_onnx("ReduceL1")
def _reduce_l1(node: OnnxNode) -> None:
    x = node.activation(0)
    places, keep = _places(node, x)
    reduce(node, node.emit(TwoSlopes(-1.0), [x], output=f"{node.outputs[0]}.sizes"), places, SumPool, keep)
    node.note("the sum of absolute values")


@from_onnx("ReduceSumSquare")
def _reduce_sum_square(node: OnnxNode) -> None:
    x = node.activation(0)
    if is_whole(node.scope.graph, x.name):  # the product of a row has as many bits as there is room for
        places, keep = _places(node, x)
        reduce(node, node.emit(Mul(), [x, x], output=f"{node.outputs[0]}.squares"), places, SumPool, keep)
        node.note("the sum of squares, exactly")
        return
    _of_rows(node, _squares)
    node.note("the product of a row with itself")


@from_onnx("ReduceL2")
def _reduce_l2(node: OnnxNode) -> None:
    _of_rows(node, lambda node, rows: node.emit(Scalar(SQRT), [_squares(node, rows)], output=f"{rows.name}.root"))
    node.note("the root of the product of a row with itself")


def _squares(node: OnnxNode, rows: Value) -> Value:
    return node.emit(SquareSum(0.0), [rows], output=f"{rows.name}.squares")


@from_onnx("ReduceLogSum")
def _reduce_log_sum(node: OnnxNode) -> None:
    x = node.activation(0)
    places, keep = _places(node, x)
    node.emit(Scalar(LOG), [reduce(node, x, places, SumPool, keep, output=f"{node.outputs[0]}.sum")])
    node.note("the logarithm of a sum")


@from_onnx("ReduceLogSumExp")
def _reduce_log_sum_exp(node: OnnxNode) -> None:
    """Of any element: what it exceeds its LogSoftmax by."""

    def first_minus(node: OnnxNode, rows: Value) -> Value:
        logarithms = node.emit(LogSoftmax(), [rows], output=f"{rows.name}.logarithms")
        op = pick(rows.shape, [range(rows.shape[0]), [0]])
        firsts = [node.emit(op, [value], output=f"{value.name}.first") for value in (rows, logarithms)]
        return node.emit(Sub(), firsts, output=f"{rows.name}.difference")

    _of_rows(node, first_minus)
    node.note("an element less its LogSoftmax")


@from_onnx("ReduceProd")
def _reduce_prod(node: OnnxNode) -> None:
    _of_rows(node, _product)
    node.note("products of pairs")


def _product(node: OnnxNode, rows: Value) -> Value:
    count = rows.shape[1]
    if count > MOST_FACTORS:
        raise node.unsupported(f"it multiplies {count} numbers", f"at most {MOST_FACTORS} are supported")
    value = rows
    while count > 1:
        half = count // 2
        parts = [(0, half), (half, 2 * half), (2 * half, count)]
        picked = [
            node.emit(pick(value.shape, [range(value.shape[0]), range(*ends)]), [value], output=f"{rows.name}.part")
            for ends in parts
            if ends[0] < ends[1]
        ]
        value = node.emit(Mul(), picked[:2], output=f"{rows.name}.products")
        if len(picked) > 2:
            value = node.emit(Concat(2), [value, picked[2]], output=f"{rows.name}.rest")
        count -= half
    return value


def _of_rows(node: OnnxNode, function: Callable[[OnnxNode, Value], Value]) -> None:
    """What the function makes of [N, rows, count], which is [N, rows, 1]."""
    x = node.activation(0)
    places, keep = _places(node, x)
    rows = rows_of(node, x, places, f"{node.outputs[0]}.rows")
    node.emit(Reshape(reduced_shape(x, places, keep)), [function(node, rows)])


@from_torch("aten.logsumexp.default")
def _log_sum_exp_aten(node: TorchNode) -> None:
    reduce_aten(node, "ReduceLogSumExp")


@from_torch("aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim")
def _norm_aten(node: TorchNode) -> None:
    node.ignore("dtype")
    operator, x = _norm(node, node.number("ord" if "ord" in node.arguments else "p"), node.activation("self"))
    reduce_aten(node, operator, x)


def _norm(node: TorchNode, order: float, x: Value) -> tuple[str, Value]:
    """A norm as the reduction of x, or of what is made of it."""
    if order in (1.0, 2.0):
        return f"ReduceL{order:.0f}", x
    if np.isinf(order):
        return "ReduceMax" if order > 0 else "ReduceMin", node.apply("Abs", x, suffix="sizes")
    if order == 0.0:
        return "ReduceSum", node.apply("Not", node.apply("Equal", x, 0.0, suffix="zeros"), suffix="others")
    raise node.unsupported(f"its norm is of order {order:g}", "use that of order 0, 1, 2 or inf")


@from_torch("aten.hypot.default")
def _hypotenuse_aten(node: TorchNode) -> None:
    squares: list[Operand] = []
    for name in ("self", "other"):
        x = node.operand(name)
        if isinstance(x, Value):
            squares.append(node.apply("Mul", x, x, suffix="square"))
        else:
            squares.append(np.square(node.constant(name).astype(np.float64)))
    node.become("Sqrt", node.apply("Add", *squares, suffix="squares"))


@from_torch("aten.prod.dim_int")
def _product_aten(node: TorchNode) -> None:
    node.ignore("dtype")
    reduce_aten(node, "ReduceProd")


@from_torch("aten.cosine_similarity.default")
def _cosine_aten(node: TorchNode) -> None:
    """The product of rows over their norms."""
    node.ignore("eps")
    x, y = node.activation("x1"), node.activation("x2")
    axis = node.axis("dim", x.rank)
    rows = [node.apply("LpNormalization", each, axis=axis, p=2, suffix="normalised") for each in (x, y)]
    node.become("ReduceSum", node.apply("Mul", *rows, suffix="products"), np.array([axis]), keepdims=0)


@from_torch("aten.cdist.default")
def _distances_aten(node: TorchNode) -> None:
    """[.., P, M] and [.., R, M] to the norms [.., P, R] of all differences."""
    node.ignore("compute_mode")
    x, y = node.operand("x1"), node.operand("x2")
    rows, columns = (_with_axis(node, each, axis) for each, axis in ((x, -2), (y, -3)))
    gaps = node.apply("Sub", rows, columns, suffix="gaps")
    operator, gaps = _norm(node, node.number("p"), gaps)
    node.become(operator, gaps, np.array([gaps.rank - 1]), keepdims=0)


def _with_axis(node: TorchNode, operand: Operand, axis: int) -> Operand:
    if isinstance(operand, Value):
        return node.apply("Unsqueeze", operand, np.array([operand.rank + 1 + axis]), suffix="rows")
    array = operand.array if isinstance(operand, Constant) else np.asarray(operand)
    return np.expand_dims(array, axis)
