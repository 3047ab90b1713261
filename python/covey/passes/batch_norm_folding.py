"""Folds batch normalisation, and other arithmetic with one constant per channel, into the linear layer before it.

A normalisation that has no such layer becomes one multiplication and one addition. The factors use the model's own
epsilon.
"""

from __future__ import annotations

import numpy as np

from covey.interval import Array
from covey.ir import Graph, Node, Value
from covey.ops.add import Add
from covey.ops.batch_normalization import BatchNormalization
from covey.ops.conv import Conv2d, ConvNd
from covey.ops.conv_transpose import ConvTranspose
from covey.ops.dense import Dense
from covey.ops.mul import Mul
from covey.ops.sub import Sub

Convolution = Conv2d | ConvNd | ConvTranspose


def fold_batch_norm(graph: Graph, *, keep: bool = False) -> None:
    """Rewrite every BatchNormalization, and Add, Sub, Mul with a constant right behind a convolution or dense layer.

    With `keep`, a BatchNormalization stays apart as a multiplication and an addition.
    """
    for node in list(graph.nodes):
        if isinstance(node.op, BatchNormalization) and keep:
            _expand(graph, node, *node.op.affine(*_statistics(graph, node)), "kept apart, as asked for")
            continue
        affine = _affine(graph, node)
        if affine is None:
            continue
        factor, summand, linear = affine
        if linear is not None:
            _fold(graph, linear, node, factor, summand)
        elif isinstance(node.op, BatchNormalization):
            _expand(graph, node, factor, summand, "no linear layer right before it")


def _statistics(graph: Graph, node: Node) -> list[Array]:
    return [graph.parameters[name] for name in node.inputs[1:]]


def _linear_before(graph: Graph, source: str, node: Node) -> Node | None:
    """The linear layer whose result only this node reads."""
    linear = graph.producer(source)
    if linear is None or not isinstance(linear.op, Convolution | Dense) or graph.only_consumer(source) is not node:
        return None
    return linear


def _affine(graph: Graph, node: Node) -> tuple[Array, Array, Node | None] | None:
    """Factor and summand per channel of a node that computes operand * factor + summand, and the linear layer before it
    whose channels these are. None for other nodes."""
    if isinstance(node.op, BatchNormalization):
        linear = _linear_before(graph, node.inputs[0], node)
        shape = graph.values[node.inputs[0]].shape
        if linear is not None and isinstance(linear.op, Dense) and len(shape) != 1:
            linear = None
        return *node.op.affine(*_statistics(graph, node)), linear
    if not isinstance(node.op, Add | Sub | Mul):
        return None
    constants = [index for index, name in enumerate(node.inputs) if name in graph.parameters]
    if not constants:
        return None
    index = constants[0]
    activation = graph.values[node.inputs[1 - index]]
    linear = _linear_before(graph, activation.name, node)
    if linear is None:
        return None
    axis = len(activation.shape) - 1 if isinstance(linear.op, Dense) else 0
    channels = _per_channel(graph.parameters[node.inputs[index]], activation, graph.values[node.output], axis)
    if channels is None:
        return None
    ones, zeros = np.ones_like(channels), np.zeros_like(channels)
    if isinstance(node.op, Mul):
        return channels, zeros, linear
    if isinstance(node.op, Add):
        return ones, channels, linear
    return (-ones, channels, linear) if index == 0 else (ones, -channels, linear)


def _per_channel(constant: Array, activation: Value, result: Value, axis: int) -> Array | None:
    """The constant as one number for each index along `axis` of a sample."""
    if not activation.shape or activation.shape != result.shape:
        return None
    rank = len(activation.shape)
    shape: tuple[int, ...] = (1,) * (rank - constant.ndim) + constant.shape
    if any(size != 1 for place, size in enumerate(shape) if place != axis):
        return None
    return np.broadcast_to(constant.ravel(), (activation.shape[axis],)).astype(np.float64)


def _fold(graph: Graph, linear: Node, node: Node, factor: Array, summand: Array) -> None:
    weight = graph.parameters[linear.inputs[1]]
    bias = graph.parameters[linear.inputs[2]] if len(linear.inputs) > 2 else np.zeros(factor.shape)
    scaled = _scaled(linear, weight, factor)
    stem = linear.inputs[1]
    changed = [linear.inputs[0], stem if (factor == 1.0).all() else graph.add_parameter(f"{stem}.folded", scaled).name]
    shift = linear.inputs[2] if len(linear.inputs) > 2 else f"{linear.output}.bias"
    changed.append(graph.add_parameter(f"{shift}.folded", bias * factor + summand).name)
    linear.inputs = changed
    linear.output = node.output
    graph.remove([node])
    graph.note(node, f"folded into {linear.name}")


def _scaled(linear: Node, weight: Array, factor: Array) -> Array:
    """The weight with each output channel multiplied."""
    if isinstance(linear.op, Dense):
        return weight * factor
    spatial = (1,) * (weight.ndim - 2)
    if not isinstance(linear.op, ConvTranspose):
        return weight * factor.reshape(-1, 1, *spatial)
    # [C, O / groups, ..]: the channels of a group meet the outputs of that group.
    groups = linear.op.groups
    grouped = weight.reshape(groups, -1, *weight.shape[1:]) * factor.reshape(groups, 1, -1, *spatial)
    return grouped.reshape(weight.shape)


def _expand(graph: Graph, node: Node, factor: Array, summand: Array, why: str) -> None:
    x = graph.values[node.inputs[0]]
    tail = (slice(None),) + (None,) * (len(x.shape) - 1)
    scale = graph.add_parameter(f"{node.output}.factor", factor[tail])
    shift = graph.add_parameter(f"{node.output}.summand", summand[tail])
    product = graph.add_value(Value(graph.fresh(f"{node.output}.product"), x.shape))
    place = next(index for index, other in enumerate(graph.nodes) if other is node)
    graph.nodes[place : place + 1] = [
        Node(node.name, node.source_op, Mul(), [x.name, scale.name], product.name),
        Node(node.name, node.source_op, Add(), [product.name, shift.name], node.output),
    ]
    graph.note(node, f"one multiplication and one addition per element: {why}")
