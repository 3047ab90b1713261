"""And, Or, Xor and Not of truth values, which are 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.interval import Array, Interval
from covey.ir import DType, Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering
from covey.ops.comparison import Not
from covey.ops.concat import Concat
from covey.ops.gather import ABSENT, flat
from covey.ops.reshape import Reshape
from covey.ops.tile import expand_to

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Both(Op):
    """`sums * (x + y) + products * x * y`: and for (0, 1), or for (1, -1), exclusive or for (1, -2)."""

    sums: int
    products: int

    elementwise = True

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        x, y = inputs
        return self.sums * (x + y) + self.products * x * y

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros(np.broadcast_shapes(*(i.low.shape for i in inputs)))
        return Interval(zeros, zeros + 1.0)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None for _ in inputs]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = [low.value(name) for name in node.inputs]
        bit = self.interval(*(operand.interval for operand in operands))

        def step(op: Message, inputs: Sequence[Lowered], interval: Interval, hint: str = "") -> Lowered:
            shape = low.graph.values[node.output].shape
            name = f"{node.output}.{hint}" if hint else None
            return low.emit(node, op, inputs, shape=shape, scale=0, interval=interval, name=name, unconditional=True)

        if self.sums == 0:
            return step(pb.Mul(), operands, bit)
        product = step(pb.Mul(), operands, bit, "both")
        result = step(pb.Add(), operands, bit.scaled(2.0), "sum")
        for remaining in range(-self.products, 0, -1):
            result = step(pb.Sub(), [result, product], bit, "once" if remaining > 1 else "")
        return result


@from_onnx("And")
def _and(node: OnnxNode) -> None:
    if (known := _constant(node)) is None:
        _emit(node, Both(0, 1))
    else:
        keep(node, *known, None)


@from_onnx("Or")
def _or(node: OnnxNode) -> None:
    if (known := _constant(node)) is None:
        _emit(node, Both(1, -1))
        return
    # Not of what neither is.
    x, constant = known
    name = node.outputs[0]
    neither = node.emit(Not(), [x], output=f"{name}.opposite", dtype=DType.BOOL)
    kept = keep(node, neither, ~constant, f"{name}.neither")
    node.emit(Not(), [kept], dtype=DType.BOOL)


@from_onnx("Xor")
def _xor(node: OnnxNode) -> None:
    if (known := _constant(node)) is None:
        _emit(node, Both(1, -2))
        return
    x, constant = known
    shape, name = _joined_shape(node, x, constant), node.outputs[0]
    node.note("moves: one operand is public")
    if not constant.any() and shape == x.shape:
        node.alias(x)
        return
    if constant.all() and shape == x.shape:
        node.emit(Not(), [x], dtype=DType.BOOL)
        return
    # Each element is taken from x, or from what is not x.
    x = expand_to(node, x, shape, f"{name}.expanded")
    row = node.emit(Reshape((x.size,)), [x], output=f"{name}.row", dtype=DType.BOOL)
    opposite = node.emit(Not(), [row], output=f"{name}.opposite", dtype=DType.BOOL)
    joined = node.emit(Concat(1), [row, opposite], output=f"{name}.joined", dtype=DType.BOOL)
    positions = np.arange(x.size) + x.size * np.broadcast_to(constant, shape).ravel()
    taken = node.emit(flat(positions), [joined], output=f"{name}.taken", dtype=DType.BOOL)
    node.emit(Reshape(shape), [taken], dtype=DType.BOOL)


def _emit(node: OnnxNode, op: Both) -> None:
    node.emit(op, [node.boolean(0, "first operand"), node.boolean(1, "second operand")], dtype=DType.BOOL)


def _constant(node: OnnxNode) -> tuple[Value, npt.NDArray[np.bool_]] | None:
    """The activation and the constant beside it, if one operand is public."""
    constants = [index for index in (0, 1) if node.is_constant(index)]
    if not constants:
        return None
    (index,) = constants
    x = node.boolean(1 - index, "operand")
    array = of_one_sample(node.constant(index, "constant").astype(bool), x.rank)
    if array.ndim > x.rank:
        raise node.more_dimensions("constant", array, x)
    if array.ndim == x.rank:
        raise node.unsupported("its constant differs between samples", "make it independent of the batch")
    return x, array


def keep(node: OnnxNode, x: Value, kept: npt.NDArray[np.bool_], output: str | None) -> Value:
    """x where the public `kept` is 1, else 0: nothing is exchanged."""
    name, target = output or node.outputs[0], _joined_shape(node, x, kept)
    node.note("moves: one operand is public")
    if kept.all() and target == x.shape and output is None:
        node.alias(x)
        return x
    x = expand_to(node, x, target, f"{name}.expanded")
    positions = np.where(np.broadcast_to(kept, target), np.arange(x.size).reshape(target), ABSENT)
    taken = node.emit(flat(positions), [x], output=f"{name}.taken", dtype=DType.BOOL)
    return node.emit(Reshape(target), [taken], output=output, dtype=DType.BOOL)


def _joined_shape(node: OnnxNode, x: Value, constant: npt.NDArray[np.bool_]) -> Shape:
    """The shape that x and a constant have together."""
    try:
        return tuple(np.broadcast_shapes(x.shape, constant.shape))
    except ValueError:
        raise node.unsupported(
            f"its constant of shape {list(constant.shape)} does not fit {x}", "repair the model"
        ) from None


@from_onnx("Not")
def _not(node: OnnxNode) -> None:
    node.emit(Not(), [node.boolean(0, "operand")], dtype=DType.BOOL)
