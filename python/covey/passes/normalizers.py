"""Takes Normalizer off the end of a model, where the result's owner divides by the norm, and writes the others out."""

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


def resolve_normalizers(graph: Graph, *, within: bool = False) -> None:
    """Remove every Normalizer that only outputs and ArgMax read; the others become divisions by a secret.

    Where the program itself reads the outputs, as a loss does, all of them are `within`.
    """
    for node in list(graph.nodes):
        if not isinstance(node.op, Normalizer):
            continue
        (source,) = node.inputs
        inside = (
            within
            or node.output in graph.carried.values()
            or any(not isinstance(reader.op, ArgMax) for reader in graph.consumers(node.output))
        )
        if inside or source in (*graph.inputs, *graph.outputs):
            _write_out(graph, node, node.op.norm)
            continue
        graph.redirect(node.output, source)
        graph.remove([node])
        graph.note(node, f"left to the result's owner: the output is what it would divide by its {node.op.norm} norm")


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
