"""Reports: errors layer by layer, profiles as pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import builders
import covey
from command import DIGITS, Command
from covey.layers import compare, opened
from covey.model import load
from covey.plot import MOST_NODES
from covey.result import NodeProfile, Profile

ONNX = DIGITS / "digits.onnx"
DATA = DIGITS / "test-images.npy"


def test_errors_layer_by_layer(command: Command, digits: Path) -> None:
    verify = ("verify", digits, "--protocol", "trio", "--samples", 2, "--model", ONNX, "--data", DATA, "--layers")
    rows = json.loads(command.succeeds(*verify, "--json").out)["layers"]
    assert [row["node"] for row in rows] == [
        "conv1",
        "relu1",
        "conv2",
        "pool",
        "relu2",
        "flatten",
        "fc1",
        "relu3",
        "fc2",
    ]
    assert all(row["differing"] == 0 for row in rows)
    assert all(0 < row["relative_error"] < 0.01 for row in rows)
    assert "layer by layer" in command.succeeds(*verify[:3], "clear", *verify[4:]).out


def test_layers_need_the_float_model(command: Command, digits: Path) -> None:
    command.refuses("verify", digits, "--protocol", "clear", "--layers", saying="name it with --model")


def test_an_error_is_seen_where_it_arises() -> None:
    rng = np.random.default_rng(0)
    model = builders.small_cnn(rng)
    compiled = covey.compile(model, input_range=(0, 1))
    (weight,) = (entry for entry in model.graph.initializer if entry.name == "w2")
    weight.CopyFrom(onnx.numpy_helper.from_array(1.5 * onnx.numpy_helper.to_array(weight), "w2"))
    other = covey.compile(model, input_range=(0, 1)).graph
    rows = {
        row.node: row.relative_error for row in compare(opened(load(compiled)), other, {"x": rng.random((3, 1, 8, 8))})
    }
    assert rows["conv"] < 0.001
    assert rows["flatten"] < 0.001
    assert rows["fc"] > 0.2


def profile(count: int) -> Profile:
    return Profile([NodeProfile(f"n{i}", "Relu", 1.5, 2, 10 * i, 20 * i, []) for i in range(count)], 0.5)


@pytest.mark.parametrize("count", [1, 5, 3 * MOST_NODES])
def test_plot(tmp_path: Path, count: int) -> None:
    pytest.importorskip("matplotlib")
    profile(count).plot(tmp_path / "profile.png", title="test")
    assert (tmp_path / "profile.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_run_draws(command: Command, digits: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "x.npy", np.load(DATA)[:2])
    run = ("run", digits, "--input", tmp_path / "x.npy", "--protocol", "clear")
    command.succeeds(*run, "--plot", tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000
    command.refuses(*run, "--plot", tmp_path / "p.txt", saying="a plot is a .png, .svg or .pdf file")
    command.refuses(*run, "--plot", tmp_path / "none" / "p.png", saying="does not exist")


def test_without_matplotlib(command: Command, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    run = ("run", digits, "--input", DATA, "--protocol", "clear", "--plot", tmp_path / "p.png")
    command.refuses(*run, saying="pip install 'covey[plot]'")
