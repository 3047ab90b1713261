"""Leaves to the weights which feature a tree's node compares: a product with a secret matrix of zeros and ones.

Otherwise the program says it, and every party sees the program.
"""

from __future__ import annotations

import numpy as np

from covey.ir import Graph
from covey.ops.trees import Below


def hide_features(graph: Graph) -> None:
    """Give every comparison its matrix."""
    for node in graph.nodes:
        if isinstance(node.op, Below):
            matrix = np.zeros((graph.values[node.inputs[0]].size, len(node.op.features)))
            matrix[list(node.op.features), range(len(node.op.features))] = 1.0
            node.inputs = [*node.inputs[:2], graph.add_parameter(f"{node.output}.selection", matrix).name]
