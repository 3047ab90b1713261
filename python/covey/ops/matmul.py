"""Matrix products: with a constant (a dense layer), or of two activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.interval import Array, Interval, of_centre, of_sums
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.reshape import Reshape
from covey.ops.tile import expand_to
from covey.ops.transpose import Transpose
from covey.ops.window import Window

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Matmul(Op):
    """x [N, .., M, K] times y [N, .., K, P], both secret."""

    widens = True

    def shape(self, *inputs: Value) -> Shape:
        x, y = inputs
        if len(x.shape) < 2 or len(x.shape) != len(y.shape) or x.shape[:-2] != y.shape[:-2]:
            raise ValueError(f"{x} and {y} need equal dimensions before the last two")
        if x.shape[-1] != y.shape[-2]:
            raise ValueError(f"{x} and {y} do not multiply")
        return (*x.shape[:-1], y.shape[-1])

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(np.matmul(inputs[0], inputs[1]))

    def interval(self, *inputs: Interval) -> Interval:
        x, y = inputs
        if x.is_whole and y.is_whole:
            return self._whole(x, y)
        centre = np.matmul(x.centre, y.centre)
        radius = np.matmul(np.abs(x.centre), y.radius) + np.matmul(x.radius, np.abs(y.centre) + y.radius)
        return of_centre(centre, radius, terms=x.low.shape[-1], products=x.magnitude * y.magnitude)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        x, y = inputs
        return [
            build.part(x, lambda: build.matmul(gradient, build.swapped(y))),
            build.part(y, lambda: build.matmul(build.swapped(x), gradient)),
        ]

    def _whole(self, x: Interval, y: Interval) -> Interval:
        """Every sum has as many products of the same intervals."""
        terms = x.low.shape[-1]
        one = (1,) * x.low.ndim
        ends = [np.broadcast_to(end.ravel()[:1].reshape(one), one) for end in (x.low, x.high, y.low, y.high)]
        product = Interval(*ends[:2]) * Interval(*ends[2:])
        total = of_sums(product.low * terms, product.high * terms, terms, terms * product.magnitude)
        shape = (*np.broadcast_shapes(x.low.shape[:-2], y.low.shape[:-2]), x.low.shape[-2], y.low.shape[-1])
        return Interval(np.broadcast_to(total.low, shape), np.broadcast_to(total.high, shape))

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, y = (low.value(name) for name in node.inputs)
        return low.emit(
            node,
            pb.Matmul(),
            [x, y],
            shape=low.graph.values[node.output].shape,
            scale=x.scale + y.scale,
            interval=self.interval(x.interval, y.interval),
        )


@from_onnx("MatMul")
def _matmul(node: OnnxNode) -> None:
    if node.is_constant(1):
        _times_constant(node)
    elif node.is_constant(0):
        _constant_times(node)
    else:
        x, y = node.activation(0, "input A"), node.activation(1, "input B")
        node.emit(Matmul(), _stretched(node, x, y))


def _stretched(node: OnnxNode, x: Value, y: Value) -> list[Value]:
    """Both operands with the same dimensions before the last two, if sizes of 1 are all that differs."""
    if len(x.shape) < 2 or len(x.shape) != len(y.shape):
        return [x, y]
    try:
        lead = tuple(np.broadcast_shapes(x.shape[:-2], y.shape[:-2]))
    except ValueError:
        return [x, y]
    name = node.outputs[0]
    return [
        expand_to(node, value, (*lead, *value.shape[-2:]), f"{name}.{index}.expanded")
        for index, value in enumerate((x, y))
    ]


def _constant(node: OnnxNode, index: int, what: str, x: Value) -> Array:
    """Without dimensions of size 1 in front, one of which may stand for the batch of x, and as one sample has it."""
    array = node.weights(index, what)
    if array.ndim > 2:  # a matrix is that of all samples
        array = of_one_sample(array, x.rank, node.scope.exported_batch)
    if array.ndim > x.rank:
        raise node.more_dimensions(what, array, x)
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    return array


def _times_constant(node: OnnxNode) -> None:
    x = node.activation(0, "input A")
    weight = _constant(node, 1, "input B", x)
    if weight.ndim == 2:
        node.emit(Dense(), [x, node.parameter(weight, node.inputs[1])])
    elif weight.ndim == 1:
        column = node.parameter(weight[:, None], node.inputs[1])
        product = node.emit(Dense(), [x, column], output=f"{node.outputs[0]}.column")
        node.emit(Reshape(product.shape[:-1]), [product])
    else:
        name = node.outputs[0]
        _check_stack(node, x, weight, "input B", weight.shape[-2], -1)
        turned = node.emit(_swap(x), [x], output=f"{name}.input_transposed")
        product = _stack(node, turned, weight.swapaxes(-1, -2), node.inputs[1], f"{name}.product")
        node.emit(_swap(product), [product])


def _constant_times(node: OnnxNode) -> None:
    """W x = (x^T W^T)^T, over the last two dimensions of x."""
    x = node.activation(1, "input B")
    if len(x.shape) < 2:
        raise node.unsupported(
            "its product with a constant from the left runs over the batch", "multiply from the right"
        )
    weight = _constant(node, 0, "input A", x)
    if weight.ndim > 2:
        _check_stack(node, x, weight, "input A", weight.shape[-1], -2)
        _stack(node, x, weight, node.inputs[0])
        return
    name = node.outputs[0]
    turned = node.emit(_swap(x), [x], output=f"{name}.input_transposed")
    rows = np.ascontiguousarray(np.atleast_2d(weight).T)
    product = node.emit(Dense(), [turned, node.parameter(rows, node.inputs[0])], output=f"{name}.product")
    if weight.ndim == 2:
        node.emit(_swap(x), [product])
    else:
        node.emit(Reshape(product.shape[:-1]), [product])
    node.note("computed as the transpose of input B^T times the constant's transpose")


def _swap(x: Value) -> Transpose:
    """The last two dimensions change places."""
    return Transpose((*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _check_stack(node: OnnxNode, x: Value, weight: Array, what: str, inner: int, axis: int) -> None:
    """Whether x and a stack of matrices, `inner` along `axis` of x, multiply with the batch in front."""
    try:
        np.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
        fits = weight.ndim <= len(x.shape) and x.shape[axis] == inner
    except ValueError:
        fits = False
    if not fits:
        shape = list(weight.shape)
        raise node.unsupported(f"its constant {what} of shape {shape} does not multiply with {x}", "repair the model")


def _stack(node: OnnxNode, x: Value, weight: Array, name: str, output: str | None = None) -> Value:
    """W x for a stack of matrices W [.., M, K] and x [N, .., K, P]: a 1 x 1 convolution with a group for each."""
    lead = np.broadcast_shapes(x.shape[:-2], weight.shape[:-2])
    (outputs, inner), columns = weight.shape[-2:], x.shape[-1]
    groups = int(np.prod(lead))
    final = node.outputs[0]
    x = expand_to(node, x, (*lead, inner, columns), f"{final}.expanded")
    image = node.emit(Reshape((groups * inner, columns, 1)), [x], output=f"{final}.image")
    kernels = np.broadcast_to(weight, (*lead, outputs, inner)).reshape(groups * outputs, inner, 1, 1)
    window = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    product = node.emit(
        Conv2d(window, groups), [image, node.parameter(kernels.copy(), name)], output=f"{final}.convolved"
    )
    node.note("computed as a 1 x 1 convolution with a group for each matrix")
    return node.emit(Reshape((*lead, outputs, columns)), [product], output=output)


@from_torch("aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten._sparse_mm.default")
def _matmul_aten(node: TorchNode) -> None:
    names = ("self", "mat2", "other", "sparse", "dense")
    node.become("MatMul", *(node.operand(name) for name in names if name in node.arguments))


@from_torch("aten.baddbmm.default")
def _sum_and_product_aten(node: TorchNode) -> None:
    term, beta, alpha = node.operand("self"), node.number("beta"), node.number("alpha")
    product = node.apply("MatMul", node.operand("batch1"), node.operand("batch2"), suffix="product")
    product = product if alpha == 1 else node.apply("Mul", product, alpha, suffix="scaled_product")
    if isinstance(term, Value) and beta != 1:
        term = node.apply("Mul", term, beta, suffix="scaled_term")
    elif isinstance(term, Constant):
        term = replace(term, name=f"{term.name}.scaled", array=term.array * beta) if beta != 1 else term
    node.become("Add", term, product)


@from_torch("aten.bilinear.default")
def _bilinear_aten(node: TorchNode) -> None:
    """x1 W y for each of a stack of matrices W: a dense layer on x1, and a product with y."""
    x, y = node.activation("input1"), node.activation("input2")
    weight = node.constant("weight").astype(np.float64)
    count, rows, columns = weight.shape
    if x.dims(1)[:-1] != y.dims(1)[:-1]:
        raise node.unsupported(f"its inputs {x} and {y} have other dimensions before the last", "expand one of them")
    left = node.apply("MatMul", x, weight.transpose(1, 0, 2).reshape(rows, -1), suffix="left")
    left = node.apply("Reshape", left, np.array([*[0] * (x.rank - 1), count, columns]), suffix="matrices")
    right = node.apply("Unsqueeze", y, np.array([-1]), suffix="right")
    product = node.apply("MatMul", left, right, suffix="products")
    if node.has("bias"):
        product = node.apply("Squeeze", product, np.array([-1]), suffix="sums")
        node.become("Add", product, node.operand("bias"))
    else:
        node.become("Squeeze", product, np.array([-1]))
