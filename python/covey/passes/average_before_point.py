"""Moves an average pool before a convolution of single elements: the same result, and fewer products by the window.

Both are linear, and a mean over a window of what a matrix makes of each element is what it makes of the mean. The next
layer of DenseNet's transitions is such a pair.
"""

from __future__ import annotations

from covey.ir import Graph, Node, Value
from covey.ops.average_pool import AveragePool
from covey.ops.conv import Conv2d
from covey.ops.window import Window

AVERAGES_A_PRODUCT = 0.5
"""How many more divisions are worth one product less, each with the opening of its result."""


def average_before_point(graph: Graph) -> None:
    """Swap every such pair in which nothing else reads the value between."""
    for pool in list(graph.nodes):
        # Padding would count zeros where the convolution has put its bias.
        if not isinstance(pool.op, AveragePool) or any(pool.op.window.pads):
            continue
        point = graph.producer(pool.inputs[0])
        if point is None or not _is_point(point) or graph.only_consumer(point.output) is not pool:
            continue
        source, before, after = (graph.values[name] for name in (point.inputs[0], point.output, pool.output))
        means = source.size * after.size // before.size
        if means > AVERAGES_A_PRODUCT * before.size:
            continue
        _swap(graph, point, pool, source)
        graph.note(pool, f"moved before {point.name}: fewer products, the same result")


def _is_point(node: Node) -> bool:
    return isinstance(node.op, Conv2d) and node.op.window == Window((1, 1))


def _swap(graph: Graph, point: Node, pool: Node, source: Value) -> None:
    shape = pool.op.shape(source)
    mean = graph.add_value(Value(graph.fresh(f"{pool.output}.before_{point.name}"), shape))
    result = pool.output
    pool.inputs, pool.output = [source.name], mean.name
    point.inputs[0], point.output = mean.name, result
    first, second = graph.nodes.index(point), graph.nodes.index(pool)
    graph.nodes.insert(first, graph.nodes.pop(second))
