"""Missing features: an input cannot hold NaN, so that a number above all others stands for it.

An imputer compares each feature with that number and takes another in its place. In a tree the number is at or above
every threshold, so a missing feature is never below. For nodes where it counts as below, one more comparison for each
such feature says whether it is there, and is added to the node's own bit: no more products, and no more rounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covey.errors import NodeError, UnsupportedError
from covey.ir import DType, Graph, Node, Value
from covey.ops.comparison import Less
from covey.ops.concat import Concat
from covey.ops.gather import Gather
from covey.ops.missing import FillIn
from covey.ops.reshape import Reshape
from covey.ops.trees import Below
from covey.ops.where import Where


def heeds_missing(graph: Graph) -> bool:
    """Whether a network, as it was imported, may take a number for what is missing."""
    return any(isinstance(node.op, FillIn | Below) for node in graph.nodes)


def fill_in(graph: Graph, missing: int | None) -> None:
    """Let imputers do so; without a number for missing features nothing is to be filled in."""
    for node in list(graph.nodes):
        if not isinstance(node.op, FillIn):
            continue
        x = node.inputs[0]
        if missing is None:
            if node.output in graph.outputs:
                node.op, node.inputs = Reshape(graph.values[x].shape), [x]
                continue
            graph.redirect(node.output, x)
            graph.remove([node])
            continue
        limit = graph.add_parameter(f"{node.output}.missing", np.array(float(missing)))
        there = graph.add_value(Value(graph.fresh(f"{node.output}.there"), graph.values[x].shape, dtype=DType.BOOL))
        at = next(index for index, each in enumerate(graph.nodes) if each is node)
        graph.nodes.insert(at, Node(node.name, node.source_op, Less(), [x, limit.name], there.name))
        node.op, node.inputs = Where(), [there.name, x, node.inputs[1]]
        graph.note(node, "a comparison and a product for each feature")


def take_missing(graph: Graph, missing: int, hidden: bool = False) -> list[NodeError]:
    """Let trees take the number for what is missing; returns the errors of nodes that would take it for a feature.

    With `hidden`, the program does not say how any node takes it.
    """
    errors: list[NodeError] = []
    waiting, seen = list(graph.inputs), set[int]()
    while waiting:
        name = waiting.pop()
        for node in graph.consumers(name):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node.op, Gather | Reshape | Concat):
                waiting.append(node.output)
            elif isinstance(node.op, Below):
                _let_take(graph, node, node.op, missing, hidden)
            elif not _fills_in(graph, node, name):
                reason = f"it would take {missing} for a feature"
                way_out = "put a SimpleImputer before it, or leave out what stands for missing features"
                errors.append(UnsupportedError(node.name, node.source_op, reason, way_out))
    return errors


def _fills_in(graph: Graph, node: Node, name: str) -> bool:
    """Whether a node is part of an imputer."""
    if isinstance(node.op, Less):
        return any(isinstance(reader.op, Where) and name in reader.inputs for reader in graph.consumers(node.output))
    return isinstance(node.op, Where) and node.inputs[1] == name


def _let_take(graph: Graph, node: Node, op: Below, missing: int, hidden: bool) -> None:
    thresholds = graph.parameters[node.inputs[1]]
    # Thresholds at or above the number ask whether the feature is there.
    above = thresholds >= missing
    closed = np.array(op.closed) & ~above
    sides = list(zip(op.features, op.missing, strict=True))
    if hidden:
        # Each node asks for itself, and one that does without asks for more than the number: that is always there.
        needed, there = list(op.features), tuple(range(1, len(sides) + 1))
        limits = np.array([float(missing if below else missing + 1) for _, below in sides])
    else:
        needed = sorted({feature for feature, below in sides if below})
        there = tuple(needed.index(feature) + 1 if below else 0 for feature, below in sides)
        limits = np.full(len(needed), float(missing))
    limits = np.concatenate([np.minimum(thresholds, missing), limits])
    node.op = replace(
        op,
        features=(*op.features, *needed),
        closed=(*(bool(each) for each in closed), *(False for _ in needed)),
        there=there if needed else (),
    )
    node.inputs[1] = graph.add_parameter(f"{node.inputs[1]}.missing", limits).name
