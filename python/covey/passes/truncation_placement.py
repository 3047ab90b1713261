"""Says which products stay at twice the scale.

A product is truncated right behind the operation that makes it, so that linear layer, truncation and Relu stay side
by side for fusing. Exceptions: where an Add or Sub is the only reader and all its activations are such products,
the sum is truncated instead, once. Where a maximum pool is the only reader, what it keeps is truncated instead: the
floor of the largest is the largest of the floors, and there are fewer of them. So it is behind a move that leaves out
a good part of the elements, and before an average pool over a power of two elements, whose own shift does both. The
gradient of a weight is left to the shift of the step that it is added by.

What is *not* moved, since it would cost more: a truncation in front of a Relu, or of an addition of another value and a
Relu, which protocols do with the product in one gate; and those in front of a Concat, for the same reason.
"""

from __future__ import annotations

from covey.ir import Graph, Node, Value
from covey.ops.add import Add
from covey.ops.average_pool import AveragePool
from covey.ops.gather import Gather
from covey.ops.max_pool import MaxPool
from covey.ops.reshape import Reshape
from covey.ops.sub import Sub
from covey.ops.transpose import Transpose

WORTH_APART = 0.75
"""A product and its truncation are one gate; apart they cost less if no more than this part of the elements is left."""


def place_truncations(graph: Graph, *, averages: bool = True) -> frozenset[str]:
    """The values to leave wide; those that average pools read, whose sums need more room, only with `averages`."""
    wide: set[str] = set()
    left: set[str] = set()
    for node in graph.nodes:
        if node.op.reads_wide:
            for name in node.inputs:
                left.update(_moved(graph, wide, node, name))
        if node.op.widens:
            wide.add(node.output)
        elif isinstance(node.op, Add | Sub):
            # What is finer than others is shifted left to a product's scale, as parameters are encoded at it.
            activations = [name for name in node.inputs if name not in graph.parameters and name not in graph.finer]
            if (
                activations
                and node.output not in graph.finer
                and all(name in wide and graph.only_consumer(name) is node for name in activations)
            ):
                left.update(activations)
                wide.add(node.output)
        elif isinstance(node.op, MaxPool):
            (source,) = node.inputs
            if source in wide and graph.only_consumer(source) is node:
                left.add(source)
                wide.add(node.output)
        elif isinstance(node.op, Gather):
            (source,) = node.inputs
            kept = graph.values[node.output].size / graph.values[source].size
            if source in wide and graph.only_consumer(source) is node and kept <= WORTH_APART:
                left.add(source)
                wide.add(node.output)
        elif isinstance(node.op, AveragePool) and averages:
            (source,) = node.inputs
            if source in wide and graph.only_consumer(source) is node and _is_shift(node.op, graph.values[source]):
                left.add(source)
    return frozenset(left)


def _moved(graph: Graph, wide: set[str], reader: Node, name: str) -> list[str]:
    """A product, and the moves between it and its only reader."""
    names: list[str] = []
    while graph.only_consumer(name) is reader and (node := graph.producer(name)) is not None:
        names.append(name)
        if name in wide:
            return names
        if not isinstance(node.op, Reshape | Transpose):
            break
        reader, name = node, node.inputs[0]
    return []


def _is_shift(pool: AveragePool, x: Value) -> bool:
    """Whether every window counts the same power of two, so that the mean is a shift of the sum."""
    counts = pool.window.counts(x.shape[-2], x.shape[-1], pool.counted)
    count = int(counts.max())
    return int(counts.min()) == count and count & (count - 1) == 0
