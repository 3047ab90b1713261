"""Makes one linear layer of two in a row where that takes no more products."""

from __future__ import annotations

import numpy as np

from covey.ir import Graph, Node
from covey.ops.conv import Conv2d
from covey.ops.dense import Dense
from covey.ops.window import Window


def merge_linear_layers(graph: Graph) -> None:
    """Merge dense layers, and convolutions with one of a single element that reads nothing else, right behind them."""
    for second in list(graph.nodes):
        first = graph.producer(second.inputs[0])
        if first is not None and type(first.op) is type(second.op) and graph.only_consumer(first.output) is second:
            _merge(graph, first, second)


def _merge(graph: Graph, first: Node, second: Node) -> None:
    if not isinstance(first.op, Conv2d | Dense):
        return
    inner, outer = (graph.parameters[node.inputs[1]] for node in (first, second))
    if isinstance(first.op, Conv2d) and isinstance(second.op, Conv2d):
        if second.op.window != Window((1, 1)) or first.op.groups != 1 or second.op.groups != 1:
            return
        rows = inner.reshape(len(inner), -1)
        merged = (outer[:, :, 0, 0] @ rows).reshape(len(outer), *inner.shape[1:])
        through = outer[:, :, 0, 0].T
    else:
        merged, through = inner @ outer, outer
    if merged.size > inner.size + outer.size:
        return
    bias = np.zeros(through.shape[1])
    if len(first.inputs) > 2:
        bias = graph.parameters[first.inputs[2]] @ through
    if len(second.inputs) > 2:
        bias = bias + graph.parameters[second.inputs[2]]
    biased = len(first.inputs) > 2 or len(second.inputs) > 2
    first.inputs = [first.inputs[0], graph.add_parameter(f"{second.inputs[1]}.merged", merged).name]
    if biased:
        first.inputs.append(graph.add_parameter(f"{second.output}.bias.merged", bias).name)
    first.output = second.output
    graph.remove([second])
    graph.note(second, f"merged into {first.name}")
