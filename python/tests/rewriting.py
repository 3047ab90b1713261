"""What passes make of a model, after checking that it still computes the same."""

from __future__ import annotations

import numpy as np
import onnx

from covey import reference
from covey.importers.onnx import import_model
from covey.ir import Graph
from covey.passes import rewrite


def rewritten(proto: onnx.ModelProto) -> tuple[Graph, Graph]:
    """The graph before and after the passes."""
    before, after = import_model(proto), import_model(proto)
    assert rewrite(after) == []
    return before, after


def same_function(proto: onnx.ModelProto, *shape: int) -> Graph:
    """The rewritten graph, after checking that it computes the same."""
    before, after = rewritten(proto)
    data = {"x": np.random.default_rng(5).normal(size=shape)}
    for left, right in zip(reference.outputs(before, data), reference.outputs(after, data), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)
    return after


def ops(graph: Graph) -> list[str]:
    """Operators in order."""
    return [node.op.label for node in graph.nodes]
