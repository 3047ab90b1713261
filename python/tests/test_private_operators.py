"""Operators among real parties: every output equals the clear one, bit for bit, with three parties and with two,
and every link carries what the plan says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import builders
import covey
from agreement import image
from covey import _core
from covey.clear import run_clear
from covey.model import load
from covey.parties import Parties


@pytest.fixture(scope="module", params=["trio", "quad", "two-party"])
def parties(request: pytest.FixtureRequest) -> Iterator[Parties]:
    with covey.local(request.param) as running:
        yield running


def convolutions() -> onnx.ModelProto:
    """1-D, 3-D and transposed convolutions, with the pooling between."""
    rng = np.random.default_rng(0)
    constants = {
        "w1": builders.weights(rng, 2, 2, 3),
        "w2": builders.weights(rng, 2, 1, 2, 2, 2),
        "w3": builders.weights(rng, 2, 2, 3, 3),
        "volume": np.array([-1, 2, 2, 3, 2]),
        "map": np.array([-1, 2, 1, 1]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="rows", pads=[1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MaxPool", ["b"], ["c"], name="row pool", kernel_shape=[2], strides=[1], pads=[1, 0]),
        helper.make_node("Reshape", ["c", "volume"], ["d"], name="to volume"),
        helper.make_node("Conv", ["d", "w2"], ["e"], name="volumes", pads=[0, 0, 0, 0, 0, 1], group=2),
        helper.make_node("AveragePool", ["e"], ["f"], name="volume pool", kernel_shape=[1, 2, 2]),
        helper.make_node("Reshape", ["f", "map"], ["g"], name="to map"),
        helper.make_node("ConvTranspose", ["g", "w3"], ["h"], name="transposed", strides=[2, 2], pads=[1, 0, 0, 1]),
        helper.make_node("Relu", ["h"], ["y"], name="last relu"),
    ]
    return builders.model(nodes, {"x": ["N", 2, 12]}, ["y"], constants)


def activations() -> onnx.ModelProto:
    """Every activation function, joined."""
    constants = {"slope": np.array([[0.25], [-0.5]])}
    names = ["LeakyRelu", "Abs", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Softplus", "Elu"]
    nodes = [helper.make_node(name, ["x"], [name], name=name) for name in names]
    nodes.append(helper.make_node("PRelu", ["x", "slope"], ["PRelu"], name="PRelu"))
    nodes.append(helper.make_node("Concat", [*names, "PRelu"], ["y"], name="join", axis=2))
    return builders.model(nodes, {"x": ["N", 2, 3]}, ["y"], constants)


def comparisons() -> onnx.ModelProto:
    """Comparisons, logic, choices, larger and smaller."""
    constants = {"k": np.array([0.5, -0.25, 0.125, 0.0]), "mask": np.array([True, False, True, True])}
    nodes = [
        helper.make_node("Neg", ["x"], ["minus"], name="neg"),
        helper.make_node("Less", ["x", "k"], ["p"], name="less"),
        helper.make_node("GreaterOrEqual", ["x", "minus"], ["q"], name="greater"),
        helper.make_node("Equal", ["x", "minus"], ["r"], name="equal"),
        helper.make_node("And", ["p", "q"], ["pq"], name="and"),
        helper.make_node("Xor", ["pq", "r"], ["s"], name="xor"),
        helper.make_node("Or", ["s", "r"], ["t"], name="or"),
        helper.make_node("Where", ["t", "x", "k"], ["u"], name="where"),
        helper.make_node("Where", ["mask", "u", "x"], ["v"], name="public where"),
        helper.make_node("Max", ["v", "minus", "k"], ["w"], name="max"),
        helper.make_node("Min", ["w", "x"], ["y"], name="min"),
    ]
    return builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], constants)


def whole_parts() -> onnx.ModelProto:
    """Floors, roundings to the nearest and remainders, joined."""
    constants = {"three": np.array(3.0), "part": np.array(-0.375), "one": np.array(1.0)}
    nodes = [helper.make_node(name, ["x"], [name], name=name) for name in ("Floor", "Ceil", "Round")]
    nodes += [helper.make_node("Mod", ["x", name], [name + " rest"], name=name, fmod=1) for name in ("three", "one")]
    nodes.append(helper.make_node("Mod", ["x", "part"], ["part rest"], name="part", fmod=1))
    nodes.append(helper.make_node("Concat", [node.output[0] for node in nodes], ["y"], name="join", axis=2))
    return builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], constants)


def truths() -> onnx.ModelProto:
    """Truth values in and out."""
    nodes = [
        helper.make_node("Not", ["x"], ["n"], name="not"),
        helper.make_node("Transpose", ["n"], ["t"], name="turn", perm=[0, 2, 1]),
        helper.make_node("And", ["t", "t"], ["y"], name="and"),
    ]
    return builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], dtype=TensorProto.BOOL)


def moves() -> onnx.ModelProto:
    """Slices, splits, repeats, resizing and reductions."""
    constants = {
        "starts": np.array([-1, 0]),
        "ends": np.array([-9, 3]),
        "axes": np.array([2, 1]),
        "steps": np.array([-2, 1]),
        "repeats": np.array([1, 2, 1]),
        "indices": np.array([2, 0, 2]),
        "scales": np.array([1.0, 1.0, 2.0]),
        "third": np.array([1.0, 1.0, 1 / 3]),
        "last": np.array([2]),
    }
    nodes = [
        helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["a"], name="slice"),
        helper.make_node("Tile", ["a", "repeats"], ["b"], name="tile"),
        helper.make_node("Split", ["b"], ["c", "d"], name="split", axis=1),
        helper.make_node("Gather", ["c", "indices"], ["e"], name="gather", axis=1),
        helper.make_node("Resize", ["e", "", "scales"], ["f"], name="resize", mode="nearest"),
        helper.make_node("Resize", ["f", "", "third"], ["l"], name="linear", mode="linear"),
        helper.make_node("ReduceMax", ["l"], ["g"], name="largest", axes=[1], keepdims=1),
        helper.make_node("ReduceSum", ["d", "last"], ["h"], name="sum", keepdims=1),
        helper.make_node("Add", ["g", "h"], ["i"], name="add"),
        helper.make_node("Pow", ["i", "two"], ["y"], name="square"),
    ]
    return builders.model(nodes, {"x": ["N", 4, 6]}, ["y"], {**constants, "two": np.array(2.0)})


def means() -> onnx.ModelProto:
    """Average pools: before a convolution of single elements, divided by weights or not, merged."""
    rng = np.random.default_rng(0)
    constants = {
        "point": builders.weights(rng, 4, 3, 1, 1),
        "merged": builders.weights(rng, 3, 4, 3, 3),
        "matrix": builders.weights(rng, 12, 5),
    }
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Conv", ["a", "point"], ["b"], name="point"),
        helper.make_node("AveragePool", ["b"], ["c"], name="before point", **pool),
        helper.make_node("Relu", ["c"], ["d"], name="second relu"),
        helper.make_node("Conv", ["d", "merged"], ["e"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["e"], ["f"], name="merged", **pool),
        helper.make_node("Relu", ["f"], ["g"], name="third relu"),
        helper.make_node("AveragePool", ["g"], ["h"], name="divided", kernel_shape=[2, 2]),
        helper.make_node("Flatten", ["h"], ["i"], name="flatten"),
        helper.make_node("MatMul", ["i", "matrix"], ["y"], name="last"),
    ]
    return builders.model(nodes, {"x": ["N", 3, 12, 12]}, ["y"], constants)


def stacks() -> onnx.ModelProto:
    """Padding that mirrors, products with stacks of matrices from both sides, a region resized."""
    rng = np.random.default_rng(0)
    constants = {
        "pads": np.array([0, 0, 1, 2, 0, 0, 0, 1]),
        "right": rng.uniform(-0.4, 0.4, (3, 7, 6)),
        "left": rng.uniform(-0.4, 0.4, (3, 4, 5)),
        "region": np.array([0, 0, 0.25, 0, 1, 1, 1, 0.75]),
        "sizes": np.array([2, 3, 3, 5]),
    }
    crop = "tf_crop_and_resize"
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["a"], name="mirror", mode="reflect"),
        helper.make_node("MatMul", ["a", "right"], ["b"], name="from the right"),
        helper.make_node("MatMul", ["left", "b"], ["c"], name="from the left"),
        helper.make_node("Relu", ["c"], ["d"], name="relu"),
        helper.make_node(
            "Resize",
            ["d", "region", "", "sizes"],
            ["y"],
            name="crop",
            mode="linear",
            coordinate_transformation_mode=crop,
        ),
    ]
    return builders.model(nodes, {"x": [2, 3, 4, 4]}, ["y"], constants, opset=19)


def recurrent() -> onnx.ModelProto:
    """An LSTM both ways, then a GRU."""
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.uniform(-0.5, 0.5, (2, 12, 4)),
        "r1": rng.uniform(-0.5, 0.5, (2, 12, 3)),
        "w2": rng.uniform(-0.5, 0.5, (1, 6, 6)),
        "r2": rng.uniform(-0.5, 0.5, (1, 6, 2)),
        "joined": np.array([0, 0, -1]),
        "first": np.array([0]),
    }
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], name="to front", perm=[1, 0, 2]),
        helper.make_node("LSTM", ["a", "w1", "r1"], ["b"], name="lstm", hidden_size=3, direction="bidirectional"),
        helper.make_node("Transpose", ["b"], ["c"], name="directions", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["c", "joined"], ["d"], name="join"),
        helper.make_node("GRU", ["d", "w2", "r2"], ["", "e"], name="gru", hidden_size=2, linear_before_reset=1),
        helper.make_node("Squeeze", ["e", "first"], ["y"], name="squeeze"),
    ]
    return builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], constants)


def positions() -> onnx.ModelProto:
    """Rotary embedding of a part of the elements."""
    angles = np.outer(np.arange(3), [1.0, 0.1])
    constants = {"cos": np.cos(angles), "sin": np.sin(angles), "at": np.array([[2, 0, 1]] * 2)}
    options = {"num_heads": 2, "rotary_embedding_dim": 4}
    nodes = [helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "at"], ["y"], name="rotary", **options)]
    return builders.model(nodes, {"x": [2, 2, 3, 6]}, ["y"], constants, opset=23)


def fused() -> onnx.ModelProto:
    """Attention with packed weights, and a Gelu with a bias."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.uniform(-0.5, 0.5, (4, 12)), "b": rng.uniform(-0.5, 0.5, 12), "c": rng.uniform(-1, 1, 4)}
    options = {"num_heads": 2, "unidirectional": 1}
    nodes = [
        helper.make_node("Attention", ["x", "w", "b"], ["a"], name="attention", domain="com.microsoft", **options),
        helper.make_node("BiasGelu", ["a", "c"], ["y"], name="gelu", domain="com.microsoft"),
    ]
    return builders.model(nodes, {"x": ["N", 3, 4]}, {"y": ["N", 3, 4]}, constants)


def best() -> onnx.ModelProto:
    """The largest elements and their places, and the smallest ones."""
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["a", "b"], name="largest"),
        helper.make_node("TopK", ["x", "k"], ["c", "d"], name="smallest", axis=1, largest=0),
    ]
    constants = {"k": np.array([3])}
    return builders.model(nodes, {"x": ["N", 4, 9]}, ["a", "b", "c"], constants, types={"b": TensorProto.INT64})


def reductions() -> onnx.ModelProto:
    """Norms, logarithms of sums, sums up to each element, a product by labels."""
    last, axis = np.array([2]), np.array(2)
    nodes = [
        helper.make_node("LpNormalization", ["x"], ["a"], name="norm", p=2),
        helper.make_node("LpNormalization", ["x"], ["b"], name="norm of sizes", p=1, axis=1),
        helper.make_node("Einsum", ["a", "b"], ["c"], name="product", equation="bij,bkj->bik"),
        helper.make_node("CumSum", ["c", "axis"], ["d"], name="up to each", reverse=1),
        helper.make_node("Trilu", ["d"], ["e"], name="triangle", upper=0),
        helper.make_node("ReduceL2", ["e", "last"], ["f"], name="length"),
        helper.make_node("ReduceLogSumExp", ["d", "last"], ["g"], name="logarithm"),
        helper.make_node("ReduceProd", ["d", "last"], ["h"], name="products"),
        helper.make_node("Concat", ["f", "g", "h"], ["y"], name="join", axis=2),
    ]
    return builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], {"last": last, "axis": axis}, opset=18)


def selections() -> onnx.ModelProto:
    """Elements of data and rows of a table at places of the largest elements."""
    constants = {"two": np.array([2]), "last": np.array([1]), "table": np.linspace(-1, 1, 12).reshape(4, 3)}
    nodes = [
        helper.make_node("TopK", ["x", "two"], ["a", "i"], name="best", axis=1),
        helper.make_node("GatherElements", ["x", "i"], ["b"], name="again", axis=1),
        helper.make_node("ReduceMax", ["x"], ["c"], name="largest", axes=[1], keepdims=0),
        helper.make_node("ArgMax", ["c"], ["j"], name="column", axis=1),
        helper.make_node("Transpose", ["x"], ["d"], name="turned", perm=[0, 2, 1]),
        helper.make_node("GatherND", ["d", "j"], ["e"], name="chosen", batch_dims=1),
        helper.make_node("Gather", ["table", "j"], ["f"], name="row"),
        helper.make_node("Squeeze", ["f", "last"], ["g"], name="squeezed"),
        helper.make_node("Reshape", ["b", "shape"], ["h"], name="flat"),
        helper.make_node("Concat", ["e", "g", "h"], ["y"], name="join", axis=1),
    ]
    return builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], {**constants, "shape": np.array([0, 8])})


MODELS: list[Callable[[], onnx.ModelProto]] = [
    convolutions,
    activations,
    comparisons,
    whole_parts,
    truths,
    moves,
    means,
    stacks,
    recurrent,
    positions,
    fused,
    best,
    reductions,
    selections,
]


def _links(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["offline"], row["from"], row["to"], row["bytes"]) for row in rows)


@pytest.mark.parametrize("build", MODELS)
@pytest.mark.parametrize("ring", [32, 64])
def test_private_equals_clear(parties: Parties, build: Callable[[], onnx.ModelProto], ring: int) -> None:
    proto = build()
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim][1:]
    data = np.rint(image(2, *shape)["x"] * 16) / 16
    if build is truths:
        data = (data > 0).astype(np.float64)
    model = load(covey.compile(proto, input_range=(-1, 1), ring=ring))
    due = run_clear(model, data)
    got = parties.run(model, data)
    assert got.integers.keys() == due.integers.keys()
    for name, expected in due.integers.items():
        np.testing.assert_array_equal(got.integers[name], expected)
        assert len(np.unique(expected)) > 1
    assert got.profile is not None
    plan = json.loads(_core.plan(model.program, parties.protocol, 2))
    planned = {node["name"]: _links(node["links"]) for node in plan["nodes"] if node["links"]}
    assert {node.name: _links(node.links) for node in got.profile.nodes if node.links} == planned
    truth = builders.float_results(proto, {"x": data}) if build is not truths else [1 - data.transpose(0, 2, 1)]
    for name, expected in zip(due.outputs, truth, strict=True):
        np.testing.assert_allclose(due.outputs[name], expected, atol=0.02)
