"""Whole numbers that the network counts, as positions of tokens among those that are no padding, and where they lie.

They come from truth values and places (ArgMax, TopK) by sums and products with whole numbers, so they are exact. Their
range is known, so they may be indices (`covey.ops.selection`).
"""

from __future__ import annotations

import numpy as np

from covey.importers.torch_node import TorchNode, from_torch
from covey.interval import Array, Interval
from covey.ir import DType, Graph, Node, Op
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.arg_max import ArgMax
from covey.ops.average_pool import SumPool
from covey.ops.clip import Clip
from covey.ops.concat import Concat
from covey.ops.conv import Conv2d, ConvNd
from covey.ops.conv_of_secrets import ConvOfSecrets
from covey.ops.dense import Dense
from covey.ops.floor import Floor, WholePart
from covey.ops.gather import Gather
from covey.ops.leaky_relu import PRelu, TwoSlopes
from covey.ops.matmul import Matmul
from covey.ops.max_pool import MaxPool
from covey.ops.maximum import Extreme
from covey.ops.mul import Mul
from covey.ops.number import Number
from covey.ops.pad import Pad
from covey.ops.relu import Relu
from covey.ops.remainder import Remainder
from covey.ops.reshape import Reshape
from covey.ops.sub import Sub
from covey.ops.top_k import Best, Index
from covey.ops.transpose import Transpose
from covey.ops.where import Where
from covey.ops.whole_numbers import OneHot, Take, Truth
from covey.ops.within import Within

_RANGED = (
    Add | Concat | Dense | Extreme | Gather | Mul | Number | Relu | Reshape | Sub | SumPool | Transpose | Where | Within
)
"""What gives whole numbers of whole numbers, where they can lie included."""

_WHOLE = _RANGED | Best | Conv2d | ConvNd | ConvOfSecrets | Matmul | MaxPool | OneHot | PRelu | Take
"""What gives whole numbers of whole numbers."""


def counted(graph: Graph, name: str) -> Interval | None:
    """Where a value's numbers lie, if they are such whole numbers."""
    spans: dict[str, Interval | None] = {}
    waiting = [name]
    while waiting:
        node = graph.producer(waiting[-1])
        operands = _read_for_span(graph, node)
        unknown = [each for each in operands if each not in spans]
        waiting.extend(unknown)
        if not unknown:
            spans[waiting[-1]] = _span(graph, node, [spans[each] for each in operands])
            waiting.pop()
    return spans[name]


def _read_for_span(graph: Graph, node: Node | None) -> list[str]:
    """The operands whose numbers say where a node's lie."""
    if node is None or not _is_ranged(node.op) or _ends(node.op) is not None:
        return []
    if isinstance(node.op, Number) and graph.input_behind(node.inputs[0]) in graph.truths:
        return []
    return [each for each in node.inputs if each not in graph.parameters and not _is_truth(graph, each)]


def _span(graph: Graph, node: Node | None, operands: list[Interval | None]) -> Interval | None:
    if node is None:
        return None
    zeros = np.zeros((1, *graph.values[node.output].shape))
    if isinstance(node.op, ArgMax | Index):
        return Interval(zeros, zeros + _places(graph, node) - 1.0)
    if isinstance(node.op, Number) and graph.input_behind(node.inputs[0]) in graph.truths:
        return Interval(zeros, zeros + 1.0)
    if not _keeps_whole(node.op):
        return None
    ends = _ends(node.op)
    if ends is not None:
        return Interval(zeros + ends[0], zeros + ends[1]) if is_whole(graph, node.inputs[0]) else None
    if not _is_ranged(node.op):
        return None
    others = iter(operands)
    spans: list[Interval | None] = []
    for each in node.inputs:
        if _is_truth(graph, each):
            truths = np.zeros((1, *graph.values[each].shape))
            spans.append(Interval(truths, truths + 1.0))
        else:
            spans.append(_constant(graph.parameters[each]) if each in graph.parameters else next(others))
    known = [span for span in spans if span is not None]
    return node.op.interval(*known) if len(known) == len(spans) else None


def take_for_truths(graph: Graph, name: str) -> None:
    """Let inputs of whole numbers hold nothing but 0 and 1 where a value comes from them that only then is counted.

    Only inputs may that the model casts to truth values as well, as masks of tokens.
    """
    truths = {graph.input_behind(node.inputs[0]) for node in graph.nodes if isinstance(node.op, Truth)} - {None}
    behind = {name}
    for node in reversed(graph.nodes):
        if node.output in behind:
            behind.update(node.inputs)
    taken = (behind & truths) - graph.truths
    graph.truths |= taken
    if counted(graph, name) is None:
        graph.truths -= taken


def _is_truth(graph: Graph, name: str) -> bool:
    return graph.values[name].dtype is DType.BOOL


def is_whole(graph: Graph, name: str) -> bool:
    """Whether a value's numbers are whole, wherever they lie."""
    if name in graph.parameters:
        return _holds_whole(graph.parameters[name])
    if graph.values[name].dtype is not DType.FLOAT:
        return True
    _walk(graph)
    return graph.whole.get(name, False)


def _walk(graph: Graph) -> None:
    """Note of the nodes that are new which give whole numbers. Importers ask behind every node, and drop some again."""
    walked, nodes = graph.walked, graph.nodes
    del walked[len(nodes) :]
    while walked and walked[-1] is not nodes[len(walked) - 1]:
        walked.pop()
    for node in nodes[len(walked) :]:
        graph.whole[node.output] = _gives_whole(graph, node)
        walked.append(node)


def _is_ranged(op: Op) -> bool:
    """Whether where its operands lie says where its results do."""
    from covey.ops.selection import Selected  # which imports this module

    return isinstance(op, _RANGED | Clip | Selected)


def _gives_whole(graph: Graph, node: Node) -> bool:
    """Whether a node gives whole numbers, where those before it are known."""
    if graph.values[node.output].dtype is not DType.FLOAT or isinstance(node.op, Number | WholePart):
        return True
    if not _keeps_whole(node.op):
        return False
    operands = node.inputs[:1] if isinstance(node.op, Within) else node.inputs
    # Parameters may be large, so they come last.
    last = sorted(operands, key=lambda each: each in graph.parameters)
    return all(
        _holds_whole(graph.parameters[each])
        if each in graph.parameters
        else graph.values[each].dtype is not DType.FLOAT or graph.whole.get(each, False)
        for each in last
    )


def _keeps_whole(op: Op) -> bool:
    """Whether it gives whole numbers of whole numbers."""
    from covey.ops.selection import Selected  # which imports this module

    match op:
        case Clip():
            numbers = [op.low or 0.0, op.high or 0.0]
        case Floor() | Remainder():
            numbers = [op.divisor]
        case Affine():
            numbers = [op.factor, op.summand]
        case TwoSlopes():
            numbers = [op.below, op.above]
        case Pad():
            numbers = [op.value]
        case _:
            return isinstance(op, _WHOLE | Selected)
    return all(float(number).is_integer() for number in numbers)


def _ends(op: Op) -> tuple[float, float] | None:
    """Where an operator's whole results lie whatever it reads."""
    if isinstance(op, Clip):
        return None if op.low is None or op.high is None else (op.low, op.high)
    if isinstance(op, Remainder):
        return 0.0, op.divisor - 1.0
    return (float(op.limits.low), float(op.limits.high)) if isinstance(op, Within) else None


def _places(graph: Graph, node: Node) -> int:
    """How many elements an ArgMax or a TopK compares."""
    if isinstance(node.op, ArgMax):
        return graph.values[node.inputs[0]].shape[node.op.axis - 1]
    while not isinstance(node.op, Best):
        made = graph.producer(node.inputs[0])
        assert made is not None, "indices at the ordinary scale are those of a TopK"
        node = made
    return graph.values[node.inputs[0]].shape[-1]


def _constant(array: Array) -> Interval | None:
    return Interval.constant(array) if _holds_whole(array) else None


def _holds_whole(array: Array) -> bool:
    """Whether all numbers are whole; the first few show it of most that are not."""
    return all(bool((part == np.rint(part)).all()) for part in (array.ravel()[:64], array))


@from_torch("aten.cumsum.default")
def _cumulate_aten(node: TorchNode) -> None:
    node.ignore("dtype")
    x = node.numbers(node.activation("self"))
    axis = node.axis("dim", x.rank)
    if axis != x.rank - 1 or counted(node.scope.graph, x.name) is None:
        node.become("CumSum", x, np.array(axis))
        return
    # A table may be read by what this gives.
    size = x.shape[-1]
    node.become("MatMul", x, np.triu(np.ones((size, size))))
    node.note("a product with a triangular matrix of ones")
