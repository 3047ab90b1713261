"""covey tune and the accuracy record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import builders
import covey
from command import DIGITS, Command
from covey import _core, certificate, goals
from covey._proto import program_pb2 as pb
from covey.compiled import Prepared, prepare
from covey.emit import HEADER_BYTES, program_file
from covey.tuning import Validation, tune

ONNX = DIGITS / "digits.onnx"
DATA = ("--data", DIGITS / "test-images.npy")
LABELS = ("--labels", DIGITS / "test-labels.npy")
OPTIONS = ("--calibration", DIGITS / "calibration.npy", "--input-range", "0,1")


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(ONNX, calibration=DIGITS / "calibration.npy", input_range=(0, 1))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, images: np.ndarray, prepared: Prepared) -> Path:
    labels = np.load(DIGITS / "test-labels.npy")
    found = tune(
        prepared, Validation({"image": images.astype(np.float64)}, labels, "test-images.npy"), rings=range(16, 65)
    )
    return found.compiled.save(tmp_path_factory.mktemp("tuned") / "tuned.covey")[0]


def test_the_smallest_ring_that_keeps_the_accuracy(tuned: Path, prepared: Prepared) -> None:
    report = json.loads(tuned.with_suffix(".report.json").read_text())
    tuning = report["tuning"]
    assert [attempt["scale"] for attempt in tuning["scales"]] == list(range(8, 25))
    assert report["scale"] == 8
    rings = [attempt["ring"] for attempt in tuning["rings"]]
    assert rings == list(range(16, report["ring_bits"] + 1))
    assert all(attempt["correct"] is None for attempt in tuning["rings"][:-1])
    assert tuning["rings"][-1]["correct"] >= tuning["float_correct"] - 0.002 * 450
    with pytest.raises(covey.DoesNotFitError):
        covey.compile(
            ONNX, calibration=DIGITS / "calibration.npy", input_range=(0, 1), scale=8, ring=report["ring_bits"] - 1
        )


def test_the_program_holds_the_certificate_and_its_hash_covers_it(tuned: Path) -> None:
    program = _core.Program(tuned)
    found = certificate.of(program)
    assert found is not None
    assert (found.samples, found.labelled, found.data, found.tolerance) == (450, True, "test-images.npy", 0.002)
    assert certificate.holds(found)
    parsed = pb.Program.FromString(tuned.read_bytes()[HEADER_BYTES:])
    parsed.certificate.fixed_correct += 1
    assert program_file(parsed, parsed.name)[1] != program.hash
    parsed.ClearField("certificate")
    without = _core.Program(program_file(parsed, parsed.name)[0])
    assert certificate.of(without) is None
    assert [node["name"] for node in without.nodes] == [node["name"] for node in program.nodes]


def test_verify_measures_it_again(command: Command, tuned: Path, tmp_path: Path) -> None:
    verify = ("verify", tuned, "--protocol", "clear", "--model", ONNX, "--json")
    checks = json.loads(command.succeeds(*verify, *DATA, *LABELS).out)
    assert {"accuracy record: accuracy", "accuracy record: measured again"} <= {
        check["check"] for check in checks["checks"]
    }
    without = json.loads(command.succeeds(*verify, *DATA).out)
    assert any(
        "not measured again: give --data 'test-images.npy' and its --labels" in note for note in without["notes"]
    )
    images = np.load(DIGITS / "test-images.npy")
    np.save(tmp_path / "other.npy", images[::-1])
    other = json.loads(command.succeeds(*verify, "--data", tmp_path / "other.npy", *LABELS).out)
    assert any("other data" in note for note in other["notes"])


@pytest.mark.parametrize(("name", "change"), [("fixed_correct", -100), ("fixed_correct", -1), ("float_correct", 7)])
def test_a_false_certificate_fails(command: Command, tuned: Path, tmp_path: Path, name: str, change: int) -> None:
    parsed = pb.Program.FromString(tuned.read_bytes()[HEADER_BYTES:])
    digest = _core.Program(tuned).hash
    setattr(parsed.certificate, name, getattr(parsed.certificate, name) + change)
    content, other = program_file(parsed, parsed.name)
    (tmp_path / "false.covey").write_bytes(content)
    weights = tuned.with_suffix(".weights.safetensors").read_bytes().replace(digest.encode(), other.encode())
    (tmp_path / "false.weights.safetensors").write_bytes(weights)
    verify = ("verify", tmp_path / "false.covey", "--protocol", "clear", "--model", ONNX)
    command.refuses(*verify, *DATA, *LABELS, saying="accuracy record: ")


def test_without_labels_the_float_model_is_right(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "tuned.covey"
    found = json.loads(command.succeeds("tune", ONNX, *DATA, *OPTIONS, "-o", out, "--json").out)
    assert (found["ring_bits"], found["float_correct"], found["samples"]) == (32, 450, 450)
    assert Path(found["files"]["program"]).exists()
    assert "the accuracy record" in " ".join(command.succeeds("explain", out).out.split())
    checks = json.loads(command.succeeds("verify", out, "--protocol", "clear", "--json").out)["checks"]
    assert "accuracy record: accuracy" in {check["check"] for check in checks}
    again = ("verify", out, "--protocol", "clear", *DATA, "--samples", 2, "--json")
    assert any("name that with --model" in note for note in json.loads(command.succeeds(*again).out)["notes"])
    checks = json.loads(command.succeeds(*again, "--model", ONNX).out)["checks"]
    measured = next(check for check in checks if check["check"] == "accuracy record: measured again")
    assert measured["found"] == "450 right" and measured["passed"]


def test_tables_are_printed(command: Command, tmp_path: Path) -> None:
    out = command.succeeds(
        *("tune", ONNX, *DATA, *LABELS, *OPTIONS, "--protocol", "two-party", "-o", tmp_path / "tuned.covey")
    ).out
    for expected in ("scales, in 64 bits", "rings that two-party computes in", "chosen", "float accuracy 98.44%"):
        assert expected in out


def test_refusals(command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "short.npy", np.zeros(3, np.int64))
    np.save(tmp_path / "real.npy", np.zeros(450))
    (tmp_path / "no.npy").write_bytes(b"nothing")
    call = ("tune", ONNX, *DATA, *OPTIONS)
    command.refuses(*call, "--labels", tmp_path / "short.npy", saying="one whole number for each of 450 samples")
    command.refuses(*call, "--labels", tmp_path / "real.npy", saying="float64 [450]")
    command.refuses(*call, "--labels", tmp_path / "no.npy", saying="is not a readable .npy file")
    command.refuses(*call, "--labels", tmp_path / "none.npy", saying="does not exist")
    command.refuses(*call, "-o", tmp_path / "tuned.onnx", saying="goes to a .covey file")
    narrow = ("tune", ONNX, *DATA, "--calibration", DIGITS / "calibration.npy", "--input-range", "0,0.5")
    command.refuses(*narrow, saying="outside the declared range")


def regression(outputs: int) -> onnx.ModelProto:
    """Two layers with numbers as outputs."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["t"], name="curve"),
        helper.make_node("MatMul", ["t", "v"], ["y"], name="last"),
    ]
    constants = {"w": rng.normal(size=(6, 8)), "b": rng.normal(size=8), "v": rng.normal(size=(8, outputs))}
    return builders.model(nodes, {"x": ["N", 6]}, ["y"], constants)


@pytest.mark.parametrize(("outputs", "options"), [(1, ()), (3, ("--regression",))])
def test_a_regression_keeps_its_outputs(
    command: Command, tmp_path: Path, outputs: int, options: tuple[str, ...]
) -> None:
    model, data, out = tmp_path / "model.onnx", tmp_path / "x.npy", tmp_path / "tuned.covey"
    onnx.save(regression(outputs), model)
    np.save(data, np.random.default_rng(1).uniform(-1, 1, (50, 6)))
    tune_it = ("tune", model, "--data", data, "--input-range", "-1,1", *options, "-o", out)
    found = json.loads(command.succeeds(*tune_it, "--json").out)
    assert found["float_correct"] is None
    near = [attempt["error"] <= 0.01 for attempt in found["scales"]]
    assert found["scale"] == found["scales"][near.index(True)]["scale"]
    assert "off float" in command.succeeds(*tune_it).out
    # A tighter tolerance takes a larger scale, and one that no scale keeps is refused.
    tight = json.loads(command.succeeds(*tune_it, "--tolerance", "0.3", "--json").out)
    assert tight["scale"] > found["scale"]
    command.refuses(*tune_it, "--tolerance", "0", saying="no scale keeps the outputs within 0.00%")
    labels = tmp_path / "y.npy"
    np.save(labels, np.zeros(50, np.int64))
    command.refuses(*tune_it, "--labels", labels, saying="leave labels out")

    command.succeeds(*tune_it)
    verify = ("verify", out, "--protocol", "clear", "--json", "--model", model)
    checks = {c["check"]: c for c in json.loads(command.succeeds(*verify, "--data", data).out)["checks"]}
    assert checks["accuracy record: measured again"]["passed"]
    assert checks["y: variation between samples"]["passed"]
    assert checks["accuracy record: relative L2 error"]["found"].endswith("50 samples of 'x.npy'")
    np.save(data, np.random.default_rng(2).uniform(-1, 1, (50, 6)))
    notes = json.loads(command.succeeds(*verify, "--data", data).out)["notes"]
    assert any("not measured again" in note for note in notes)


def test_a_false_certificate_of_an_error_fails(command: Command, tmp_path: Path) -> None:
    model, data, out = tmp_path / "model.onnx", tmp_path / "x.npy", tmp_path / "tuned.covey"
    onnx.save(regression(1), model)
    np.save(data, np.random.default_rng(1).uniform(-1, 1, (50, 6)))
    command.succeeds("tune", model, "--data", data, "--input-range", "-1,1", "-o", out)
    digest = _core.Program(out).hash
    parsed = pb.Program.FromString(out.read_bytes()[HEADER_BYTES:])
    parsed.certificate.relative_error /= 2
    content, other = program_file(parsed, parsed.name)
    out.write_bytes(content)
    weights = out.with_suffix(".weights.safetensors")
    weights.write_bytes(weights.read_bytes().replace(digest.encode(), other.encode()))
    verify = ("verify", out, "--protocol", "clear", "--model", model, "--data", data)
    command.refuses(*verify, saying="accuracy record: measured again")


def test_programs_that_fit_and_do_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise covey.CoveyError("a value left its bound")

    monkeypatch.setattr(goals.Nearness, "score", fails)
    x = np.ones((4, 3))
    with pytest.raises(covey.CoveyError, match=r"^a value left its bound$"):
        covey.tune(builders.single("Relu", ["N", 3], {}), x, regression=True)


def test_no_scale_is_enough(prepared: Prepared, images: np.ndarray) -> None:
    labels = np.load(DIGITS / "test-labels.npy")
    with pytest.raises(covey.OptionError, match="no scale keeps the accuracy"):
        tune(prepared, Validation({"image": images.astype(float)}, labels, "x"), rings=[32], tolerance=-0.5)
