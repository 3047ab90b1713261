"""Writes Normalizer as a division by a secret, and drops it where an ArgMax alone reads it."""

from __future__ import annotations

from covey.ir import Graph, Node, Op, Shape, Value
from covey.ops.arg_max import ArgMax
from covey.ops.average_pool import SumPool
from covey.ops.leaky_relu import TwoSlopes
from covey.ops.max_pool import MaxPool
from covey.ops.normalizer import Normalizer, Positive, Share
from covey.ops.reshape import Reshape
from covey.ops.standardising import SquareSum, Standardised
from covey.ops.window import Window

LEAST = 1e-300
"""Added to sums of squares: in a program at least one unit, so that rows of zeros stay zeros."""


def resolve_normalizers(graph: Graph) -> None:
    """Remove every Normalizer that only ArgMax along its rows reads; the others become divisions by a secret."""
    for node in list(graph.nodes):
        if not isinstance(node.op, Normalizer):
            continue
        value = graph.values[node.output]
        kept = node.output in (*graph.outputs, *graph.carried.values())
        if kept or any(not _largest_of_rows(reader, value.rank) for reader in graph.consumers(node.output)):
            _write_out(graph, node, node.op.norm)
            continue
        graph.redirect(node.output, node.inputs[0])
        graph.remove([node])
        graph.note(node, "removed: it does not change the largest element")


def _largest_of_rows(reader: Node, rank: int) -> bool:
    """Whether a node asks where in each row the largest element is, which stays so whatever the row is divided by."""
    return isinstance(reader.op, ArgMax) and reader.op.axis == rank - 1


def _write_out(graph: Graph, node: Node, norm: str) -> None:
    (source,) = node.inputs
    shape = graph.values[source].shape
    made: list[Node] = []

    def step(op: Op, inputs: list[str], size: Shape, hint: str) -> str:
        name = graph.add_value(Value(graph.fresh(f"{node.output}.{hint}"), size)).name
        made.append(Node(node.name, node.source_op, op, inputs, name))
        return name

    row = (*shape[:-1], 1)
    last: Op
    if norm == "L2":
        divisor, last = step(SquareSum(LEAST), [source], row, "squares"), Standardised(over=1.0)
    else:
        count = shape[-1]
        rows = (1, graph.values[source].size // count, count)
        sizes = step(Reshape(rows), [step(TwoSlopes(-1.0), [source], shape, "sizes")], rows, "rows")
        pool = (SumPool if norm == "L1" else MaxPool)(Window((1, count)))
        norms = step(Reshape(row), [step(pool, [sizes], (*rows[:2], 1), "pooled")], row, "norms")
        divisor, last = step(Positive(), [norms], row, "divisor"), Share()
    made.append(Node(node.name, node.source_op, last, [source, divisor], node.output))
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = made
    graph.note(node, f"a division by the {norm} norm")
