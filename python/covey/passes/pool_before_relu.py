"""Moves maximum pooling before Relu and Clip: the same result, and k times fewer elements are compared with zero."""

from __future__ import annotations

from covey.ir import Graph, Node, Value
from covey.ops.clip import Clip
from covey.ops.max_pool import MaxPool
from covey.ops.relu import Relu
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose


def pool_before_relu(graph: Graph) -> None:
    """Swap every such pair in which nothing else reads the value between."""
    for pool in list(graph.nodes):
        if not isinstance(pool.op, MaxPool):
            continue
        _bring_near(graph, pool)
        relu = graph.producer(pool.inputs[0])
        if relu is None or not isinstance(relu.op, Relu | Clip) or graph.only_consumer(relu.output) is not pool:
            continue
        pooled = graph.add_value(
            Value(graph.fresh(f"{pool.output}.before_{relu.name}"), graph.values[pool.output].shape)
        )
        result = pool.output
        pool.inputs, pool.output = list(relu.inputs), pooled.name
        relu.inputs, relu.output = [pooled.name], result
        first, second = graph.nodes.index(relu), graph.nodes.index(pool)
        graph.nodes[first], graph.nodes[second] = graph.nodes[second], graph.nodes[first]
        graph.note(relu, f"moved behind {pool.name}: fewer comparisons, the same result")


def _bring_near(graph: Graph, pool: Node) -> None:
    """Move a Relu or Clip that stands before the moves a pool reads through behind them."""
    moves = []
    name = pool.inputs[0]
    while True:
        before = graph.producer(name)
        if before is None or len(graph.consumers(name)) != 1 or name in graph.outputs:
            return
        if isinstance(before.op, Relu | Clip):
            break
        if not isinstance(before.op, Reshape | Transpose):
            return
        moves.append(before)
        name = before.inputs[0]
    for move in reversed(moves):
        moved = graph.add_value(
            Value(graph.fresh(f"{move.output}.before_{before.name}"), graph.values[move.output].shape)
        )
        result = move.output
        move.inputs, move.output = list(before.inputs), moved.name
        before.inputs, before.output = [moved.name], result
        first, second = graph.nodes.index(before), graph.nodes.index(move)
        graph.nodes[first], graph.nodes[second] = graph.nodes[second], graph.nodes[first]
