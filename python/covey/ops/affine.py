"""Multiplication by a public number and addition of another: what operators with fixed slopes are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Affine(Op):
    """`x * factor + summand`; both numbers belong to the operator and are public."""

    factor: float = 1.0
    summand: float = 0.0

    @property
    def widens(self) -> bool:  # type: ignore[override]
        """Only a factor that is no whole number adds to the scale."""
        return not float(self.factor).is_integer()

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0] * self.factor + self.summand

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        return [build.affine(gradient, self.factor)]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        # A whole factor leaves the scale as it is: without a summand the product is the result, and has its name.
        name = f"{node.output}.product" if self.widens or self.summand else None
        result = x if self.factor == 1.0 else multiplied(low, node, x, self.factor, name)
        if self.summand == 0.0 and result is not x:
            return result
        offset = np.rint(np.ldexp(np.array(self.summand), result.scale))
        return low.emit(
            node,
            pb.Add(),
            [result, low.constant(node, "summand", offset, result.scale)],
            shape=x.shape,
            scale=result.scale,
            interval=result.interval + Interval.constant(offset),
        )


def slope(factor: float, scale: int) -> int:
    """A public factor as an integer; small ones are given more bits than `scale`, as far as `bits_of` says."""
    return int(np.rint(np.ldexp(factor, bits_of(factor, scale))))


def bits_of(factor: float, scale: int) -> int:
    """Fractional bits of a public factor: none for whole numbers, `scale` and its own leading zeros for the others."""
    if float(factor).is_integer():
        return 0
    return scale + max(0, min(16, -int(np.frexp(factor)[1])))


def multiplied(low: Lowering, node: Node, x: Lowered, factor: float, name: str | None) -> Lowered:
    """x times a public factor, not yet truncated."""
    bits, integer = bits_of(factor, low.scale), slope(factor, low.scale)
    magnitude = low.magnitude(node.inputs[0])
    multiplier = np.array(float(integer))
    return low.emit(
        node,
        pb.Mul(),
        [x, low.constant(node, "factor", multiplier, bits)],
        shape=x.shape,
        scale=x.scale + bits,
        interval=x.interval * Interval.constant(multiplier),
        name=name,
        magnitude=None if magnitude is None else magnitude * abs(factor),
    )
