"""Dropout: in training, public coins set elements to 0 and what is left is scaled up; at inference it does nothing.

All parties draw the same coins, which are others in each step, and the gradient has those of the forward form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.training.coins import drawn

if TYPE_CHECKING:
    from covey.training.builder import Builder

COINS = 1 << 32
"""How many coins there are."""

DIGITS = 12
"""The most fractional bits of what kept elements are multiplied by."""


@dataclass(frozen=True)
class Dropout(Op):
    """x over `1 - rate`, or 0 where the element's coin says so; nodes with the same `seed` drop the same elements."""

    rate: float
    seed: int = 0
    run: int = 0

    @property
    def factor(self) -> float:
        """What kept elements are multiplied by."""
        return 1.0 / (1.0 - self.rate)

    @property
    def threshold(self) -> int:
        """How many of all coins drop an element."""
        return min(round(self.rate * COINS), COINS - 1)

    @property
    def widens(self) -> bool:  # type: ignore[override]
        """Only a factor that is no whole number adds to the scale."""
        return not self.factor.is_integer()

    def in_run(self, run: int) -> Dropout:
        return replace(self, run=run)

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        (x,) = inputs
        coins = drawn("dropout", self.seed, self.run, x.size, "<u4").reshape(x.shape)
        return np.where(coins < self.threshold, 0.0, x * self.factor)

    def interval(self, *inputs: Interval) -> Interval:
        scaled = inputs[0].scaled(self.factor)
        return Interval(scaled.negative.low, scaled.positive.high)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        return build.emit(replace(self, seed=build.coins()), *inputs)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.emit(self, gradient, hint="kept")]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        bits = min(low.scale, DIGITS) if self.widens else 0
        multiplier = round(math.ldexp(self.factor, bits))
        low.check_constant(node, float(multiplier), bits)
        scaled = x.interval.scaled(float(multiplier))
        return low.emit(
            node,
            pb.Dropout(seed=self.seed, threshold=self.threshold, multiplier=multiplier, scale=bits),
            [x],
            shape=x.shape,
            scale=x.scale + bits,
            interval=Interval(scaled.negative.low, scaled.positive.high),
            name=f"{node.output}.kept" if bits else None,
        )


@from_onnx("Dropout")
def _dropout(node: OnnxNode) -> None:
    node.only_first_output("the mask")
    node.ignore("ratio", "seed", "is_test")
    if node.scope.dropout:
        rate = float(np.ravel(node.constant(1, "ratio"))[0] if node.has(1) else node.attribute("ratio", 0.5))
        if not 0 <= rate < 1:
            raise node.unsupported(f"it drops {rate:g} of the elements", "give a rate from 0 to below 1")
        if rate > 0:
            node.emit(Dropout(rate), [node.activation(0)])
            return
        node.note("removed: it drops nothing")
    else:
        drops = node.has(2) and bool(np.any(node.constant(2, "training mode")))
        if drops or (node.opset < 7 and not node.flag("is_test")):
            raise node.unsupported("it is in training mode", "export the model for inference")
        node.note("removed: it does nothing at inference")
    node.alias(node.activation(0))


@from_torch("aten.dropout.default", "aten.native_dropout.default")
def _dropout_aten(node: TorchNode) -> None:
    if not node.scope.dropout and (node.op_type == "aten.native_dropout" or node.flag("train")):
        raise node.unsupported("it is in training mode", "call eval() on the module before exporting it")
    node.ignore("train")
    node.give("Dropout", node.activation("input"), node.number("p"))
