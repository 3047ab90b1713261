"""The networks of the gallery, end to end: verified against clear and float, and explained to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import covey
from command import DIGITS, Command
from covey.models import ImageSpec
from covey.models import samples as samples_of
from covey.parties import Parties

NETWORKS = {
    "digits": None,
    "lenet5": ImageSpec("lenet5", "mnist"),
    "vgg16": ImageSpec("vgg16", "cifar"),
    "resnet18": ImageSpec("resnet18", "cifar"),
}


@pytest.fixture(scope="module", params=list(NETWORKS))
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.onnx, model.covey and its weights, and x.npy."""
    folder = tmp_path_factory.mktemp(request.param)
    spec = NETWORKS[request.param]
    if spec is None:
        onnx.save(onnx.load(DIGITS / "digits.onnx"), folder / "model.onnx")
        samples, calibration = np.load(DIGITS / "test-images.npy"), np.load(DIGITS / "calibration.npy")
    else:
        onnx.save(spec.network()[0], folder / "model.onnx")
        samples = calibration = samples_of(spec.shape, 4)
    np.save(folder / "x.npy", samples)
    covey.compile(folder / "model.onnx", calibration=calibration, input_range=(0, 1)).save(folder / "model.covey")
    return folder


def test_verify(command: Command, network: Path) -> None:
    model, data = network / "model.covey", network / "x.npy"
    count = len(np.load(data))
    outcome = command.succeeds(
        "verify", model, "--samples", count, "--model", network / "model.onnx", "--data", data, "--json"
    )
    verdict = json.loads(outcome.out)
    assert verdict["passed"] is True
    failed = [check for check in verdict["checks"] if check["passed"] is False]
    assert failed == []
    assert sum("against clear" in check["check"] for check in verdict["checks"]) == 1
    assert sum("above zero" in check["check"] for check in verdict["checks"]) >= 3


def test_explain_equals_the_meter(command: Command, parties: Parties, network: Path) -> None:
    samples = np.load(network / "x.npy")[:4]
    plan = json.loads(command.succeeds("explain", network / "model.covey", "--batch", len(samples), "--json").out)
    profile = parties.run(network / "model.covey", samples).profile
    assert profile is not None

    def traffic(rows: list[dict]) -> dict[str, tuple[int, list[tuple]]]:
        links = {row["name"]: sorted(tuple(link.items()) for link in row["links"]) for row in rows}
        return {row["name"]: (row["rounds"], links[row["name"]]) for row in rows if links[row["name"]]}

    assert traffic(plan["nodes"]) == traffic(profile.to_json()["nodes"])
