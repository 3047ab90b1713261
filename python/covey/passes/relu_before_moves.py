"""Moves Relu before what only moves elements, so that it stands behind the linear layer and can join it."""

from __future__ import annotations

from covey.ir import Graph, Op, Value
from covey.ops.gather import Gather
from covey.ops.relu import Relu
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose

MOST_IN_VAIN = 1.25
"""How many more comparisons than results are worth a Relu that costs no step of its own."""


def relu_before_moves(graph: Graph) -> None:
    """Swap every such pair in which nothing else reads the value between."""
    for relu in [node for node in graph.nodes if isinstance(node.op, Relu)]:
        while True:
            move = graph.producer(relu.inputs[0])
            if move is None or not _keeps(move.op) or graph.only_consumer(move.output) is not relu:
                break
            source = graph.values[move.inputs[0]]
            if source.size > MOST_IN_VAIN * graph.values[move.output].size:
                break
            rectified = graph.add_value(Value(graph.fresh(f"{source.name}.{relu.name}"), source.shape))
            result = relu.output
            relu.inputs, relu.output = [source.name], rectified.name
            move.inputs, move.output = [rectified.name], result
            first, second = graph.nodes.index(move), graph.nodes.index(relu)
            graph.nodes.insert(first, graph.nodes.pop(second))


def _keeps(op: Op) -> bool:
    return isinstance(op, Reshape | Transpose | Gather)
