"""What happens to values that pass their bounds: who says so. `bounds.py` looks for bounds that are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

import bounds
import builders
import covey
from covey.clear import run_clear
from covey.cli.outputs import show
from covey.model import load
from covey.result import Result
from covey.verification import judge


def test_an_output_that_touches_its_calibrated_bound_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Privately 120 became -136 without a word: the sum of a layer and its input had passed what calibration saw."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="layer"),
        helper.make_node("Add", ["m", "x"], ["y"], name="sum"),
    ]
    model = builders.model(nodes, {"x": ["N", 2]}, ["y"], {"w": np.eye(2)})
    calibration = np.array([[1.0, -0.5], [0.25, 0.75]])
    loaded = load(covey.compile(model, ring=20, scale=7, calibration=calibration, input_range=(-60.0, 60.0)))
    (output,) = loaded.program.outputs
    assert not output["proved"]
    ordinary = [{"name": "y", "scale": 7, "integers": np.array([[2 * 128, -128]])}]
    wrong = [{"name": "y", "scale": 7, "integers": np.array([[-136 * 128, 0]])}]
    assert Result.of(loaded.program, ordinary).at_bound == []
    result = Result.of(loaded.program, wrong)
    assert result.at_bound == ["y"]
    show(result, output=None, profile=False, as_json=False)
    printed = capsys.readouterr()
    assert "output 'y' touches the bound" in printed.out + printed.err
    with pytest.raises(covey.CoveyError, match=r"node '(layer|sum)': .* passes its bound"):
        run_clear(loaded, np.array([[60.0, 0.0]]))


def test_a_few_random_models_keep_their_bounds() -> None:
    found = bounds.campaign(models=60, seed=1)
    assert found.models == 60
    assert found.failures == []


def _layers() -> onnx.ModelProto:
    """Two layers whose products are as large as their inputs are."""
    rng = np.random.default_rng(0)
    constants = {"w": builders.weights(rng, 32, 32), "v": builders.weights(rng, 32, 32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="second"),
    ]
    return builders.model(nodes, {"x": ["N", 32]}, ["y"], constants)


def test_probabilistic_shifts_take_a_ring_in_which_they_do_not_wrap() -> None:
    model = _layers()
    exact = covey.compile(model, input_range=(-1.0, 1.0))
    assert exact.report["ring_bits"] == 32
    probabilistic = covey.compile(model, input_range=(-1.0, 1.0), truncation="probabilistic")
    assert probabilistic.report["ring_bits"] == 64
    with pytest.raises(covey.DoesNotFitError, match=r"wrap around on average in Z_2\^32"):
        covey.compile(model, input_range=(-1.0, 1.0), truncation="probabilistic", ring=32)


def test_verify_judges_inexact_shifts_by_their_error_budget() -> None:
    model = load(covey.compile(_layers(), input_range=(-1.0, 1.0), truncation="ulp"))
    inputs = {"x": np.random.default_rng(1).uniform(-1, 1, (4, 32))}
    clear = run_clear(model, inputs)

    def verdict(change: np.ndarray) -> bool | None:
        private = replace(clear, integers={"y": clear.integers["y"] + change})
        checks, _ = judge(model, None, inputs, clear, private, "trio")
        return checks[0].passed

    units = np.random.default_rng(2).integers(-1, 2, (4, 32))
    assert units.any()
    assert verdict(units)
    wrapped = np.zeros((4, 32), dtype=np.int64)
    wrapped[2, 7] = 1 << 20
    assert not verdict(wrapped)
