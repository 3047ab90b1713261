"""Models of the domain ai.onnx.ml built in memory, trees at random, and the check against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import builders
import covey
import interpreter
from covey import reference
from covey.importers.onnx import import_model

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Mapping[str, int],
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model with outputs of the given element types."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        # A valid model states shapes; labels come in several.
        [
            helper.make_tensor_value_info(name, kind, ["N", name] if kind == TensorProto.FLOAT else ["N"])
            for name, kind in outputs.items()
        ],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def single(op: str, features: int, labels: bool = False, **attributes: Any) -> onnx.ModelProto:
    """One node named 'the_node' that reads x [N, features] and gives y, behind labels where it has them."""
    names = ["label", "y"] if labels else ["y"]
    node = helper.make_node(op, ["x"], names, name="the_node", domain=ML, **attributes)
    kinds = dict.fromkeys(names, TensorProto.FLOAT)
    if labels:
        kinds["label"] = TensorProto.INT64
    return model([node], {"x": ["N", features]}, kinds)


@dataclass
class Branch:
    """An inner node: what it compares and how, and where it leads to."""

    feature: int
    mode: str
    threshold: float
    true: Branch | np.ndarray
    false: Branch | np.ndarray


def grow(rng: np.random.Generator, depth: int, features: int, results: int, modes: Sequence[str] = MODES) -> Any:
    """A random tree: a `Branch`, or the values of a leaf."""
    if depth == 0 or rng.random() < 0.15:
        return np.float32(rng.normal(size=results)).astype(np.float64)
    # Quarters, so that inputs meet thresholds, and numbers between them.
    threshold = float(np.float32(rng.integers(-8, 9) / 4 + rng.choice([0.0, 0.0, 0.013, -0.2])))
    branches = (grow(rng, depth - 1, features, results, modes) for _ in range(2))
    return Branch(int(rng.integers(features)), str(rng.choice(modes)), threshold, *branches)


def attributes(trees: Sequence[Any], kind: str, results: int) -> dict[str, Any]:
    """The trees as the attributes of a tree ensemble; `kind` is 'class' or 'target'."""
    lists: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    }
    lists |= {f"{kind}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}

    def add(tree: int, part: Any) -> int:
        number = lists["nodes_treeids"].count(tree)
        row = len(lists["nodes_treeids"])
        inner = isinstance(part, Branch)
        for name, value in (
            ("treeids", tree),
            ("nodeids", number),
            ("featureids", part.feature if inner else 0),
            ("modes", part.mode if inner else "LEAF"),
            ("values", part.threshold if inner else 0.0),
            ("truenodeids", 0),
            ("falsenodeids", 0),
        ):
            lists[f"nodes_{name}"].append(value)
        if inner:
            lists["nodes_truenodeids"][row] = add(tree, part.true)
            lists["nodes_falsenodeids"][row] = add(tree, part.false)
            return number
        for result in range(results):
            for name, value in (
                ("treeids", tree),
                ("nodeids", number),
                ("ids", result),
                ("weights", float(part[result])),
            ):
                lists[f"{kind}_{name}"].append(value)
        return number

    for tree, root in enumerate(trees):
        add(tree, root)
    return lists


def reached(tree: Any, x: Any) -> np.ndarray:
    """The leaf that one sample reaches, compared exactly; x may hold fractions."""
    while isinstance(tree, Branch):
        value = x[tree.feature]
        holds = {
            "BRANCH_LEQ": value <= tree.threshold,
            "BRANCH_LT": value < tree.threshold,
            "BRANCH_GTE": value >= tree.threshold,
            "BRANCH_GT": value > tree.threshold,
        }[tree.mode]
        tree = tree.true if holds else tree.false
    return tree


def features(count: int, samples: int = 40, seed: int = 1) -> np.ndarray:
    """Multiples of an eighth in [-3, 3], which meet thresholds."""
    return np.random.default_rng(seed).integers(-24, 25, (samples, count)) / 8


def agree(proto: onnx.ModelProto, data: np.ndarray, tolerance: float = 0.02, **options: Any) -> covey.Compiled:
    """Float reference and program against what onnxruntime gives for the outputs that are no labels."""
    graph = import_model(proto)
    names = [output.name for output in proto.graph.output]
    due = dict(zip(names, builders.float_results(proto, {"x": data}), strict=True))
    expected = [np.asarray(due[name])[:, :: -1 if name in graph.exchanged else 1] for name in graph.exported]
    assert expected
    for result, wanted in zip(reference.outputs(graph, {"x": data}), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
    compiled = covey.compile(proto, **{"calibration": data, **options})
    for name, result, wanted in zip(
        compiled.graph.outputs, interpreter.run(compiled, {"x": data}), expected, strict=True
    ):
        powers = np.exp(result) if name in compiled.graph.postprocess else None
        got = result if powers is None else powers / powers.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(got, wanted, atol=tolerance)
    return compiled


def operations(compiled: covey.Compiled) -> list[str]:
    return [str(node.WhichOneof("op")) for node in interpreter.program_of(compiled).nodes]
