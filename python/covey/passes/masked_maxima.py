"""Maxima of elements of which a mask takes some out, by a constant below all that a ring holds, such as minus infinity.

Where such a constant is chosen and nothing but maxima reads it, any number below the others serves as well.
"""

from __future__ import annotations

from covey.ir import Graph
from covey.ops.arg_max import ArgMax
from covey.ops.gather import Gather
from covey.ops.max_pool import MaxPool
from covey.ops.maximum import BEYOND
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose
from covey.ops.where import Below, Where


def mask_maxima(graph: Graph) -> None:
    """Let each choice of such a constant choose a number below those that the other operand may be."""
    for node in graph.nodes:
        if type(node.op) is not Where or not _only_maxima(graph, node.output):
            continue
        for index, name in enumerate(node.inputs[1:]):
            constant = graph.parameters.get(name)
            if constant is not None and (constant <= -BEYOND).all():
                node.op = Below(index == 0)
                graph.note_more(node, "chooses a number below all others, as maxima alone read it")


def _only_maxima(graph: Graph, name: str) -> bool:
    """Whether nothing but maxima reads a value, whatever moves it."""
    if name in graph.outputs:
        return False
    for reader in graph.consumers(name):
        moves = isinstance(reader.op, Reshape | Transpose) or (
            isinstance(reader.op, Gather) and not reader.op.has_absent
        )
        if not (isinstance(reader.op, MaxPool | ArgMax) or (moves and _only_maxima(graph, reader.output))):
            return False
    return True
