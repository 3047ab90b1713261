"""Bits that stay bits, lowered from a graph made by hand: no model's operator gives them."""

from __future__ import annotations

import numpy as np

import interpreter
from covey.compiled import Compiled
from covey.emit import program_file
from covey.ir import DType, Graph, Node, Op, Value
from covey.lowering import Lowering, Settings
from covey.ops import bits


def test_one_comparison_serves_selections_and_logic() -> None:
    graph = Graph("bits", inputs=["x", "y"])
    for name in graph.inputs:
        graph.add_value(Value(name, (5, 7)))

    def node(output: str, op: Op, *inputs: str, dtype: DType = DType.BOOL) -> str:
        graph.add_value(Value(output, op.shape(*(graph.values[name] for name in inputs)), dtype=dtype))
        graph.nodes.append(Node(output, type(op).__name__, op, list(inputs), output))
        return output

    left, right = (node(f"{name}<0", bits.IsNegative(), name) for name in graph.inputs)
    both = node("both", bits.And(), left, right)
    neither = node("neither", bits.Not(), node("either", bits.Or(), left, right))
    for bit in (left, both, neither):
        graph.outputs.append(node(f"by {bit}", bits.Select(), bit, "x", "y", dtype=DType.FLOAT))
    graph.outputs.append(node("count", bits.BitToInteger(), neither, dtype=DType.INDEX))

    settings = Settings(ring_bits=32, scale=8)
    low = Lowering(graph, settings, ranges={"x": (-8.0, 8.0), "y": (-8.0, 8.0)}, magnitudes=None)
    low.run()
    content, digest = program_file(low.program, "bits")
    compiled = Compiled(content, digest, low.weights, {}, graph)

    kept = [value.name for value in interpreter.program_of(compiled).values if value.bits]
    assert kept == ["x<0", "y<0", "both", "either", "neither"]
    x, y = (np.random.default_rng(seed).integers(-2048, 2048, (3, 5, 7)) / 256.0 for seed in (1, 2))
    x[0, 0, :3] = 0.0
    found = interpreter.run(compiled, {"x": x, "y": y})
    due = [np.where(bit, x, y) for bit in (x < 0, (x < 0) & (y < 0), (x >= 0) & (y >= 0))]
    for got, expected in zip(found, [*due, (x >= 0) & (y >= 0)], strict=True):
        np.testing.assert_array_equal(got, expected)
