"""Activation functions, larger and smaller of two, comparisons, choices and small powers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import builders
import covey
import interpreter
from agreement import agree, image


def wide(*shape: int) -> dict[str, np.ndarray]:
    """Uniform in [-8, 8)."""
    return {"x": image(*shape)["x"] * 8}


def kinds(compiled: covey.Compiled) -> list[str]:
    return [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("LeakyRelu", {"alpha": 0.1}),
        ("LeakyRelu", {"alpha": 0.01}),
        ("LeakyRelu", {"alpha": 2.5}),
        ("LeakyRelu", {"alpha": -0.5}),
        ("Abs", {}),
        ("Neg", {}),
        ("HardSigmoid", {}),
        ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}),
        ("HardSwish", {}),
    ],
)
def test_piecewise_linear(op: str, attributes: dict[str, Any]) -> None:
    agree(builders.single(op, ["N", 5, 7], **attributes), wide(3, 5, 7))


def test_leaky_relu_compares_once_and_rounds_once() -> None:
    compiled = agree(builders.single("LeakyRelu", ["N", 5], alpha=0.1), wide(3, 5))
    assert kinds(compiled) == ["relu", "mul", "mul", "add", "truncate"]
    # Every number in between is exact: nothing but the slope and the last place is rounded.
    x = np.linspace(-8, 8, 1001).reshape(-1, 1).repeat(5, axis=1)
    (y,) = interpreter.run(
        covey.compile(builders.single("LeakyRelu", ["N", 5], alpha=0.1), input_range=(-8, 8)), {"x": x}
    )
    assert np.abs(y - np.where(x < 0, 0.1 * x, x)).max() < 2.0**-10


@pytest.mark.parametrize("slope", [(3, 1, 1), (1,), (4,)])
def test_prelu(slope: tuple[int, ...]) -> None:
    constants = {"s": np.random.default_rng(0).uniform(-0.5, 1.5, slope)}
    agree(builders.single("PRelu", ["N", 3, 2, 4], constants), wide(2, 3, 2, 4))


@pytest.mark.parametrize("op", ["Max", "Min"])
@pytest.mark.parametrize("operands", [["x", "x"], ["x", "k"], ["k", "x", "x"], ["x"], ["x", "k", "m"]])
def test_extremes(op: str, operands: list[str]) -> None:
    rng = np.random.default_rng(0)
    known = {"k": rng.normal(size=(3, 1)), "m": rng.normal(size=(4,))}
    nodes = [
        helper.make_node("Neg", ["x"], ["minus"]),
        helper.make_node(op, ["minus" if i and name == "x" else name for i, name in enumerate(operands)], ["y"]),
    ]
    constants = {name: known[name] for name in operands if name in known}
    if operands == ["x"]:
        nodes[1] = helper.make_node(op, ["minus"], ["y"])
    agree(builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], constants), wide(2, 3, 4))


@pytest.mark.parametrize("op", ["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
@pytest.mark.parametrize("constant", [False, True])
def test_comparisons(op: str, constant: bool) -> None:
    # Eighths: exact in fixed point, so that equal numbers are equal there too.
    rng = np.random.default_rng(0)
    inputs = {name: rng.integers(-4, 5, (20, 3, 4)) / 8 for name in ("x", "y")}
    first = ["x", "k"] if constant else ["x", "y"]
    constants = {"k": rng.integers(-4, 5, (3, 1)) / 8} if constant else {}
    used = {"x": inputs["x"]} if constant else inputs
    node = helper.make_node(op, first, ["z"])
    shapes = {name: ["N", 3, 4] for name in used}
    proto = builders.model([node], shapes, ["z"], constants, output_dtype=TensorProto.BOOL)
    agree(proto, used, tolerance=0.0)


@pytest.mark.parametrize("constant", [False, True])
def test_truth_values_that_are_equal(constant: bool) -> None:
    nodes = [
        helper.make_node("Less", ["x", "a"], ["p"]),
        helper.make_node("Less", ["b", "x"], ["q"]),
        helper.make_node("Equal", ["k", "p"] if constant else ["p", "q"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"a": np.array(0.5), "b": np.array([0.25, -0.5, 0.75]), "k": np.array([True, False, True])}
    agree(builders.model(nodes, {"x": ["N", 4, 3]}, ["y"], constants), image(9, 4, 3), tolerance=0.0)


@pytest.mark.parametrize("op", ["IsNaN", "IsInf"])
def test_all_values_are_finite(op: str) -> None:
    nodes = [
        helper.make_node(op, ["x"], ["none"]),
        helper.make_node("Where", ["none", "zero", "x"], ["w"]),
        helper.make_node("Cast", ["none"], ["n"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["w", "n"], ["y"]),
    ]
    proto = builders.model(nodes, {"x": ["N", 4, 3]}, ["y"], {"zero": np.array(0.0)})
    agree(proto, image(9, 4, 3))


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    nodes = [
        helper.make_node("Less", ["x", "a"], ["p"]),
        helper.make_node("Less", ["b", "x"], ["q"]),
        helper.make_node(op, ["p", "q"], ["r"]),
        helper.make_node("Not", ["r"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"a": np.array(0.5), "b": np.array([0.25, -0.5, 0.75])}
    agree(builders.model(nodes, {"x": ["N", 4, 3]}, ["y"], constants), image(9, 4, 3), tolerance=0.0)


@pytest.mark.parametrize("choices", [("x", "minus"), ("x", "k"), ("k", "x"), ("k", "m")])
@pytest.mark.parametrize("public", [False, True])
def test_where(choices: tuple[str, str], public: bool) -> None:
    rng = np.random.default_rng(0)
    known = {"k": rng.normal(size=(3, 1)), "m": rng.normal(size=(4,)), "mask": rng.integers(0, 2, (3, 4)) > 0}
    if public and choices == ("k", "m"):
        pytest.skip("nothing depends on the input")
    nodes = [
        helper.make_node("Neg", ["x"], ["minus"]),
        helper.make_node("Less", ["x", "zero"], ["sign"]),
        helper.make_node("Where", ["mask" if public else "sign", *choices], ["y"]),
    ]
    constants = {name: known[name] for name in choices if name in known} | {"zero": np.array(0.125)}
    if public:
        constants["mask"] = known["mask"]
    compiled = agree(builders.model(nodes, {"x": ["N", 3, 4]}, ["y"], constants), image(2, 3, 4))
    assert ("less_than_zero" in kinds(compiled)) != public


def test_calibrated_bounds_hold_inside_composed_operators() -> None:
    """What a Where, Max, PRelu or Tanh computes on the way may be larger than its result; bounds must say so."""
    nodes = [
        helper.make_node("Mul", ["x", "big"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Less", ["a", "b"], ["c"]),
        helper.make_node("Where", ["c", "a", "b"], ["d"]),
        helper.make_node("Max", ["a", "d"], ["e"]),
        helper.make_node("PRelu", ["e", "slope"], ["f"]),
        helper.make_node("Tanh", ["f"], ["y"]),
    ]
    constants = {"big": np.array(900.0), "slope": np.array(0.5)}
    proto = builders.model(nodes, {"x": ["N", 6]}, ["y"], constants)
    data = {"x": np.rint(image(50, 6)["x"] * 256) / 256}
    compiled = covey.compile(proto, calibration=data["x"], input_range=(-1e4, 1e4), ring=32, scale=8)
    assert "calibrated" in str(compiled.report)
    (y,) = interpreter.run(compiled, data)
    assert np.abs(y - builders.float_results(proto, data)[0]).max() < 0.02


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 4.0])
def test_small_powers(exponent: float) -> None:
    nodes = [helper.make_node("Pow", ["x", "e"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    agree(builders.model(nodes, {"x": ["N", 5]}, ["y"], {"e": np.array(exponent)}), image(3, 5))


def test_the_oldest_opset_is_converted() -> None:
    node = helper.make_node("Add", ["x", "k"], ["t"], broadcast=1, axis=1)
    relu = helper.make_node("Relu", ["t"], ["y"])
    constants = {"k": np.random.default_rng(0).normal(size=3)}
    old = builders.model([node, relu], {"x": ["N", 3, 4]}, ["y"], constants, opset=6)
    plain = {"k": constants["k"][:, None]}
    new = builders.model([helper.make_node("Add", ["x", "k"], ["t"]), relu], {"x": ["N", 3, 4]}, ["y"], plain)
    data = image(2, 3, 4)
    agree(old, data, expected=builders.float_results(new, data))


@pytest.mark.parametrize("order", ["Clip x low high c; Softplus c y", "Softplus x c; Clip c low high y"])
def test_a_clip_far_out_is_no_part_of_a_function(order: str) -> None:
    nodes = []
    for step in order.split("; "):
        op, *operands, result = step.split()
        nodes.append(helper.make_node(op, operands, [result]))
    constants = {"low": np.array(-15.0), "high": np.array(15.0)}
    agree(
        builders.model(nodes, {"x": ["N", 3]}, ["y"], constants),
        {"x": np.array([[1.0, 20.0, 30.0], [-30.0, -1.0, 3.0]])},
    )


def test_functions_of_what_has_no_value_everywhere() -> None:
    nodes = [helper.make_node("Sqrt", ["x"], ["s"]), helper.make_node("Erf", ["s"], ["y"])]
    agree(builders.model(nodes, {"x": ["N", 3]}, ["y"]), {"x": np.array([[0.5, 1.0, 2.0]])})
