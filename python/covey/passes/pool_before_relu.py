"""Moves maximum pooling before Relu and Clip: the same result, and k times fewer elements are compared with zero."""

from __future__ import annotations

from covey.ir import Graph, Value
from covey.ops.clip import Clip
from covey.ops.max_pool import MaxPool
from covey.ops.relu import Relu


def pool_before_relu(graph: Graph) -> None:
    """Swap every such pair in which nothing else reads the value between."""
    for pool in list(graph.nodes):
        if not isinstance(pool.op, MaxPool):
            continue
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
