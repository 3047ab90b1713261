"""Finds Softmax that a model has written out: exp of scores less the logarithm of the sum of their exponentials.

At the end of a network its owner computes it. Written out, it needs a table of Exp that holds every score.
"""

from __future__ import annotations

from covey.functions import EXP
from covey.ir import Graph, Node
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.softmax import LogSoftmax, Softmax
from covey.ops.sub import Sub


def find_softmax(graph: Graph) -> None:
    """Replace every such exponential of a row of scores."""
    for node in graph.nodes:
        if node.op != Scalar(EXP):
            continue
        gap = graph.producer(node.inputs[0])
        if gap is None or not isinstance(gap.op, Sub) or any(name in graph.parameters for name in gap.inputs):
            continue
        scores, total = gap.inputs
        if len(graph.values[scores].shape) == 1 and _sums_up(graph, total, scores):
            node.op, node.inputs = Softmax(), [scores]
            graph.note(node, "with what it reads the softmax of scores")


def _sums_up(graph: Graph, name: str, scores: str) -> bool:
    """Whether a value is the logarithm of the sum of all scores' exponentials: what one exceeds its LogSoftmax by."""
    last = _behind_shapes(graph, name)
    if last is None or last.source_op != "ReduceLogSumExp" or not isinstance(last.op, Sub):
        return False
    picked = graph.producer(last.inputs[1])
    logarithms = None if picked is None else graph.producer(picked.inputs[0])
    if logarithms is None or not isinstance(logarithms.op, LogSoftmax):
        return False
    rows = logarithms.inputs[0]
    source = _behind_shapes(graph, rows)
    return graph.values[rows].shape[-1] == graph.values[scores].size and (
        rows == scores or (source is graph.producer(scores) and source is not None)
    )


def _behind_shapes(graph: Graph, name: str) -> Node | None:
    """The node that computes a value's elements, whatever shape they then take."""
    node = graph.producer(name)
    while node is not None and isinstance(node.op, Reshape):
        node = graph.producer(node.inputs[0])
    return node
