"""Makes one linear layer of two in a row where that takes no more products."""

from __future__ import annotations

import numpy as np

from covey.interval import Array
from covey.ir import Graph, Node
from covey.ops.average_pool import AveragePool
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.window import Window

MOST_TAPS = 31
"""The largest kernel, in either direction, that merging may make."""


def merge_linear_layers(graph: Graph) -> None:
    """Merge dense layers, and convolutions with convolutions and average pools, right behind each other.

    Between them, nothing else may read the value.
    """
    for second in list(graph.nodes):
        first = graph.producer(second.inputs[0])
        if first is None or graph.only_consumer(first.output) is not second:
            continue
        if isinstance(first.op, Dense) and isinstance(second.op, Dense):
            _merge_dense(graph, first, second)
        elif isinstance(first.op, Conv2d) and isinstance(second.op, Conv2d | AveragePool):
            _merge_convolutions(graph, first, first.op, second, second.op)


def _merge_dense(graph: Graph, first: Node, second: Node) -> None:
    inner, outer = (graph.parameters[node.inputs[1]] for node in (first, second))
    merged = inner @ outer
    if merged.size <= inner.size + outer.size:
        bias = graph.parameters[first.inputs[2]] @ outer if len(first.inputs) > 2 else None
        _replace(graph, first, second, merged, bias)


def _merge_convolutions(graph: Graph, first: Node, inner: Conv2d, second: Node, outer: Conv2d | AveragePool) -> None:
    window = _merged_window(first, inner.window, outer.window)
    if window is None or max(window.kernel) > MOST_TAPS:
        return
    # The windows of a padded average may count different numbers of elements.
    if any(outer.window.pads) if isinstance(outer, AveragePool) else outer.groups != inner.groups:
        return
    source, between, result = (graph.values[name] for name in (first.inputs[0], first.output, second.output))
    # By groups: [groups, outputs, inputs, ..] of either layer.
    weight = _by_group(graph.parameters[first.inputs[1]], inner.groups)
    products = between.size * weight[0, 0].size
    if isinstance(outer, Conv2d):
        through = _by_group(graph.parameters[second.inputs[1]], inner.groups)
        products += result.size * through[0, 0].size
    else:
        through = _mean(inner.groups, weight.shape[1], outer.window)
    if result.size * source.shape[-3] // inner.groups * window.area > products:
        return
    merged = _composed(weight, through, inner.window, outer.window, window)
    bias = None
    if len(first.inputs) > 2:
        by_group = graph.parameters[first.inputs[2]].reshape(inner.groups, -1, 1)
        bias = (through.sum(axis=(-2, -1)) @ by_group).ravel()
    first.op = Conv2d(window, inner.groups)
    _replace(graph, first, second, merged.reshape(-1, *merged.shape[2:]), bias)


def _by_group(weight: Array, groups: int) -> Array:
    return weight.reshape(groups, -1, *weight.shape[1:])


def _merged_window(first: Node, inner: Window, outer: Window) -> Window | None:
    """The window of both in a row; None where the second's padding would not be what the first computes there."""
    pads = inner.pads
    if any(outer.pads):
        # Only without a bias does a layer of single elements make zeros of the zeros around its input.
        if inner != Window((1, 1)) or len(first.inputs) > 2:
            return None
        pads = outer.pads
    (rows, columns), (high, wide) = inner.strides, outer.extent
    return Window(
        (inner.extent[0] + (high - 1) * rows, inner.extent[1] + (wide - 1) * columns),
        (rows * outer.strides[0], columns * outer.strides[1]),
        pads,
    )


def _mean(groups: int, channels: int, window: Window) -> Array:
    """An average pool as the weight of a convolution: each channel is read by one output, in any of the groups."""
    one = np.eye(channels)[..., None, None] * np.full(window.kernel, 1 / window.area)
    return np.asarray(np.broadcast_to(one, (groups, *one.shape)))


def _composed(inner: Array, outer: Array, first: Window, second: Window, window: Window) -> Array:
    """The weight [G, P, I, ..] that does what [G, O, I, ..] and then [G, P, O, ..] do."""
    merged = np.zeros((inner.shape[0], outer.shape[1], inner.shape[2], *window.kernel))
    for row, column in np.ndindex(second.kernel):
        top = row * second.dilations[0] * first.strides[0]
        left = column * second.dilations[1] * first.strides[1]
        taps = merged[
            ...,
            top : top + first.extent[0] : first.dilations[0],
            left : left + first.extent[1] : first.dilations[1],
        ]
        taps += np.einsum("gpo,goihw->gpihw", outer[..., row, column], inner, optimize=True)
    return merged


def _replace(graph: Graph, first: Node, second: Node, weight: Array, bias: Array | None) -> None:
    """Let the first layer do what both did; `bias` is its own, seen through the second."""
    if len(second.inputs) > 2:
        bias = graph.parameters[second.inputs[2]] + (0.0 if bias is None else bias)
    hint = second.inputs[1] if len(second.inputs) > 1 else first.inputs[1]
    first.inputs = [first.inputs[0], graph.add_parameter(f"{hint}.merged", weight).name]
    if bias is not None:
        first.inputs.append(graph.add_parameter(f"{second.output}.bias.merged", bias).name)
    first.output = second.output
    graph.remove([second])
    graph.note(second, f"merged into {first.name}")
