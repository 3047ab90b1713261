"""Moves scale and shift behind a normalisation into the linear layers that read its result.

In a transformer these are the layers of queries, keys and values, or the first of two, and a sum with the result of a
later layer. That layer then reads the normalised value as well, with the scale as a diagonal weight: what a linear
layer sends depends on its results alone. A product and a shift an element are saved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.interval import Array
from covey.ir import Graph, Node, Value
from covey.ops.add import Add
from covey.ops.concat import Concat
from covey.ops.dense import Dense
from covey.ops.mul import Mul
from covey.ops.standardising import Standardised

MOST = 2.0**5
"""Larger factors stay: the weights' rounding would grow with them."""


@dataclass(frozen=True)
class _Affine:
    """`source` · factor + summand, an element of either for each of the last dimension; `nodes` compute it."""

    nodes: list[Node]
    source: str
    output: str
    factor: Array
    summand: Array


def sink_affine(graph: Graph) -> None:
    """Rewrite every normalisation whose readers are all linear."""
    for node in list(graph.nodes):
        affine = _affine(graph, node)
        if affine is None or affine.output in graph.outputs:
            continue
        readers = graph.consumers(affine.output)
        if not readers or not all(_takes(graph, affine, reader) for reader in readers):
            continue
        for reader in readers:
            if isinstance(reader.op, Dense):
                _scale_rows(graph, affine, reader)
            else:
                _join(graph, affine, reader)
        graph.remove(affine.nodes)
        for each in affine.nodes:
            graph.note_more(each, "scale and shift are in the weights of the layers that read it")


def _affine(graph: Graph, product: Node) -> _Affine | None:
    """A product of a normalised value with a constant, and the sum with one that may follow."""
    found = _constant(graph, product, Mul)
    if found is None:
        return None
    source, factor = found
    before = graph.producer(source)
    if before is None or not isinstance(before.op, Standardised) or np.abs(factor).max() > MOST:
        return None
    total = graph.only_consumer(product.output)
    if total is not None and (shift := _constant(graph, total, Add)) is not None:
        return _Affine([product, total], source, total.output, factor, shift[1])
    return _Affine([product], source, product.output, factor, np.zeros_like(factor))


def _constant(graph: Graph, node: Node, op: type) -> tuple[str, Array] | None:
    """Of an operation with a constant: its other operand, and the constant by the last dimension."""
    constants = [index for index, name in enumerate(node.inputs) if name in graph.parameters]
    if not isinstance(node.op, op) or len(constants) != 1:
        return None
    source = graph.values[node.inputs[1 - constants[0]]]
    array = graph.parameters[node.inputs[constants[0]]]
    if not source.shape or source.shape != graph.values[node.output].shape:
        return None
    if array.size not in (1, array.shape[-1] if array.ndim else 1):
        return None
    return source.name, np.broadcast_to(array.ravel(), source.shape[-1:])


def _takes(graph: Graph, affine: _Affine, reader: Node) -> bool:
    """Whether a reader is a dense layer of the value, or its sum with the result of one that nothing else reads."""
    if isinstance(reader.op, Dense):
        return True
    layer = _layer(graph, affine, reader)
    return layer is not None and layer.inputs[0] != affine.output


def _layer(graph: Graph, affine: _Affine, total: Node) -> Node | None:
    if not isinstance(total.op, Add) or total.inputs.count(affine.output) != 1:
        return None
    (other,) = (name for name in total.inputs if name != affine.output)
    layer = graph.producer(other)
    if layer is None or not isinstance(layer.op, Dense) or graph.only_consumer(other) is not total:
        return None
    return layer if graph.values[other].shape == graph.values[affine.output].shape else None


def _scale_rows(graph: Graph, affine: _Affine, layer: Node) -> None:
    weight = graph.parameters[layer.inputs[1]]
    _replace(graph, layer, affine.source, weight * affine.factor[:, None], affine.summand @ weight)


def _join(graph: Graph, affine: _Affine, total: Node) -> None:
    """Let the layer before a sum compute the sum."""
    layer = _layer(graph, affine, total)
    assert layer is not None
    x, source = graph.values[layer.inputs[0]], graph.values[affine.source]
    shape = (*x.shape[:-1], x.shape[-1] + source.shape[-1])
    both = graph.add_value(Value(graph.fresh(f"{layer.output}.beside"), shape))
    # Where the sum is, all that the layer now reads has been computed.
    at = next(index for index, node in enumerate(graph.nodes) if node is total)
    joined = Node(layer.name, layer.source_op, Concat(len(shape)), [x.name, source.name], both.name)
    weight = np.concatenate([graph.parameters[layer.inputs[1]], np.diag(affine.factor)])
    _replace(graph, layer, both.name, weight, affine.summand)
    layer.output = total.output
    graph.nodes[at : at + 1] = [joined, layer]
    first = next(index for index, node in enumerate(graph.nodes) if node is layer)
    del graph.nodes[first]
    graph.note(total, f"computed in {layer.name}")


def _replace(graph: Graph, layer: Node, source: str, weight: Array, shift: Array) -> None:
    hint = layer.inputs[1]
    bias = graph.parameters[layer.inputs[2]] + shift if len(layer.inputs) > 2 else shift
    layer.inputs = [
        source,
        graph.add_parameter(f"{hint}.scaled", weight).name,
        graph.add_parameter(f"{layer.output}.bias.shifted", bias).name,
    ]
