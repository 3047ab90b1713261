"""The importers of scalar functions that are one table each: `covey.functions` says what they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from covey import functions
from covey.functions import Function
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.ir import DType
from covey.ops.affine import Affine
from covey.ops.comparison import Less
from covey.ops.scalar import Scalar
from covey.ops.where import Where

_PLAIN = {
    "Sigmoid": functions.SIGMOID,
    "Tanh": functions.TANH,
    "Erf": functions.ERF,
    "Softplus": functions.SOFTPLUS,
    "Mish": functions.MISH,
    "Softsign": functions.SOFTSIGN,
    "Exp": functions.EXP,
    "Log": functions.LOG,
    "Sqrt": functions.SQRT,
    "Reciprocal": functions.RECIPROCAL,
    **functions.UNBOUNDED,
}
"""Those without attributes, by their ONNX names."""


def _importer(function: Function) -> Callable[[OnnxNode], None]:
    def run(node: OnnxNode) -> None:
        node.ignore("consumed_inputs")
        node.emit(Scalar(function), [node.activation(0)])

    return run


def _torch_importer(name: str) -> Callable[[TorchNode], None]:
    def run(node: TorchNode) -> None:
        node.become(name, node.activation("self"))

    return run


for _name, _function in _PLAIN.items():
    from_onnx(_name)(_importer(_function))
    if _name not in ("Softplus", "Softsign"):
        from_torch(f"aten.{_name.lower()}.default")(_torch_importer(_name))


@from_onnx("Gelu")
def _gelu(node: OnnxNode) -> None:
    how = str(node.attribute("approximate", "none"))
    if how not in ("none", "tanh"):
        raise node.unsupported(f"its approximation is '{how}'", "use 'none' or 'tanh'")
    node.emit(Scalar(functions.GELU if how == "none" else functions.GELU_TANH), [node.activation(0)])


@from_onnx("Swish")
def _swish(node: OnnxNode) -> None:
    alpha = float(node.attribute("alpha", 1.0))
    if alpha == 0.0:
        raise node.unsupported("its alpha is 0", "use Mul by a half")
    node.emit(Scalar(functions.swish(alpha)), [node.activation(0)])


@from_onnx("Elu")
def _elu(node: OnnxNode) -> None:
    node.ignore("consumed_inputs")
    node.emit(Scalar(functions.elu(float(node.attribute("alpha", 1.0)))), [node.activation(0)])


@from_onnx("Selu")
def _selu(node: OnnxNode) -> None:
    node.ignore("consumed_inputs")
    alpha, gamma = float(node.attribute("alpha", 1.67326319)), float(node.attribute("gamma", 1.05070102))
    if gamma <= 0:
        raise node.unsupported(f"its gamma is {gamma:g}", "make it positive")
    node.emit(Scalar(functions.elu(alpha, gamma)), [node.activation(0)])


@from_onnx("Celu")
def _celu(node: OnnxNode) -> None:
    alpha = float(node.attribute("alpha", 1.0))
    if alpha <= 0:
        raise node.unsupported(f"its alpha is {alpha:g}", "make it positive")
    node.emit(Scalar(functions.celu(alpha)), [node.activation(0)])


@from_onnx("ThresholdedRelu")
def _thresholded_relu(node: OnnxNode) -> None:
    """x where it exceeds alpha, else 0: x times a truth value."""
    x, alpha = node.activation(0), float(node.attribute("alpha", 1.0))
    threshold = node.parameter(np.array(alpha), f"{node.outputs[0]}.alpha")
    above = node.emit(Less(), [threshold, x], output=f"{node.outputs[0]}.above", dtype=DType.BOOL)
    zero = node.parameter(np.array(0.0), f"{node.outputs[0]}.zero")
    node.emit(Where(), [above, x, zero])
    node.note("the input where it exceeds a constant, else 0")


@from_onnx("Shrink")
def _shrink(node: OnnxNode) -> None:
    """0 between two limits, and what lies beyond them nearer to 0 by a bias."""
    x, name = node.activation(0), node.outputs[0]
    limit, bias = float(node.attribute("lambd", 0.5)), float(node.attribute("bias", 0.0))
    result = node.parameter(np.zeros(()), f"{name}.zero")
    for side, sign in (("above", 1.0), ("below", -1.0)):
        end = node.parameter(np.array(sign * limit), f"{name}.{side}.limit")
        beyond = node.emit(Less(), [end, x] if sign > 0 else [x, end], output=f"{name}.{side}", dtype=DType.BOOL)
        nearer = node.emit(Affine(1.0, -sign * bias), [x], output=f"{name}.{side}.nearer") if bias else x
        output = f"{name}.{side}.result" if sign > 0 else None
        result = node.emit(Where(), [beyond, nearer, result], output=output)
    node.note("two comparisons and choices")


@from_torch("aten.gelu.default")
def _gelu_aten(node: TorchNode) -> None:
    node.become("Gelu", node.activation("self"), approximate=str(node.argument("approximate")))


@from_torch("aten.silu.default")
def _silu_aten(node: TorchNode) -> None:
    node.become("Swish", node.activation("self"))


@from_torch("aten.mish.default")
def _mish_aten(node: TorchNode) -> None:
    node.become("Mish", node.activation("self"))


@from_torch("aten.elu.default")
def _elu_aten(node: TorchNode) -> None:
    alpha, scale = node.number("alpha"), node.number("scale")
    if node.number("input_scale") != 1.0:
        raise node.unsupported("its input_scale is not 1", "multiply before")
    node.become("Selu", node.activation("self"), alpha=alpha, gamma=scale)


@from_torch("aten.selu.default")
def _selu_aten(node: TorchNode) -> None:
    node.become("Selu", node.activation("self"))


@from_torch("aten.celu.default")
def _celu_aten(node: TorchNode) -> None:
    node.become("Celu", node.activation("self"), alpha=node.number("alpha"))


SAME_FROM = 10.0
"""From here on x is within 5e-5 of its softplus."""


@from_torch("aten.softplus.default")
def _softplus_aten(node: TorchNode) -> None:
    """Above its threshold PyTorch takes x itself; from 10 on the function is that anyway, and a comparison is saved."""
    x, beta, threshold = node.activation("self"), node.number("beta"), node.number("threshold")
    if beta == 0.0:
        raise node.unsupported("its beta is 0", "make it positive")
    scaled = x if beta == 1.0 else node.apply("Mul", x, beta, suffix="scaled")
    if beta == 1.0 and threshold >= SAME_FROM:
        node.become("Softplus", x)
        return
    below = node.apply("Softplus", scaled, suffix="softplus")
    if threshold >= SAME_FROM:
        node.become("Mul", below, 1.0 / beta)
        return
    if beta != 1.0:
        below = node.apply("Mul", below, 1.0 / beta, suffix="below")
    node.become("Where", node.apply("Greater", scaled, threshold, suffix="above"), x, below)


@from_torch("aten.log_sigmoid.default")
def _log_sigmoid_aten(node: TorchNode) -> None:
    minus = node.apply("Neg", node.activation("self"), suffix="minus")
    node.become("Neg", node.apply("Softplus", minus, suffix="softplus"))
    node.note("minus the softplus of minus the input")


@from_torch("aten.log_sigmoid_forward.default")
def _log_sigmoid_forward_aten(node: TorchNode) -> None:
    minus = node.apply("Neg", node.activation("self"), suffix="minus")
    node.first_of("Neg", node.apply("Softplus", minus, suffix="softplus"))


LOGARITHMS = {"aten.log2.default": 2.0, "aten.log10.default": 10.0}


@from_torch(*LOGARITHMS)
def _logarithm_aten(node: TorchNode) -> None:
    natural = node.apply("Log", node.activation("self"), suffix="log")
    node.become("Mul", natural, 1.0 / math.log(LOGARITHMS[f"{node.op_type}.default"]))


@from_torch("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.special_xlogy.default")
def _x_log_y_aten(node: TorchNode) -> None:
    """PyTorch's exception is for x = y = 0, which Log refuses."""
    x, y = node.operand("self"), node.operand("other")
    if isinstance(y, Constant):
        if (y.array <= 0).any():
            raise node.unsupported("its other holds numbers that have no logarithm", "make them positive")
        node.become("Mul", x, replace(y, name=f"{y.name}.log", array=np.log(y.array)))
    else:
        node.become("Mul", x, node.apply("Log", y, suffix="log"))


@from_torch("aten.log1p.default")
def _log1p_aten(node: TorchNode) -> None:
    node.become("Log", node.apply("Add", node.activation("self"), 1.0, suffix="sum"))


@from_torch("aten.expm1.default")
def _expm1_aten(node: TorchNode) -> None:
    node.become("Sub", node.apply("Exp", node.activation("self"), suffix="exp"), 1.0)


@from_torch("aten.exp2.default")
def _exp2_aten(node: TorchNode) -> None:
    node.become("Exp", node.apply("Mul", node.activation("self"), math.log(2.0), suffix="scaled"))


@from_torch("aten.erfc.default")
def _erfc_aten(node: TorchNode) -> None:
    node.become("Sub", 1.0, node.apply("Erf", node.activation("self"), suffix="erf"))


@from_torch("aten.logaddexp.default")
def _log_add_exp_aten(node: TorchNode) -> None:
    x, y = node.operand("self"), node.operand("other")
    above = node.apply("Softplus", node.apply("Sub", x, y, suffix="gap"), suffix="softplus")
    node.become("Add", y, above)
    node.note("the softplus of the difference, added")
