"""Norms of neighbours: LRN over channels, LpPool over windows of an image, GlobalLpPool over all of it."""

from __future__ import annotations

from math import prod

from covey.functions import SQRT, power
from covey.importers.onnx_node import IMPORTERS, OnnxNode, from_onnx
from covey.ir import Op
from covey.ops.affine import Affine
from covey.ops.average_pool import SumPool, image_rank, pool_rows, pool_volume
from covey.ops.leaky_relu import TwoSlopes
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.window import STILL, Window, image_window, read_pool


@from_onnx("LRN")
def _local_response_normalization(node: OnnxNode) -> None:
    """x / (bias + alpha / size * sum)^beta, with the sum of squares over `size` channels around each."""
    x, name, size = node.activation(0), node.outputs[0], int(node.attribute("size", 0))
    if len(x.shape) < 2 or size % 2 != 1 or size < 1:
        raise node.unsupported(f"its size is {size}, or its input {x} has no channels", "let its size be odd")
    channels, *rest = x.shape
    squares = node.emit(Mul(), [x, x], output=f"{name}.squares")
    columns = node.emit(Reshape((1, channels, prod(rest))), [squares], output=f"{name}.columns")
    before = (size - 1) // 2
    window = Window((size, 1), (1, 1), (before, 0, size - 1 - before, 0), (1, 1))
    sums = node.emit(SumPool(window), [columns], output=f"{name}.sums")
    factor = float(node.attribute("alpha", 1e-4)) / size
    base = node.emit(Affine(factor, float(node.attribute("bias", 1.0))), [sums], output=f"{name}.base")
    inverse = node.emit(Scalar(power(-float(node.attribute("beta", 0.75)))), [base], output=f"{name}.powers")
    node.emit(Mul(), [x, node.emit(Reshape(x.shape), [inverse], output=f"{name}.inverse")])
    node.note("the value times a table of the power of a sum of squares")


@from_onnx("LpPool")
def _lp_pool(node: OnnxNode) -> None:
    """Sums over windows of sizes, or the roots of sums of squares."""
    name, x, norm = node.outputs[0], node.activation(0), _norm(node)
    rank = image_rank(node, x)
    steps, _ = read_pool(node, rank, x.shape[1:])
    one: Op = TwoSlopes(-1.0) if norm == 1 else Mul()
    terms = node.emit(one, [x] * norm, output=f"{name}.terms")
    sums = f"{name}.sums" if norm == 2 else name
    inner = OnnxNode(node.scope, node.name, node.op_type, [terms.name], [sums], {})
    if rank == 1:
        pool_rows(inner, terms, SumPool(image_window(STILL, steps[0])))
    elif rank == 2:
        inner.emit(SumPool(image_window(*steps)), [terms])
    else:
        slices, depth = image_window(steps[1], steps[2]), image_window(steps[0], STILL)
        pool_volume(inner, terms, SumPool(slices), SumPool(depth))
    if norm == 2:
        node.emit(Scalar(SQRT), [node.scope.graph.values[sums]])
    node.note("pooling of absolute values" if norm == 1 else "the root of pooled squares")


@from_onnx("GlobalLpPool")
def _global_lp_pool(node: OnnxNode) -> None:
    x = node.activation(0)
    operator = "ReduceL1" if _norm(node) == 1 else "ReduceL2"
    axes = {"axes": list(range(2, x.rank)), "keepdims": 1}
    IMPORTERS[operator](OnnxNode(node.scope, node.name, node.op_type, [x.name], node.outputs, axes))
    node.note(f"{operator} over the whole map")


def _norm(node: OnnxNode) -> int:
    norm = int(node.attribute("p", 2))
    if norm not in (1, 2):
        raise node.unsupported(f"it takes the norm of {norm}-th powers", "use p of 1 or 2")
    return norm
