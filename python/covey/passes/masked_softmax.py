"""Finds masks: constants that make numbers so small before a Softmax that nothing is left of them.

A model writes a mask as the addition of minus infinity, of the least float32 or of -10,000, or as a Where by constants.
The Softmax then leaves such elements out, so that no sum has to hold numbers of this size.
"""

from __future__ import annotations

import numpy as np

from covey.errors import NodeError, ParameterError, UnsupportedError
from covey.importers.onnx_node import LEAST
from covey.ir import Graph, Node
from covey.ops.add import Add
from covey.ops.softmax import Mask, Softmax

MASKING = -1e4
"""What is added to an element that a mask names, or less."""


def find_masks(graph: Graph) -> list[NodeError]:
    """Give every Softmax its mask; the errors of masks that leave nothing of a row, and of other infinite numbers."""
    errors: list[NodeError] = []
    for node in graph.nodes:
        if isinstance(node.op, Softmax):
            while (mask := _taken(graph, node)) is not None:
                before = node.op.mask
                node.op = Softmax(mask if before is None else before | mask)
                graph.note_more(node, "leaves out the elements that a constant masks")
            try:
                node.op.shape(*graph.operands(node))
            except ValueError as error:
                errors.append(UnsupportedError(node.name, node.source_op, str(error), "repair its mask"))
    for node in graph.nodes:
        constants = [graph.parameters[name] for name in node.inputs if name in graph.parameters]
        if isinstance(node.op, Add) and any((constant <= LEAST).any() for constant in constants):
            reason = "it adds minus infinity to what no Softmax over the last axis reads next"
            errors.append(ParameterError(node.name, node.source_op, reason, "only finite weights can be shared"))
    return errors


def _taken(graph: Graph, softmax: Node) -> Mask | None:
    """The mask among the sums of constants before a Softmax, which is then taken out of them."""
    name = softmax.inputs[0]
    while (node := graph.producer(name)) is not None and isinstance(node.op, Add):
        constants = [index for index, each in enumerate(node.inputs) if each in graph.parameters]
        if len(constants) != 1 or graph.only_consumer(name) is None:
            return None
        (index,) = constants
        constant = graph.parameters[node.inputs[index]]
        mask = constant <= MASKING
        source = node.inputs[1 - index]
        if mask.any():
            rest = np.where(mask, 0.0, constant)
            if rest.any() or graph.values[source].shape != graph.values[name].shape:
                node.inputs[index] = graph.add_parameter(f"{node.inputs[index]}.unmasked", rest).name
            else:
                for reader in graph.consumers(name):
                    reader.inputs = [source if each == name else each for each in reader.inputs]
                graph.remove([node])
                graph.note(node, f"a mask of {softmax.name}")
            return mask
        name = source
    return None
