"""Softmax and LogSoftmax. At the end of a network the result's owner computes Softmax in the clear."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey._proto import program_pb2 as pb
from covey.drawing import LEAST_UNITS, Wanted, draw
from covey.errors import DoesNotFitError
from covey.functions import EXP
from covey.importers.onnx_node import OnnxNode, from_onnx
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval, of_sums
from covey.ir import Node, Op, Shape, Value
from covey.lookup import clipped, looked_up, told
from covey.lowering import Lowered, Lowering
from covey.normalising import inverse, logarithm
from covey.ops.gather import pick
from covey.ops.max_pool import MaxPool
from covey.ops.pad import Pad
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.transpose import Transpose
from covey.ops.window import MOST_STEPS, Window
from covey.rounding import half_added, rounded
from covey.steps import in_shape_of_result, interim

if TYPE_CHECKING:
    from covey.training.builder import Builder

Mask = npt.NDArray[np.bool_]

MASKING = -1e4
"""A mask adds that or less to an element that it leaves out."""


REACH = 32
"""Exp of less than minus this is 0 in every table."""


@dataclass(frozen=True, eq=False)
class Softmax(Op):
    """Over the last dimension. Elements that the public `mask` names, which broadcasts to a sample, count as -inf.

    A second operand is a secret mask: 1 where elements count, 0 where they do not. Of a row without any, the elements
    that `even` names have the same weight; without `even` all count as their scores say.
    """

    mask: Mask | None = None
    even: Mask | None = None

    def shape(self, *inputs: Value) -> Shape:
        shape = inputs[0].shape
        if not shape:
            raise ValueError("it would run over the batch")
        if shape[-1] > MOST_STEPS:
            raise ValueError(f"it runs over {shape[-1]} elements where at most {MOST_STEPS} are supported")
        if self.mask is not None:
            try:
                mask = np.broadcast_to(self.mask, shape)
            except ValueError:
                raise ValueError(f"its mask of shape {list(self.mask.shape)} does not fit {inputs[0]}") from None
            if mask.all(axis=-1).any():
                raise ValueError("its mask leaves nothing of a row")
        if len(inputs) > 1 and np.broadcast_shapes(shape, inputs[1].shape) != shape:
            raise ValueError(f"its mask {inputs[1]} does not fit {inputs[0]}")
        return shape

    def reference(self, *inputs: Array) -> Array:
        x = self.masked(*inputs)
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))

    def masked(self, *inputs: Array) -> Array:
        """The first operand, with both masks."""
        x = inputs[0] if len(inputs) == 1 else inputs[0] + (inputs[1] - 1) * -MASKING
        out = np.zeros(1, dtype=np.bool_) if self.mask is None else self.mask
        x = np.where(out, -np.inf, x)
        if self.even is None:
            return x
        counted = ((inputs[1] > 0.5) & ~out).any(axis=-1, keepdims=True)
        return np.where(counted, x, np.where(self.even, 0.0, -np.inf))

    def interval(self, *inputs: Interval) -> Interval:
        zeros = np.zeros_like(inputs[0].low)
        return Interval(zeros, zeros + 1.0)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        inner = build.products_to(gradient, result, (*result.shape[:-1], 1))
        return [
            build.part(inputs[0], lambda: build.mul(build.sub(gradient, inner), result)),
            *(None for _ in inputs[1:]),
        ]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        rows = Rows.of(low, node, self)
        available = low.settings.available_bits
        # A product of a power and the inverse is at most 1: its factors share the ring's bits evenly.
        powers, one = rows.powers(min(rows.fine, (available - 1) // 2))
        total = inverse(low, node, sum_of_powers(low, node, powers, one), 1, 1.0, "sum")
        scale = min(total.scale, available - 1 - powers.scale)
        total = rounded(low, node, total, scale, "inverse")
        unit = math.ldexp(1.0, powers.scale + total.scale)
        # No power exceeds the sum, whose inverse may be off by as much as its table and half a unit.
        most = unit * (1 + 2.0**-10) + math.ldexp(1.0, powers.scale)
        interval = powers.interval * total.interval
        product = low.emit(
            node,
            pb.Mul(),
            [powers, total],
            shape=powers.shape,
            scale=powers.scale + total.scale,
            interval=Interval(interval.low.clip(0.0), interval.high.clip(0.0, most)),
            name=f"{node.output}.parts",
            magnitude=most / unit,
        )
        return in_shape_of_result(low, node, half_added(low, node, product, low.scale, "parts"))


@dataclass(frozen=True, eq=False)
class LogSoftmax(Op):
    """The logarithm of Softmax."""

    def shape(self, *inputs: Value) -> Shape:
        return Softmax().shape(*inputs)

    def reference(self, *inputs: Array) -> Array:
        x = inputs[0] - inputs[0].max(axis=-1, keepdims=True)
        return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))

    def interval(self, *inputs: Interval) -> Interval:
        x, count = inputs[0], inputs[0].low.shape[-1]
        return Interval(x.low - x.high.max(axis=-1, keepdims=True) - math.log(count), np.zeros_like(x.low))

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        powers = build.emit(Scalar(EXP), result, hint="powers")
        inner = build.sum_over(gradient, [len(result.shape) - 1])
        return [build.part(inputs[0], lambda: build.sub(gradient, build.mul(powers, inner)))]

    def lower(self, low: Lowering, node: Node) -> Lowered:
        rows = Rows.of(low, node, Softmax())
        total = logarithm(low, node, sum_of_powers(low, node, *rows.powers(rows.fine)), "sum")
        total = rounded(low, node, total, rows.gaps.scale, "logarithm")
        size = math.ldexp(total.interval.magnitude, -total.scale)
        total = low.shift_left(node, total, rows.gaps.scale, size, f"{node.output}.logarithm")
        interval = rows.gaps.interval - total.interval
        magnitude = math.ldexp(interval.magnitude, -rows.gaps.scale)
        result = low.emit(
            node,
            pb.Sub(),
            [rows.gaps, total],
            shape=rows.gaps.shape,
            scale=rows.gaps.scale,
            interval=interval,
            name=f"{node.output}.rows",
            magnitude=magnitude,
        )
        return in_shape_of_result(low, node, result)


@dataclass(frozen=True)
class Rows:
    """What an operand is below the largest of its row, as rows [1, rows, count]; 1 where `kept`.

    Where rows may hold no element that counts, a last column holds a number that is above the elements of such rows,
    and below those of all others, by more than the reach of Exp. Its power is 1 in such rows, the other powers are 0:
    added to those that are `even`, it gives them the same weight.
    """

    low: Lowering
    node: Node
    gaps: Lowered
    kept: Array | None
    even: Array | None
    fine: int
    """Fractional bits of powers that leave their sum as near as it should be."""

    @staticmethod
    def of(low: Lowering, node: Node, op: Softmax) -> Rows:
        x = low.value(node.inputs[0])
        bound = math.floor(float(x.interval.low.min()) - math.ldexp(REACH, x.scale))
        if len(node.inputs) > 1:
            x = _sunk(low, node, x, low.value(node.inputs[1]), 1 if op.even is None else 2)
        count = x.shape[-1]
        shape = (1, math.prod(x.shape[:-1]), count)
        fine = min(
            math.ceil(math.log2(4 * count / low.settings.table_error)),
            low.settings.available_bits - (count + 1).bit_length(),
        )
        x = interim(low, node, pb.Reshape(), [x], shape, x.interval.reshape((1, *shape)), "rows")
        kept = even = None
        of_result = low.graph.values[node.output].shape
        if op.mask is not None:
            kept = np.where(np.broadcast_to(op.mask, of_result), 0.0, 1.0).reshape(shape)
            x = _lowest(low, node, x, kept)
        if op.even is not None:
            even = np.where(np.broadcast_to(op.even, of_result), 1.0, 0.0).reshape(shape)
            shape = (*shape[:-1], count + 1)
            pad = Pad((0, 0, 0, 0), (0, 0, 0, 1), float(bound))
            message = pb.Pad(before=pad.before, after=pad.after, value=bound)
            x = interim(low, node, message, [x], shape, pad.interval(x.interval), "bounded")
        window = Window((1, shape[-1]))
        largest = interim(
            low,
            node,
            pb.MaxPool(window=window.proto()),
            [x],
            (*shape[:-1], 1),
            MaxPool(window).interval(x.interval),
            "largest",
        )
        between = x.interval - largest.interval
        interval = Interval(between.low, np.minimum(between.high, 0.0))
        gaps = interim(low, node, pb.Sub(), [x, largest], shape, interval, "gaps")
        return Rows(low, node, gaps, kept, even, fine)

    def powers(self, scale: int) -> tuple[Lowered, float]:
        """Their exponentials, and that of 0; exactly 0 from where those are nothing beside a sum, and where masked."""
        low, node, gaps = self.low, self.node, self.gaps
        count, goal = gaps.shape[-1], low.settings.table_error
        wanted = Wanted(
            EXP,
            int(min(gaps.interval.low.min(), -1.0)),
            0,
            gaps.scale,
            scale,
            goal,
            low.settings.available_bits,
            relative=True,
            # Small ones are only summed; and rounding takes its part.
            floor=max(1 / count, 2 * LEAST_UNITS * math.ldexp(1.0, -scale) / goal),
        )
        drawing = draw(wanted)
        if drawing is None:
            raise DoesNotFitError(
                node.name,
                node.source_op,
                magnitude=1.0,
                needed=low.settings.available_bits + 1,
                available=low.settings.available_bits,
                scale=low.scale,
                calibrated=False,
                reason=f"Z_2^{low.settings.ring_bits} has no room for its table of Exp",
            )
        low.drawn.append(told(EXP, node, gaps.scale, drawing))
        inner = clipped(low, node, gaps, drawing.inner, math.ldexp(gaps.interval.magnitude, -gaps.scale), "near")
        powers = looked_up(low, node, drawing.table, inner, drawing.result, f"{node.output}.powers")
        one = float(drawing.table(np.zeros(1, dtype=np.int64))[0])
        shared = None
        if self.even is not None:
            powers, shared = (
                self._columns(powers, columns, hint)
                for columns, hint in (
                    (range(count - 1), "powers_of_scores"),
                    (range(count - 1, count), "power_of_empty"),
                )
            )
        if self.kept is not None:
            powers = self._chosen(powers, self.kept, "kept")
        if self.even is not None and shared is not None:
            if not self.even.all():
                shared = self._chosen(shared, self.even, "even")
            # One of both is 0.
            ends = powers.interval.low + shared.interval.low, np.maximum(powers.interval.high, shared.interval.high)
            powers = interim(low, node, pb.Add(), [powers, shared], powers.shape, Interval(*ends), "powers_of_rows")
        return powers, one

    def _columns(self, powers: Lowered, columns: range, hint: str) -> Lowered:
        shape = (*powers.shape[:-1], len(columns))
        message = pick(powers.shape, [*map(range, shape[:-1]), columns]).proto()
        interval = Interval(powers.interval.low[..., columns], powers.interval.high[..., columns])
        return interim(self.low, self.node, message, [powers], shape, interval, hint)

    def _chosen(self, powers: Lowered, ones: Array, hint: str) -> Lowered:
        """The powers where `ones` is 1, 0 elsewhere."""
        interval = Interval(powers.interval.low * ones, powers.interval.high * ones)
        operands = [powers, self.low.constant(self.node, hint, ones, 0)]
        return interim(self.low, self.node, pb.Mul(), operands, ones.shape, interval, f"{hint}_powers", powers.scale)


def sum_of_powers(low: Lowering, node: Node, powers: Lowered, one: float) -> Lowered:
    """The sum of each row [1, rows, count]. The largest element's power, which is `one` or more, is among them."""
    count = powers.shape[-1]
    found = powers.interval
    ends = [end.sum(axis=-1, keepdims=True) for end in (found.low, found.high)]
    interval = of_sums(ends[0], ends[1], count, count * found.magnitude)
    return interim(
        low,
        node,
        pb.SumPool(window=Window((1, count)).proto()),
        [powers],
        (*powers.shape[:-1], 1),
        Interval(np.maximum(interval.low, math.floor(one)), interval.high),
        "total",
        powers.scale,
    )


def _lowest(low: Lowering, node: Node, x: Lowered, kept: Array) -> Lowered:
    """x, and the least that any element can be where it is masked: that changes no row's largest."""
    least = np.where(kept > 0, 0.0, np.broadcast_to(x.interval.low.min(), kept.shape))
    interval = Interval(x.interval.low * kept, x.interval.high * kept)
    held = interim(low, node, pb.Mul(), [x, low.constant(node, "mask", kept, 0)], x.shape, interval, "held")
    filled = Interval(interval.low + least, interval.high + least)
    return interim(low, node, pb.Add(), [held, low.constant(node, "least", least, x.scale)], x.shape, filled, "filled")


def _sunk(low: Lowering, node: Node, x: Lowered, kept: Lowered, reaches: int) -> Lowered:
    """x, less what takes it so many reaches of Exp below any other element where it does not count. Nothing is sent."""
    depth = float(x.interval.high.max() - x.interval.low.min()) + math.ldexp(reaches * REACH, x.scale)
    kept = low.shift_left(node, kept, max(kept.scale, x.scale), low.magnitude(node.inputs[1]), f"{node.output}.mask")
    if kept.scale > x.scale:
        kept = rounded(low, node, kept, x.scale, "mask")
    # In units of the operand: the product's scale is that of x.
    depth = math.ceil(math.ldexp(depth, -x.scale))
    times, whole = np.array(float(depth)), np.array(math.ldexp(depth, x.scale))
    raised = interim(
        low,
        node,
        pb.Mul(),
        [kept, low.constant(node, "depth", times, 0)],
        kept.shape,
        kept.interval.scaled(depth),
        "raised",
    )
    sunk = interim(
        low,
        node,
        pb.Sub(),
        [raised, low.constant(node, "sunk", whole, x.scale)],
        kept.shape,
        raised.interval - Interval.constant(whole),
        "sunk_mask",
    )
    return interim(low, node, pb.Add(), [x, sunk], x.shape, x.interval + sunk.interval, "sunk_elements")


@from_onnx("Softmax")
def _softmax(node: OnnxNode) -> None:
    _over_axis(node, Softmax())


@from_onnx("LogSoftmax")
def _log_softmax(node: OnnxNode) -> None:
    _over_axis(node, LogSoftmax())


def _over_axis(node: OnnxNode, op: Op) -> None:
    """Any axis but the batch, which then stands last; before opset 13, all dimensions from the axis on at once."""
    x = node.activation(0)
    axis = int(node.attribute("axis", -1 if node.opset >= 13 else 1))
    place = axis + x.rank if axis < 0 else axis
    if not 1 <= place < x.rank:
        raise node.unsupported(f"it runs over axis {axis} of {x}", "keep the batch out of it")
    name = node.outputs[0]
    if place == x.rank - 1 or (node.opset < 13 and all(size == 1 for size in x.shape[place - 1 : -1])):
        node.emit(op, [x])
    elif node.opset < 13:
        flat = node.emit(Reshape((*x.shape[: place - 1], math.prod(x.shape[place - 1 :]))), [x], output=f"{name}.flat")
        node.emit(Reshape(x.shape), [node.emit(op, [flat], output=f"{name}.of_flat")])
        node.note("over these dimensions as one")
    else:
        order = list(range(x.rank))
        order[place], order[-1] = order[-1], order[place]
        turned = node.emit(Transpose(tuple(order)), [x], output=f"{name}.turned")
        node.emit(Transpose(tuple(order)), [node.emit(op, [turned], output=f"{name}.of_turned")])
        node.note("over its axis, turned to the end")


@from_torch("aten.softmax.int", "aten._softmax.default")
def _softmax_aten(node: TorchNode) -> None:
    _aten(node, "Softmax")


@from_torch("aten.log_softmax.int", "aten._log_softmax.default")
def _log_softmax_aten(node: TorchNode) -> None:
    _aten(node, "LogSoftmax")


def _aten(node: TorchNode, operator: str) -> None:
    node.ignore("dtype", "half_to_float")
    x = node.activation("self" if "self" in node.arguments else "input")
    node.become(operator, x, axis=node.integers("dim")[0])
