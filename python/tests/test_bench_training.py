"""What `covey bench training` and the papers' steps of training measure, on the smallest network of the zoo."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from command import Command
from covey.bench import jobs, mpc_pipe_training, planned, training_steps
from covey.bench.networks import network
from covey.bench.papers import find
from covey.errors import OptionError
from covey.models import ImageSpec, TransformerSpec

SMALL = ImageSpec("lenet5", "mnist", "avg")
TRAINING = ("bench", "training", "lenet5", "--pool", "avg", "--repetitions", 1)


def silent(done: int, total: int, what: str) -> None:
    del done, total, what


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests of this file share."""
    return tmp_path_factory.mktemp("bench")


def test_steps_as_json(command: Command, folder: Path) -> None:
    pytest.importorskip("torch")
    figures = json.loads(command.succeeds(*TRAINING, "--batch", 2, "--cache", folder, "--json").out)
    assert (figures["ring"], figures["optimizer"], figures["batch"]) == ("Z_2^64", "sgd", 2)
    assert figures["differing_from_clear"] == 0
    # Two weights a layer, of which there are five, and the loss and the labels that were right of two steps.
    assert figures["parameters"] == 61706 and figures["elements"] == 61706 + 2 * 2
    assert len(figures["losses"]) == len(figures["plaintext_losses"]) == 2
    assert figures["losses"] == pytest.approx(figures["plaintext_losses"], rel=1e-3)
    assert figures["losses"][0] != figures["losses"][1]
    assert figures["relative_error"] < 1e-3
    assert (figures["bytes"], figures["rounds"]) == (figures["planned_bytes"], figures["planned_rounds"])
    assert figures["bytes"] == sum(link["offline_bytes"] + link["online_bytes"] for link in figures["links"])
    assert len(figures["cpu_seconds"]) == len(figures["planned_memory_bytes"]) == 3
    assert figures["images_per_second"] == pytest.approx(2 / figures["wall_seconds"]["median"])
    if sys.platform == "linux":
        assert all(peak > 10 << 20 for peak in figures["peak_memory_bytes"])
        assert figures["cpu_ratio"] > 1


def test_steps_as_a_table_with_another_optimizer(command: Command, folder: Path) -> None:
    adam = ("--optimizer", "momentum", "--batch", 1, "--protocol", "beaver", "--warm-up", 0)
    outcome = command.succeeds(*TRAINING, *adam, "--cache", folder)
    assert "a step of momentum" in outcome.out and "as planned" in outcome.out
    assert "equal in all 61,708 losses and weights" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_what_is_not_trained_is_refused_in_one_line(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.refuses("bench", "training", "gpt2", "--cache", folder, saying="use bert-base-layer")
    command.refuses(*TRAINING, "--optimizer", "lbfgs", "--cache", folder, saying="use sgd, momentum, adam, adamw")
    command.refuses(*TRAINING, "--protocol", "clear", saying="use trio")
    command.refuses("bench", "training", "lenet6", saying="resnet50")
    monkeypatch.setattr(planned, "machine_memory", lambda: 1 << 20)
    command.refuses(*TRAINING, "--batch", 2, "--cache", folder, saying="use a smaller --batch")


def test_jobs_of_the_zoo(folder: Path) -> None:
    job = jobs.Job(TransformerSpec("xlm-layer"), 1, "adam")
    assert job.label == "xlm-layer-sequence-512-layers-1-training-adam-batch-1"
    with pytest.raises(OptionError, match="not trained"):
        jobs.Job(TransformerSpec("gpt2"), 1)
    from covey.model import load

    program = load(jobs.Job(SMALL, 2).kept(folder, silent).program).program
    first, second = jobs.Job(SMALL, 2).minibatches(program, 2)
    assert first["image"].shape == (1, 2, 1, 28, 28) and first["labels"].shape == (1, 2)
    assert (first["image"] != second["image"]).any()
    plan = planned.Plan.of(program, "trio", None, network("1g"), {})
    assert plan.fits and plan.wire_seconds > plan.total.rounds * 0.15e-3


def test_the_papers_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_steps, "default_folder", lambda: folder)
    monkeypatch.setitem(training_steps.ROWS, "lenet5-mnist", training_steps.Step(SMALL, 2, "CrypTen 2.1 s"))
    preset = find("training-steps")
    chosen = {"rows": ["lenet5-mnist"], "protocols": ["trio"]}
    (cell,) = preset.cells(1, silent, chosen)
    assert (cell.planned, cell.paper) == (False, "CrypTen 2.1 s") and cell.here.startswith("0 differ")
    monkeypatch.setattr(planned, "machine_memory", lambda: 1 << 20)
    (other,) = preset.cells(1, silent, chosen)
    assert other.planned and (other.bytes, other.rounds) == (cell.bytes, cell.rounds)


def test_mpc_pipes_steps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpc_pipe_training, "MODELS", {"VGG16": SMALL})
    monkeypatch.setattr(mpc_pipe_training, "default_folder", lambda: folder)
    none, piped = find("mpc-pipe-training-figure8").measure(1, silent, device="cpu")
    assert none.paper.startswith("33.1 s") and piped.paper.startswith("29.6 s")
    assert none.bytes == piped.bytes and "waits" in piped.here
    two, three, *_ = find("mpc-pipe-training-figure10").measure(1, silent)
    assert two.planned and 0 < two.bytes < none.bytes < three.bytes
    monkeypatch.setattr(mpc_pipe_training, "LONGEST", 0.0)
    cells = list(find("mpc-pipe-training-table3").measure(1, silent))
    assert [cell.planned for cell in cells] == [True] * 3 and cells[0].paper == "33.1 s to 29.6 s"


def test_encoder_layers_in_torch_compute_what_onnxruntime_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from covey.bench import plaintext
    from covey.bench.encoder_module import EncoderModule

    spec = TransformerSpec("bert-base-layer", sequence=4)
    model = spec.build()
    onnx.save(model, tmp_path / "model.onnx")
    inputs = spec.samples(2)
    module = EncoderModule(model)
    assert not any(name.endswith("factor") for name, _ in module.named_parameters())
    found = module(torch.from_numpy(inputs["hidden_states"])).detach().numpy()
    np.testing.assert_allclose(found, plaintext._onnxruntime(tmp_path / "model.onnx")[1](inputs), atol=1e-4)
    with pytest.raises(OptionError, match="which encoder layers do not have"):
        EncoderModule(SMALL.build())
