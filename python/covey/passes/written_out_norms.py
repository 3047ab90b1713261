"""Finds normalisations that a model has written out: (x - mean) / sqrt(mean of squares + epsilon), over the last axis.

As they stand they would take a root and its reciprocal apart, and squares at the ordinary scale.
"""

from __future__ import annotations

from covey.functions import RECIPROCAL, RSQRT, SQRT
from covey.ir import Graph, Node, Value
from covey.ops.add import Add
from covey.ops.average_pool import AveragePool
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.standardising import Deviation, SquareSum, Standardised
from covey.ops.sub import Sub


def find_norms(graph: Graph) -> None:
    """Replace every such division."""
    for node in list(graph.nodes):
        if not isinstance(node.op, Scalar) or node.op.function not in (SQRT, RSQRT):
            continue
        found = _mean_square(graph, node.inputs[0])
        if found is None:
            continue
        deviation, epsilon = found
        for product in _products(graph, node):
            if deviation in product.inputs:
                _replace(graph, product, node, deviation, epsilon)


def _products(graph: Graph, root: Node) -> list[Node]:
    """What multiplies by the inverse of a root that `root` computes."""
    inverses = [root]
    if root.op == Scalar(SQRT):
        inverses = [reader for reader in graph.consumers(root.output) if reader.op == Scalar(RECIPROCAL)]
    return [
        product
        for inverse in inverses
        for product in graph.consumers(inverse.output)
        if isinstance(product.op, Mul) and product.inputs.count(inverse.output) == 1
    ]


def _mean_square(graph: Graph, name: str) -> tuple[str, float] | None:
    """What the mean of the squares of is taken over the last axis, and the number added to it."""
    node, epsilon = graph.producer(name), 0.0
    if node is not None and isinstance(node.op, Add):
        constants = [each for each in node.inputs if each in graph.parameters]
        if len(constants) != 1:
            return None
        array = graph.parameters[constants[0]]
        if not (array == array.flat[0]).all() or array.flat[0] < 0:
            return None
        epsilon = float(array.flat[0])
        (name,) = (each for each in node.inputs if each not in graph.parameters)
    squares = _pooled(graph, name)
    node = graph.producer(squares) if squares is not None else None
    if node is None or not isinstance(node.op, Mul) or node.inputs[0] != node.inputs[1]:
        return None
    return node.inputs[0], epsilon


def _pooled(graph: Graph, name: str) -> str | None:
    """The value whose mean over the last axis this is, which stays with size 1."""
    last = graph.producer(name)
    pool = graph.producer(last.inputs[0]) if last is not None and isinstance(last.op, Reshape) else None
    first = graph.producer(pool.inputs[0]) if pool is not None and isinstance(pool.op, AveragePool) else None
    if first is None or not isinstance(first.op, Reshape):
        return None
    x = graph.values[first.inputs[0]]
    rows = (1, x.size // x.shape[-1], x.shape[-1]) if x.shape else ()
    kept = graph.values[name].shape == (*x.shape[:-1], 1)
    return x.name if first.op.target == rows and kept else None


def _replace(graph: Graph, product: Node, root: Node, deviation: str, epsilon: float) -> None:
    at = graph.nodes.index(product)
    value = graph.values[deviation]
    count = value.shape[-1]
    made: list[Node] = []

    def step(op: Deviation | SquareSum, inputs: list[str], shape: tuple[int, ...], hint: str) -> str:
        name = graph.add_value(Value(graph.fresh(f"{product.output}.{hint}"), shape)).name
        made.append(Node(product.name, product.source_op, op, inputs, name))
        return name

    x = deviation
    node = graph.producer(deviation)
    if node is not None and isinstance(node.op, Sub) and _pooled(graph, node.inputs[1]) == node.inputs[0]:
        # An exact mean, so that rows of equal elements are 0.
        x = step(Deviation(), [node.inputs[0]], value.shape, "deviation")
    squares = step(SquareSum(count * epsilon), [x], (*value.shape[:-1], 1), "squares")
    made.append(Node(product.name, product.source_op, Standardised(over=float(count)), [x, squares], product.output))
    graph.nodes[at : at + 1] = made
    graph.note(product, "a mean, a sum of squares and a product")
    graph.note(root, f"part of {product.name}")
