"""Takes Softmax off the end of the network: the result's owner computes it in the clear."""

from __future__ import annotations

from covey.errors import NodeError
from covey.ir import Graph, Postprocess
from covey.ops.arg_max import ArgMax
from covey.ops.softmax import Softmax, refusal


def remove_trailing_softmax(graph: Graph) -> list[NodeError]:
    """Remove every Softmax that only outputs or an ArgMax along its axis read; the errors of the others."""
    errors: list[NodeError] = []
    for node in list(graph.nodes):
        if not isinstance(node.op, Softmax):
            continue
        readers = graph.consumers(node.output)
        rank = graph.values[node.output].rank
        source = node.inputs[0]
        is_output = node.output in graph.outputs
        inside = any(not isinstance(reader.op, ArgMax) or reader.op.axis != rank - 1 for reader in readers)
        if inside or (is_output and source in (*graph.outputs, *graph.inputs)):
            errors.append(refusal(node))
        else:
            graph.redirect(node.output, source)
            graph.remove([node])
            if is_output:
                graph.postprocess[source] = Postprocess.SOFTMAX
                graph.note(node, "left to the result's owner, in the clear")
            else:
                graph.note(node, "removed: it does not change the largest element")
    return errors
