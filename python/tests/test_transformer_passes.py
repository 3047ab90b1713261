"""Rewriting of transformers: scales behind normalisations, layers side by side, the division of Softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import interpreter
from covey.ops.add import Add
from covey.ops.dense import Dense
from covey.ops.mul import Mul
from covey.ops.softmax import Softmax
from covey.ops.weighted_average import Average
from rewriting import same_function

LENGTH, SIZE, WIDE = 6, 16, 24


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape) / np.sqrt(shape[0])


def ops_of(compiled: covey.Compiled) -> list[Any]:
    return [node.op for node in compiled.graph.nodes]


def normalised(text: str, *, residual: bool) -> onnx.ModelProto:
    """A normalisation with scale and shift, layers that read it, and perhaps a sum with it."""
    rng = np.random.default_rng(3)
    constants = {
        "g": rng.uniform(-1.5, 1.5, SIZE),
        "s": rng.normal(size=SIZE),
        "w": weights(rng, SIZE, WIDE),
        "b": rng.normal(size=WIDE),
        "v": weights(rng, WIDE, SIZE),
    }
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "s"], ["n"], name="norm"),
        helper.make_node("MatMul", ["n", "w"], ["p"], name="up"),
        helper.make_node("Add", ["p", "b"], ["q"], name="bias"),
        helper.make_node("Relu", ["q"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["d"], name="down"),
        helper.make_node("Add", ["n", "d"] if residual else ["x", "d"], ["t"], name="sum"),
        helper.make_node(text, ["t", "n"] if text == "Mul" else ["t"], ["y"], name="last"),
    ]
    return builders.model(nodes, {"x": ["N", LENGTH, SIZE]}, ["y"], constants, opset=20)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(("ring", "most"), [(32, 3e-3), (64, 3e-4)])
def test_scale_and_shift_of_a_normalisation_are_in_the_layers_behind_it(ring: int, most: float, residual: bool) -> None:
    proto = normalised("Neg", residual=residual)
    x = np.random.default_rng(4).normal(size=(8, LENGTH, SIZE))
    compiled = covey.compile(proto, calibration=x, input_range=(-6, 6), ring=ring)
    ops = ops_of(compiled)
    assert not any(isinstance(op, Mul) for op in ops)
    assert sum(isinstance(op, Add) for op in ops) == (0 if residual else 1)
    due = builders.float_results(proto, {"x": x})[0]
    (y,) = interpreter.run(compiled, {"x": x})
    assert np.linalg.norm(y - due) <= most * np.linalg.norm(due)


def test_they_stay_where_something_else_reads_the_result() -> None:
    proto = normalised("Mul", residual=True)
    x = np.random.default_rng(4).normal(size=(8, LENGTH, SIZE))
    compiled = covey.compile(proto, calibration=x, input_range=(-6, 6), ring=32)
    assert sum(isinstance(op, Mul) for op in ops_of(compiled)) == 2
    due = builders.float_results(proto, {"x": x})[0]
    (y,) = interpreter.run(compiled, {"x": x})
    assert np.linalg.norm(y - due) <= 3e-3 * np.linalg.norm(due)


@pytest.mark.parametrize("biases", [(True, True, True), (True, False, False), (False, False, False)])
def test_layers_of_one_value_are_one(biases: tuple[bool, ...]) -> None:
    rng = np.random.default_rng(5)
    constants: dict[str, np.ndarray] = {"to": np.array([0, 2, LENGTH // 2, SIZE])}
    nodes = []
    for index, biased in enumerate(biases):
        constants[f"w{index}"] = weights(rng, SIZE, SIZE)
        nodes.append(helper.make_node("MatMul", ["x", f"w{index}"], [f"p{index}"], name=f"layer{index}"))
        result = f"p{index}"
        if biased:
            constants[f"b{index}"] = rng.normal(size=SIZE)
            nodes.append(helper.make_node("Add", [result, f"b{index}"], [f"q{index}"], name=f"bias{index}"))
            result = f"q{index}"
        nodes.append(helper.make_node("Reshape", [result, "to"], [f"r{index}"], name=f"move{index}"))
    nodes += [
        helper.make_node("Mul", ["r0", "r1"], ["m"], name="product"),
        helper.make_node("Add", ["m", "r2"], ["y"], name="sum"),
    ]
    proto = builders.model(nodes, {"x": ["N", LENGTH, SIZE]}, ["y"], constants, opset=20)
    compiled = covey.compile(proto, input_range=(-2, 2), ring=64)
    assert sum(isinstance(op, Dense) for op in ops_of(compiled)) == 1
    x = rng.uniform(-2, 2, (4, LENGTH, SIZE))
    (y,) = interpreter.run(compiled, {"x": x})
    np.testing.assert_allclose(y, builders.float_results(proto, {"x": x})[0], atol=2e-3)


def weighted(rows: int, count: int, size: int, far: float) -> tuple[onnx.ModelProto, np.ndarray]:
    """Softmax of rows times a layer's result, as one input of both; and inputs."""
    rng = np.random.default_rng(6)
    constants = {
        "w": weights(rng, count, size),
        "first": np.arange(rows),
        "rest": np.arange(rows, rows + count),
    }
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["s"], name="scores", axis=1),
        helper.make_node("Gather", ["x", "rest"], ["k"], name="values", axis=1),
        helper.make_node("MatMul", ["k", "w"], ["v"], name="layer"),
        helper.make_node("Softmax", ["s"], ["p"], name="weights", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["m"], name="mixed"),
        helper.make_node("Neg", ["m"], ["y"], name="last"),
    ]
    proto = builders.model(nodes, {"x": ["N", rows + count, count]}, ["y"], constants, opset=20)
    return proto, np.clip(rng.normal(size=(4, rows + count, count)) * far / 3, -far, far)


@pytest.mark.parametrize(("ring", "most"), [(32, 2e-3), (64, 3e-4)])
@pytest.mark.parametrize("far", [3.0, 12.0])
def test_softmax_is_divided_behind_the_product(far: float, ring: int, most: float) -> None:
    proto, x = weighted(8, 48, 16, far)
    compiled = covey.compile(proto, calibration=x, input_range=(-far, far), ring=ring)
    assert any(isinstance(op, Average) for op in ops_of(compiled))
    due = builders.float_results(proto, {"x": x})[0]
    (y,) = interpreter.run(compiled, {"x": x})
    # A product for each result, none for each weight: neither of these is by a constant.
    program = interpreter.program_of(compiled)
    secret = [node for node in program.nodes if node.WhichOneof("op") == "mul"]
    secret = [node for node in secret if all(not program.values[i].constant for i in node.inputs)]
    assert max(np.prod(program.values[node.outputs[0]].shape) for node in secret) == due[0].size
    assert np.abs(y - due).max() <= most * np.abs(due).max()


def test_weights_are_computed_where_the_ring_lacks_room() -> None:
    """Without calibration data the bound of the products is that of all rows' sums."""
    proto, x = weighted(8, 48, 16, 12.0)
    compiled = covey.compile(proto, input_range=(-12, 12), ring=32)
    assert any(isinstance(op, Average) for op in ops_of(compiled))
    due = builders.float_results(proto, {"x": x})[0]
    (y,) = interpreter.run(compiled, {"x": x})
    assert np.abs(y - due).max() <= 1e-2 * np.abs(due).max()


def test_softmax_stays_where_results_are_no_fewer() -> None:
    proto, x = weighted(8, 16, 16, 3.0)
    compiled = covey.compile(proto, calibration=x, input_range=(-3, 3))
    assert any(type(op) is Softmax for op in ops_of(compiled))


@pytest.mark.parametrize("protocol", ["trio", "quad", "beaver", "two-party"])
def test_private_runs_equal_clear(protocol: str) -> None:
    norms = normalised("Neg", residual=True)
    attention, scores = weighted(8, 48, 16, 12.0)
    for proto, x in [(norms, np.random.default_rng(4).normal(size=(4, LENGTH, SIZE))), (attention, scores)]:
        compiled = covey.compile(proto, calibration=x, input_range=(-12, 12), ring=32)
        verification = covey.verify(compiled, protocol, data=x, samples=2, timeout=60)
        assert verification.passed, verification


def scaled_scores(way: str) -> onnx.ModelProto:
    """Scores of queries and keys from columns of one layer, divided before or behind the product."""
    rng = np.random.default_rng(7)
    to = [0, LENGTH, 3, 2, SIZE // 2]
    constants = {
        "w": weights(rng, SIZE, 3 * SIZE),
        "b": rng.normal(size=3 * SIZE),
        "k": np.array(0.25),
        "to": np.array(to),
        "parts": np.array([1, 1, 1]),
        "two": np.array([2]),
        "cos": rng.uniform(-1, 1, (LENGTH, SIZE // 2)),
        "sin": rng.uniform(-1, 1, (LENGTH, SIZE // 2)),
        "halves": np.array([SIZE // 4, SIZE // 4]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="layer"),
        helper.make_node("Add", ["p", "b"], ["q"], name="bias"),
        helper.make_node("Reshape", ["q", "to"], ["r"], name="heads"),
        helper.make_node("Transpose", ["r"], ["t"], name="order", perm=[0, 2, 3, 1, 4]),
        helper.make_node("Split", ["t", "parts"], ["query5", "key5", "value5"], name="split", axis=1),
        *(helper.make_node("Squeeze", [f"{each}5", "one"], [each]) for each in ("query", "key", "value")),
    ]
    constants["one"] = np.array([1])
    query = "query"
    if way == "rotated":
        nodes += [
            helper.make_node("Split", ["query", "halves"], ["front", "back"], axis=-1),
            helper.make_node("Concat", ["back", "front"], ["turned"], axis=-1),
            helper.make_node("Mul", ["query", "cos"], ["of_cos"]),
            helper.make_node("Mul", ["turned", "sin"], ["of_sin"]),
            helper.make_node("Add", ["of_cos", "of_sin"], ["turned_query"]),
        ]
        query = "turned_query"
    if way == "before":
        nodes.append(helper.make_node("Mul", [query, "k"], ["small"], name="factor"))
        query = "small"
    # Where queries are the keys, both would take the factor.
    key = query if way == "own key" else "key"
    nodes += [
        helper.make_node("Transpose", [key], ["across"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", [query, "across"], ["scores"], name="scores"),
    ]
    scores = "scores"
    if way == "sum with itself":
        nodes.append(helper.make_node("MatMul", ["scores", "scores"], ["squared"]))
        nodes.append(helper.make_node("Add", ["scores", "squared"], ["both"]))
        scores = "both"
    if way != "before":
        nodes.append(helper.make_node("Mul", [scores, "k"], ["small"], name="factor"))
        scores = "small"
    nodes += [
        helper.make_node("Softmax", [scores], ["weights"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["weights", "value"], ["y"], name="mixed"),
    ]
    outputs = ["y", "query", "key"] if way == "read elsewhere" else ["y"]
    return builders.model(nodes, {"x": ["N", LENGTH, SIZE]}, outputs, constants, opset=20)


@pytest.mark.parametrize("way", ["before", "behind", "rotated"])
def test_factors_of_scores_are_in_the_columns_of_queries_and_keys(way: str) -> None:
    after = same_function(scaled_scores(way), 2, LENGTH, SIZE)
    assert after.notes["factor"].text.startswith("its factor moved into")
    assert sum(isinstance(node.op, Mul) for node in after.nodes) == (2 if way == "rotated" else 0)
    (layer,) = (node.op for node in after.nodes if isinstance(node.op, Dense))
    assert layer.finer in (1, 2)  # about the root of 1/4 for either


@pytest.mark.parametrize("way", ["own key", "sum with itself", "read elsewhere"])
def test_factors_stay_where_more_would_be_multiplied(way: str) -> None:
    after = same_function(scaled_scores(way), 2, LENGTH, SIZE)
    assert sum(isinstance(node.op, Mul) for node in after.nodes) == 1
