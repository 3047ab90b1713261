"""Joining activations along a dimension other than the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from covey._proto import program_pb2 as pb
from covey.importers.onnx_node import OnnxNode, from_onnx, of_one_sample
from covey.importers.torch_node import Constant, TorchNode, from_torch
from covey.interval import Array
from covey.ir import DType, Node, Op, Shape, Value, types
from covey.lowering import Lowered, Lowering
from covey.ops.add import Add
from covey.ops.comparison import Not
from covey.ops.gather import ABSENT, data_axis, emit_pick, flat
from covey.ops.reshape import Reshape

if TYPE_CHECKING:
    from covey.training.builder import Builder


@dataclass(frozen=True)
class Concat(Op):
    """`axis` is over all dimensions, the batch included; never the batch itself."""

    axis: int

    def shape(self, *inputs: Value) -> Shape:
        first = inputs[0].shape
        at = self.axis - 1
        if not 0 <= at < len(first):
            raise ValueError(f"axis {self.axis} of {inputs[0]} is the batch or does not exist")
        for other in inputs[1:]:
            if other.shape[:at] != first[:at] or other.shape[at + 1 :] != first[at + 1 :]:
                raise ValueError(f"{types(inputs)} do not join along axis {self.axis}")
        return (*first[:at], sum(value.shape[at] for value in inputs), *first[at + 1 :])

    def reference(self, *inputs: Array) -> Array:
        return np.concatenate(inputs, axis=self.axis)

    def stacked(self, build: Builder, *inputs: Value) -> Value:
        return build.emit(Concat(self.axis + 1), *inputs)

    def gradient(
        self, build: Builder, inputs: Sequence[Value], result: Value, gradient: Value
    ) -> Sequence[Value | None]:
        parts: list[Value | None] = []
        start = 0
        for x in inputs:
            places = range(start, start := start + x.shape[self.axis - 1])
            parts.append(build.part(x, partial(build.pick_along, gradient, self.axis - 1, places)))
        return parts

    def lower(self, low: Lowering, node: Node) -> Lowered:
        operands = low.operands_at_one_scale(node)
        return low.emit(
            node,
            pb.Concat(axis=self.axis),
            operands,
            shape=low.graph.values[node.output].shape,
            scale=operands[0].scale,
            interval=self.interval(*(operand.interval for operand in operands)),
        )


@from_onnx("Concat")
def _concat(node: OnnxNode) -> None:
    constant = [node.is_constant(index) for index in range(len(node.inputs))]
    truth = all(_is_truth(node, index) for index in range(len(constant)))
    take = node.boolean if truth else node.activation
    values = [take(index, f"operand {index}") for index, known in enumerate(constant) if not known]
    axis = int(node.attribute("axis", 1))
    axis = axis + values[0].rank if axis < 0 else axis
    if any(constant):
        _with_constants(node, values, constant, axis)
    elif len(values) == 1:
        node.alias(values[0])
        node.note("removed: it joins one operand")
    else:
        node.emit(Concat(axis), values, dtype=values[0].dtype)


def _is_truth(node: OnnxNode, index: int) -> bool:
    if node.is_constant(index):
        return node.constant(index, "operand").dtype == np.bool_
    value = node.scope.activation(node.inputs[index])
    return value is not None and value.dtype is DType.BOOL


def _with_constants(node: OnnxNode, values: list[Value], constant: list[bool], axis: int) -> None:
    """Zeros in the place of the constants, and their sum with those: nothing is exchanged."""
    place = data_axis(node, values[0], axis)
    name = node.outputs[0]
    x = (
        values[0]
        if len(values) == 1
        else node.emit(Concat(axis), values, output=f"{name}.activations", dtype=values[0].dtype)
    )
    truth = x.dtype is DType.BOOL
    activations = iter(values)
    taken = 0
    along: list[int] = []
    parts = []
    for index, known in enumerate(constant):
        if known:
            what = f"operand {index}"
            array = of_one_sample(node.constant(index, what) if truth else node.weights(index, what), x.rank)
            if array.ndim != len(x.shape) or array.shape[:place] + array.shape[place + 1 :] != _beside(x, place):
                raise node.unsupported(
                    f"its constant {what} of shape {list(array.shape)} does not join {x} along axis {axis}, or differs "
                    f"between samples",
                    "give it the shape of the other operands, the same for every sample",
                )
            along += [ABSENT] * array.shape[place]
            parts.append(array)
        else:
            size = next(activations).shape[place]
            along += range(taken, taken + size)
            taken += size
            parts.append(np.zeros((*x.shape[:place], size, *x.shape[place + 1 :])))
    if truth:
        _with_ones(node, x, place, along, np.concatenate(parts, axis=place))
        return
    indices: list[Sequence[int]] = [range(size) for size in x.shape]
    indices[place] = along
    spread = emit_pick(node, x, indices, output=f"{name}.spread")
    node.emit(Add(), [spread, node.parameter(np.concatenate(parts, axis=place), f"{name}.constant")])
    node.note("the activations with zeros between them, plus the constants")


def _with_ones(node: OnnxNode, x: Value, place: int, along: Sequence[int], ones: Array) -> None:
    """Truth values of x, and of constants that are true in the place of `ones`: those are opposites of zeros."""
    name = node.outputs[0]
    indices: list[Sequence[int]] = [range(size) for size in x.shape]
    indices[place] = [ABSENT]
    zeros = emit_pick(node, x, indices, output=f"{name}.zeros")
    opposites = node.emit(Not(), [zeros], output=f"{name}.ones", dtype=DType.BOOL)
    both = node.emit(Concat(place + 1), [x, opposites], output=f"{name}.with_ones", dtype=DType.BOOL)
    positions = np.arange(both.size).reshape(both.shape)
    absent = np.expand_dims(np.array(along) == ABSENT, [axis for axis in range(len(x.shape)) if axis != place])
    taken = np.where(absent, ABSENT, positions.take(np.maximum(along, 0), axis=place))
    found = np.where(ones > 0, positions.take([-1], axis=place), taken)
    picked = node.emit(flat(found), [both], output=f"{name}.picked", dtype=DType.BOOL)
    node.emit(Reshape(found.shape), [picked], dtype=DType.BOOL)
    node.note("the activations with constants between them")


def _beside(x: Value, place: int) -> Shape:
    return (*x.shape[:place], *x.shape[place + 1 :])


@from_torch("aten.cat.default")
def _concat_aten(node: TorchNode) -> None:
    # Keys and values before any token is, and parts that were cut to nothing.
    tensors = [part for part in node.argument("tensors") if not (isinstance(part, Constant) and part.array.size == 0)]
    node.become("Concat", *_alike(node, tensors), axis=node.integers("dim")[0])


@from_torch("aten.stack.default")
def _stack_aten(node: TorchNode) -> None:
    axis = node.integers("dim")[0]
    parts = [node.apply("Unsqueeze", part, np.array([axis])) for part in _alike(node, node.argument("tensors"))]
    node.become("Concat", *parts, axis=axis)


def _alike(node: TorchNode, tensors: Sequence[Value | Constant]) -> list[Value | Constant]:
    """What is joined, where truth values beside numbers are numbers."""

    def is_truth(part: Value | Constant) -> bool:
        return part.dtype is DType.BOOL if isinstance(part, Value) else part.array.dtype == np.bool_

    def number(part: Value | Constant) -> Value | Constant:
        return node.numbers(part) if isinstance(part, Value) else replace(part, array=part.array.astype(np.float64))

    if all(map(is_truth, tensors)):
        return list(tensors)
    return [number(part) if is_truth(part) else part for part in tensors]
