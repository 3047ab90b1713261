"""Says which products stay at twice the scale.

A product is truncated right behind the operation that makes it, so that linear layer, truncation and Relu stay side
by side for fusing. Two exceptions. Where an Add or Sub is the only reader and all its activations are such products,
the sum is truncated instead, once. Where a maximum pool is the only reader, what it keeps is truncated instead: the
floor of the largest is the largest of the floors, and there are fewer of them.
"""

from __future__ import annotations

from covey.ir import Graph
from covey.ops.add import Add
from covey.ops.max_pool import MaxPool
from covey.ops.sub import Sub


def place_truncations(graph: Graph) -> frozenset[str]:
    """The values to leave wide."""
    wide: set[str] = set()
    left: set[str] = set()
    for node in graph.nodes:
        if node.op.widens:
            wide.add(node.output)
        elif isinstance(node.op, Add | Sub):
            activations = [name for name in node.inputs if name not in graph.parameters]
            if all(name in wide and graph.only_consumer(name) is node for name in activations):
                left.update(activations)
                wide.add(node.output)
        elif isinstance(node.op, MaxPool):
            (source,) = node.inputs
            if source in wide and graph.only_consumer(source) is node:
                left.add(source)
                wide.add(node.output)
    return frozenset(left)
