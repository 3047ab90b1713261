"""Clipping to public bounds (ReLU6 among others)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import ParameterError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.relu import Relu

if TYPE_CHECKING:
    from covey.training.builder import Builder

UNBOUNDED = 1e30
"""Bounds beyond this are none: exporters write the largest float where they mean infinity."""


_ENDS = {"torch.qint8": (-128, 127), "torch.quint8": (0, 255), "torch.quint4x2": (0, 15), "torch.quint2x4": (0, 3)}
"""Ends of PyTorch's quantised types; those of 32 bits have none that a network reaches."""


@dataclass(frozen=True)
class Clip(Op):
    """`min(max(x, low), high)`; a bound of None is absent."""

    low: float | None = None
    high: float | None = None

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        result = inputs[0]
        if self.low is not None:
            result = np.maximum(result, self.low)
        if self.high is not None:
            result = np.minimum(result, self.high)
        return result

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """What is beyond a bound is taken off; at the bound itself there is no gradient, as in PyTorch."""
        (x,) = inputs
        if not build.learns(x):
            return build.emit(self, x)
        parts = [x]
        if self.high is not None:
            beyond = build.affine(x, 1.0, -self.high)
            parts.append(build.affine(build.where_not_set(build.negative(beyond), beyond), -1.0))
        if self.low is not None:
            beyond = build.affine(x, -1.0, self.low)
            parts.append(build.where_not_set(build.negative(beyond), beyond))
        return build.total(parts)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        # No value reaches 2^available_bits, so a bound beyond that can as well stand there.
        most = 2**low.settings.available_bits - 1
        bounds = {
            side: min(most, max(-most, int(np.rint(np.ldexp(bound, x.scale)))))
            for side, bound in (("low", self.low), ("high", self.high))
            if bound is not None
        }
        interval = Clip(**bounds).interval(x.interval)
        return low.emit(node, pb.Clip(**bounds), [x], shape=x.shape, scale=x.scale, interval=interval)


@from_onnx("Clip")
def _clip(node: OnnxNode) -> None:
    x = node.activation(0)
    if node.opset < 11:
        low, high = _bound(node, node.attribute("min")), _bound(node, node.attribute("max"))
    else:
        low = _bound(node, node.constant(1, "minimum")) if node.has(1) else None
        high = _bound(node, node.constant(2, "maximum")) if node.has(2) else None
    if low is not None and high is not None and low > high:
        raise ParameterError(
            node.name, node.op_type, f"its minimum {low} exceeds its maximum {high}", "repair the model"
        )
    if low is None and high is None:
        node.alias(x)
        node.note("removed: it has no bounds")
    elif low == 0.0 and high is None:
        node.emit(Relu(), [x])
        node.note("Relu")
    else:
        node.emit(Clip(low, high), [x])


def _bound(node: OnnxNode, value: object) -> float | None:
    if value is None:
        return None
    array = np.asarray(value, dtype=np.float64)
    if array.size != 1 or np.isnan(array).any():
        raise ParameterError(node.name, node.op_type, "its bounds must be single numbers", "repair the model")
    bound = float(array.ravel()[0])
    return None if abs(bound) > UNBOUNDED else bound


@from_torch("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default")
def _clip_aten(node: TorchNode) -> None:
    bounds = [node.number(side) if node.has(side) else None for side in ("min", "max")]
    node.become("Clip", node.activation("self"), *bounds)


@from_torch("aten.hardtanh.default")
def _hardtanh_aten(node: TorchNode) -> None:
    node.become("Clip", node.activation("self"), node.number("min_val"), node.number("max_val"))


@from_torch("aten.quantize_per_tensor.default", "aten.quantize_per_tensor.tensor_qparams")
def _quantise_aten(node: TorchNode) -> None:
    _on_grid(node, *_ENDS.get(str(node.argument("dtype")), (None, None)))


@from_torch("aten.fake_quantize_per_tensor_affine.default", "aten.fake_quantize_per_tensor_affine.tensor_qparams")
def _fake_quantise_aten(node: TorchNode) -> None:
    _on_grid(node, node.number("quant_min"), node.number("quant_max"))


@from_torch("aten.fake_quantize_per_channel_affine.default")
def _fake_quantise_channels_aten(node: TorchNode) -> None:
    x = node.activation("self")
    scale, zero = (node.constant(name).astype(np.float64) for name in ("scale", "zero_point"))
    along = [-1 if axis == node.axis("axis", x.rank) else 1 for axis in range(1, x.rank)]
    low, high = (((node.number(f"quant_{end}") - zero) * scale).reshape(along) for end in ("min", "max"))
    node.become("Min", node.apply("Max", x, low, suffix="low"), high)
    node.note("cut off where its integers end")


def _on_grid(node: TorchNode, *ends: float | None) -> None:
    """What the integers of a quantised tensor stand for: cut off where these end, and not rounded."""
    scale, zero = (float(node.constant(name).ravel()[0]) for name in ("scale", "zero_point"))
    node.become("Clip", node.activation("self"), *(None if end is None else (end - zero) * scale for end in ends))
    node.note("cut off where its integers end")


@from_torch("aten.relu6.default")
def _relu6_aten(node: TorchNode) -> None:
    node.become("Clip", node.activation("self"), 0.0, 6.0)
