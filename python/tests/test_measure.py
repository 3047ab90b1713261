"""What compile measures of the program it picks, what it tries, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from rich.console import Console

import builders
import covey
from command import Command
from covey import closeness
from covey.clear import run_clear
from covey.closeness import FloatReference
from covey.measure import MOST_SAMPLES
from covey.model import load
from covey.result import Result


def data(samples: int, *shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (samples, *shape))


def two_outputs() -> onnx.ModelProto:
    """A classifier with a second output of numbers."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["l"], name="last"),
        helper.make_node("Softmax", ["l"], ["classes"], name="softmax", axis=1),
        helper.make_node("MatMul", ["r", "u"], ["number"], name="number"),
    ]
    constants = {
        "w": rng.normal(size=(6, 8)),
        "b": rng.normal(size=8),
        "v": rng.normal(size=(8, 5)),
        "u": rng.normal(size=(8, 1)) / 64,
    }
    return builders.model(nodes, {"x": ["N", 6]}, ["classes", "number"], constants)


def curves(amplified: float = 40.0) -> onnx.ModelProto:
    """Sigmoids whose outputs are compared finely: differences of neighbours, made large."""
    rng = np.random.default_rng(0)
    step = np.eye(16) - np.roll(np.eye(16), 1, axis=1)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="spread"),
        helper.make_node("Sigmoid", ["h"], ["s"], name="curve"),
        helper.make_node("MatMul", ["s", "d"], ["y"], name="differences"),
    ]
    weight = np.sort(rng.uniform(0.8, 1.2, (4, 16)), axis=1)
    return builders.model(nodes, {"x": ["N", 4]}, ["y"], {"w": weight, "d": amplified * step[:, 1:]})


def text_of(compiled: covey.Compiled) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(compiled.rendered())
    return stream.getvalue()


def test_the_report_holds_the_error_of_every_output_and_of_the_worst_sample() -> None:
    model, x = two_outputs(), data(30, 6)
    compiled = covey.compile(model, calibration=x, scale=8, ring=32, max_error=0.2)
    found = compiled.report["measured"]
    assert (found["samples"], found["of"]) == (30, 30)
    got = run_clear(load(compiled), x)
    due = dict(zip(got.outputs, builders.float_results(model, {"x": x}), strict=True))
    scores = next(iter(due))
    assert [entry["output"] for entry in found["outputs"]] == list(due)
    for entry in found["outputs"]:
        name = entry["output"]
        off = got.outputs[name] - due[name]
        errors = [np.linalg.norm(off) / np.linalg.norm(due[name])]
        if name == scores:  # what is opened, before Softmax, counts as well
            exact = closeness.float_run(compiled.graph, {"x": x}).logits[name]
            errors.append(np.linalg.norm(got.logits[name] - exact) / np.linalg.norm(exact))
        assert entry["relative_error"] == pytest.approx(max(errors), rel=1e-3)
        assert entry["relative_error"] < entry["worst_error"] < 10 * entry["relative_error"]
    classes, number = found["outputs"]
    assert (number["top1_agreement"], number["near_ties"]) == (None, None)
    answers = got.outputs[scores].argmax(axis=1) == due[scores].argmax(axis=1)
    assert classes["top1_agreement"] == pytest.approx(answers.mean())
    size = np.linalg.norm(due["number"]) / np.sqrt(30)
    each = np.abs(got.outputs["number"] - due["number"])[:, 0] / np.maximum(np.abs(due["number"])[:, 0], size)
    assert number["worst_sample"] == each.argmax()
    assert number["worst_error"] == pytest.approx(each.max(), rel=1e-3)
    assert found["error"] == max(entry["worst_error"] for entry in found["outputs"])
    text = text_of(compiled)
    assert "measured in the clear on 30 calibration samples" in text
    assert f"{100 * number['worst_error']:.3g}% for the worst sample (number {number['worst_sample']})" in text
    assert "of the answers agree" in text
    assert "the error grows most at" in text


def test_no_more_than_a_bounded_number_of_samples_is_measured() -> None:
    compiled = covey.compile(two_outputs(), calibration=data(MOST_SAMPLES + 36, 6))
    assert compiled.report["measured"]["samples"] == MOST_SAMPLES
    assert f"on {MOST_SAMPLES} of {MOST_SAMPLES + 36} calibration samples" in text_of(compiled)


def test_without_calibration_data_the_report_says_so() -> None:
    compiled = covey.compile(two_outputs(), input_range=(-1, 1))
    assert compiled.report["measured"] is None
    assert "calibration data" in compiled.report["not_measured"]
    assert "not measured against floating point" in text_of(compiled)


def test_verify_finds_the_error_that_compile_measured(command: Command, tmp_path: Path) -> None:
    onnx.save(two_outputs(), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", data(12, 6))
    files = (tmp_path / "model.onnx", "--calibration", tmp_path / "x.npy", "-o", tmp_path / "model.covey")
    measured = json.loads(command.succeeds("compile", *files, "--json").out)["measured"]
    verify = ("verify", tmp_path / "model.covey", "--model", tmp_path / "model.onnx", "--protocol", "clear")
    checks = json.loads(command.succeeds(*verify, "--data", tmp_path / "x.npy", "--samples", 12, "--json").out)[
        "checks"
    ]
    found = {check["check"]: check["found"] for check in checks}
    for entry in measured["outputs"]:
        error = float(found[f"{entry['output']}: relative L2 error"].split("%")[0]) / 100
        assert error == pytest.approx(entry["relative_error"], rel=0.1)


def test_tables_are_as_fine_as_the_error_asks_for() -> None:
    x = data(20, 4)
    found = {}
    for limit in (0.5, 0.02, 0.004):
        report = covey.compile(curves(), calibration=x, max_error=limit).report
        assert report["measured"]["error"] <= limit
        (found[limit],) = (table["error"] for table in report["tables"])
    assert 4.5e-4 > found[0.5] == found[0.02] > found[0.004], "what is accepted makes no program coarser"
    plain = builders.single("Sigmoid", ["N", 4])
    for model, options in ((plain, {"calibration": x}), (curves(), {"input_range": (-1, 1)})):
        (table,) = covey.compile(model, **options).report["tables"]
        assert 2.0**-13 < table["error"] <= 4.5e-4
    assert covey.compile(two_outputs(), calibration=data(4, 6)).report["tables"] == []


def test_larger_scales_are_tried_before_a_program_is_refused() -> None:
    x = data(20, 6)
    coarse = covey.compile(two_outputs(), calibration=x)
    assert (coarse.report["ring_bits"], coarse.report["scale"]) == (32, 12)
    limit = coarse.report["measured"]["error"] / 4
    finer = covey.compile(two_outputs(), calibration=x, max_error=limit).report
    assert finer["measured"]["error"] <= limit
    assert finer["scale"] > 12
    assert "where outputs would be" in finer["why"]
    finest = covey.compile(two_outputs(), calibration=x, max_error=1e-6).report
    assert finest["ring_bits"] == 64
    assert finest["scale"] > 16
    assert finest["measured"]["error"] <= 1e-6


def test_what_is_too_far_off_is_refused_with_the_node_and_the_way_out(command: Command, tmp_path: Path) -> None:
    onnx.save(curves(amplified=400.0), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", data(8, 4))
    call = ("compile", tmp_path / "model.onnx", "--calibration", tmp_path / "x.npy", "--scale", 4, "--ring", 32)
    line = command.refuses(*call, saying="the error grows most here")
    assert "node 'differences' (MatMul)" in line
    assert "leave out --scale or use --ring auto or accept it: covey compile --max-error" in line
    assert not (tmp_path / "model.covey").exists()
    accepted = line.split("--max-error ")[1]
    report = json.loads(command.succeeds(*call, "--max-error", accepted, "--json").out)
    assert report["measured"]["error"] > 0.02
    assert report["measured"]["max_error"] == pytest.approx(float(accepted) / 100)
    with pytest.raises(covey.InaccurateError) as refused:
        covey.compile(curves(amplified=400.0), calibration=data(8, 4), scale=4, ring=32)
    assert refused.value.node == "differences"
    with pytest.raises(covey.OptionError, match=r"max_error is -1\.0: use a number of at least 0"):
        covey.compile(two_outputs(), calibration=data(8, 6), max_error=-1.0)


def test_a_mean_left_a_sum_is_no_growth_of_the_error() -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("ReduceMean", ["r"], ["m"], name="mean", axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "v"], ["y"], name="last"),
    ]
    constants = {"w": rng.normal(size=(4, 2, 3, 3)), "v": rng.normal(size=(4, 3))}
    model = builders.model(nodes, {"x": ["N", 2, 6, 6]}, ["y"], constants, opset=13)
    compiled = covey.compile(model, calibration=data(6, 2, 6, 6), ring=64)
    assert [row["computes"] for row in compiled.report["nodes"] if row["node"] == "mean"] == ["SumPool", "Reshape"]
    growth = compiled.report["measured"]["grows_at"]
    assert growth
    assert all(entry["before"] < entry["after"] < 0.02 for entry in growth)


def test_class_numbers_are_judged_by_their_agreement() -> None:
    model = two_outputs()
    nodes = [
        *(node for node in model.graph.node if node.name in ("first", "relu", "last")),
        helper.make_node("ArgMax", ["l"], ["label"], name="label", axis=1, keepdims=0),
    ]
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    labels = builders.model(nodes, {"x": ["N", 6]}, ["label"], constants, output_dtype=TensorProto.INT64)
    measured = covey.compile(labels, calibration=data(40, 6)).report["measured"]
    (entry,) = measured["outputs"]
    assert (entry["relative_error"], entry["top1_agreement"], measured["error"]) == (None, 1.0, 0.0)
    # Far too coarse: answers differ that were no near-ties.
    coarse = covey.compile(labels, calibration=data(60, 6), scale=1, ring=32, max_error=1.0).report["measured"]
    assert coarse["outputs"][0]["top1_agreement"] < 1.0
    assert coarse["error"] > 0.0


def result(logits: np.ndarray) -> Result:
    return Result({"y": logits}, {"y": np.rint(logits * 2**20).astype(np.int64)}, {"y": 20})


def close(got: Any, due: Any) -> closeness.Closeness:
    due = np.array(due, dtype=float)
    scores = {"y": due} if due.ndim == 2 and due.shape[1] > 1 else {}
    (row,) = closeness.closeness(
        result(np.array(got, dtype=float)), FloatReference("test", {"y": due}, {"y": due}, scores=scores)
    )
    return row


def test_the_worst_sample_is_not_one_that_happens_to_be_near_zero() -> None:
    row = close([[1.01], [0.001], [-1.0]], [[1.0], [0.0], [-1.0]])
    assert row.worst_sample == 0
    assert row.worst_error == pytest.approx(0.01, rel=1e-3)
    assert close([[0.0], [0.0]], [[0.0], [0.0]]).error == 0.0


def test_the_error_is_compared_with_the_variation_between_samples() -> None:
    rng = np.random.default_rng(0)
    due = 10 + 0.01 * rng.normal(size=(50, 4))
    noise = 0.005 * rng.normal(size=due.shape)
    assert close(due + noise, due).unexplained == pytest.approx(0.5, rel=0.2)
    # What is the same for all samples hides no difference between them.
    assert close(due + 0.1, due).unexplained == pytest.approx(0.0, abs=1e-4)
    assert close(np.full((3, 2), 5.0), np.full((3, 2), 5.0)).unexplained == np.inf
    assert close([[1.0, 2.0]], [[1.0, 2.0]]).unexplained is None


def test_near_ties_explain_answers_that_differ() -> None:
    agreement = close([[1.0, 1.001], [3.0, 1.0]], [[1.001, 1.0], [3.0, 1.0]]).agreement
    assert agreement is not None
    (differing,) = agreement.differing
    assert (differing.sample, differing.got, differing.expected, differing.near_tie) == (0, 1, 0, True)
    assert (agreement.fraction, agreement.good) == (0.5, True)
    wrong = close([[1.0, 1.5], [3.0, 1.0]], [[1.5, 1.0], [3.0, 1.0]]).agreement
    assert wrong is not None
    assert (wrong.fraction, wrong.near_ties, wrong.good) == (0.5, 0, False)
    safe = close([[1.0, 2.01]], [[1.0, 2.0]]).agreement
    assert safe is not None
    assert safe.margin == pytest.approx(1.0 / 0.02, rel=1e-3)


def test_verify_fails_what_hardly_depends_on_the_input(command: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="last")]
    constants = {"w": 0.0005 * rng.normal(size=(6, 40)), "b": rng.normal(size=40)}
    onnx.save(builders.model(nodes, {"x": ["N", 6]}, ["y"], constants), tmp_path / "model.onnx")
    command.succeeds("compile", tmp_path / "model.onnx", "--input-range", "-1,1", "--scale", 10)
    verify = ("verify", tmp_path / "model.covey", "--protocol", "clear")
    # The outputs all differ and are near floating point, and yet show little of the samples.
    assert "ok" in command.succeeds(*verify).out
    outcome = command(*verify, "--model", tmp_path / "model.onnx", "--json")
    checks = {check["check"]: check for check in json.loads(outcome.out)["checks"]}
    assert outcome.code == 1
    assert checks["y: relative L2 error"]["passed"]
    assert checks["y: variation between samples"]["passed"] is False
    assert "verify with samples that differ more" in outcome.out
