"""verify's own judgement: what it must fail."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import builders
import covey
import ensembles
from command import DIGITS, Command
from covey.clear import run_clear
from covey.closeness import FloatReference, closeness, relative_error
from covey.comparison import compare, distinct
from covey.errors import CoveyError
from covey.model import Model, load
from covey.result import Result
from covey.verification import Check, judge

ONNX = DIGITS / "digits.onnx"


@pytest.fixture(scope="module")
def model(digits: Path) -> Model:
    return load(digits)


@pytest.fixture(scope="module")
def clear(model: Model, images: np.ndarray) -> Result:
    return run_clear(model, images[:4])


def verdict(model: Model, images: np.ndarray, clear: Result, private: Result) -> dict[str, Check]:
    inputs = {"image": images[:4].astype(np.float64)}
    checks, _ = judge(model, ONNX, inputs, clear, private, "trio")
    return {check.what: check for check in checks}


def changed(result: Result, change: np.ndarray) -> Result:
    return replace(result, integers={name: values + change for name, values in result.integers.items()})


def test_equal_runs_pass(model: Model, images: np.ndarray, clear: Result) -> None:
    checks = verdict(model, images, clear, clear)
    assert all(check.passed is not False for check in checks.values())
    assert len([name for name in checks if name.endswith("values above zero")]) == 3


def test_one_unit_off_fails(model: Model, images: np.ndarray, clear: Result) -> None:
    change = np.zeros((4, 10), np.int64)
    change[2, 7] = 1
    check = verdict(model, images, clear, changed(clear, change))["fc2_out: trio against clear"]
    assert check.passed is False
    assert check.found.startswith("1 of 40 elements differ, the first at [2, 7]")


def test_far_from_float_fails(model: Model, images: np.ndarray, clear: Result) -> None:
    wrong = changed(clear, (clear.integers["fc2_out"] * 0.05).astype(np.int64))
    assert verdict(model, images, wrong, wrong)["fc2_out: relative L2 error"].passed is False


def test_equal_outputs_for_distinct_samples_fail(model: Model, images: np.ndarray, clear: Result) -> None:
    same = replace(clear, integers={name: np.repeat(v[:1], 4, axis=0) for name, v in clear.integers.items()})
    check = verdict(model, images, same, same)["fc2_out: variation between samples"]
    assert check.passed is False
    # Without the float model what is left is to count them.
    checks, notes = judge(model, None, {"image": images[:4].astype(np.float64)}, same, same, "trio")
    assert next(check for check in checks if check.what == "distinct outputs").passed is False
    assert any("not compared with floating point" in note for note in notes)


def test_equal_outputs_of_trees_are_right() -> None:
    trees = [ensembles.Branch(0, "BRANCH_LEQ", 0.5, np.array([1.0]), np.array([2.0]))]
    proto = ensembles.single("TreeEnsembleRegressor", 1, n_targets=1, **ensembles.attributes(trees, "target", 1))
    loaded = load(covey.compile(proto, input_range=(0, 1)))
    samples = {"x": np.linspace(0, 1, 8)[:, None]}
    result = run_clear(loaded, samples)

    def passed(judged: Model, outputs: Result, what: str = "variation between samples") -> bool | None:
        checks, _ = judge(judged, None, samples, outputs, outputs, "trio")
        return next(check.passed for check in checks if check.what.endswith(what))

    assert passed(loaded, result) is True
    assert passed(replace(loaded, graph=None), result, "distinct outputs") is None
    same = {name: np.repeat(values[:1], 8, axis=0) for name, values in result.integers.items()}
    assert passed(loaded, replace(result, integers=same)) is False
    # All samples on one side of the threshold: the float model says the same of all, too.
    samples["x"] = np.linspace(0, 0.4, 8)[:, None]
    few = run_clear(loaded, samples)
    assert passed(loaded, few) is None
    assert passed(loaded, few, "relative L2 error") is True
    wrong = {name: 2 * values for name, values in few.integers.items()}
    assert passed(loaded, replace(few, integers=wrong), "relative L2 error") is False


def test_a_sample_at_a_threshold_is_not_held_against_a_tree() -> None:
    expected = np.full((100, 1), 1.0)
    actual = expected.copy()
    actual[7] = 1.1
    result = Result({"y": actual}, {"y": np.rint(actual * 2**12).astype(np.int64)}, {"y": 12})
    (network,) = closeness(result, FloatReference("test", {"y": expected}, {"y": expected}))
    (tree,) = closeness(result, FloatReference("test", {"y": expected}, {"y": expected}, compares=True))
    assert network.error == pytest.approx(0.1, rel=0.01)
    assert tree.error == tree.relative_error == pytest.approx(0.01, rel=0.01)
    assert tree.worst_sample == 7


def test_dead_layers_fail(model: Model, images: np.ndarray, clear: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = clear.logits
    dead = FloatReference("test", clear.outputs, logits, {"relu1": 0.4, "relu2": 0.05})
    monkeypatch.setattr("covey.comparison.float_reference", lambda *_: dead)
    checks = verdict(model, images, clear, clear)
    assert checks["relu1: values above zero"].passed
    assert checks["relu2: values above zero"].passed is False


def test_missing_outputs_differ_entirely(clear: Result) -> None:
    (difference,) = compare(clear.integers, {})
    assert difference.differing == difference.elements == 40


def test_class_numbers_may_agree(clear: Result) -> None:
    classes = replace(clear, scales={"fc2_out": 0})
    assert distinct({"image": np.zeros((4, 1))}, classes) is None


def test_relative_error() -> None:
    ones = np.ones(4)
    assert relative_error(ones, ones) == 0
    assert relative_error(1.01 * ones, ones) == pytest.approx(0.01)
    assert relative_error(ones, 0 * ones) > 1e300


def test_another_float_model_fails(command: Command, digits: Path, tmp_path: Path) -> None:
    model = onnx.load(ONNX)
    (weight,) = (tensor for tensor in model.graph.initializer if tensor.name == "fc2.weight")
    weight.CopyFrom(numpy_helper.from_array(1.1 * numpy_helper.to_array(weight), weight.name))
    onnx.save(model, tmp_path / "other.onnx")
    verify = ["verify", digits, "--protocol", "clear", "--samples", 4, "--data", DIGITS / "test-images.npy"]
    command.succeeds(*verify, "--model", ONNX)
    command.refuses(*verify, "--model", tmp_path / "other.onnx", saying="relative L2 error")
    command.refuses(*verify, "--model", tmp_path / "absent.onnx", saying="does not exist")


def dense(path: Path, source: str = "x", features: int = 4, output: str = "y") -> Path:
    """A model file of one layer."""
    layer = helper.make_node("MatMul", [source, "w"], [output])
    weight = {"w": np.full((features, 3), 0.25, np.float32)}
    onnx.save(builders.model([layer], {source: ["N", features]}, {output: ["N", 3]}, weight), path)
    return path


def test_a_float_model_that_is_no_such_model_is_refused(command: Command, tmp_path: Path) -> None:
    model = dense(tmp_path / "model.onnx")
    compiled = covey.compile(model, input_range=(0, 1))
    program = compiled.save(tmp_path / "model.covey")[0]
    for named, saying in (
        (tmp_path / "absent.onnx", "absent.onnx' does not exist"),
        (program, "model.covey' is compiled already"),
        (dense(tmp_path / "named.onnx", source="z"), "has an input 'z' that the program lacks"),
        (dense(tmp_path / "wide.onnx", features=5), r"input 'x' has shape \[N, 4\], in the float model \[N, 5\]"),
        (dense(tmp_path / "output.onnx", output="q"), "has an output 'q' that the program lacks"),
    ):
        with pytest.raises(CoveyError, match=saying):
            covey.verify(compiled, "clear", samples=2, float_model=named)
    call = ("verify", model, "--input-range", "0,1", "--protocol", "clear")
    command.refuses(*call, "--model", tmp_path / "absent.onnx", saying="absent.onnx' does not exist")


def test_without_onnxruntime_the_reference_stands_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = dense(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    verdict = covey.verify(model, "clear", samples=2, input_range=(0, 1))
    assert verdict.passed
    assert any("onnxruntime is not installed, so Covey's own float reference stands in" in n for n in verdict.notes)


def test_for_an_operator_that_onnxruntime_lacks_the_reference_stands_in(tmp_path: Path) -> None:
    elu = helper.make_node("Elu", ["x"], ["y"])  # it has none for float64
    path = tmp_path / "model.onnx"
    onnx.save(builders.model([elu], {"x": ["N", 3]}, {"y": ["N", 3]}, dtype=onnx.TensorProto.DOUBLE), path)
    verdict = covey.verify(covey.compile(path, input_range=(0, 1)), "clear", samples=2, float_model=path)
    assert verdict.passed
    assert any("onnxruntime cannot run the model" in note and "Elu" in note for note in verdict.notes)
