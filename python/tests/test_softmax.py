"""Softmax and LogSoftmax within a network: errors against float64, masks, axes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
import interpreter
from agreement import agree, image
from covey.clear import run_clear
from covey.model import load
from covey.ops.softmax import Softmax

FAR = 8.0


def inside(op: str, count: int) -> onnx.ModelProto:
    """The operator over rows, with something behind it."""
    nodes = [helper.make_node(op, ["x"], ["p"], name="the_node", axis=-1), helper.make_node("Neg", ["p"], ["y"])]
    return builders.model(nodes, {"x": ["N", 2, count]}, ["y"])


def rows(count: int, scale: int) -> np.ndarray:
    """Random ones, equal elements at both ends of the range, one that dominates, one that stands out; fixed-point."""
    rng = np.random.default_rng(count)
    x = rng.normal(size=(30, 2, count)) * 2
    x[0], x[1], x[2] = 0.0, FAR, -FAR
    x[3], x[4] = -FAR, -5.0
    x[3, :, 0], x[4, :, -1] = FAR, 0.0
    x[5] = rng.uniform(-FAR, FAR, x[5].shape)
    return np.rint(np.clip(x, -FAR, FAR) * 2.0**scale) / 2.0**scale


def due(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("ring", "scale"), [(32, 12), (64, 16), (64, 20)])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 128, 768])
def test_errors_of_rows(count: int, ring: int, scale: int) -> None:
    x = rows(count, scale)
    compiled = covey.compile(inside("Softmax", count), input_range=(-FAR, FAR), ring=ring, scale=scale)
    off = np.abs(-interpreter.run(compiled, {"x": x})[0] - due(x))
    tables = sum(table["error"] for table in compiled.report["tables"])
    # In 32 bits the sum's and the inverse's own roundings add up: a row is off by so much of itself.
    row = 2 * tables + (count * 2.0**-14 if ring == 32 else 0.0)
    if count != 2:  # that is a sigmoid
        assert (off <= row * due(x) + tables / count + 0.75 * 2.0**-scale).all()
    assert off.max() <= {32: 1.5e-2 if count == 768 else 4e-3, 64: 4e-4}[ring]
    assert tables <= 7e-4


@pytest.mark.parametrize(("ring", "scale"), [(32, 12), (64, 16), (64, 20)])
@pytest.mark.parametrize("count", [1, 2, 10, 128, 768])
def test_errors_of_logarithms(count: int, ring: int, scale: int) -> None:
    x = rows(count, scale)
    compiled = covey.compile(inside("LogSoftmax", count), input_range=(-FAR, FAR), ring=ring, scale=scale)
    off = np.abs(-interpreter.run(compiled, {"x": x})[0] - np.log(due(x)))
    tables = sum(table["error"] for table in compiled.report["tables"])
    assert off.max() <= 2 * tables + 2.0**-scale + (count * 2.0**-20 if ring == 32 else 0.0) <= 2.3e-3


def test_a_dominant_element_is_one_and_others_exactly_zero() -> None:
    x = np.full((1, 2, 64), -20.0)
    x[:, :, 5] = 20.0
    compiled = covey.compile(inside("Softmax", 64), input_range=(-20, 20), ring=32, scale=12)
    y = -interpreter.run(compiled, {"x": x})[0]
    assert np.array_equal(np.delete(y, 5, axis=-1), np.zeros((1, 2, 63)))
    np.testing.assert_allclose(y[..., 5], 1.0, atol=4e-4)


@pytest.mark.parametrize("scale", [8, 10])
def test_coarse_scales(scale: int) -> None:
    x = rows(16, scale)
    compiled = covey.compile(inside("Softmax", 16), input_range=(-FAR, FAR), ring=32, scale=scale)
    assert np.abs(-interpreter.run(compiled, {"x": x})[0] - due(x)).max() <= 2.0**-scale


def test_rows_differ_in_their_ranges() -> None:
    """What is proved of each element is used: a narrow range needs no clip and no threshold."""
    compiled = covey.compile(inside("Softmax", 3), input_range=(-0.2, 0.2), ring=32, scale=12)
    kinds = [node.WhichOneof("op") for node in interpreter.program_of(compiled).nodes]
    assert "clip" not in kinds and "less_than_zero" not in kinds
    x = np.random.default_rng(0).uniform(-0.2, 0.2, (20, 2, 3))
    assert np.abs(-interpreter.run(compiled, {"x": x})[0] - due(x)).max() <= 4e-4


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("opset", "axis"), [(17, 1), (17, 2), (17, -1), (11, 1), (11, 2), (11, 3), (11, -2)])
def test_axes(op: str, opset: int, axis: int) -> None:
    nodes = [helper.make_node(op, ["x"], ["p"], axis=axis), helper.make_node("Neg", ["p"], ["y"])]
    agree(builders.model(nodes, {"x": ["N", 3, 4, 5]}, ["y"], opset=opset), image(3, 3, 4, 5), tolerance=2e-3)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_where_the_batch_has_moved(op: str) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node(op, ["t"], ["p"], axis=0),
        helper.make_node("Neg", ["p"], ["m"]),
        helper.make_node("Transpose", ["m"], ["y"], perm=[1, 0, 2]),
    ]
    agree(builders.model(nodes, {"x": ["N", 3, 4]}, ["y"]), image(3, 3, 4), tolerance=2e-3)


def masked(how: str, mask: np.ndarray) -> onnx.ModelProto:
    """Scores with a constant mask, as exporters write it."""
    bias = np.random.default_rng(3).uniform(-1, 1, mask.shape)
    constants: dict[str, np.ndarray] = {
        "-inf": {"m": np.where(mask, -np.inf, 0.0)},
        "least": {"m": np.where(mask, np.finfo(np.float32).min, 0.0)},
        "-10000": {"m": np.where(mask, -10000.0, 0.0)},
        "bias": {"m": np.where(mask, -np.inf, bias)},
        "two": {"b": bias, "m": np.where(mask, -1e9, 0.0)},
        "twice": {"b": np.where(np.triu(mask, 3), -np.inf, bias), "m": np.where(mask, -1e9, 0.0)},
        "subtracted": {"m": np.where(mask, 1e30, bias)},
        "where": {"c": ~mask, "low": np.array(-np.inf)},
        "where not": {"c": mask, "low": np.array(-3.4e38)},
    }[how]
    if how.startswith("where"):
        choices = ["x", "low"] if how == "where" else ["low", "x"]
        nodes = [helper.make_node("Where", ["c", *choices], ["s"])]
    else:
        nodes = [helper.make_node("Sub" if how == "subtracted" else "Add", ["x", "m"], ["s"])]
        if how in ("two", "twice"):
            nodes = [helper.make_node("Add", ["b", "x"], ["t"]), helper.make_node("Add", ["t", "m"], ["s"])]
    nodes += [helper.make_node("Softmax", ["s"], ["p"], name="the_node"), helper.make_node("Neg", ["p"], ["y"])]
    return builders.model(nodes, {"x": ["N", 2, *mask.shape]}, ["y"], constants)


CAUSAL = np.triu(np.ones((6, 6), dtype=bool), 1)


@pytest.mark.parametrize("how", ["-inf", "least", "-10000", "bias", "two", "subtracted", "where", "where not"])
def test_masks_leave_exactly_nothing(how: str) -> None:
    proto = masked(how, CAUSAL)
    x = {"x": np.random.default_rng(0).uniform(-FAR, FAR, (5, 2, 6, 6))}
    compiled = covey.compile(proto, input_range=(-FAR, FAR), ring=32, scale=12)
    (y,) = interpreter.run(compiled, x)
    np.testing.assert_allclose(y, builders.float_results(proto, x)[0], atol=8e-4)
    assert (y[..., CAUSAL] == 0).all()
    (softmax,) = (node for node in compiled.graph.nodes if isinstance(node.op, Softmax))
    assert np.array_equal(np.broadcast_to(softmax.op.mask, (6, 6)), CAUSAL)
    # The mask takes no bits: nothing is larger than the scores' differences, but the sum.
    assert max(row["bits"] for row in compiled.report["nodes"]) <= 30


def test_a_masked_softmax_at_the_end_is_computed() -> None:
    nodes = [helper.make_node("Add", ["x", "m"], ["s"]), helper.make_node("Softmax", ["s"], ["y"])]
    proto = builders.model(nodes, {"x": ["N", 6, 6]}, ["y"], {"m": np.where(CAUSAL, -np.inf, 0.0)})
    agree(proto, image(4, 6, 6), tolerance=1e-3)


def test_a_row_that_is_masked_whole_is_refused() -> None:
    whole = np.ones((6, 6), dtype=bool)
    with pytest.raises(covey.CoveyError, match=r"'the_node' \(Softmax\): its mask leaves nothing of a row; repair"):
        covey.compile(masked("-inf", whole), input_range=(-1, 1))


def test_minus_infinity_elsewhere_is_refused() -> None:
    proto = builders.single("Add", ["N", 3], {"m": np.array([0.0, -np.inf, 0.0])})
    with pytest.raises(
        covey.CoveyError, match=r"'the_node' \(Add\): it .* adds minus infinity .*; use a finite number such as -1e4"
    ):
        covey.compile(proto, input_range=(-1, 1))


def test_scores_and_their_softmax_are_both_given() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["s"]), helper.make_node("Softmax", ["s"], ["p"])]
    agree(builders.model(nodes, {"x": ["N", 5]}, ["s", "p"]), image(4, 5), tolerance=1e-3)


@pytest.mark.parametrize("options", [{}, {"truncation": "ulp"}, {"division": "exact"}])
def test_calibrated_scores(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("MatMul", ["x", "v"], ["k"]),
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "k"], ["y"]),
    ]
    constants = {"w": rng.normal(size=(16, 16)) * 0.3, "v": rng.normal(size=(16, 16)) * 0.3}
    proto = builders.model(nodes, {"x": ["N", 8, 16]}, ["y"], constants)
    x = {"x": rng.normal(size=(16, 8, 16)).clip(-4, 4)}
    compiled = covey.compile(proto, calibration=x, input_range=(-4, 4), ring=32, **options)
    wanted = builders.float_results(proto, x)[0]
    (y,) = interpreter.run(compiled, x)
    assert np.linalg.norm(y - wanted) <= 5e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("factor", [1e5, -3e4])
def test_a_constant_beside_scores_as_large_is_no_mask(factor: float) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scores"]),
        helper.make_node("Add", ["scores", "m"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"]),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    constants = {"factor": np.array(factor), "m": np.array([-2e4, 0.0, 0.0]), "w": np.array([[1.0], [2.0], [3.0]])}
    agree(
        builders.model(nodes, {"x": ["N", 3]}, ["y"], constants), {"x": np.array([[1.0, -1.0, 0.0], [-1.0, 0.5, 1.0]])}
    )


def test_a_choice_of_constant_scores_is_no_mask_of_all() -> None:
    nodes = [
        helper.make_node("Less", ["x", "zero"], ["b"]),
        helper.make_node("Where", ["b", "plain", "masked"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["p"]),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    constants = {
        "zero": np.array(0.0), "plain": np.zeros(3), "masked": np.array([-1e9, 0.0, 0.0]),
        "w": np.array([[1.0], [2.0], [3.0]]),
    }  # fmt: skip
    agree(
        builders.model(nodes, {"x": ["N", 3]}, ["y"], constants), {"x": np.array([[-1.0, 1.0, 1.0], [1.0, -1.0, 1.0]])}
    )


def test_an_input_of_real_numbers_that_masks_holds_nothing_but_0_and_1() -> None:
    nodes = [
        helper.make_node("Mul", ["z", "least"], ["m"]),
        helper.make_node("Add", ["x", "m"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"]),
        helper.make_node("Neg", ["p"], ["y"]),
    ]
    proto = builders.model(nodes, {"x": ["N", 3], "z": ["N", 3]}, ["y"], {"least": np.array(-1e4)})
    model = load(covey.compile(proto, input_range={"x": (-1, 1), "z": (0, 1)}))
    run_clear(model, {"x": np.zeros((1, 3)), "z": np.array([[0.0, 1.0, 0.0]])})
    with pytest.raises(covey.DataError, match=r"'z' holds 0.0001 .*: give whole numbers from 0 to 1"):
        run_clear(model, {"x": np.zeros((1, 3)), "z": np.array([[0.0, 1e-4, 0.0]])})
