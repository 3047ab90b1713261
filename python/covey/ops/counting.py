"""Whole numbers that the network counts, as positions of tokens among those that are no padding, and tables by them.

They come from truth values by sums and products with whole numbers, so they are exact, and their range is known. A
table is read at one by comparing it with every number of that range: the row of its place is then one-hot.
"""

from __future__ import annotations

import numpy as np

from covey.importers.onnx_node import OnnxNode
from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import DType, Graph, Value
from covey.ops.add import Add
from covey.ops.average_pool import SumPool
from covey.ops.comparison import Less
from covey.ops.dense import Dense
from covey.ops.gather import ABSENT, Gather, pick
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.sub import Sub
from covey.ops.transpose import Transpose
from covey.ops.whole_numbers import BY_FREQUENCY, PADDING, Lookup, Number

MOST_NUMBERS = 4096
"""A number is compared with no more than so many."""


def counted(graph: Graph, name: str) -> Interval | None:
    """Where a value's numbers lie, if they are such whole numbers."""
    node = graph.producer(name)
    if node is None:
        return None
    if isinstance(node.op, Number) and graph.values[node.inputs[0]].dtype is DType.BOOL:
        zeros = np.zeros((1, *graph.values[name].shape))
        return Interval(zeros, zeros + 1.0)
    if not isinstance(node.op, Add | Dense | Gather | Mul | Reshape | Sub | SumPool | Transpose):
        return None
    spans = [
        _constant(graph.parameters[each]) if each in graph.parameters else counted(graph, each) for each in node.inputs
    ]
    known = [span for span in spans if span is not None]
    return node.op.interval(*known) if len(known) == len(spans) else None


def _constant(array: Array) -> Interval | None:
    return Interval.constant(array) if (array == np.rint(array)).all() else None


def look_up_counted(node: OnnxNode, numbers: Value, table: Array, span: Interval) -> None:
    """Rows of a table [K, M] at numbers that the network has counted."""
    if int(node.attribute("axis", 0)) != 0 or table.ndim != 2:
        raise node.unsupported("it takes no rows of a table [K, M]", "gather along axis 0 of such a table")
    low, high = int(span.low.min()), int(span.high.max())
    if low < 0 or high >= len(table) or high - low >= MOST_NUMBERS:
        reason = f"its indices '{numbers.name}' are from {low} to {high}, where its table has {len(table)} rows"
        raise node.unsupported(reason, "give the positions as an input of type int64, or a larger table")
    name, count = node.outputs[0], high - low + 1
    column = node.emit(Reshape((*numbers.shape, 1)), [numbers], output=f"{name}.column")
    ends = node.parameter(np.array([number + 0.5 for number in range(low, high + 1)]), f"{name}.ends")
    up_to = node.emit(Less(), [column, ends], output=f"{name}.up_to", dtype=DType.BOOL)
    along = [*(range(size) for size in numbers.shape), [ABSENT, *range(count - 1)]]
    before = node.emit(pick(up_to.shape, along), [up_to], output=f"{name}.before", dtype=DType.BOOL)
    one_hot = node.emit(Sub(), [up_to, before], output=f"{name}.one_hot", dtype=DType.BOOL)
    lookup = Lookup(int(node.attribute(PADDING, -1)) - low, bool(node.attribute(BY_FREQUENCY, 0)))
    node.emit(lookup, [one_hot, node.parameter(table[low : high + 1], f"{node.inputs[0]}.counted")])
    node.note("a comparison with every number there may be, and one-hot rows times the table")


@from_torch("aten.cumsum.default")
def _cumulate_aten(node: TorchNode) -> None:
    node.ignore("dtype")
    x = node.activation("self")
    if x.dtype is DType.BOOL:
        x = node.apply("Cast", x, to=1, suffix="numbers")
    axis = node.axis("dim", x.rank)
    if axis != x.rank - 1 or counted(node.scope.graph, x.name) is None:
        node.become("CumSum", x, np.array(axis))
        return
    # A table may be read by what this gives.
    size = x.shape[-1]
    node.become("MatMul", x, np.triu(np.ones((size, size))))
    node.note("a product with a triangular matrix of ones")
