"""training_accuracy.py: its statistic, its verdicts, its readers of MNIST, and that both trainings are the same one."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("sklearn", reason="needs scikit-learn")
import training_accuracy  # noqa: E402
import training_cases  # noqa: E402
from covey.clear import ClearSession  # noqa: E402
from covey.model import load  # noqa: E402
from training_accuracy import Row, interval, measure  # noqa: E402
from training_cases import Case  # noqa: E402

MLP = "MLP on breast cancer"


def short(name: str, **changes: Any) -> Case:
    """A case with two epochs."""
    (case,) = (case for case in training_cases.cases(None) if case.name == name)
    return replace(case, epochs=2, **changes)


def row(**changes: Any) -> Row:
    """One that passes."""
    passing = Row("any", 300, 100, 2, [90.0, 91.0], [90.1, 91.0], 0.05, -0.2, 0.3, "trio", True, None, 1.0)
    return replace(passing, **changes)


def test_the_interval_is_that_of_the_paired_t_statistic() -> None:
    # Standard deviation sqrt(5 / 3), and 3.18245 from a table for 3 degrees of freedom.
    assert interval([1.0, 2.0, 3.0, 4.0]) == pytest.approx((2.5, 0.44574, 4.55426), abs=1e-5)
    assert interval([0.0] * 10) == (0.0, 0.0, 0.0)
    assert interval([0.7]) == (0.7, -np.inf, np.inf)


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"high": 0.51}, False),
        ({"low": -0.51}, False),
        ({"same": False}, False),
        ({"private": [97.2], "low": -np.inf, "high": np.inf, "least": 97.0}, True),
        ({"private": [96.9], "low": -np.inf, "high": np.inf, "least": 97.0}, False),
    ],
)
def test_a_row_passes_only_if_all_holds(changes: dict[str, Any], passed: bool) -> None:
    assert row(**changes).passed is passed
    assert ("yes" in training_accuracy.line(row(**changes))) is passed


@pytest.mark.parametrize("optimizer", [training_cases.momentum(0.05), training_cases.adam(0.01, 8)])
def test_pytorch_and_covey_take_the_same_steps(optimizer: Any) -> None:
    """Another order, schedule or first weight would move the weights by far more than rounding does."""
    case = short(MLP, optimizer=optimizer)
    data = case.data(3)
    began = training_accuracy.network_of(case, 3).state_dict()
    due = training_accuracy.train_in_float(case, data, 3).state_dict()
    job = training_accuracy.compiled(case, data, 3)
    found = training_accuracy.weights_after(ClearSession(load(job.compiled)), data, 3, case.epochs)
    assert found.keys() == due.keys()
    for name, array in found.items():
        moved = np.linalg.norm(due[name] - began[name])
        assert moved > 1e-2
        assert np.linalg.norm(array - due[name].numpy()) < 0.01 * moved, name


def test_a_case_is_measured_with_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    case = short("logistic regression on breast cancer")
    found = measure(case, 2, "trio")
    assert found.same and (found.trained_on, found.tested_on) == (380, 189)
    assert min(*found.private, *found.floating) > 90 and abs(found.mean) <= 1
    weights_after = training_accuracy.weights_after

    def off_by_one_unit(session: Any, *rest: Any) -> Any:
        weights = weights_after(session, *rest)
        if not isinstance(session, ClearSession):
            weights["bias"] = weights["bias"] + 2.0**-28
        return weights

    monkeypatch.setattr(training_accuracy, "weights_after", off_by_one_unit)
    assert not measure(replace(case, epochs=1), 2, "trio").passed


def test_mnist_is_read_from_either_layout(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2100, 1, 28, 28)).astype(np.uint8)
    labels = np.arange(2100, dtype=np.uint8) % 10
    for name in ("train", "t10k"):
        for kind, header, array in (("images-idx3", 16, images), ("labels-idx1", 8, labels)):
            (tmp_path / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(bytes(header) + array.tobytes()))
    found = training_cases.mnist(tmp_path, 100)
    assert np.array_equal(found.x, (images[:100] / 255).astype(np.float32)) and np.array_equal(found.y, labels[:100])
    assert found.test_x.shape == (2100, 1, 28, 28) and np.array_equal(found.test_y, labels)
    for digit in range(10):
        data = (images[labels == digit] / 255).round(3).ravel().tolist()
        (tmp_path / f"{digit}.json").write_text(json.dumps({"data": data}), "utf-8")
    found = training_cases.mnist(tmp_path)
    assert found.x.shape == (100, 1, 28, 28) and found.test_x.shape == (2000, 1, 28, 28)
    sums = {(int(label), round(float(image.sum()), 2)) for image, label in zip(images / 255, labels, strict=True)}
    near = [min(abs(s - float(x.sum())) for at, s in sums if at == y) for x, y in zip(found.x, found.y, strict=True)]
    assert max(near) < 0.5


@pytest.mark.parametrize(
    "arguments", [["--cases", "nothing"], ["--cases", "mnist"], ["--seeds", "1"], ["--mnist", "/nowhere"]]
)
def test_wrong_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        training_accuracy.main(arguments)
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert ("MNIST is skipped" in said) is (arguments[1] in ("mnist", "1"))
    assert ("images-idx3-ubyte.gz is missing" in said) is (arguments[0] == "--mnist")


def test_json_has_numbers_only() -> None:
    one = training_accuracy.described(row(private=[97.2], low=-np.inf, high=np.inf, least=97.0))
    assert json.loads(json.dumps(one, allow_nan=False))["low"] is None and one["passed"]
    assert training_accuracy.described(row())["high"] == 0.3
