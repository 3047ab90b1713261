"""Drops channels between two layers that are always zero, or that the second layer does not read.

Pruning leaves such channels behind. How many stay is part of the program, which every party sees, so the pass only runs
when the model's owner asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from covey.interval import Array
from covey.ir import Graph, Node
from covey.ops.average_pool import AveragePool
from covey.ops.clip import Clip
from covey.ops.conv import Conv2d, ConvNd
from covey.ops.dense import Dense
from covey.ops.max_pool import MaxPool
from covey.ops.relu import Relu
from covey.ops.reshape import Reshape


def drop_dead_channels(graph: Graph) -> None:
    """Drop them until there are none left: a dropped channel may have been the last reader of another."""
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            pair = _pair(graph, node)
            if pair is not None:
                changed |= _shrink(graph, pair)


@dataclass(frozen=True)
class _Pair:
    """Two layers with only rectifiers, pools and a flattening between them."""

    first: Node
    between: list[Node]
    second: Node
    block: int
    """Elements of the second layer's input that one channel has become."""


def _pair(graph: Graph, first: Node) -> _Pair | None:
    if not _is_layer(first):
        return None
    name, block = first.output, 1
    between: list[Node] = []
    while True:
        reader = graph.only_consumer(name)
        if reader is None or reader.inputs[0] != name:
            return None
        shape = graph.values[name].shape
        if _is_layer(reader):
            fits = len(shape) == 1 if isinstance(reader.op, Dense) else block == 1
            return _Pair(first, between, reader, block) if fits else None
        flattens = isinstance(reader.op, Reshape) and reader.op.target == (int(np.prod(shape)),) and block == 1
        if isinstance(reader.op, MaxPool | AveragePool):
            if isinstance(first.op, Dense):
                return None
        elif flattens and not isinstance(first.op, Dense):
            block = int(np.prod(shape[1:]))
        elif not isinstance(reader.op, Relu | Clip):
            return None
        between.append(reader)
        name = reader.output


def _is_layer(node: Node) -> bool:
    return isinstance(node.op, Dense) or (isinstance(node.op, Conv2d | ConvNd) and node.op.groups == 1)


def _shrink(graph: Graph, pair: _Pair) -> bool:
    """Drop what is dead between two layers; whether anything was."""
    first, second = pair.first, pair.second
    if len(graph.values[first.output].shape) > 1 and isinstance(first.op, Dense):
        return False
    outputs = _channels_first(graph.parameters[first.inputs[1]], isinstance(first.op, Dense))
    reads = graph.parameters[second.inputs[1]]
    # One row a channel: [C * block, M] for dense layers, [O, C, ..] for convolutions.
    dense = isinstance(second.op, Dense)
    rows = reads.reshape(len(outputs), -1) if dense else np.swapaxes(reads, 0, 1).reshape(len(outputs), -1)
    bias = graph.parameters[first.inputs[2]] if len(first.inputs) > 2 else np.zeros(len(outputs))
    constant = bias
    for node in pair.between:
        if isinstance(node.op, Relu | Clip):
            constant = node.op.reference(constant)
    dead = (~outputs.any(axis=1) & (constant == 0)) | ~rows.any(axis=1)
    if dead.all():
        # A layer keeps one channel, whatever it holds.
        dead[0] = False
    if not dead.any():
        return False
    kept = np.flatnonzero(~dead)
    _keep(graph, pair, kept, dense)
    graph.note_more(first, f"{int(dead.sum())} of {len(dead)} channels dropped: always zero or never read")
    return True


def _channels_first(weight: Array, dense: bool) -> Array:
    """One row for each output channel."""
    return weight.T if dense else weight.reshape(len(weight), -1)


def _keep(graph: Graph, pair: _Pair, kept: npt.NDArray[np.int64], dense: bool) -> None:
    first, second = pair.first, pair.second
    weight = graph.parameters[first.inputs[1]]
    less = weight[:, kept] if isinstance(first.op, Dense) else weight[kept]
    changed = [first.inputs[0], graph.add_parameter(f"{first.inputs[1]}.kept", less).name]
    if len(first.inputs) > 2:
        changed.append(graph.add_parameter(f"{first.inputs[2]}.kept", graph.parameters[first.inputs[2]][kept]).name)
    first.inputs = changed
    reads = graph.parameters[second.inputs[1]]
    blocks = reads.reshape(-1, pair.block, reads.shape[1]) if dense else reads
    rest = blocks[kept].reshape(-1, reads.shape[1]) if dense else reads[:, kept]
    second.inputs[1] = graph.add_parameter(f"{second.inputs[1]}.kept", rest).name
    for node in (first, *pair.between):
        value = graph.values[node.output]
        if isinstance(node.op, Reshape):
            node.op = Reshape((len(kept) * pair.block,))
        flat = len(value.shape) == 1 and node is not first and not isinstance(first.op, Dense)
        size = len(kept) * (pair.block if flat else 1)
        graph.values[node.output] = replace(value, shape=(size, *value.shape[1:]))
