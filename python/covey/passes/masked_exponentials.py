"""Exponentials of numbers below all that a ring holds: zeros there, and no sum that has to hold such numbers."""

from __future__ import annotations

import numpy as np

from covey.functions import EXP
from covey.ir import Graph, Node, Value
from covey.ops.add import Add
from covey.ops.gather import ABSENT, flat
from covey.ops.maximum import BEYOND
from covey.ops.reshape import Reshape
from covey.ops.scalar import Scalar
from covey.ops.softmax import Mask
from covey.ops.sub import Sub


def mask_exponentials(graph: Graph) -> None:
    """Take such constants out of the sum before every Exp; moves put zeros there, before the Exp and behind it."""
    for node in list(graph.nodes):
        total = graph.producer(node.inputs[0]) if node.op == Scalar(EXP) else None
        if total is None or not isinstance(total.op, Add | Sub) or graph.only_consumer(total.output) is not node:
            continue
        for index, name in enumerate(total.inputs):
            constant = graph.parameters.get(name, np.zeros(()))
            mask = (-constant if isinstance(total.op, Sub) and index == 1 else constant) <= -BEYOND
            if mask.any():
                rest = np.where(mask, 0.0, constant)
                total.inputs[index] = graph.add_parameter(f"{name}.unmasked", rest).name
                _put_zeros(graph, total, mask)
                _put_zeros(graph, node, mask)
                graph.note_more(node, "gives zeros where a constant masks")


def _put_zeros(graph: Graph, node: Node, mask: Mask) -> None:
    """Let a node's result be 0 where it is masked."""
    result = graph.values[node.output]
    positions = np.arange(result.size).reshape(result.shape)
    taking = flat(np.where(np.broadcast_to(mask, result.shape), ABSENT, positions))
    computed, taken = (graph.fresh(f"{result.name}.{hint}") for hint in ("unmasked", "taken"))
    graph.add_value(Value(computed, result.shape, dtype=result.dtype))
    graph.add_value(Value(taken, taking.shape(result), dtype=result.dtype))
    node.output = computed
    at = graph.nodes.index(node) + 1
    graph.nodes[at:at] = [
        Node(node.name, node.source_op, taking, [computed], taken),
        Node(node.name, node.source_op, Reshape(result.shape), [taken], result.name),
    ]
