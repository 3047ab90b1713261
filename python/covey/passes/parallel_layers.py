"""Makes one dense layer of several that read the same value, as attention's queries, keys and values do.

One layer takes the rounds that each of them took; cutting its result sends nothing.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from covey.ir import Graph, Node, Value
from covey.ops.dense import Dense
from covey.ops.gather import pick
from covey.ops.reshape import Reshape
from covey.ops.transpose import Transpose


def join_parallel_layers(graph: Graph) -> None:
    """Join such layers where moves alone read their results: others may be computed in one gate with their layer.

    Results that may have fewer bits than others stay apart.
    """
    layers = [node for node in graph.nodes if isinstance(node.op, Dense) and _only_moved(graph, node)]
    layers.sort(key=lambda node: node.inputs[0])
    for _, group in groupby(layers, key=lambda node: node.inputs[0]):
        alike = list(group)
        if len(alike) > 1:
            _join(graph, alike)


def _only_moved(graph: Graph, layer: Node) -> bool:
    readers = graph.consumers(layer.output)
    moved = all(isinstance(reader.op, Reshape | Transpose) for reader in readers)
    return bool(readers) and moved and layer.output not in {*graph.outputs, *graph.narrow}


def _join(graph: Graph, layers: list[Node]) -> None:
    first = layers[0]
    sizes = [graph.values[layer.output].shape[-1] for layer in layers]
    weights = [graph.parameters[layer.inputs[1]] for layer in layers]
    biases = [
        graph.parameters[layer.inputs[2]] if len(layer.inputs) > 2 else np.zeros(size)
        for layer, size in zip(layers, sizes, strict=True)
    ]
    shape = (*graph.values[first.output].shape[:-1], sum(sizes))
    finer = max(layer.op.finer for layer in layers if isinstance(layer.op, Dense))
    result = graph.add_value(Value(graph.fresh(f"{first.output}.joined"), shape)).name
    operands = [first.inputs[0], graph.add_parameter(f"{first.inputs[1]}.joined", np.concatenate(weights, axis=1)).name]
    if any(len(layer.inputs) > 2 for layer in layers):
        operands.append(graph.add_parameter(f"{result}.bias", np.concatenate(biases)).name)
    made = [Node(first.name, first.source_op, Dense(finer=finer), operands, result)]
    start = 0
    for layer, size in zip(layers, sizes, strict=True):
        along = [*(range(extent) for extent in shape[:-1]), range(start, start + size)]
        made.append(Node(layer.name, layer.source_op, pick(shape, along), [result], layer.output))
        start += size
    at = min(index for index, node in enumerate(graph.nodes) if any(node is layer for layer in layers))
    graph.nodes[at:at] = made
    graph.remove(layers)
    for layer in layers[1:]:
        graph.note_more(layer, f"computed with {first.name}")
