"""Makes a product with a reciprocal or the inverse of a root one division, whose factor has the bits that it needs."""

from __future__ import annotations

from covey.functions import RECIPROCAL, RSQRT
from covey.ir import Graph
from covey.ops.mul import Mul
from covey.ops.quotient import Quotient
from covey.ops.scalar import Scalar


def make_quotients(graph: Graph) -> None:
    """Rewrite every product of two activations of which one is an inverse that nothing else reads."""
    for node in list(graph.nodes):
        if not isinstance(node.op, Scalar) or node.op.function not in (RECIPROCAL, RSQRT):
            continue
        product = graph.only_consumer(node.output)
        if product is None or not isinstance(product.op, Mul) or product.inputs.count(node.output) > 1:
            continue
        (dividend,) = (name for name in product.inputs if name != node.output)
        if dividend in graph.parameters:
            continue
        product.op = Quotient(1 if node.op.function == RECIPROCAL else 2)
        product.inputs = [dividend, node.inputs[0]]
        graph.remove([node])
