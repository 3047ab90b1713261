"""Padding with a public constant, or with elements that are there: mirrored, repeated or from the other end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from covey._proto import program_pb2 as pb
from covey.errors import ParameterError
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.gather import emit_pick

if TYPE_CHECKING:
    from covey.training.builder import Builder

MOVES: dict[str, Literal["reflect", "edge", "wrap"]] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
"""Modes that only move elements, by what NumPy calls them."""


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

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        return build.emit(Pad((0, *self.before), (0, *self.after), self.value), *inputs)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        sizes = zip(self.before[1:], inputs[0].shape, strict=True)
        return [build.pick(gradient, [range(before, before + size) for before, size in sizes])]

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
    if mode != "constant" and mode not in MOVES:
        raise node.unsupported(f"its mode is '{mode}'", "only the modes constant, reflect, edge and wrap are supported")
    if node.opset < 11:
        pads = node.integers("pads") or []
        value = float(node.attribute("value", 0.0))
    else:
        pads = node.constant_integers(1, "pads")
        value = node.one_number(2, "value") if node.has(2) else 0.0
    axes = node.places(node.constant_integers(3, "axes"), x.rank) if node.has(3) else list(range(x.rank))
    if len(pads) != 2 * len(axes):
        raise node.unsupported(f"its {len(pads)} pads do not fit {x}", "repair the model")
    before, after = [0] * x.rank, [0] * x.rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    if before[0] or after[0]:
        raise node.unsupported(f"its pads {pads} crop or pad the batch", "only data may be padded")
    if mode != "constant":
        _move(node, x, MOVES[mode], before, after)
        return
    if not np.isfinite(value):
        raise ParameterError(node.name, node.op_type, f"it pads with {value}", "pad with a finite number")
    _constant(node, x, before, after, value)


def _constant(node: OnnxNode, x: Value, before: Sequence[int], after: Sequence[int], value: float) -> None:
    """Negative pads crop."""
    widths = list(zip(x.shape, before[1:], after[1:], strict=True))
    kept = [range(max(0, -first), size - max(0, -last)) for size, first, last in widths]
    if min(map(len, kept), default=1) < 1:
        raise node.unsupported(f"its pads crop all of {x}", "repair the model")
    more = [[max(0, width) for width in widths] for widths in (before, after)]
    if not any(map(any, more)):
        emit_pick(node, x, kept)
        return
    if [len(indices) for indices in kept] != list(x.shape):
        x = emit_pick(node, x, kept, output=f"{node.outputs[0]}.cropped")
    node.emit(Pad(tuple(more[0]), tuple(more[1]), value), [x])


def _move(
    node: OnnxNode,
    x: Value,
    mode: Literal["reflect", "edge", "wrap"],
    before: Sequence[int],
    after: Sequence[int],
) -> None:
    """Nothing is exchanged. Negative pads crop, before others move what is left."""
    widths = list(zip(x.shape, before[1:], after[1:], strict=True))
    node.check_shape([size + first + last for size, first, last in widths])
    along = []
    for size, first, last in widths:
        kept = np.arange(max(0, -first), size - max(0, -last))
        pads = (max(0, first), max(0, last))
        # Runtimes differ in whether such pads take what is cropped.
        most = {"edge": max(pads), "reflect": len(kept) - 1, "wrap": len(kept)}[mode]
        if len(kept) < 1 or (len(kept) < size and max(pads) > most):
            raise node.unsupported(f"its pads crop what they pad with in mode '{mode}'", "put a Slice before it")
        along.append(np.pad(kept, pads, mode=mode).tolist())
    emit_pick(node, x, along)


@from_torch("aten.constant_pad_nd.default", "aten.pad.default")
def _pad_aten(node: TorchNode) -> None:
    x = node.activation("self")
    mode = str(node.argument("mode") or "constant")
    value = node.number("value") if node.has("value") else 0.0
    mode = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    node.become("Pad", x, _widths(node, "pad"), np.array(value), mode=mode)


def _widths(node: TorchNode, name: str = "padding") -> Array:
    """PyTorch counts from the last dimension, a pair (before, after) for each."""
    x, pads = node.activation("self"), node.integers(name)
    before, after = [0] * x.rank, [0] * x.rank
    if len(pads) % 2 or len(pads) // 2 > x.rank:
        raise node.unsupported(f"its {len(pads)} pads do not fit {x}", "repair the model")
    for place in range(len(pads) // 2):
        before[-1 - place], after[-1 - place] = pads[2 * place], pads[2 * place + 1]
    return np.array(before + after)


@from_torch("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def _reflection_pad_aten(node: TorchNode) -> None:
    node.become("Pad", node.activation("self"), _widths(node), mode="reflect")


@from_torch("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def _replication_pad_aten(node: TorchNode) -> None:
    node.become("Pad", node.activation("self"), _widths(node), mode="edge")
