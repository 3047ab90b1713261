"""Padding with a public constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import ParameterError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering


@dataclass(frozen=True)
class Pad(Op):
    """`before` and `after` are over all dimensions, zero for the batch."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float = 0.0

    def shape(self, *inputs: Value) -> Shape:
        x = inputs[0]
        if len(self.before) != x.rank or len(self.after) != x.rank:
            raise ValueError(f"its pads do not fit {x}")
        sizes = zip(x.shape, self.before[1:], self.after[1:], strict=True)
        return tuple(size + before + after for size, before, after in sizes)

    def reference(self, *inputs: Array) -> Array:
        widths = list(zip(self.before, self.after, strict=True))
        return np.pad(inputs[0], widths, constant_values=self.value)

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        value = int(np.rint(np.ldexp(self.value, x.scale)))
        low.check_constant(node, value, x.scale)
        return low.emit(
            node,
            pb.Pad(before=self.before, after=self.after, value=value),
            [x],
            shape=low.graph.values[node.output].shape,
            scale=x.scale,
            interval=Pad(self.before, self.after, float(value)).interval(x.interval),
        )


@from_onnx("Pad")
def _pad(node: OnnxNode) -> None:
    x = node.activation(0)
    mode = node.attribute("mode", "constant")
    if mode != "constant":
        raise node.unsupported(f"its mode is '{mode}'", "only constant padding is supported")
    if node.opset < 11:
        pads = node.integers("pads") or []
        value = float(node.attribute("value", 0.0))
    else:
        pads = node.constant_integers(1, "pads")
        value = float(node.constant(2, "value").ravel()[0]) if node.has(2) else 0.0
    axes = [axis % x.rank for axis in node.constant_integers(3, "axes")] if node.has(3) else list(range(x.rank))
    if len(pads) != 2 * len(axes):
        raise node.unsupported(f"its {len(pads)} pads do not fit {x}", "repair the model")
    before, after = [0] * x.rank, [0] * x.rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    if before[0] or after[0] or min(before + after) < 0:
        raise node.unsupported(f"its pads {pads} crop or pad the batch", "only non-negative pads of data are supported")
    if not np.isfinite(value):
        raise ParameterError(node.name, node.op_type, f"it pads with {value}", "pad with a finite number")
    node.emit(Pad(tuple(before), tuple(after), value), [x])


@from_torch("aten.constant_pad_nd.default", "aten.pad.default")
def _pad_aten(node: TorchNode) -> None:
    x, pads = node.activation("self"), node.integers("pad")
    # PyTorch counts from the last dimension, a pair (before, after) for each.
    before, after = [0] * x.rank, [0] * x.rank
    if len(pads) % 2 or len(pads) // 2 > x.rank:
        raise node.unsupported(f"its {len(pads)} pads do not fit {x}", "repair the model")
    for place in range(len(pads) // 2):
        before[-1 - place], after[-1 - place] = pads[2 * place], pads[2 * place + 1]
    value = node.number("value") if node.has("value") else 0.0
    mode = node.argument("mode") or "constant"
    node.become("Pad", x, np.array(before + after), np.array(value), mode=mode)
