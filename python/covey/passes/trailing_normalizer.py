"""Takes Normalizer off the end of a model: the result's owner divides by the norm."""

from __future__ import annotations

from covey.errors import NodeError
from covey.ir import Graph
from covey.ops.arg_max import ArgMax
from covey.ops.normalizer import Normalizer, refusal


def remove_trailing_normalizers(graph: Graph) -> list[NodeError]:
    """Remove every Normalizer that only outputs and ArgMax read; the errors of the others."""
    errors: list[NodeError] = []
    for node in list(graph.nodes):
        if not isinstance(node.op, Normalizer):
            continue
        (source,) = node.inputs
        inside = node.output in graph.carried.values() or any(
            not isinstance(reader.op, ArgMax) for reader in graph.consumers(node.output)
        )
        if inside or source in (*graph.inputs, *graph.outputs):
            errors.append(refusal(node, at_input=source in graph.inputs))
            continue
        graph.redirect(node.output, source)
        graph.remove([node])
        graph.note(node, f"left to the result's owner: the output is what it would divide by its {node.op.norm} norm")
    return errors
