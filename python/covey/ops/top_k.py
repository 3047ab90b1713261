"""The largest or smallest elements of rows, and where they stand: a network of comparisons of pairs.

Among equal elements the first comes first. Where places are asked for, each number takes its place as further digits
below its own: then no two are equal, and one network sorts both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import BATCH, OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import DType, Node, Op, Shape, Value
from covey.lowering import Lowered, Lowering
from covey.ops.concat import Concat
from covey.ops.gather import MOST_INDICES, data_axis, pick
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.steps import in_shape_of_result, interim

if TYPE_CHECKING:
    from covey.training.builder import Builder

Layers = list[list[tuple[int, int]]]
"""Pairs of places that are compared side by side; the larger number goes to the first of the two."""


@dataclass(frozen=True)
class Best(Op):
    """The `count` largest (or smallest) elements along the last dimension, in order.

    With `places` the result [.., 2, count] holds them and their indices.
    """

    count: int
    largest: bool
    places: bool

    def shape(self, *inputs: Value) -> Shape:
        *lead, _ = inputs[0].shape
        return (*lead, 2, self.count) if self.places else (*lead, self.count)

    def reference(self, *inputs: Array) -> Array:
        order = np.argsort(-inputs[0] if self.largest else inputs[0], axis=-1, kind="stable")[..., : self.count]
        values = np.take_along_axis(inputs[0], order, axis=-1)
        return np.stack([values, order.astype(np.float64)], axis=-2) if self.places else values

    def interval(self, *inputs: Interval) -> Interval:
        raise AssertionError("every step has its own")

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        """What is trained passes through one-hot rows of the places times the elements; places have no gradient."""
        from covey.ops.selection import Selected, Selector

        (x,) = inputs
        if not build.learns(x):
            return build.emit(self, x)
        *lead, size = x.shape
        both = build.emit(replace(self, places=True), x, hint="best")
        build.learned.discard(both.name)
        places = build.pick_along(both, len(lead), [1])
        index = build.emit(Index(), build.reshape(places, (*lead, self.count)), hint="places", dtype=DType.INDEX)
        rows = build.emit(Selector(0, size), index, hint="one_hot", dtype=DType.BOOL)
        values = build.emit(Selected(), rows, build.reshape(x, (*lead, size, 1)), hint="selected")
        if not self.places:
            return build.reshape(values, (*lead, self.count))
        row = build.reshape(values, (*lead, 1, self.count))
        return build.emit(Concat(len(lead) + 1), row, places, hint="both")

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        size = x.shape[-1]
        shape = (math.prod(x.shape[:-1]), size)
        rows = interim(low, node, pb.Reshape(), [x], shape, x.interval.reshape((1, *shape)), "rows")
        bits = (size - 1).bit_length() if self.places else 0
        keys = keys_of(low, node, rows, bits, self.largest)
        best = sort(low, node, keys, self.count)
        values = _shifted(low, node, best, bits)
        if not self.places:
            return in_shape_of_result(low, node, _turned(low, node, values, self.largest))
        found = _places(low, node, _left(low, node, values, bits, "again"), best, x.scale)
        parts = [_turned(low, node, values, self.largest), found]
        ends = [np.concatenate([getattr(part.interval, end) for part in parts], axis=2) for end in ("low", "high")]
        both = (shape[0], 2 * self.count)
        return in_shape_of_result(
            low, node, interim(low, node, pb.Concat(axis=2), parts, both, Interval(*ends), "both")
        )


@dataclass(frozen=True)
class Index(Op):
    """Whole numbers at the ordinary scale as indices, at scale 0."""

    gives_places = True

    def shape(self, *inputs: Value) -> Shape:
        return inputs[0].shape

    def reference(self, *inputs: Array) -> Array:
        return inputs[0]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        x = low.value(node.inputs[0])
        return _exact_shift(low, node, x, x.scale)


def keys_of(low: Lowering, node: Node, rows: Lowered, bits: int, largest: bool) -> Lowered:
    """Numbers that are the larger the better, with their places as `bits` further digits."""
    x = _left(low, node, rows, bits, "wide")
    if bits == 0 and largest:
        return x
    count = rows.shape[-1]
    places = np.arange(count, dtype=np.float64) if bits else np.zeros(count)
    constant = low.constant(node, "columns", places if largest else -places, x.scale)
    if largest:
        return minus(low, node, x, constant, "keys")
    return minus(low, node, constant, x, "keys")


def sort(low: Lowering, node: Node, keys: Lowered, count: int) -> Lowered:
    """The `count` largest of each row, in order."""
    at = {place: place for place in range(keys.shape[-1])}
    for layer in network(keys.shape[-1], count):
        first, second = ([at.pop(pair[side]) for pair in layer] for side in (0, 1))
        x, y = (taken(low, node, keys, columns, hint) for columns, hint in ((first, "first"), (second, "second")))
        gap = minus(low, node, x, y, "gap")
        excess = interim(low, node, pb.Relu(), [gap], gap.shape, gap.interval.positive, "excess")
        a, b = x.interval, y.interval
        larger = Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high))
        smaller = Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high))
        parts = [
            interim(low, node, pb.Add(), [y, excess], x.shape, larger, "larger"),
            interim(low, node, pb.Sub(), [x, excess], x.shape, smaller, "smaller"),
        ]
        rest = sorted(at)
        if rest:
            parts.append(taken(low, node, keys, [at[place] for place in rest], "rest"))
        order = [pair[0] for pair in layer] + [pair[1] for pair in layer] + rest
        at = {place: column for column, place in enumerate(order)}
        ends = [np.concatenate([getattr(part.interval, end) for part in parts], axis=2) for end in ("low", "high")]
        keys = interim(low, node, pb.Concat(axis=2), parts, (keys.shape[0], len(order)), Interval(*ends), "compared")
    return taken(low, node, keys, [at[place] for place in range(count)], "best")


def taken(low: Lowering, node: Node, x: Lowered, columns: Sequence[int], hint: str) -> Lowered:
    rows = x.shape[0]
    op = pick(x.shape, [range(rows), columns])
    message = pb.Gather(sizes=[rows, len(columns)], offsets=[offset + 1 for axis in op.axes for offset in axis])
    interval = Interval(x.interval.low[..., columns], x.interval.high[..., columns])
    return interim(low, node, message, [x], (rows, len(columns)), interval, hint)


def minus(low: Lowering, node: Node, x: Lowered, y: Lowered, hint: str) -> Lowered:
    shape = tuple(np.broadcast_shapes(x.shape, y.shape))
    return interim(low, node, pb.Sub(), [x, y], shape, x.interval - y.interval, hint)


def _turned(low: Lowering, node: Node, x: Lowered, largest: bool) -> Lowered:
    return x if largest else minus(low, node, low.constant(node, "zero", np.zeros(()), x.scale), x, "smallest")


def _left(low: Lowering, node: Node, x: Lowered, bits: int, hint: str) -> Lowered:
    if bits == 0:
        return x
    interval = x.interval.shifted_left(bits)
    return interim(low, node, pb.ShiftLeft(bits=bits), [x], x.shape, interval, hint, x.scale + bits)


def _places(low: Lowering, node: Node, numbers: Lowered, keys: Lowered, scale: int) -> Lowered:
    """What keys fall short of their numbers by, as numbers of their own at `scale`."""
    # Whatever the bounds of the two are, the difference is one of their digits.
    zeros = np.zeros_like(keys.interval.low)
    interval = Interval(zeros, zeros + 2.0 ** (keys.scale - scale) - 1)
    places = interim(low, node, pb.Sub(), [numbers, keys], keys.shape, interval, "digits")
    doubled = interval.shifted_left(scale + 1)
    low.check_constant(node, doubled.magnitude, scale)
    # A product of that kind alone may say that its result counts in other units.
    op = pb.MulShift(multipliers=[1 << (scale + 1)], shift=1, rounding=pb.Rounding.EXACT)
    return interim(low, node, op, [places], places.shape, interval.shifted_left(scale), "places", scale)


def _shifted(low: Lowering, node: Node, keys: Lowered, bits: int) -> Lowered:
    """The numbers without their places: keys are a number times 2^bits, less a place."""
    if bits == 0:
        return keys
    above = np.array(2.0**bits - 1)
    constant = low.constant(node, "above", above, keys.scale)
    raised = keys.interval + Interval.constant(above)
    wide = interim(low, node, pb.Add(), [keys, constant], keys.shape, raised, "raised")
    return _exact_shift(low, node, wide, bits, "numbers_alone")


def _exact_shift(low: Lowering, node: Node, x: Lowered, bits: int, hint: str | None = None) -> Lowered:
    """Of numbers that may not be off by one, whatever rounding is allowed elsewhere."""
    interval, scale = x.interval.shifted_right(bits), x.scale - bits
    op = pb.Truncate(bits=bits, rounding=pb.Rounding.EXACT)
    if hint is not None:
        return interim(low, node, op, [x], x.shape, interval, hint, scale)
    return low.emit(node, op, [x], shape=x.shape, scale=scale, interval=interval, unconditional=True)


def network(size: int, count: int) -> Layers:
    """What brings the `count` largest of `size` numbers to the first places: of two ways that of fewer comparisons."""
    block = 1 << (count - 1).bit_length()
    ways = [_needed(layers, count) for layers in (_merge_exchange(size), _blocks(size, block))]
    return min(ways, key=lambda layers: (sum(map(len, layers)), len(layers)))


def _merge_exchange(size: int) -> Layers:
    """Batcher's sorting network (Knuth, The Art of Computer Programming 3, 1998, algorithm 5.2.2M)."""
    layers = []
    top = 1 << max(0, (size - 1).bit_length() - 1)
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            layers.append([(i, i + d) for i in range(size - d) if i & p == r])
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    return layers


def _blocks(size: int, block: int) -> Layers:
    """Blocks are sorted; then of two the larger half is kept, which is bitonic, and sorted again."""
    starts = range(0, size, block)
    layers = [
        [(start + i, start + j) for start in starts for i, j in layer if start + j < size]
        for layer in _merge_exchange(block)
    ]
    while len(starts) > 1:
        pairs = list(zip(starts[::2], starts[1::2], strict=False))
        layers.append([(a + i, b + block - 1 - i) for a, b in pairs for i in range(block) if b + block - 1 - i < size])
        step = block // 2
        while step > 0:
            layers.append([(a + i, a + i + step) for a, _ in pairs for i in range(block) if not i & step])
            step //= 2
        starts = starts[::2]
    return layers


def _needed(layers: Layers, count: int) -> Layers:
    """The comparisons that the first `count` places depend on, each as early as its operands are there."""
    live, kept = set(range(count)), []
    for layer in reversed(layers):
        needed = [pair for pair in layer if live.intersection(pair)]
        live.update(*needed)
        kept.append(needed)
    ready: dict[int, int] = {}
    result: Layers = []
    for pair in (pair for layer in reversed(kept) for pair in layer):
        time = max(ready.get(place, 0) for place in pair)
        if time == len(result):
            result.append([])
        result[time].append(pair)
        ready.update(dict.fromkeys(pair, time + 1))
    return result


@from_onnx("TopK")
def _top_k(node: OnnxNode) -> None:
    x = node.activation(0)
    count = node.one_integer(1, "number k") if node.has(1) else int(node.attribute("k", 0))
    axis = data_axis(node, x, int(node.attribute("axis", -1)))
    largest = node.flag("largest", 1)
    node.flag("sorted", 1)  # in order they are as well as in any
    size = x.shape[axis]
    if not 1 <= count <= size:
        raise node.unsupported(f"it asks for {count} of {size} elements", "repair the model")
    if 3 * sum(map(len, network(size, count))) > MOST_INDICES:
        raise node.unsupported(f"it asks for {count} of {size} elements, too many comparisons", "take fewer")
    name, last = node.outputs[0], axis == len(x.shape) - 1
    names = [each if each and each in node.scope.used else "" for each in [*node.outputs, ""][:2]]
    order = [0, *(place for place in range(1, x.rank) if place != axis + 1), axis + 1]
    back = tuple(int(place) for place in np.argsort(order))
    if not last:
        x = node.emit(Transpose(tuple(order)), [x], output=f"{name}.turned")
    both = bool(names[1])
    best = node.emit(Best(count, largest, both), [x], output=f"{name}.best")
    for index, output in enumerate(names):
        if not output:
            continue
        dtype = DType.INDEX if index else DType.FLOAT
        part = best
        if both:
            along = [*(range(extent) for extent in best.shape[:-2]), [index], range(count)]
            part = node.emit(pick(best.shape, along), [best], output=f"{output}.part")
            part = node.emit(Reshape((*best.shape[:-2], count)), [part], output=f"{output}.row")
        if index:
            part = node.emit(Index(), [part], output=output if last else f"{output}.last", dtype=dtype)
        if not last:
            part = node.emit(Transpose(back), [part], output=output, dtype=dtype)
        if part.name != output:
            node.scope.aliases[output] = part.name
    node.note(f"{sum(map(len, network(size, count)))} comparisons of pairs a row")


@from_torch("aten.topk.default")
def _top_k_aten(node: TorchNode) -> None:
    x = node.activation("self")
    options = {"axis": node.axis("dim", x.rank), "largest": int(node.flag("largest"))}
    node.ignore("sorted")
    node.become_several("TopK", _wanted(node), x, np.array(node.integers("k")), **options)


@from_torch("aten.sort.default", "aten.sort.stable")
def _sort_aten(node: TorchNode) -> None:
    x = node.activation("self")
    axis = node.axis("dim", x.rank)
    node.ignore("stable")
    size = x.dims(BATCH)[axis]
    node.become_several("TopK", _wanted(node), x, np.array([size]), axis=axis, largest=int(node.flag("descending")))


def _wanted(node: TorchNode) -> int:
    """How many of the two results are computed: places take digits of their own."""
    return 2 if 1 in node.asked else 1
