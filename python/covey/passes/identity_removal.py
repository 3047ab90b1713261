"""Drops nodes that change nothing: a reshape to the same shape, a transposition that moves nothing."""

from __future__ import annotations

from covey.ir import Graph, Node
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose


def remove_identities(graph: Graph) -> None:
    """Let the readers of such a node read its operand."""
    for node in list(graph.nodes):
        # An output needs a node that computes it, and two outputs cannot be the same value.
        if node.output in graph.outputs and node.inputs[0] in (*graph.outputs, *graph.inputs):
            continue
        if _does_nothing(graph, node):
            graph.redirect(node.output, node.inputs[0])
            graph.remove([node])
            graph.note(node, "removed: it changes nothing")


def _does_nothing(graph: Graph, node: Node) -> bool:
    if isinstance(node.op, Reshape):
        return node.op.target == graph.values[node.inputs[0]].shape
    return isinstance(node.op, Transpose) and list(node.op.permutation) == sorted(node.op.permutation)
