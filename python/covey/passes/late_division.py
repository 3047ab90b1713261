"""Divides by the sum of Softmax's powers behind the product with a matrix, where that has fewer elements.

Attention over 128 positions by heads of size 64 then divides half as many numbers.
"""

from __future__ import annotations

from covey.ir import Graph, Node, Value
from covey.ops.dense import Dense
from covey.ops.matmul import Matmul
from covey.ops.reshape import Reshape
from covey.ops.softmax import Softmax
from covey.ops.transpose import Transpose
from covey.ops.weighted_average import Average, Powers, RowSum


def divide_late(graph: Graph) -> None:
    """Rewrite every product of such weights, which nothing else reads, with a matrix."""
    for node in list(graph.nodes):
        if type(node.op) is Softmax:
            product = graph.only_consumer(node.output)
            if product is not None and _is_smaller(graph, node, product):
                _rewrite(graph, node, node.op, product)


def _is_smaller(graph: Graph, softmax: Node, product: Node) -> bool:
    weights, result = graph.values[softmax.output], graph.values[product.output]
    first = isinstance(product.op, Matmul) and product.inputs[0] == softmax.output != product.inputs[1]
    return first and result.size < weights.size


def _rewrite(graph: Graph, softmax: Node, op: Softmax, product: Node) -> None:
    shape = graph.values[softmax.output].shape
    powers, total = (
        graph.add_value(Value(graph.fresh(f"{softmax.output}.{hint}"), size)).name
        for hint, size in (("powers", shape), ("sums", (*shape[:-1], 1)))
    )
    at = graph.nodes.index(product)
    # Where the product is, its other operand has been computed, whose scale decides on that of the powers.
    graph.nodes[at : at + 1] = [
        Node(softmax.name, softmax.source_op, Powers(op.mask, op.even), softmax.inputs, powers),
        Node(softmax.name, softmax.source_op, RowSum(), [powers], total),
        Node(product.name, product.source_op, Average(), [powers, total, product.inputs[1]], product.output),
    ]
    graph.remove([softmax])
    layer = graph.producer(product.inputs[1])
    while layer is not None and isinstance(layer.op, Reshape | Transpose) and graph.only_consumer(layer.output):
        layer = graph.producer(layer.inputs[0])
    if layer is not None and isinstance(layer.op, Dense) and graph.only_consumer(layer.output):
        graph.narrow[layer.output] = product.output
    graph.note_more(softmax, f"divided by its sum in {product.name}")
