"""Runs a compiled program on integers, to check what the compiler emitted.

The specification of a program is the Rust `clear` protocol; this stands in for it where only the front end is built. It
computes in float64 up to 32 bits of the ring, which is exact, and in int64 beyond. Every value is checked against its
bound.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from covey import whole
from covey._proto import program_pb2 as pb
from covey.compiled import Compiled
from covey.integer_table import IntegerTable
from covey.ops import bits
from covey.ops.add import Add
from covey.ops.arg_max import ArgMax
from covey.ops.clip import Clip
from covey.ops.comparison import Less
from covey.ops.concat import Concat
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.gather import Gather
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.pad import Pad
from covey.ops.relu import Relu
from covey.ops.sub import Sub
from covey.ops.transpose import Transpose
from covey.ops.window import Window


def program_of(compiled: Compiled) -> pb.Program:
    """The program in a container."""
    return pb.Program.FromString(compiled.program_bytes[40:])


def run(compiled: Compiled, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs as real numbers. Fails when a value passes its bound."""
    program = program_of(compiled)
    kind = np.float64 if program.ring.pow2 <= 32 else np.int64
    values: dict[int, np.ndarray] = {}
    for index, value in enumerate(program.values):
        if value.kind == pb.Value.PARAMETER:
            values[index] = compiled.weights[value.name].astype(kind)
            assert values[index].shape == tuple(value.shape)
        elif value.kind == pb.Value.CONSTANT:
            values[index] = np.array(value.constant, dtype=kind).reshape(value.shape)
        elif value.kind == pb.Value.INPUT:
            data = inputs[value.name]
            if value.HasField("whole"):
                data = whole.encode(data, list(value.whole.classes))
                assert data.shape[1:] == tuple(value.shape)
            assert data.min() >= value.range.low
            assert data.max() <= value.range.high
            values[index] = np.rint(data * 2.0**value.scale).astype(kind)
    for node in program.nodes:
        (output,) = node.outputs
        result = np.asarray(
            _step(node, [values[i] for i in node.inputs], program.values[output], program.ring.pow2 - 2)
        )
        assert (result == np.rint(result)).all()
        values[output] = result.astype(kind)
    for index, value in enumerate(program.values):
        assert np.abs(values[index]).max(initial=0) < 2.0**value.bound.bits, value.name
        assert value.bound.bits <= program.ring.pow2 - 2, value.name
    return [values[i] * 2.0 ** -program.values[i].scale for i in program.outputs]


def _window(window: pb.Window) -> Window:
    return Window(tuple(window.kernel), tuple(window.strides), tuple(window.pads), tuple(window.dilations))


def _step(node: pb.Node, operands: list[np.ndarray], output: pb.Value, most: int) -> np.ndarray:
    kind = node.WhichOneof("op")
    op = getattr(node, kind)
    if kind == "conv2d":
        return Conv2d(_window(op.window), op.groups).reference(*operands)
    whole_numbers = operands[0].dtype == np.int64
    if kind == "truncate":
        return operands[0] >> op.bits if whole_numbers else np.floor(operands[0] / 2.0**op.bits)
    if kind == "mul_shift":
        plane = np.array(op.multipliers, dtype=operands[0].dtype)
        plane = plane.reshape(operands[0].shape[-2:]) if plane.size > 1 else plane
        products = operands[0] * plane
        return products >> op.shift if whole_numbers else np.floor(products / 2.0**op.shift)
    if kind == "div_exact":
        return operands[0] // op.divisor
    if kind == "shift_left":
        return operands[0] << op.bits if whole_numbers else operands[0] * 2.0**op.bits
    if kind == "sum_pool":
        return _window(op.window).slide(operands[0], 0).sum(axis=(-2, -1))
    if kind == "max_pool":
        return _window(op.window).slide(operands[0], operands[0].min(initial=0)).max(axis=(-2, -1))
    if kind == "reshape":
        return operands[0].reshape(len(operands[0]), *output.shape)
    if kind == "table":
        table = IntegerTable.of(op)
        assert (operands[0] >= table.low).all() and (operands[0] < table.end).all(), node.name
        assert table.bound <= most and table.index_bits + table.step <= most, node.name
        return table(operands[0].astype(np.int64)).astype(np.float64)
    if kind == "less_than_zero":
        return Less().reference(operands[0], np.zeros(()))
    if kind == "gather":
        ends = np.cumsum([0, *op.sizes])
        offsets = [offset - 1 for offset in op.offsets]
        return Gather(tuple(tuple(offsets[a:b]) for a, b in pairwise(ends))).reference(*operands)
    simple = {
        "dense": lambda: Dense(),
        "add": lambda: Add(),
        "sub": lambda: Sub(),
        "mul": lambda: Mul(),
        "relu": lambda: Relu(),
        "matmul": lambda: Matmul(),
        "clip": lambda: Clip(op.low if op.HasField("low") else None, op.high if op.HasField("high") else None),
        "transpose": lambda: Transpose(tuple(op.permutation)),
        "concat": lambda: Concat(op.axis),
        "pad": lambda: Pad(tuple(op.before), tuple(op.after), float(op.value)),
        "is_negative": lambda: bits.IsNegative(),
        "and": lambda: bits.And(),
        "or": lambda: bits.Or(),
        "not": lambda: bits.Not(),
        "bit_to_integer": lambda: bits.BitToInteger(),
        "select": lambda: bits.Select(),
        "arg_max": lambda: ArgMax(op.axis, op.keep_dims, op.select_last),
    }
    return simple[kind]().reference(*operands)
