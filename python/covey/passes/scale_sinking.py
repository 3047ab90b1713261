"""Moves multiplication by positive constants into the weights of the linear layer that follows.

relu(a x + b) = a relu(x + b / a) for a > 0, and a product that only meets sums, rectifiers, pools and moves on its way
to a linear layer can as well be one with that layer's weights. Normalisation before a convolution, as in DenseNet, then
costs an addition, which is local, in place of a product and a shift for each element.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from covey.interval import Array
from covey.ir import Graph, Node, Shape
from covey.ops.add import Add
from covey.ops.average_pool import AveragePool, SumPool
from covey.ops.conv import Conv2d, ConvNd
from covey.ops.conv_transpose import ConvTranspose
from covey.ops.dense import Dense
from covey.ops.max_pool import MaxPool
from covey.ops.mul import Mul
from covey.ops.relu import Relu
from covey.ops.reshape import Reshape
from covey.ops.sub import Sub

LEAST, MOST = 2.0**-5, 2.0**5
"""Factors that may move: beyond, the weights would lose digits, or the summands grow, more than the product costs."""


def sink_scales(graph: Graph) -> None:
    """Rewrite every such multiplication."""
    for node in list(graph.nodes):
        if isinstance(node.op, Mul):
            _sink(graph, node)


@dataclass
class _Way:
    """From the product to the layer: the sums on it, and the factor of each element where it stands."""

    factor: Array
    sums: list[tuple[Node, int, Array]] = field(default_factory=list)


def _sink(graph: Graph, product: Node) -> None:
    constants = [index for index, name in enumerate(product.inputs) if name in graph.parameters]
    if len(constants) != 1:
        return
    source = graph.values[product.inputs[1 - constants[0]]]
    factor = graph.parameters[product.inputs[constants[0]]]
    result = graph.values[product.output]
    if source.shape != result.shape or factor.min() < LEAST or factor.max() > MOST:
        return
    way = _Way(
        factor.reshape(*(1,) * (len(result.shape) - factor.ndim), *factor.shape) if result.shape else factor.reshape(())
    )
    name = product.output
    while True:
        reader = graph.only_consumer(name)
        if reader is None:
            return
        if isinstance(reader.op, Conv2d | ConvNd | ConvTranspose | Dense):
            break
        if not _passes(graph, way, reader, name):
            return
        name = reader.output
    weight = _weight(graph, reader, way.factor, graph.values[name].shape)
    if weight is None or reader.inputs[0] != name:
        return
    for node, index, constant in way.sums:
        node.inputs[index] = graph.add_parameter(f"{node.inputs[index]}.divided", constant).name
    reader.inputs[1] = graph.add_parameter(f"{reader.inputs[1]}.scaled", weight).name
    for node in graph.consumers(product.output):
        node.inputs = [source.name if value == product.output else value for value in node.inputs]
    graph.remove([product])
    graph.note(product, f"its factor moved into {reader.name}")


def _passes(graph: Graph, way: _Way, node: Node, name: str) -> bool:
    """Whether the factor may move past a node; the way then stands behind it."""
    op = node.op
    if isinstance(op, Relu):
        return True
    if isinstance(op, MaxPool | AveragePool | SumPool):
        return way.factor.shape[-2:] == (1, 1)
    if isinstance(op, Reshape):
        way.factor = np.broadcast_to(way.factor, graph.values[name].shape).reshape(op.target)
        return True
    if isinstance(op, Add | Sub):
        index = 1 - node.inputs.index(name)
        constant = graph.parameters.get(node.inputs[index])
        if constant is None or graph.values[node.output].shape != graph.values[name].shape:
            return False
        divided = np.asarray(constant / way.factor)
        if divided.ndim > len(graph.values[name].shape):
            return False
        way.sums.append((node, index, divided))
        return True
    return False


def _weight(graph: Graph, layer: Node, factor: Array, shape: Shape) -> Array | None:
    """The layer's weight times the factor of each input channel; None where a channel has several."""
    weight = graph.parameters[layer.inputs[1]]
    op = layer.op
    if isinstance(op, Dense):
        whole = np.broadcast_to(factor, shape)
        rows = whole.reshape(-1, shape[-1])
        return weight * rows[0][:, None] if (rows == rows[0]).all() else None
    spatial = weight.ndim - 2
    if factor.ndim != spatial + 1 or any(size != 1 for size in factor.shape[1:]):
        return None
    channels = np.broadcast_to(factor.ravel(), (shape[0],))
    tail = (1,) * spatial
    if isinstance(op, ConvTranspose):
        return weight * channels.reshape(-1, 1, *tail)
    assert isinstance(op, Conv2d | ConvNd)
    # [O, C / groups, ..]: the outputs of a group read the channels of that group.
    by_group = channels.reshape(op.groups, 1, -1, *tail)
    return (weight.reshape(op.groups, -1, *weight.shape[1:]) * by_group).reshape(weight.shape)
