"""Rotary embedding: pairs of elements turned by angles that belong to positions. Positions and angles are public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import MS_DOMAIN, OnnxNode, from_onnx, of_one_sample
from covey.interval import Array, Interval
from covey.ir import Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.concat import Concat
from covey.ops.gather import pick
from covey.ops.reshape import Reshape
from covey.rounding import half_added
from covey.steps import interim

if TYPE_CHECKING:
    from covey.training.builder import Builder

FIXED = "export the model with its positions as a constant, for one length"


@dataclass(frozen=True, eq=False)
class Rotation(Op):
    """x · cosines + turned · sines, where each element of `turned` is its partner's in x.

    `cosines` and `sines`, which bear the signs, broadcast to a sample of x.
    """

    cosines: Array
    sines: Array

    widens = True

    def shape(self, *inputs: Value) -> Shape:
        x = inputs[0]
        if any(np.broadcast_shapes(factors.shape, x.shape) != x.shape for factors in (self.cosines, self.sines)):
            raise ValueError(f"its angles of shape {list(self.cosines.shape)} do not fit {x}")
        return x.shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0] * self.cosines + inputs[1] * self.sines

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        factors = zip(inputs, (self.cosines, self.sines), strict=True)
        return [
            build.part(x, partial(build.mul, gradient, build.parameter(f"{result.name}.angles", angles)))
            for x, angles in factors
        ]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        values = low.operands_at_one_scale(node)
        scale = values[0].scale + low.scale
        products = []
        for x, factors, hint in zip(values, (self.cosines, self.sines), ("cosine", "sine"), strict=True):
            integers = np.rint(np.ldexp(factors, low.scale))
            constant = low.constant(node, hint, integers, low.scale)
            interval = x.interval * Interval.constant(integers[None])
            products.append(interim(low, node, pb.Mul(), [x, constant], x.shape, interval, f"{hint}_part", scale))
        interval = products[0].interval + products[1].interval
        total = low.emit(node, pb.Add(), products, shape=values[0].shape, scale=scale, interval=interval)
        return half_added(low, node, total, low.scale, "sum")


@from_onnx("RotaryEmbedding")
def _rotary_embedding(node: OnnxNode) -> None:
    _rotate(node, cosines=1, sines=2, positions=3)


@from_onnx("RotaryEmbedding", domain=MS_DOMAIN)
def _rotary_embedding_ms(node: OnnxNode) -> None:
    if float(node.attribute("scale", 1.0)) != 1.0 or node.flag("is_packed_batching"):
        raise node.unsupported("it scales, or packs several sequences", "leave scale and is_packed_batching out")
    _rotate(node, positions=1, cosines=2, sines=3)


def _rotate(node: OnnxNode, *, positions: int, cosines: int, sines: int) -> None:
    """x [N, heads, length, size], or [N, length, heads · size]."""
    x, name = node.activation(0), node.outputs[0]
    if len(x.shape) not in (2, 3):
        raise node.unsupported(f"its input {x} has no heads", "give it as [N, heads, length, size]")
    packed, heads = len(x.shape) == 2, int(node.attribute("num_heads", 0))
    length = x.shape[-2]
    partial = int(node.attribute("rotary_embedding_dim", 0))
    cosine = _angles(node, cosines, positions, length, "cosines")
    sine = _angles(node, sines, positions, length, "sines")
    if packed:
        heads = heads or x.shape[1] // (2 * cosine.shape[1])
        if heads < 1 or x.shape[1] % heads:
            raise node.unsupported(f"{heads} heads do not divide {x}", "repair the model")
        # Heads stand behind positions here: nothing is transposed for it.
        x = node.emit(Reshape((length, heads, x.shape[1] // heads)), [x], output=f"{name}.heads")
    size = partial or x.shape[-1]
    if size % 2 or not 0 < size <= x.shape[-1] or cosine.shape != sine.shape or 2 * cosine.shape[1] != size:
        shapes = f"{list(cosine.shape)} and {list(sine.shape)}"
        raise node.unsupported(f"its cosines and sines of shapes {shapes} do not turn {size} elements", "repair them")
    partners, signs, order = _pairs(size, interleaved=node.flag("interleaved"))
    factors = [angles[:, order] * (1.0 if angles is cosine else signs) for angles in (cosine, sine)]
    if packed:
        factors = [angles[:, None] for angles in factors]
    lead = [range(extent) for extent in x.shape[:-1]]
    whole = size == x.shape[-1]
    part = x if whole else node.emit(pick(x.shape, [*lead, range(size)]), [x], output=f"{name}.part")
    turned = node.emit(pick(x.shape, [*lead, partners]), [x], output=f"{name}.partners")
    result = node.emit(Rotation(*factors), [part, turned], output=f"{name}.turned" if packed or not whole else None)
    if not whole:
        rest = node.emit(pick(x.shape, [*lead, range(size, x.shape[-1])]), [x], output=f"{name}.rest")
        result = node.emit(Concat(x.rank - 1), [result, rest], output=f"{name}.joined" if packed else None)
    if packed:
        node.emit(Reshape((length, heads * x.shape[-1])), [result])
    node.note("two products with public numbers")


def _pairs(size: int, *, interleaved: bool) -> tuple[list[int], Array, npt.NDArray[np.int64]]:
    """Each element's partner, the sign of its sine, and which of the angles is its own."""
    places, half = np.arange(size), size // 2
    if interleaved:
        return (places ^ 1).tolist(), np.where(places % 2, 1.0, -1.0), places // 2
    return ((places + half) % size).tolist(), np.where(places < half, -1.0, 1.0), places % half


def _angles(node: OnnxNode, index: int, positions: int, length: int, what: str) -> Array:
    """Numbers [length, half] of each position's angles: rows of a table, or given as they are for every position."""
    table = node.weights(index, what)
    if not node.has(positions):
        table = of_one_sample(table, 3)
        if table.ndim != 2 or len(table) != length:
            raise node.unsupported(
                f"its {what} of shape {list(table.shape)} are not of {length} positions, the same for every sample",
                FIXED,
            )
        return table
    if not node.is_constant(positions):
        raise node.unsupported("its positions are an input", FIXED)
    places = of_one_sample(node.constant(positions, "positions"), 2).astype(np.int64)
    if places.size == 1 and positions == 1:  # the first one's
        places = places.ravel()[0] + np.arange(length)
    if places.shape != (length,) or table.ndim != 2 or places.min() < 0 or places.max() >= len(table):
        raise node.unsupported(f"its positions of shape {list(places.shape)} do not fit {length} rows", FIXED)
    return table[places]
