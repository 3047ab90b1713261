"""Powers: products for small whole exponents, tables for other constant ones, and exponentials of constant bases."""

from __future__ import annotations

import numpy as np

from covey.functions import RECIPROCAL, RSQRT, SQRT, power
from covey.importers.onnx_node import BATCH, IMPORTERS, OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.ir import Value
from covey.ops.mul import Mul
from covey.ops.scalar import Scalar
from covey.ops.tile import expand_to

NAMED = {0.5: SQRT, -0.5: RSQRT, -1.0: RECIPROCAL}
"""Exponents whose functions have names of their own."""


@from_onnx("Pow")
def _pow(node: OnnxNode) -> None:
    if node.is_constant(0) and not node.is_constant(1):
        _power_of_constant(node)
        return
    x = node.activation(0, "base")
    exponents = np.unique(node.constant(1, "exponent").astype(np.float64))
    if exponents.size == 0:
        raise node.unsupported("its exponent has no elements", "repair the model")
    exponent = float(exponents[0])
    if exponents.size != 1 or exponent == 0.0 or not np.isfinite(exponent):
        if exponents.size != 1:
            shown = ", ".join(f"{each:g}" for each in exponents[:4])
            reason = f"it raises elements to powers that differ ({shown}), which is not supported"
            raise node.unsupported(reason, "raise each part to one power, and join the parts by Concat (torch.cat)")
        raise node.unsupported(f"it raises to the power {exponent:g}", "raise to a finite power other than 0")
    x = _stretched(node, x)
    if exponent == 1.0:
        node.alias(x)
        node.note("removed: it raises to the power 1")
    elif exponent in (2.0, 3.0, 4.0):
        square = node.emit(Mul(), [x, x], output=None if exponent == 2.0 else f"{node.outputs[0]}.square")
        if exponent > 2.0:
            node.emit(Mul(), [square, x if exponent == 3.0 else square])
        node.note("a product of the value with itself")
    else:
        node.emit(Scalar(NAMED.get(exponent) or power(exponent)), [x])


def _power_of_constant(node: OnnxNode) -> None:
    """base^x = exp(x · log(base))."""
    base = node.constant(0, "base").astype(np.float64)
    if not (base > 0).all() or not np.isfinite(base).all():
        raise node.unsupported("its base holds numbers that have no logarithm", "give it positive ones")
    logarithm, scaled = f"{node.outputs[0]}.log", f"{node.outputs[0]}.scaled"
    node.scope.constants[logarithm] = np.log(base)
    IMPORTERS["Mul"](OnnxNode(node.scope, node.name, node.op_type, [node.inputs[1], logarithm], [scaled], {}))
    IMPORTERS["Exp"](OnnxNode(node.scope, node.name, node.op_type, [scaled], node.outputs, {}))
    node.note("the exponential of a product")


def _stretched(node: OnnxNode, x: Value) -> Value:
    """The base in the shape that it and the exponent broadcast to."""
    array = node.constant(1, "exponent")
    if array.ndim > x.rank:
        raise node.more_dimensions("exponent", array, x)
    shape = array.shape
    try:
        if array.ndim == x.rank:
            if shape[0] not in (1, BATCH, node.scope.exported_batch):
                raise ValueError
            shape = shape[1:]
        target = tuple(np.broadcast_shapes(x.shape, shape))
    except ValueError:
        reason = f"its exponent of shape {list(array.shape)} does not fit {x}"
        raise node.unsupported(reason, "make it one number") from None
    return expand_to(node, x, target, f"{node.outputs[0]}.expanded")


@from_torch("aten.pow.Tensor_Scalar", "aten.square.default")
def _pow_aten(node: TorchNode) -> None:
    exponent = node.number("exponent") if node.has("exponent") else 2.0
    node.become("Pow", node.activation("self"), exponent)


@from_torch("aten.pow.Tensor_Tensor")
def _pow_of_tensors_aten(node: TorchNode) -> None:
    base, exponent = node.operand("self"), node.operand("exponent")
    if isinstance(base, Value) and isinstance(exponent, Value):
        raise node.unsupported(
            "its base and its exponent depend on the input, which is not supported",
            "of a positive base write torch.exp(exponent * torch.log(base))",
        )
    node.become("Pow", base, node.numbers(exponent))


@from_torch("aten.pow.Scalar")
def _pow_of_number_aten(node: TorchNode) -> None:
    node.become("Pow", node.number("self"), node.numbers(node.activation("exponent")))


@from_torch("aten.rsqrt.default")
def _rsqrt_aten(node: TorchNode) -> None:
    node.become("Pow", node.activation("self"), -0.5)
