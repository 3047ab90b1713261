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
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.mul import Mul
from covey.ops.sub import Sub


def fold_batch_norm(graph: Graph) -> None:
    """Rewrite every BatchNormalization, and Add, Sub, Mul with a constant right behind a convolution or dense layer."""
    for node in list(graph.nodes):
        affine = _affine(graph, node)
        if affine is None:
            continue
        factor, summand, source = affine
        linear = graph.producer(source)
        if linear is not None and isinstance(linear.op, Conv2d | Dense) and graph.only_consumer(source) is node:
            _fold(graph, linear, node, factor, summand)
        elif isinstance(node.op, BatchNormalization):
            _expand(graph, node, factor, summand)


def _affine(graph: Graph, node: Node) -> tuple[Array, Array, str] | None:
    """Factor and summand per channel, and the operand, of a node that computes operand * factor + summand."""
    if isinstance(node.op, BatchNormalization):
        factor, summand = node.op.affine(*(graph.parameters[name] for name in node.inputs[1:]))
        return factor, summand, node.inputs[0]
    if not isinstance(node.op, Add | Sub | Mul):
        return None
    constants = [index for index, name in enumerate(node.inputs) if name in graph.parameters]
    if not constants:
        return None
    index = constants[0]
    activation = graph.values[node.inputs[1 - index]]
    channels = _per_channel(graph.parameters[node.inputs[index]], activation, graph.values[node.output])
    if channels is None:
        return None
    ones, zeros = np.ones_like(channels), np.zeros_like(channels)
    if isinstance(node.op, Mul):
        return channels, zeros, activation.name
    if isinstance(node.op, Add):
        return ones, channels, activation.name
    return (-ones, channels, activation.name) if index == 0 else (ones, -channels, activation.name)


def _per_channel(constant: Array, activation: Value, result: Value) -> Array | None:
    """The constant as one number for each channel of the layer before: the first dimension of images, else the last."""
    if not activation.shape or activation.shape != result.shape:
        return None
    rank = len(activation.shape)
    axis = 0 if rank == 3 else rank - 1
    shape: tuple[int, ...] = (1,) * (rank - constant.ndim) + constant.shape
    if any(size != 1 for place, size in enumerate(shape) if place != axis):
        return None
    return np.broadcast_to(constant.ravel(), (activation.shape[axis],)).astype(np.float64)


def _fold(graph: Graph, linear: Node, node: Node, factor: Array, summand: Array) -> None:
    image = len(graph.values[linear.output].shape) == 3
    if image != isinstance(linear.op, Conv2d):
        if isinstance(node.op, BatchNormalization):
            _expand(graph, node, factor, summand)
        return
    weight = graph.parameters[linear.inputs[1]]
    bias = graph.parameters[linear.inputs[2]] if len(linear.inputs) > 2 else np.zeros(factor.shape)
    scaled = weight * (factor[:, None, None, None] if image else factor)
    stem = linear.inputs[1]
    changed = [linear.inputs[0], stem if (factor == 1.0).all() else graph.add_parameter(f"{stem}.folded", scaled).name]
    shift = linear.inputs[2] if len(linear.inputs) > 2 else f"{linear.output}.bias"
    changed.append(graph.add_parameter(f"{shift}.folded", bias * factor + summand).name)
    linear.inputs = changed
    linear.output = node.output
    graph.remove([node])
    graph.note(node, f"folded into {linear.name}")


def _expand(graph: Graph, node: Node, factor: Array, summand: Array) -> None:
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
    graph.note(node, "one multiplication and one addition per element: no linear layer right before it")
