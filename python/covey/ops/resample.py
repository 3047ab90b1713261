"""Weighted sums of neighbours along a dimension, with public weights: interpolation. Only its rounding is exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.gather import Gather, pick

if TYPE_CHECKING:
    from covey.training.builder import Builder

FEWEST_BITS = 6
"""Weights that no fewer bits hold exactly are given at least so many."""


@dataclass(frozen=True)
class Taps:
    """What each position along a dimension of a sample is made of: the elements it reads, and their weights."""

    axis: int
    reads: tuple[tuple[int, ...], ...]
    """For each tap, the element that each position reads."""
    weights: tuple[tuple[float, ...], ...]

    @property
    def gain(self) -> float:
        """How much larger than its largest element a result may be."""
        return float(np.abs(self.weights).sum(axis=0).max())

    def adjoint(self, size: int) -> Taps:
        """What each of `size` elements adds to, the other way round."""
        read_by: list[list[tuple[int, float]]] = [[] for _ in range(size)]
        for reads, weights in zip(self.reads, self.weights, strict=True):
            for place, (element, weight) in enumerate(zip(reads, weights, strict=True)):
                if weight:
                    read_by[element].append((place, weight))
        most = max(map(len, read_by))
        filled = [found + [(0, 0.0)] * (most - len(found)) for found in read_by]
        taps = list(zip(*filled, strict=True))
        return Taps(
            self.axis,
            tuple(tuple(place for place, _ in tap) for tap in taps),
            tuple(tuple(weight for _, weight in tap) for tap in taps),
        )

    def bits(self, most: int) -> int:
        """The fewest fractional bits that hold all weights, `most` where more are needed."""
        weights = np.array(self.weights)
        exact = (bits for bits in range(most) if (np.ldexp(weights, bits) % 1.0 == 0.0).all())
        return next(exact, most)


@dataclass(frozen=True)
class Resample(Op):
    """x [N, ..] with some dimensions made anew, one after the other."""

    steps: tuple[Taps, ...]
    widens = True

    def shape(self, *inputs: Value) -> Shape:
        shape = list(inputs[0].shape)
        for taps in self.steps:
            shape[taps.axis] = len(taps.reads[0])
        return tuple(shape)

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0]
        for taps in self.steps:
            parts = zip(taps.reads, taps.weights, strict=True)
            x = np.sum(
                [
                    np.take(x, np.array(reads), axis=taps.axis + 1) * _along(weights, x.ndim - 2 - taps.axis)
                    for reads, weights in parts
                ],
                axis=0,
            )
        return x

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        return build.emit(Resample(tuple(replace(taps, axis=taps.axis + 1) for taps in self.steps)), *inputs)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        (x,) = inputs
        sizes = [x.shape]
        for taps in self.steps:
            sizes.append(tuple(len(taps.reads[0]) if axis == taps.axis else n for axis, n in enumerate(sizes[-1])))
        back = tuple(taps.adjoint(shape[taps.axis]) for taps, shape in zip(self.steps, sizes, strict=False))
        return [build.emit(Resample(back[::-1]), gradient, hint="back")]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        for taps in self.steps:
            bits = taps.bits(low.scale)
            # Where the ring has no room for the weights of a further dimension, what is there is rounded before.
            if x.scale > low.scale and bits > _room(low, x, taps):
                x = low.truncate(node, x, x.scale - low.scale, name=f"{node.output}.rounded")
            x = _resampled(low, node, x, taps, min(bits, max(FEWEST_BITS, _room(low, x, taps))))
        return x


def _along(weights: Sequence[float], behind: int) -> Array:
    """Weights along a dimension with so many behind it."""
    return np.array(weights).reshape(-1, *(1,) * behind)


def _room(low: Lowering, x: Lowered, taps: Taps) -> int:
    """Fractional bits that weights may have."""
    return low.settings.available_bits - x.interval.bits - int(np.ceil(np.log2(taps.gain)))


def _resampled(low: Lowering, node: Node, x: Lowered, taps: Taps, bits: int) -> Lowered:
    """The sum of all taps, at a scale larger by `bits`."""
    behind = len(x.shape) - 1 - taps.axis
    source = low.magnitude(node.inputs[0])
    magnitude = None if source is None else source * float(np.prod([step.gain for step in _steps(node)]))
    total: Lowered | None = None
    for tap, (reads, weights) in enumerate(zip(taps.reads, taps.weights, strict=True)):
        whole = np.rint(np.ldexp(np.array(weights), bits))
        if not whole.any():
            continue
        part = _times(low, node, _taken(low, node, x, taps.axis, reads), whole, bits, behind, magnitude, tap)
        total = part if total is None else _sum(low, node, total, part, magnitude)
    assert total is not None, "some weight is not zero"
    return total


def _steps(node: Node) -> tuple[Taps, ...]:
    assert isinstance(node.op, Resample)
    return node.op.steps


def _taken(low: Lowering, node: Node, x: Lowered, axis: int, reads: Sequence[int]) -> Lowered:
    if list(reads) == list(range(x.shape[axis])):
        return x
    along: list[Sequence[int]] = [range(size) for size in x.shape]
    along[axis] = reads
    gather: Gather = pick(x.shape, along)
    return low.emit(
        node,
        pb.Gather(sizes=[len(entry) for entry in gather.axes], offsets=[i + 1 for entry in gather.axes for i in entry]),
        [x],
        shape=tuple(len(entry) for entry in gather.axes),
        scale=x.scale,
        interval=gather.interval(x.interval),
        magnitude=low.magnitude(node.inputs[0]),
        name=f"{node.output}.taken",
    )


def _times(
    low: Lowering,
    node: Node,
    x: Lowered,
    weights: Array,
    bits: int,
    behind: int,
    magnitude: float | None,
    tap: int,
) -> Lowered:
    spread = _along(weights.tolist(), behind)
    return low.emit(
        node,
        pb.Mul(),
        [x, low.constant(node, f"weights{tap}", spread, bits)],
        shape=x.shape,
        scale=x.scale + bits,
        interval=x.interval * Interval.constant(spread),
        magnitude=magnitude,
        name=f"{node.output}.weighted",
    )


def _sum(low: Lowering, node: Node, x: Lowered, y: Lowered, magnitude: float | None) -> Lowered:
    return low.emit(
        node,
        pb.Add(),
        [x, y],
        shape=x.shape,
        scale=x.scale,
        interval=x.interval + y.interval,
        magnitude=magnitude,
        name=f"{node.output}.sum",
    )
