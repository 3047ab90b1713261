"""Takes Softmax off the end of the network: the result's owner computes it in the clear.

Within a network, of two scores, it is a sigmoid of their difference, which costs less.
"""

from __future__ import annotations

import numpy as np

from covey.functions import SIGMOID
from covey.ir import Graph, Node, Op, Postprocess, Value
from covey.ops.arg_max import ArgMax
from covey.ops.concat import Concat
from covey.ops.gather import pick
from covey.ops.scalar import Scalar
from covey.ops.softmax import Softmax
from covey.ops.sub import Sub


def remove_trailing_softmax(graph: Graph) -> None:
    """Remove every Softmax that only outputs or an ArgMax along its axis read."""
    for node in list(graph.nodes):
        # The client does not know a mask, public or secret.
        if not isinstance(node.op, Softmax) or node.op.mask is not None or len(node.inputs) > 1:
            continue
        readers = graph.consumers(node.output)
        rank = graph.values[node.output].rank
        source = node.inputs[0]
        is_output = node.output in graph.outputs
        inside = node.output in graph.carried.values() or any(
            not isinstance(reader.op, ArgMax) or reader.op.axis != rank - 1 for reader in readers
        )
        if inside and graph.values[node.output].shape[-1:] == (2,) and not is_output:
            _by_sigmoid(graph, node)
        elif not inside and not (is_output and source in (*graph.outputs, *graph.inputs)):
            graph.redirect(node.output, source)
            graph.remove([node])
            if is_output:
                graph.postprocess[source] = Postprocess.SOFTMAX
                what = "" if node.source_op == "Softmax" else "its softmax is "
                graph.note_more(node, f"{what}left to the result's owner, in the clear")
            else:
                graph.note(node, "removed: it does not change the largest element")


def _by_sigmoid(graph: Graph, node: Node) -> None:
    """Write the Softmax of (x, y) as (1 - p, p) with p = 1 / (1 + exp(x - y))."""
    (source,), name = node.inputs, node.output
    shape = graph.values[source].shape
    rows = [range(size) for size in shape[:-1]]
    half = (*shape[:-1], 1)
    at = graph.nodes.index(node)
    made: list[Node] = []

    def step(op: Op, inputs: list[str], hint: str) -> str:
        value = graph.add_value(Value(graph.fresh(f"{name}.{hint}"), half))
        made.append(Node(node.name, node.source_op, op, inputs, value.name))
        return value.name

    x, y = (step(pick(shape, [*rows, [index]]), [source], hint) for index, hint in ((0, "x"), (1, "y")))
    second = step(Scalar(SIGMOID), [step(Sub(), [y, x], "gap")], "second")
    whole = graph.add_parameter(f"{name}.whole", np.ones(1)).name
    first = step(Sub(), [whole, second], "first")
    made.append(Node(node.name, node.source_op, Concat(len(shape)), [first, second], name))
    graph.nodes[at : at + 1] = made
    graph.note_more(node, "the sigmoid of the difference of its two scores")
