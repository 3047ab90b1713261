"""Normalisation by statistics of the sample, and division by numbers from wide ranges: errors against float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import interpreter
from agreement import agree, image
from covey.ops.quotient import Quotient
from covey.ops.standardising import Deviation, Standardised

FAR = 4.0
EPSILON = 1e-5


def layer(op: str, count: int, **attributes: Any) -> onnx.ModelProto:
    constants = {"g": np.ones(count)}
    options = {"epsilon": EPSILON, **attributes}
    return builders.single(op, ["N", 2, count], constants, first=["x"], opset=23, **options)


def rows(count: int, scale: int) -> np.ndarray:
    """Rows of equal elements at both ends, at 0 and between; one element far out; narrow, wide and shifted ones."""
    rng = np.random.default_rng(count)
    x = rng.normal(size=(24, 2, count))
    x[0], x[1], x[2], x[3] = 0.0, FAR, -FAR, 2.7
    x[4], x[5] = -FAR, -FAR / 2
    x[4, :, 0], x[5, :, -1] = FAR, FAR / 2
    x[6] = rng.uniform(-FAR, FAR, x[6].shape)
    x[7] = rng.normal(size=x[7].shape) * 0.3 - 2
    return np.rint(np.clip(x, -FAR, FAR) * 2.0**scale) / 2.0**scale


def standard(x: np.ndarray, *, centred: bool) -> np.ndarray:
    d = x - x.mean(axis=-1, keepdims=True) if centred else x
    return d / np.sqrt((d**2).mean(axis=-1, keepdims=True) + EPSILON)


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize(("ring", "scale"), [(32, 12), (64, 16), (64, 20)])
@pytest.mark.parametrize("count", [2, 3, 10, 128, 768])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_errors_of_rows(op: str, count: int, ring: int, scale: int, calibrated: bool) -> None:
    x = rows(count, scale)
    options: dict[str, Any] = {"calibration": {"x": x}, "max_error": 1} if calibrated else {}
    compiled = covey.compile(layer(op, count), input_range=(-FAR, FAR), ring=ring, scale=scale, **options)
    (y,) = interpreter.run(compiled, {"x": x})
    due = standard(x, centred=op == "LayerNormalization")
    # A row's deviation is known to a unit; so much of it, and what tables and the last place add, is the error.
    spread = np.sqrt((due**2).mean(axis=-1, keepdims=True) * x.var(axis=-1, keepdims=True) + EPSILON)
    unit = 2.0**-scale
    assert (np.abs(y - due) <= 4e-4 * np.abs(due) + (4 if ring == 32 else 1.5) * unit * (1 + 1 / spread)).all()
    assert np.linalg.norm(y - due) <= (6e-3 if count == 2 else 2e-3) * np.linalg.norm(due)
    (table,) = compiled.report["tables"]
    assert table["error"] <= 1.5e-4
    if op == "LayerNormalization":
        assert (y[:4] == 0).all(), "rows of equal elements"


@pytest.mark.parametrize("scale", [8, 10])
def test_coarse_scales(scale: int) -> None:
    x = rows(64, scale)
    compiled = covey.compile(layer("LayerNormalization", 64), input_range=(-FAR, FAR), ring=32, scale=scale)
    (y,) = interpreter.run(compiled, {"x": x})
    due = standard(x, centred=True)
    assert np.linalg.norm(y - due) <= 2.0 ** (3 - scale) * np.linalg.norm(due)


def test_outliers_and_calibrated_bounds() -> None:
    """Behind a layer whose proved bound is loose, with features a hundred times the others."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(16, 96)) / 4
    weight[:, 5] *= 60
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "g", "b"], ["y"], name="the_node"),
    ]
    proto = builders.model(
        nodes, {"x": ["N", 5, 16]}, ["y"], {"w": weight, "g": rng.uniform(0.5, 2, 96), "b": rng.normal(size=96)}
    )
    x = {"x": rng.normal(size=(16, 5, 16)).clip(-4, 4)}
    for ring, most in ((32, 8e-3), (64, 5e-4)):
        compiled = covey.compile(proto, calibration=x, input_range=(-4, 4), ring=ring)
        (y,) = interpreter.run(compiled, x)
        due = builders.float_results(proto, x)[0]
        assert np.linalg.norm(y - due) <= most * np.linalg.norm(due)


MODELS: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray], tuple[int, ...], int]] = {
    "layer": (
        [helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], axis=-1)],
        {"g": np.linspace(0.5, 1.5, 6), "b": np.linspace(-1, 1, 6)},
        (3, 4, 6),
        17,
    ),
    "layer over two axes": (
        [helper.make_node("LayerNormalization", ["x", "g", "b"], ["y"], axis=2, epsilon=1e-3)],
        {"g": np.linspace(0.5, 1.5, 24).reshape(4, 6), "b": np.linspace(-1, 1, 24).reshape(4, 6)},
        (3, 2, 4, 6),
        17,
    ),
    "layer, all but the batch": (
        [helper.make_node("LayerNormalization", ["x", "g"], ["y"], axis=1)],
        {"g": np.ones((4, 6))},
        (3, 4, 6),
        17,
    ),
    "instances": (
        [helper.make_node("InstanceNormalization", ["x", "g", "b"], ["y"])],
        {"g": np.linspace(0.5, 1.5, 4), "b": np.linspace(-1, 1, 4)},
        (3, 4, 5, 6),
        17,
    ),
    "groups": (
        [helper.make_node("GroupNormalization", ["x", "g", "b"], ["y"], num_groups=2)],
        {"g": np.linspace(0.5, 1.5, 4), "b": np.linspace(-1, 1, 4)},
        (3, 4, 5, 6),
        21,
    ),
    "where the batch has moved": (
        [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            helper.make_node("LayerNormalization", ["t", "g"], ["n"]),
            helper.make_node("Transpose", ["n"], ["y"], perm=[1, 0, 2]),
        ],
        {"g": np.ones(6)},
        (3, 4, 6),
        17,
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_models(case: str) -> None:
    nodes, constants, shape, opset = MODELS[case]
    proto = builders.model(nodes, {"x": ["N", *shape[1:]]}, ["y"], constants, opset=opset)
    # ONNX does not infer those of groups.
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", *shape[1:]]))
    agree(proto, image(*shape), tolerance=4e-3)


def test_root_mean_squares_as_onnx_defines_them() -> None:
    proto = builders.single("RMSNormalization", ["N", 3, 8], {"g": np.linspace(0.5, 1.5, 8)}, opset=23)
    x = image(3, 3, 8)
    due = standard(x["x"], centred=False) * np.linspace(0.5, 1.5, 8)
    agree(proto, x, tolerance=4e-3, expected=[due])


@pytest.mark.parametrize("bias", [False, True])
def test_the_skip_of_onnxruntime(bias: bool) -> None:
    rng = np.random.default_rng(0)
    constants = {"g": rng.uniform(0.5, 1.5, 8), "b": rng.normal(size=8)} | ({"c": rng.normal(size=8)} if bias else {})
    skip = helper.make_node(
        "SkipLayerNormalization",
        ["x", "s", *constants],
        ["y", "", "", "sum"],
        name="the_node",
        domain="com.microsoft",
        epsilon=1e-5,
    )
    nodes = [helper.make_node("Relu", ["x"], ["s"]), skip, helper.make_node("Relu", ["sum"], ["z"])]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 3, 8]) for name in "xyz"]
    weights = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    agree(helper.make_model(graph, opset_imports=opsets, ir_version=10), image(3, 3, 8), tolerance=4e-3)


def test_the_skip_of_onnxruntime_adds_next_to_nothing_by_default() -> None:
    constants = {"g": np.ones(8), "b": np.zeros(8)}
    nodes = [
        helper.make_node("Relu", ["x"], ["s"]),
        helper.make_node("SkipLayerNormalization", ["x", "s", *constants], ["y"], name="n", domain="com.microsoft"),
    ]
    proto = builders.model(nodes, {"x": ["N", 3, 8]}, {"y": ["N", 3, 8]}, constants)
    agree(proto, {"x": image(3, 3, 8)["x"] / 100}, tolerance=2e-2, ring=64, scale=20)


WRITTEN_OUT = {
    "sqrt and div": "Pow d two p; ReduceMean p v; Add v e s; Sqrt s r; Div d r n",
    "product and reciprocal": "Mul d d p; ReduceMean p v; Add e v s; Sqrt s r; Reciprocal r i; Mul d i n",
    "power": "Pow d two p; ReduceMean p v; Add v e s; Pow s minus i; Mul i d n",
}


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("how", WRITTEN_OUT)
def test_written_out_forms(how: str, centred: bool) -> None:
    nodes = []
    text = ("ReduceMean h m; Sub h m d; " if centred else "Identity h d; ") + WRITTEN_OUT[how] + "; Mul n g y"
    for step in text.split("; "):
        op, *operands, result = step.split()
        more = {"axes": [-1], "keepdims": 1} if op == "ReduceMean" else {}
        nodes.append(helper.make_node(op, operands, [result], name=f"{op} {result}", **more))
    constants = {
        "two": np.array(2.0),
        "e": np.array(1e-5),
        "minus": np.array(-0.5),
        "g": np.linspace(0.5, 1.5, 8),
        "w": np.random.default_rng(0).normal(size=(6, 8)),
    }
    used = {name for node in nodes for name in node.input} | {"w"}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), *nodes]
    proto = builders.model(nodes, {"x": ["N", 3, 6]}, ["y"], {k: v for k, v in constants.items() if k in used})
    compiled = agree(proto, image(4, 3, 6), tolerance=4e-3)
    ops = [type(node.op) for node in compiled.graph.nodes]
    assert Standardised in ops and (Deviation in ops) == centred
    assert [table["function"] for table in compiled.report["tables"]] == ["Rsqrt"]


def test_mean_and_deviation_are_outputs_too() -> None:
    node = helper.make_node("LayerNormalization", ["x", "g"], ["y", "mean", "inverse"], axis=2)
    proto = builders.model([node], {"x": ["N", 2, 4, 3]}, ["y", "mean", "inverse"], {"g": np.ones((4, 3))})
    agree(proto, image(3, 2, 4, 3), tolerance=4e-3)


def test_refusals() -> None:
    with pytest.raises(covey.CoveyError, match=r"'the_node' \(LayerNormalization\): it runs over axis 0 of .*batch"):
        covey.compile(layer("LayerNormalization", 4, axis=0), input_range=(-1, 1))
    proto = builders.single("InstanceNormalization", ["N", 3, 4], {"g": np.ones(2), "b": np.ones(2)})
    with pytest.raises(covey.CoveyError, match=r"its operand 1 has 2 elements, not 3"):
        covey.compile(proto, input_range=(-1, 1))


WIDE: dict[str, tuple[float, float, int, int, float]] = {
    "Reciprocal": (2.0**-6, 512.0, 32, 12, 3e-4),
    "Sqrt": (0.0, 1000.0, 32, 12, 3e-4),
    "Log": (2.0**-10, 1000.0, 32, 12, 6e-4),
}


@pytest.mark.parametrize("op", WIDE)
def test_functions_of_wide_ranges(op: str) -> None:
    low, high, ring, scale, error = WIDE[op]
    compiled = covey.compile(builders.single(op, ["N", 64]), input_range=(low, high), ring=ring, scale=scale)
    edges = np.concatenate([2.0 ** np.arange(-10, 10), np.array([low, high])])
    numbers = np.concatenate([edges + step * 2.0**-scale for step in (-1, 0, 1)])
    numbers = np.concatenate([numbers, np.geomspace(max(low, 2.0**-scale), high, 2000)])
    x = np.resize(np.clip(np.rint(numbers * 2.0**scale) / 2.0**scale, low, high), (40, 64))
    (y,) = interpreter.run(compiled, {"x": x})
    due = {"Reciprocal": np.reciprocal, "Sqrt": np.sqrt, "Log": np.log}[op](x)
    size, unit = (1.0, 0.0) if op == "Log" else (np.abs(due), 0.51 * 2.0**-scale)
    assert (np.abs(y - due) <= error * size + unit).all()
    if op == "Sqrt":
        assert (y[x == 0] == 0).all()


@pytest.mark.parametrize(("ring", "scale"), [(32, 12), (64, 16)])
def test_quotients_of_two_secrets(ring: int, scale: int) -> None:
    nodes = [
        helper.make_node("Abs", ["b"], ["m"]),
        helper.make_node("Add", ["m", "c"], ["d"]),
        helper.make_node("Div", ["a", "d"], ["y"], name="the_node"),
    ]
    proto = builders.model(nodes, {"a": ["N", 64], "b": ["N", 64]}, ["y"], {"c": np.array(0.25)})
    rng = np.random.default_rng(0)
    x = {"a": rng.uniform(-4, 4, (60, 64)), "b": rng.choice([-1, 1], (60, 64)) * np.exp(rng.uniform(-5, 3.4, (60, 64)))}
    x["b"][0], x["a"][1], x["a"][2] = 0.0, 0.0, 4.0
    x = {name: np.rint(array * 2.0**scale) / 2.0**scale for name, array in x.items()}
    compiled = covey.compile(proto, input_range={"a": (-4, 4), "b": (-32, 32)}, ring=ring, scale=scale)
    assert any(isinstance(node.op, Quotient) for node in compiled.graph.nodes)
    (y,) = interpreter.run(compiled, x)
    due = x["a"] / (np.abs(x["b"]) + 0.25)
    inverse = 2.0**-13 if ring == 32 else 0.0  # of which as many bits are left as the product has room for
    assert (np.abs(y - due) <= 2e-4 * np.abs(due) + inverse * np.abs(x["a"]) + 0.51 * 2.0**-scale).all()
    assert math.isfinite(float(y.sum()))


def test_a_divisor_whose_range_only_data_tell() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["d"]), helper.make_node("Div", ["x", "d"], ["y"], name="the_node")]
    proto = builders.model(nodes, {"x": ["N", 8]}, ["y"], {"w": np.full((8, 8), 0.25)})
    with pytest.raises(covey.CoveyError, match=r"'the_node' \(Div\): .*needs numbers above 0; give calibration data"):
        covey.compile(proto, input_range=(-9, 9))
    x = {"x": np.random.default_rng(0).uniform(0.5, 3, (40, 8))}
    compiled = covey.compile(proto, calibration=x, input_range=(-9, 9))
    np.testing.assert_allclose(interpreter.run(compiled, x)[0], builders.float_results(proto, x)[0], atol=2e-3)
    beyond = interpreter.run(compiled, {"x": np.full((1, 8), -9.0)})[0]
    assert np.isfinite(beyond).all()
