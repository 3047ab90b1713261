"""Running a graph in floating point, without any runtime: the meaning the fixed-point program approximates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from covey.interval import Array
from covey.ir import Graph, Node, Postprocess

BATCH_ELEMENTS = 1 << 22
"""Calibration computes so many elements of the widest activation at once."""


def run(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every activation of the graph by name, for `inputs` [N, ..] by name. Postprocessing is not applied."""
    values = _given(graph, inputs)
    for node in graph.nodes:
        values[node.output] = _evaluate(graph, node, values)
    return values


def outputs(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """The graph's outputs in order, postprocessing applied."""
    values = run(graph, inputs)
    results = []
    for name in graph.outputs:
        result = values[name]
        if graph.postprocess.get(name) is Postprocess.SOFTMAX:
            powers = np.exp(result - result.max(axis=-1, keepdims=True))
            result = powers / powers.sum(axis=-1, keepdims=True)
        results.append(result)
    return results


def spans(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
    """The least and the largest value of every activation over a data set, which is run a part at a time."""
    found: dict[str, tuple[float, float]] = {}
    for name, value in each(graph, inputs):
        low, high = found.get(name, (np.inf, -np.inf))
        found[name] = (min(low, float(value.min())), max(high, float(value.max())))
    return found


def each(graph: Graph, inputs: Mapping[str, Array], run: int = 0) -> Iterator[tuple[str, Array]]:
    """Every activation of every part of a data set, each held no longer than it is read, in a sequence's run."""
    for part in parts(graph, inputs):
        values: dict[str, Array] = dict(part)
        readers = Counter(name for node in graph.nodes for name in set(node.inputs))
        yield from part.items()
        for node in graph.nodes:
            values[node.output] = _evaluate(graph, node, values, run)
            yield node.output, values[node.output]
            if not readers[node.output]:
                del values[node.output]
            for name in set(node.inputs) & values.keys():
                readers[name] -= 1
                if readers[name] == 0:
                    del values[name]


def _evaluate(graph: Graph, node: Node, values: Mapping[str, Array], run: int = 0) -> Array:
    operands = (graph.parameters[name] if name in graph.parameters else values[name] for name in node.inputs)
    return node.op.in_run(run).reference(*operands)


def parts(graph: Graph, inputs: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """A data set a few samples at a time, so that the widest activation of the graph stays small."""
    count = min(len(inputs[name]) for name in graph.inputs)
    widest = max(graph.values[name].size for name in [*graph.inputs, *(node.output for node in graph.nodes)])
    step = max(1, min(64, BATCH_ELEMENTS // widest))
    for start in range(0, count, step):
        yield _given(graph, {name: inputs[name][start : start + step] for name in graph.inputs})


def _given(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the nodes read: the inputs, and zeros for what the first run of a sequence carries."""
    values = {name: np.asarray(inputs[name], dtype=np.float64) for name in graph.inputs}
    samples = len(next(iter(values.values()))) if values else 1
    for name in graph.carried.keys() - values.keys():
        values[name] = np.zeros((samples, *graph.values[name].shape))
    return values
