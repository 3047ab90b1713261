"""Comparisons: Less, Greater, LessOrEqual, GreaterOrEqual, Equal. Truth values are 0 and 1 at scale 0.

They compare the fixed-point numbers: what differs by less than 2^-scale may count as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import IMPORTERS, OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import DType, Node, Op, Shape, Value, broadcast
from covey.lowering import Lowered, Lowering
from covey.ops.add import elementwise_operands
from covey.ops.number import Number
from covey.ops.sub import Sub
from covey.ops.two_cases import decided
from covey.ops.whole_numbers import Is

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Less(Op):
    """x < y."""

    elementwise = True

    def shape(self, *inputs: Value) -> Shape:
        return broadcast(*inputs)

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0] < inputs[1], dtype=np.float64)

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros(np.broadcast_shapes(*(i.low.shape for i in inputs)))
        return Interval(zeros, zeros + 1.0)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None for _ in inputs]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return below_zero(low, node, difference(low, node, *node.inputs))


@dataclass(frozen=True)
class Equal(Less):
    """x = y: neither is below the other. Both comparisons run side by side."""

    def reference(self, *inputs: Array) -> Array:
        return np.asarray(inputs[0] == inputs[1], dtype=np.float64)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x, y = node.inputs
        ways = [difference(low, node, x, y), difference(low, node, y, x, name="reversed")]
        shape = ways[0].shape
        size = int(np.prod(shape, dtype=np.int64))
        rows = [reshaped(low, node, way, (1, size), f"row{index}") for index, way in enumerate(ways)]
        both = low.emit(
            node,
            pb.Concat(axis=1),
            rows,
            shape=(2, size),
            scale=rows[0].scale,
            interval=Interval(
                np.concatenate([row.interval.low for row in rows], axis=1),
                np.concatenate([row.interval.high for row in rows], axis=1),
            ),
            name=f"{node.output}.both",
            magnitude=low.magnitude_sum(x, y),
        )
        unequal = low.emit(
            node,
            pb.SumPool(window=pb.Window(kernel=[2, 1], strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1])),
            [reshaped(low, node, below_zero(low, node, both, "either"), (1, 2, size), "stacked")],
            shape=(1, 1, size),
            scale=0,
            # At most one of the two holds.
            interval=Interval(np.zeros((1, 1, 1, size)), np.ones((1, 1, 1, size))),
            name=f"{node.output}.unequal",
            unconditional=True,
        )
        equal = negated(low, node, unequal, name=f"{node.output}.equal")
        return reshaped(low, node, equal, shape)


def difference(low: Lowering, node: Node, x: str, y: str, name: str = "difference") -> Lowered:
    """x - y, stretched to the shape of the result."""
    left, right = low.operands_at_one_scale(node, [x, y])
    return low.emit(
        node,
        pb.Sub(),
        [left, right],
        shape=low.graph.values[node.output].shape,
        scale=left.scale,
        interval=left.interval - right.interval,
        name=f"{node.output}.{name}",
        magnitude=low.magnitude_sum(x, y),
    )


def below_zero(low: Lowering, node: Node, x: Lowered, name: str | None = None) -> Lowered:
    """1 where x < 0, else 0."""
    zeros = np.zeros((1, *x.shape))
    return low.emit(
        node,
        pb.LessThanZero(),
        [x],
        shape=x.shape,
        scale=0,
        interval=Interval(zeros, zeros + 1.0),
        name=None if name is None else f"{node.output}.{name}",
        unconditional=True,
    )


def negated(low: Lowering, node: Node, x: Lowered, name: str | None = None) -> Lowered:
    """1 - x for a truth value."""
    one = low.constant(node, "one", np.array(1.0), 0)
    interval = Interval(1.0 - x.interval.high, 1.0 - x.interval.low)
    return low.emit(node, pb.Sub(), [one, x], shape=x.shape, scale=0, interval=interval, name=name, unconditional=True)


def reshaped(low: Lowering, node: Node, x: Lowered, shape: Shape, name: str | None = None) -> Lowered:
    """The same elements."""
    return low.emit(
        node,
        pb.Reshape(),
        [x],
        shape=shape,
        scale=x.scale,
        interval=x.interval.reshape((1, *shape)),
        name=None if name is None else f"{node.output}.{name}",
        magnitude=float(x.interval.magnitude) * 2.0**-x.scale if name is not None else None,
        unconditional=x.scale == 0,
    )


@dataclass(frozen=True)
class Not(Op):
    """Of truth values."""

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return 1.0 - inputs[0]

    def interval(self, *inputs: Interval) -> Interval:
        return Interval(1.0 - inputs[0].high, 1.0 - inputs[0].low)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [None]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        return negated(low, node, low.value(node.inputs[0]))


@from_onnx("Less")
def _less(node: OnnxNode) -> None:
    operands = elementwise_operands(node)
    if not _known(node, np.less, operands):
        node.emit(Less(), operands, dtype=DType.BOOL)


@from_onnx("Greater")
def _greater(node: OnnxNode) -> None:
    operands = elementwise_operands(node)
    if not _known(node, np.greater, operands):
        node.emit(Less(), operands[::-1], dtype=DType.BOOL)


@from_onnx("GreaterOrEqual")
def _greater_or_equal(node: OnnxNode) -> None:
    operands = elementwise_operands(node)
    if not _known(node, np.greater_equal, operands):
        _not_less(node, operands)


@from_onnx("LessOrEqual")
def _less_or_equal(node: OnnxNode) -> None:
    operands = elementwise_operands(node)
    if not _known(node, np.less_equal, operands):
        _not_less(node, operands[::-1])


def _known(node: OnnxNode, compare: np.ufunc, operands: list[Value]) -> bool:
    """Compare numbers with a constant without a gate, where a truth value decides them."""
    x, y = operands
    parameters = node.scope.graph.parameters
    if y.name in parameters:
        return decided(node, x, lambda numbers: compare(numbers, parameters[y.name]))
    return x.name in parameters and decided(node, y, lambda numbers: compare(parameters[x.name], numbers))


def _not_less(node: OnnxNode, operands: list[Value]) -> None:
    less = node.emit(Less(), operands, output=f"{node.outputs[0]}.opposite", dtype=DType.BOOL)
    node.emit(Not(), [less], dtype=DType.BOOL)


@from_onnx("Equal")
def _equal(node: OnnxNode) -> None:
    numbers = node.scope.activation(node.inputs[0])
    truths = [value for name in node.inputs if (value := node.scope.activation(name)) is not None]
    if all(value.dtype is DType.BOOL for value in truths):
        name = node.scope.graph.fresh(f"{node.outputs[0]}.unequal")
        IMPORTERS["Xor"](OnnxNode(node.scope, node.name, node.op_type, node.inputs, [name], {}))
        unequal = node.scope.activation(name)
        assert unequal is not None, "Xor has a result"
        node.emit(Not(), [unequal], dtype=DType.BOOL)
        return
    if numbers is not None and node.is_constant(1) and node.scope.graph.holds_input(numbers.name):
        constant = node.constant(1, "second operand")
        single = constant.size == 1 and constant.ndim <= numbers.rank
        if single and float(constant.item()).is_integer():
            node.emit(Is(int(constant.item())), [node.whole_numbers(0, "first operand")], dtype=DType.BOOL)
            return
    operands = elementwise_operands(node)
    if not _known(node, np.equal, operands):
        node.emit(Equal(), operands, dtype=DType.BOOL)


@from_onnx("Sign")
def _sign(node: OnnxNode) -> None:
    """1 above 0 less 1 below 0."""
    x, name = node.activation(0), node.outputs[0]
    zero = node.parameter(np.array(0.0), f"{name}.zero")
    sides = []
    for hint, operands in (("above", [zero, x]), ("below", [x, zero])):
        side = node.emit(Less(), operands, output=f"{name}.{hint}", dtype=DType.BOOL)
        sides.append(node.emit(Number(), [side], output=f"{name}.{hint}_number"))
    node.emit(Sub(), sides)
    node.note("two comparisons")


@from_torch("aten.sign.default")
def _sign_aten(node: TorchNode) -> None:
    node.become("Sign", node.activation("self"))


COMPARISONS = {
    "lt": "Less",
    "gt": "Greater",
    "le": "LessOrEqual",
    "ge": "GreaterOrEqual",
    "eq": "Equal",
    "ne": "Equal",
}

MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@from_torch(*(f"aten.{kind}.{operand}" for kind in COMPARISONS for operand in ("Scalar", "Tensor")))
def _compare_aten(node: TorchNode) -> None:
    kind = node.op_type.split(".")[1]
    x, other = (_truth_values(node, name) for name in ("self", "other"))
    if isinstance(x, Value) and other is not None:
        _compare_truth(node, kind, x, other)
        return
    if isinstance(other, Value) and x is not None:
        _compare_truth(node, MIRRORED.get(kind, kind), other, x)
        return
    given = (node.argument(name) for name in ("self", "other"))
    truth = [isinstance(each, Value) and each.dtype is DType.BOOL for each in given]
    operands = [
        node.numbers(node.operand(name)) if of_truth else node.operand(name)
        for name, of_truth in zip(("self", "other"), truth, strict=True)
    ]
    if kind == "ne":
        node.become("Not", node.apply("Equal", *operands, suffix="equal"))
    else:
        node.become(COMPARISONS[kind], *operands)


def _truth_values(node: TorchNode, name: str) -> Value | npt.NDArray[np.bool_] | None:
    """An argument, if it is truth values, or a constant of zeros and ones alone."""
    given = node.argument(name)
    if isinstance(given, Value):
        return given if given.dtype is DType.BOOL else None
    constant = node.constant(name)
    return constant.astype(bool) if np.isin(constant, (0, 1)).all() else None


def _compare_truth(node: TorchNode, kind: str, x: Value, other: Value | npt.NDArray[np.bool_]) -> None:
    """Truth values are compared by And, Or and Xor; with constants, nothing is exchanged."""
    if kind in ("eq", "ne"):
        if not isinstance(other, Value):
            node.become("Xor", x, ~other if kind == "eq" else other)
        elif kind == "eq":
            node.become("Not", node.apply("Xor", x, other, suffix="unequal"))
        else:
            node.become("Xor", x, other)
        return
    less = kind in ("lt", "le")
    one = node.apply("Not", x, suffix="opposite") if less else x
    two = other if less else node.apply("Not", other, suffix="opposite") if isinstance(other, Value) else ~other
    node.become("And" if kind in ("lt", "gt") else "Or", one, two)


@from_torch("aten.heaviside.default")
def _heaviside_aten(node: TorchNode) -> None:
    """0 below 0, 1 above, and a number of its own at 0."""
    x = node.activation("self")
    at_zero = node.apply(
        "Where", node.apply("Less", x, 0.0, suffix="below"), 0.0, node.operand("values"), suffix="rest"
    )
    node.become("Where", node.apply("Greater", x, 0.0, suffix="above"), 1.0, at_zero)
