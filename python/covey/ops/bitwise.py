"""PyTorch's operators on bits: And, Or, Xor and Not of truth values, and what arithmetic computes of whole numbers."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from covey.importers.torch_node import Operand, TorchNode, from_torch
from covey.ir import DType, Value
from covey.ops.counting import is_whole

_OPERANDS = ("Tensor", "Scalar", "Scalar_Tensor")


def _named(kind: str) -> list[str]:
    """Every form of an operator of two operands."""
    forms = [f"aten.bitwise_{kind}.{operands}" for operands in _OPERANDS]
    return [f"aten.logical_{kind}.default", *forms, f"aten.__{kind}__.Tensor", f"aten.__{kind}__.Scalar"]


@from_torch(*_named("and"))
def _and_aten(node: TorchNode) -> None:
    """Whole numbers and the lowest bits: what is left of a division by the next power of two, below zero as well."""
    for x, mask in (("self", "other"), ("other", "self")):
        if _is_whole(node, x) and not isinstance(node.argument(mask), Value):
            bits = np.unique(node.constant(mask))
            if bits.size != 1 or bits[0] < 1 or bits[0] & (bits[0] + 1):
                raise node.unsupported("it takes other bits than the lowest ones", "write it as a remainder and //")
            node.become("Mod", node.activation(x), float(bits[0] + 1))
            return
    node.become("And", _truth(node, "self"), _truth(node, "other"))


@from_torch(*_named("or"))
def _or_aten(node: TorchNode) -> None:
    node.become("Or", _truth(node, "self"), _truth(node, "other"))


@from_torch(*_named("xor"))
def _xor_aten(node: TorchNode) -> None:
    node.become("Xor", _truth(node, "self"), _truth(node, "other"))


@from_torch("aten.logical_not.default", "aten.bitwise_not.default")
def _not_aten(node: TorchNode) -> None:
    if _is_whole(node, "self"):
        node.become("Sub", -1.0, node.activation("self"))
    else:
        node.become("Not", _truth(node, "self"))


@from_torch("aten.__lshift__.Scalar", "aten.bitwise_left_shift.Tensor_Scalar")
def _shift_left_aten(node: TorchNode) -> None:
    node.become("Mul", node.activation("self"), 2.0 ** node.number("other"))


@from_torch("aten.__rshift__.Scalar", "aten.bitwise_right_shift.Tensor_Scalar")
def _shift_right_aten(node: TorchNode) -> None:
    node.become("Floor", node.activation("self"), 2.0 ** node.number("other"))


def _is_whole(node: TorchNode, name: str) -> bool:
    """Whether an operator on bits reads whole numbers there."""
    x = node.argument(name)
    bits = isinstance(x, Value) and x.dtype is not DType.BOOL and not node.op_type.startswith("aten.logical")
    return bits and is_whole(node.scope.graph, node.scope.moved.get(x.name, x.name))


def _truth(node: TorchNode, name: str) -> Operand:
    """An argument as truth values: an activation, or a constant as it is. Numbers are true unless they are 0."""
    value = node.argument(name)
    if not isinstance(value, Value):
        constant = node.constant(name)
        if not node.op_type.startswith("aten.logical") and not np.isin(constant, (0, 1)).all():
            raise node.unsupported(f"its {name} holds numbers other than 0 and 1", "compare them with something first")
        return constant
    return _truths(node, value) if node.op_type.startswith("aten.logical") else value


def _truths(node: TorchNode, value: Value) -> Value:
    """Whether numbers are not 0."""
    if value.dtype is DType.BOOL:
        return value
    if node.scope.graph.holds_input(value.name):  # a Cast would say that all its numbers are 0 or 1
        return node.apply("Not", node.apply("Equal", value, np.array(0.0), suffix="zero"), suffix="truth")
    return node.apply("Cast", node.numbers(value), to=TensorProto.BOOL, suffix="truth")


@from_torch("aten.any.dim", "aten.any.dims", "aten.all.dim", "aten.all.dims")
def _any_aten(node: TorchNode) -> None:
    """Or, or And, of the two halves of a dimension, which may overlap, until one element is left."""
    x = node.activation("self")
    axes = sorted(node.inner_axes("dim", x))
    if not axes:
        raise node.unsupported("it runs over the batch too", "give it dims other than the batch")
    x = _truths(node, x)
    operator = "Or" if node.op_type.startswith("aten.any") else "And"
    for axis in axes:
        while (size := x.dims(1)[axis]) > 1:
            half, axes_of = (size + 1) // 2, np.array([axis])
            low = node.apply("Slice", x, np.array([0]), np.array([half]), axes_of, suffix="low")
            high = node.apply("Slice", x, np.array([size - half]), np.array([size]), axes_of, suffix="high")
            x = node.apply(operator, low, high, suffix="pairs")
    if node.flag("keepdim"):
        node.alias(x)
    else:
        node.become("Squeeze", x, np.array(axes))
