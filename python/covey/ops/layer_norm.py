"""Normalisation by a sample's own statistics, as models have it: of layers, groups and instances."""

from __future__ import annotations

import math

import numpy as np

from covey.importers.onnx_node import MS_DOMAIN, OnnxNode, from_onnx
from covey.importers.torch_node import Operand, TorchNode, from_torch
from covey.interval import Array
from covey.ir import Shape, Value
from covey.ops.add import Add
from covey.ops.mul import Mul
from covey.ops.quotient import Inverse
from covey.ops.reshape import Reshape
from covey.ops.standardising import Deviation, Mean, SquareSum, Standardised

BATCH_AXES = "keep the batch out of it"


@from_onnx("LayerNormalization")
def _layer_normalization(node: OnnxNode) -> None:
    node.ignore("stash_type")
    _over_last(node, int(node.attribute("axis", -1)), centred=True)


@from_onnx("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_normalization(node: OnnxNode) -> None:
    node.ignore("stash_type")
    _over_last(node, int(node.attribute("axis", -1)), centred=False)


@from_onnx("LayerNormalization", "SimplifiedLayerNormalization", domain=MS_DOMAIN)
def _layer_normalization_ms(node: OnnxNode) -> None:
    node.ignore("stash_type")
    _over_last(node, int(node.attribute("axis", -1)), centred=node.op_type == "LayerNormalization")


def _over_last(node: OnnxNode, axis: int, *, centred: bool) -> None:
    """Over the dimensions from `axis` on, then scale and shift, where there are any."""
    x = node.activation(0)
    place = axis + x.rank if axis < 0 else axis
    if not 1 <= place < x.rank:
        raise node.unsupported(f"it runs over axis {axis} of {x}", BATCH_AXES)
    finish(node, x, 1, x.shape[place - 1 :], centred=centred)


def finish(node: OnnxNode, x: Value, first: int, dims: Shape, *, centred: bool) -> None:
    """Standardise over x's last dimensions, then take scale and shift from the operands `first` and behind it."""
    epsilon = float(node.attribute("epsilon", 1e-5))
    factors = [node.has(index) for index in (first, first + 1)]
    name = node.outputs[0]
    y = standardised(node, x, dims, epsilon, centred=centred, output=f"{name}.standard" if any(factors) else None)
    if factors[0]:
        output = f"{name}.scaled" if factors[1] else None
        y = node.emit(Mul(), [y, _factor(node, first, "scale", y)], output=output)
    if factors[1]:
        node.emit(Add(), [y, _factor(node, first + 1, "shift", y)])
    node.note("a mean, a sum of squares and a product" if centred else "a sum of squares and a product")


def _factor(node: OnnxNode, index: int, what: str, x: Value) -> Value:
    return node.beside(index, what, x) if node.is_constant(index) else node.activation(index, what)


def standardised(
    node: OnnxNode, x: Value, dims: Shape, epsilon: float, *, centred: bool, output: str | None = None
) -> Value:
    """x over the root of its mean square and `epsilon` over its last dimensions `dims`, less its mean if `centred`."""
    if not epsilon >= 0:
        raise node.unsupported(f"its epsilon is {epsilon:g}", "make it a small positive number")
    name, shape, count = node.outputs[0], x.shape, math.prod(dims)
    if len(dims) > 1:
        rows = (*shape[: len(shape) - len(dims)], count)
        x = node.emit(Reshape(rows), [x], output=f"{name}.rows")
    if centred:
        if _asked_for(node, 1):
            _statistic(node, 1, node.emit(Mean(), [x], output=f"{name}.mean"), dims)
        x = node.emit(Deviation(), [x], output=f"{name}.deviation")
    squares = node.emit(SquareSum(count * epsilon), [x], output=f"{name}.squares")
    if _asked_for(node, 2):
        inverse = node.emit(Inverse(2, float(count)), [squares], output=f"{name}.inverse")
        _statistic(node, 2, inverse, dims)
    whole = output if len(dims) == 1 else f"{name}.standard_rows"
    y = node.emit(Standardised(over=float(count)), [x, squares], output=whole)
    return node.emit(Reshape(shape), [y], output=output) if len(dims) > 1 else y


def _asked_for(node: OnnxNode, index: int) -> bool:
    return index < len(node.outputs) and node.outputs[index] in node.scope.used


def _statistic(node: OnnxNode, index: int, value: Value, dims: Shape) -> None:
    """A further output, if anything reads it: of rows, whose dimensions stay with size 1."""
    if _asked_for(node, index):
        shape = (*value.shape[:-1], *(1,) * len(dims))
        node.scope.aliases[node.outputs[index]] = node.emit(Reshape(shape), [value], output=node.outputs[index]).name


@from_onnx("GroupNormalization")
def _group_normalization(node: OnnxNode) -> None:
    node.ignore("stash_type")
    groups = node.attribute("num_groups")
    _over_groups(node, int(groups) if groups is not None else 0)


@from_onnx("InstanceNormalization")
def _instance_normalization(node: OnnxNode) -> None:
    x = node.activation(0)
    _over_groups(node, x.shape[0] if x.shape else 0)


def _over_groups(node: OnnxNode, groups: int) -> None:
    """Statistics of each group of channels; scale and shift are of channels, or of groups as before opset 21."""
    x = node.activation(0)
    if not x.shape or groups < 1 or x.shape[0] % groups:
        raise node.unsupported(f"its {groups} groups do not divide the channels of {x}", "repair the model")
    channels, name = x.shape[0], node.outputs[0]
    rows = node.emit(Reshape((groups, x.size // groups)), [x], output=f"{name}.groups")
    epsilon = float(node.attribute("epsilon", 1e-5))
    factors = [_per_channel(node, index, channels, groups) for index in (1, 2) if node.has(index)]
    y = standardised(node, rows, rows.shape[1:], epsilon, centred=True, output=f"{name}.standard")
    y = node.emit(Reshape(x.shape), [y], output=f"{name}.channels" if factors else None)
    tail = (1,) * (len(x.shape) - 1)
    for index, (factor, op) in enumerate(zip(factors, (Mul(), Add()), strict=False)):
        parameter = node.parameter(factor.reshape(-1, *tail), node.inputs[index + 1])
        y = node.emit(op, [y, parameter], output=None if index + 1 == len(factors) else f"{name}.scaled")
    node.note("a mean, a sum of squares and a product for each group")


def _per_channel(node: OnnxNode, index: int, channels: int, groups: int) -> Array:
    array = node.weights(index, "scale" if index == 1 else "shift").ravel()
    if array.size == groups != channels:
        array = np.repeat(array, channels // groups)
    if array.size != channels:
        raise node.unsupported(f"its operand {index} has {array.size} elements, not {channels}", "repair the model")
    return array


@from_onnx("MeanVarianceNormalization")
def _mean_variance_normalization(node: OnnxNode) -> None:
    x = node.activation(0)
    axes = sorted(node.places(node.integers("axes") or (0, 2, 3), x.rank))
    if axes != list(range(axes[0], x.rank)) or axes[0] == 0:
        raise node.unsupported(f"it runs over the axes {axes} of {x}", "keep to the last dimensions, not the batch")
    standardised(node, x, x.shape[axes[0] - 1 :], 1e-9, centred=True)
    node.note("a mean, a sum of squares and a product")


@from_onnx("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MS_DOMAIN)
def _skip_layer_normalization(node: OnnxNode) -> None:
    """Of a sum of two activations and perhaps a bias; the fourth output is that sum."""
    centred = node.op_type == "SkipLayerNormalization"
    given = node.outputs[3] if len(node.outputs) > 3 and node.outputs[3] else f"{node.outputs[0]}.sum"
    bias = 4 if centred else 3
    x, skip = node.activation(0), node.activation(1, "skip")
    first = f"{given}.unbiased" if node.has(bias) else given
    total = node.emit(Add(), [x, skip], output=first)
    if node.has(bias):
        total = node.emit(Add(), [total, node.beside(bias, "bias", total)], output=given)
    if given != total.name:
        node.scope.aliases[given] = total.name
    kept = node.inputs[bias:]
    del node.inputs[bias:]
    node.attributes.setdefault("epsilon", 1e-12)  # onnxruntime's
    finish(node, total, 2, total.shape[-1:], centred=centred)
    node.inputs.extend(kept)


@from_torch("aten.layer_norm.default", "aten.native_layer_norm.default")
def _layer_norm_aten(node: TorchNode) -> None:
    node.ignore("cudnn_enable")
    _aten(node, "LayerNormalization", node.number("eps"))


@from_torch("aten.rms_norm.default")
def _rms_norm_aten(node: TorchNode) -> None:
    # Where it names none, PyTorch takes that of the type.
    _aten(node, "RMSNormalization", node.number("eps") if node.has("eps") else float(np.finfo(np.float32).eps))


def _aten(node: TorchNode, operator: str, epsilon: float) -> None:
    operands = [node.operand(name) if node.has(name) else None for name in ("weight", "bias")]
    axis = -len(node.integers("normalized_shape"))
    node.give(operator, node.activation("input"), *operands, axis=axis, epsilon=epsilon)


@from_torch("aten.group_norm.default", "aten.native_group_norm.default")
def _group_norm_aten(node: TorchNode) -> None:
    node.ignore("cudnn_enabled", "N", "C", "HxW")
    operands = [node.operand(name) if node.has(name) else None for name in ("weight", "bias")]
    (groups,) = node.integers("num_groups" if "num_groups" in node.arguments else "group")
    node.give("GroupNormalization", node.activation("input"), *operands, num_groups=groups, epsilon=node.number("eps"))


@from_torch("aten.instance_norm.default")
def _instance_norm_aten(node: TorchNode) -> None:
    node.ignore("cudnn_enabled", "momentum", "running_mean", "running_var")
    operands = [node.operand(name) if node.has(name) else None for name in ("weight", "bias")]
    if not node.flag("use_input_stats"):
        _by_running_statistics(node, *operands)
        return
    node.become("InstanceNormalization", node.activation("input"), *operands, epsilon=node.number("eps"))


def _by_running_statistics(node: TorchNode, weight: Operand | None, bias: Operand | None) -> None:
    """In inference these are constants, as those of BatchNormalization are."""
    if node.scope.trained:
        reason = "it takes running statistics, and those of each sample while it is trained"
        raise node.unsupported(reason, "use track_running_stats=False")
    mean, variance = (node.constant(name) for name in ("running_mean", "running_var"))
    factors = [np.ones(mean.shape) if weight is None else weight, np.zeros(mean.shape) if bias is None else bias]
    node.become("BatchNormalization", node.activation("input"), *factors, mean, variance, epsilon=node.number("eps"))
