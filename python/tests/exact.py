"""Runs a compiled program on Python's integers: what it means, in any ring, whatever the bounds.

Independent of the Rust specification, which the bounds campaign compares with it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from covey._proto import program_pb2 as pb
from covey.compiled import Compiled
from covey.ops.conv import Conv2d
from covey.ops.gather import Gather
from covey.ops.window import Window
from interpreter import program_of

Integers = np.ndarray
"""Of dtype object: each element is a Python integer."""


def whole(array: Any) -> Integers:
    """The same whole numbers as Python's."""
    given = np.asarray(array)
    return np.array([int(value) for value in given.ravel()], dtype=object).reshape(given.shape)


def run(compiled: Compiled, inputs: dict[str, np.ndarray]) -> dict[int, Integers]:
    """Every value of the program by its number."""
    program = program_of(compiled)
    values: dict[int, Integers] = {}
    for index, value in enumerate(program.values):
        if value.kind == pb.Value.PARAMETER:
            values[index] = whole(compiled.weights[value.name])
        elif value.kind == pb.Value.CONSTANT:
            values[index] = whole(value.constant).reshape(tuple(value.shape))
        elif value.kind == pb.Value.INPUT:
            values[index] = whole(np.rint(np.ldexp(inputs[value.name], value.scale)))
    for node in program.nodes:
        (output,) = node.outputs
        values[output] = np.asarray(_step(node, [values[i] for i in node.inputs], program.values[output]), dtype=object)
    return values


def _window(window: pb.Window) -> Window:
    return Window(tuple(window.kernel), tuple(window.strides), tuple(window.pads), tuple(window.dilations))


def _slide(window: Window, x: Integers, fill: int) -> Integers:
    """What NumPy pads with are its own integers, which overflow."""
    return whole(window.slide(x, fill))


def _step(node: pb.Node, operands: list[Integers], output: pb.Value) -> Integers:
    kind = node.WhichOneof("op")
    op, x = getattr(node, kind), operands[0]
    if kind == "conv2d":
        return _conv(Conv2d(_window(op.window), op.groups), *operands)
    if kind in ("dense", "matmul"):
        product = np.matmul(x, operands[1])
        return product + operands[2] if len(operands) > 2 else product
    if kind == "add":
        return x + operands[1]
    if kind == "sub":
        return x - operands[1]
    if kind == "mul":
        return x * operands[1]
    if kind == "truncate":
        return x >> op.bits
    if kind == "shift_left":
        return x << op.bits
    if kind == "mul_shift":
        plane = whole(op.multipliers)
        return x * (plane.reshape(x.shape[-2:]) if plane.size > 1 else plane) >> op.shift
    if kind == "div_exact":
        return x // op.divisor
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "clip":
        x = np.maximum(x, op.low) if op.HasField("low") else x
        return np.minimum(x, op.high) if op.HasField("high") else x
    if kind == "sum_pool":
        return _slide(_window(op.window), x, 0).sum(axis=(-2, -1))
    if kind == "max_pool":
        return _slide(_window(op.window), x, -(1 << 62)).max(axis=(-2, -1))
    if kind == "reshape":
        return x.reshape(len(x), *output.shape)
    if kind == "transpose":
        return x.transpose(tuple(op.permutation))
    if kind == "concat":
        return np.concatenate(operands, axis=op.axis)
    if kind == "pad":
        return whole(np.pad(x, list(zip(op.before, op.after, strict=True)), constant_values=op.value))
    if kind == "less_than_zero":
        return whole(x < 0)
    if kind == "table":
        return _table(x, op)
    if kind == "arg_max":
        return _arg_max(x, op)
    assert kind == "gather", kind
    ends = np.cumsum([0, *op.sizes])
    positions = Gather(tuple(tuple(o - 1 for o in op.offsets[a:b]) for a, b in pairwise(ends))).positions
    return np.where(positions < 0, 0, x.reshape(len(x), -1)[:, positions.clip(min=0)])


def _conv(op: Conv2d, x: Integers, weight: Integers, bias: Integers | None = None) -> Integers:
    images = x.reshape(-1, *x.shape[-3:])
    views = _slide(op.window, images, 0)
    count, _, rows, columns, *_ = views.shape
    patches = views.transpose(0, 1, 4, 5, 2, 3).reshape(count, op.groups, -1, rows * columns)
    flat = weight.reshape(op.groups, weight.shape[0] // op.groups, -1)
    result = np.matmul(flat, patches).reshape(count, weight.shape[0], rows, columns)
    result = result if bias is None else result + bias[:, None, None]
    return result.reshape(*x.shape[:-3], *result.shape[1:])


def _table(x: Integers, op: pb.Table) -> Integers:
    slopes = list(op.slopes) or [0] * len(op.values)
    segments, rests = (x - op.low) >> op.step, (x - op.low) & ((1 << op.step) - 1)
    assert (segments >= 0).all() and (segments < len(op.values)).all()
    pairs = zip(segments.ravel().tolist(), rests.ravel().tolist(), strict=True)
    return whole([(op.values[i] + slopes[i] * r) >> op.shift for i, r in pairs]).reshape(x.shape)


def _arg_max(x: Integers, op: pb.ArgMax) -> Integers:
    moved = np.moveaxis(x, op.axis, -1)
    rows = moved.reshape(-1, moved.shape[-1]).tolist()
    last = moved.shape[-1] - 1
    found = [last - row[::-1].index(max(row)) if op.select_last else row.index(max(row)) for row in rows]
    result = whole(found).reshape(moved.shape[:-1])
    return np.expand_dims(result, op.axis) if op.keep_dims else result
