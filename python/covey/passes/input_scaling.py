"""Moves what a model does to its features one by one into the dense layer that reads them.

Pipelines subtract a mean from each feature and divide by its spread. In the weights of the layer behind, that costs
nothing; as a layer of its own it would take a product and a shift for each feature.
"""

from __future__ import annotations

import numpy as np

from covey.ir import Graph, Node
from covey.ops.add import Add
from covey.ops.dense import Dense
from covey.ops.mul import Mul
from covey.ops.sub import Sub


def fold_input_scaling(graph: Graph) -> None:
    """Fold every step between a row of features and the dense layers that alone read it."""
    for node in list(graph.nodes):
        if type(node.op) is Dense and _from_input(graph, node.inputs[0]):
            while _fold(graph, node):
                pass


def _from_input(graph: Graph, name: str) -> bool:
    """Whether only such steps stand between one of the graph's inputs and a value."""
    while name not in graph.inputs:
        step = graph.producer(name)
        found = None if step is None else _operands(graph, step)
        if found is None:
            return False
        name = found[0]
    return True


def _operands(graph: Graph, step: Node) -> tuple[str, str] | None:
    """What the step reads, and its constant; None where it is no step of this kind."""
    if not isinstance(step.op, Add | Sub | Mul):
        return None
    constants = [index for index, name in enumerate(step.inputs) if name in graph.parameters]
    if len(constants) != 1 or (isinstance(step.op, Sub) and constants == [0]):
        return None
    source, constant = step.inputs[1 - constants[0]], step.inputs[constants[0]]
    one_row = len(graph.values[source].shape) == 1 and graph.values[source].shape == graph.values[step.output].shape
    return (source, constant) if one_row else None


def _fold(graph: Graph, node: Node) -> bool:
    step = graph.producer(node.inputs[0])
    found = None if step is None else _operands(graph, step)
    if step is None or found is None:
        return False
    source, constant = found
    weight = graph.parameters[node.inputs[1]]
    numbers = np.broadcast_to(graph.parameters[constant], graph.values[source].shape)
    if isinstance(step.op, Mul):
        node.inputs[1] = graph.add_parameter(f"{node.inputs[1]}.scaled", numbers[:, None] * weight).name
    else:
        bias = graph.parameters[node.inputs[2]] if len(node.inputs) > 2 else np.zeros(weight.shape[1])
        shift = numbers @ weight
        bias = bias - shift if isinstance(step.op, Sub) else bias + shift
        node.inputs[2:] = [graph.add_parameter(f"{node.output}.bias.moved", bias).name]
    node.inputs[0] = source
    if not graph.consumers(step.output) and step.output not in graph.outputs:
        graph.remove([step])
        graph.note(step, f"moved into the weights of {node.name}")
    return True
