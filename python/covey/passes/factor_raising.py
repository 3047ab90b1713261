"""Moves multiplication by one constant up into the linear layer that its operand comes from.

Attention divides its scores by the root of the heads' size. In the weights of the queries that costs nothing, where it
would take a product and a shift for each pair of positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from covey.ir import Graph, Node
from covey.ops.add import Add
from covey.ops.affine import Affine
from covey.ops.conv import Conv2d, ConvNd
from covey.ops.dense import Dense
from covey.ops.gather import Gather
from covey.ops.matmul import Matmul
from covey.ops.mul import Mul
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose

LEAST, MOST = 2.0**-6, 2.0**6
"""Factors that may move: beyond, operands would lose digits."""


@dataclass
class _Way:
    """The constants that take the factor: of layers and of sums on the way."""

    constants: list[tuple[Node, int]] = field(default_factory=list)


def raise_factors(graph: Graph) -> None:
    """Rewrite every multiplication that has such a layer before it."""
    for node in list(graph.nodes):
        found = _factor(graph, node)
        if found is None:
            continue
        source, factor = found
        way = _Way()
        if not LEAST <= abs(factor) <= MOST or not _search(graph, source, way):
            continue
        for reader, index in way.constants:
            name = reader.inputs[index]
            reader.inputs[index] = graph.add_parameter(f"{name}.scaled", graph.parameters[name] * factor).name
        for reader in graph.consumers(node.output):
            reader.inputs = [source if name == node.output else name for name in reader.inputs]
        graph.remove([node])
        graph.note_more(node, f"its factor moved into {way.constants[-1][0].name}")


def _factor(graph: Graph, node: Node) -> tuple[str, float] | None:
    """What a node multiplies by one number, and the number."""
    if node.output in graph.outputs:
        return None
    if isinstance(node.op, Affine):
        return (node.inputs[0], node.op.factor) if node.op.summand == 0.0 else None
    if not isinstance(node.op, Mul):
        return None
    constants = [index for index, name in enumerate(node.inputs) if name in graph.parameters]
    if len(constants) != 1:
        return None
    array = graph.parameters[node.inputs[constants[0]]]
    source = node.inputs[1 - constants[0]]
    single = bool((array == array.flat[0]).all()) and graph.values[source].shape == graph.values[node.output].shape
    return (source, float(array.flat[0])) if single else None


def _search(graph: Graph, name: str, way: _Way) -> bool:
    """Whether a value is the linear result of a layer that nothing else reads, by way of moves and products."""
    node = graph.producer(name)
    if node is None or graph.only_consumer(name) is None:
        return False
    if isinstance(node.op, Dense | Conv2d | ConvNd):
        way.constants += [(node, index) for index in range(1, len(node.inputs))]
        return True
    if isinstance(node.op, Reshape | Transpose | Gather):
        return _search(graph, node.inputs[0], way)
    if isinstance(node.op, Add):
        constants = [index for index, each in enumerate(node.inputs) if each in graph.parameters]
        if len(constants) != 1 or not np.isfinite(graph.parameters[node.inputs[constants[0]]]).all():
            return False
        way.constants.append((node, constants[0]))
        return _search(graph, node.inputs[1 - constants[0]], way)
    if isinstance(node.op, Matmul) and node.inputs[0] != node.inputs[1]:
        mark = len(way.constants)
        for operand in node.inputs:
            if _search(graph, operand, way):
                return True
            del way.constants[mark:]
    return False
