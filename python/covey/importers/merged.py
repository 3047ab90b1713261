"""Layers whose batch the model has merged with heads, windows or choices: as on as many more channels, or heads."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey.importers.doubts import MOVE_BACK, OF_ATTENTION, value_of
from covey.importers.onnx_node import BATCH, IMPORTERS, OnnxNode

if TYPE_CHECKING:
    from covey.importers.moved import Frame

LAYERS = ("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")

MOST_WEIGHTS = 1 << 24
"""A convolution has its weights once for each head or window, and no more elements than so many."""


def of_images(frame: Frame) -> None:
    """A convolution or pooling of [N * copies, C, ..]: one of [N, copies * C, ..] in groups."""
    node, x = frame.node, frame.x
    if x.merged == 1 or x.place != 0 or node.inputs[0] != x.name:
        raise frame.refused("it runs over images")
    parts, (channels, *sizes) = x.shape[: x.merged - 1], x.shape[x.merged - 1 :]
    copies = prod(parts)
    inputs, attributes = [_reshaped(frame, node.scope.moved[x.name], (copies * channels, *sizes))], node.attributes
    if frame.operator == "Conv":
        weight = node.weights(1, "weight")
        if weight.size * copies > MOST_WEIGHTS:
            raise frame.refused(f"it has {weight.size} weights, which are needed {copies} times,")
        inputs.append(frame.constant(_repeated(weight, copies)))
        if node.has(2):
            inputs.append(frame.constant(_repeated(node.weights(2, "bias"), copies)))
        attributes = {**attributes, "group": int(node.attribute("group", 1)) * copies}
    result = emit(frame, frame.operator, inputs, attributes)
    value = node.scope.activation(result)
    assert value is not None
    shape = [BATCH, *parts, value.shape[0] // copies, *value.shape[1:]]
    frame.become([result, frame.constant(np.array(shape))], frame.layout, operator="Reshape")


def normalised(frame: Frame) -> None:
    """A BatchNormalization: a factor and a summand of each channel, whose dimension is not the batch."""
    node = frame.node
    channel = frame.axis(1)
    scale, shift, mean, variance = (node.weights(index, "statistics") for index in range(1, 5))
    node.ignore("momentum")
    variance = variance + float(node.attribute("epsilon", 1e-5))
    learns = node.scope.trained or node.flag("training_mode") or not node.flag("spatial", 1)
    if learns or variance.min() <= 0.0:
        raise frame.refused("it learns its statistics, or has none of each channel,")
    factor = scale / np.sqrt(variance)
    shape = (len(factor), *(1,) * (frame.rank - channel - 1))
    factors, summands = factor.reshape(shape), (shift - mean * factor).reshape(shape)
    source = node.scope.moved[frame.x.name]
    product = emit(frame, "Mul", [source, frame.constant(factors)], {})
    frame.become([product, frame.constant(summands)], frame.layout, operator="Add")


def attention(frame: Frame) -> None:
    """Attention of [N * copies, heads, ..]: that of [N, copies * heads, ..]."""
    node, x = frame.node, frame.x
    if x.merged == 1 or x.place != 0 or x.at != 0 or x.rank != 4 or node.inputs[0] != x.name:
        where = f"node '{node.scope.movers[x.name][0]}' has moved the batch"
        raise node.unsupported(f"it reads {x}, where {where}", f"{OF_ATTENTION}{MOVE_BACK}")
    parts, (heads, *_) = x.shape[: x.merged - 1], x.shape[x.merged - 1 :]
    copies, inputs = prod(parts), []
    for name in node.inputs:
        value = value_of(node.scope, name)
        if value is None:
            sizes = node.scope.constants[name].shape if name else ()
            if len(sizes) > 2 and prod(sizes[:-2]) > 1:
                raise frame.refused("its constant mask differs between heads or rows")
            inputs.append(name)
            continue
        source, (of, *rest) = node.scope.moved[value.name], value.shape[x.merged - 1 :]
        if of == 1 < heads:  # a mask of all heads
            every = frame.constant(np.array([1, *parts, heads, *rest]))
            source, of = emit(frame, "Expand", [source, every], {}), heads
        inputs.append(_reshaped(frame, source, (copies * of, *rest)))
    result = emit(frame, "Attention", inputs, node.attributes)
    made = node.scope.activation(result)
    assert made is not None
    shape = [BATCH, *parts, heads, *made.shape[1:]]
    frame.become([result, frame.constant(np.array(shape))], frame.layout, operator="Reshape")


def _repeated(array: npt.NDArray[Any], copies: int) -> npt.NDArray[Any]:
    return np.tile(array, (copies, *(1,) * (array.ndim - 1)))


def _reshaped(frame: Frame, source: str, shape: tuple[int, ...]) -> str:
    return emit(frame, "Reshape", [source, frame.constant(np.array([BATCH, *shape]))], {})


def emit(frame: Frame, operator: str, inputs: list[str], attributes: dict[str, Any]) -> str:
    """The name of an operator's result on values whose batch is first."""
    node = frame.node
    name = node.scope.graph.fresh(f"{node.outputs[0]}.{operator.lower()}")
    inner = OnnxNode(node.scope, node.name, node.op_type, inputs, [name], attributes)
    IMPORTERS[operator](inner)
    node.read |= inner.read
    return name
