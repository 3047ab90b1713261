"""Which losses of a training job open: each step's, sums over steps, none. Weights are the same in any case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from builders import float_results
from command import Command
from covey._core import Program
from covey._proto import program_pb2 as pb
from covey.clear import ClearSession
from covey.emit import HEADER_BYTES, program_file
from covey.explanation import is_training, what_a_run_reveals
from covey.model import load
from covey.training.opening import steps_between
from covey.training.trainer import Epoch
from served import PROTOCOLS
from test_training import BATCH, compiled, minibatches, perceptron, table

EPOCHS, STEPS = 2, len(table()[0]) // BATCH
"""Passes over the table, and the steps of each."""

Run = tuple[list[Epoch], dict[str, np.ndarray]]


def trained(session: Any) -> Run:
    trainer = covey.Trainer(session)
    return list(trainer.fit(*table(), EPOCHS)), trainer.weights()


def in_the_clear(open_losses: int | None, **options: Any) -> Run:
    job = compiled(perceptron(), table(), open_losses=open_losses, **options)
    return trained(ClearSession(load(job.compiled)))


@pytest.fixture(scope="module")
def each() -> Run:
    """What a job comes to whose losses open in each step."""
    return in_the_clear(1)


@pytest.mark.parametrize("steps", [2, 3, STEPS, STEPS * EPOCHS, 1000])
def test_sums_open_after_so_many_steps_and_are_exact(each: Run, steps: int) -> None:
    due = [loss for epoch in each[0] for loss in epoch.losses]
    windows = [due[start : start + steps] for start in range(0, len(due) - steps + 1, steps)]
    found, weights = in_the_clear(steps)
    assert [loss for epoch in found for loss in epoch.losses] == [float(np.mean(window)) for window in windows]
    assert sum(epoch.labels for epoch in found) == BATCH * steps * len(windows)
    if steps == STEPS:
        assert [epoch.right for epoch in found] == [epoch.right for epoch in each[0]]
        assert [epoch.accuracy for epoch in found] == [epoch.accuracy for epoch in each[0]]
    assert all((weights[name] == each[1][name]).all() for name in each[1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("steps", [3, None])
def test_every_protocol_opens_the_same(each: Run, protocol: str, steps: int | None) -> None:
    job = compiled(perceptron(), table(), open_losses=steps)
    due = in_the_clear(steps)
    with covey.local(protocol) as parties:
        found, weights = trained(parties.session(job.compiled))
    assert [epoch.losses for epoch in found] == [epoch.losses for epoch in due[0]]
    assert [epoch.right for epoch in found] == [epoch.right for epoch in due[0]]
    assert all((weights[name] == each[1][name]).all() for name in each[1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_outputs_are_0_in_all_other_steps(protocol: str) -> None:
    job = compiled(perceptron(), table(), open_losses=4)
    steps = minibatches(job, table(), EPOCHS)[:9]
    due = ClearSession(load(job.compiled)).infer_all(steps).results
    with covey.local(protocol) as parties:
        runs = parties.session(job.compiled).infer_all(steps).results
    for step, (run, same) in enumerate(zip(runs, due, strict=True)):
        assert set(run.integers) == {"losses_of_4_steps", "right_of_4_steps"}
        assert all((run.integers[name] == same.integers[name]).all() for name in run.integers)
        assert (run.integers["losses_of_4_steps"].item() > 0) == (step in (3, 7))
        assert step in (3, 7) or run.integers["right_of_4_steps"].item() == 0


def test_a_sum_of_labels_holds_more_than_calibration_had() -> None:
    """Each label is that of the smallest score in calibration, and of the largest in training."""
    x, _ = table()
    scores = float_results(perceptron(), {"x": x.astype(np.float32)})[0]
    worst, best = scores.argmin(1), scores.argmax(1)
    job = compiled(perceptron(), (x, worst), open_losses=5, optimizer=covey.SGD(1e-5))
    (epoch,) = covey.Trainer(ClearSession(load(job.compiled))).fit(x, best, 1)
    assert epoch.right == epoch.labels == BATCH * 5 * (STEPS // 5)


def test_a_job_that_opens_no_loss_computes_none() -> None:
    due, job = (compiled(perceptron(), table(), open_losses=steps) for steps in (1, None))
    program = load(job.compiled).program
    assert program.outputs == [] and len(program.nodes) < len(load(due.compiled).program.nodes)
    (epoch, _), _ = trained(ClearSession(load(job.compiled)))
    assert (epoch.loss, epoch.right, epoch.accuracy, epoch.losses, epoch.steps) == (None, None, None, [], STEPS)
    # In floating point the losses are known: a learning rate that is too large is still refused.
    with pytest.raises(covey.DataError, match="smaller learning rate"):
        compiled(perceptron(), table(), open_losses=None, optimizer=covey.SGD(1e4))


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (1, "means over a minibatch, under weights that earlier ones shaped: they tell"),
        (5, "and open as sums over 5 steps, 0 in between: they tell"),
        (None, "weights that open tell about the records that they were trained on"),
    ],
)
def test_explain_says_what_opens(steps: int | None, says: str) -> None:
    revealed = covey.explain(compiled(perceptron(), table(), open_losses=steps).compiled, "trio").reveals
    assert any(says in line for line in revealed), revealed
    assert ("to nobody: a run opens nothing" in revealed) == (steps is None)


def test_a_continued_run_opens_what_it_would_have(each: Run, tmp_path: Path) -> None:
    """From a checkpoint in the middle of a sum."""
    job = compiled(perceptron(), table(), open_losses=4)
    path = job.compiled.save(tmp_path / "job.covey")[0]
    due = [epoch.losses for epoch in trained(ClearSession(load(job.compiled)))[0]]
    with covey.local("trio") as parties:
        covey.Client(parties.owner_config).share_weights(path)
        found = []
        for epochs in (1, EPOCHS):
            with covey.Client(parties.client_config).session(path) as session:
                trainer = covey.Trainer(session, checkpoints=tmp_path / "run.json", every=3)
                found += [epoch.losses for epoch in trainer.fit(*table(), epochs)]
    assert found == due


@pytest.mark.parametrize(
    "outputs",
    [["losses"], ["loss", "scores"], ["losses_of_0_steps"], ["loss", "right_of_2_steps"], ["right"],
     ["losses_of_3_steps", "right_of_2_steps"], ["losses_of_3_steps", "right"], ["loss", "right", "right"]],
)  # fmt: skip
def test_other_outputs_are_of_no_training_job(outputs: list[str]) -> None:
    with pytest.raises(ValueError, match="not the outputs of a training job"):
        steps_between(outputs)


def test_an_outputs_name_alone_says_nothing() -> None:
    """A program that opens the loss of each step is not said to open sums, whatever it calls them."""
    message = pb.Program.FromString(compiled(perceptron(), table()).compiled.program_bytes[HEADER_BYTES:])
    for output, name in zip(message.outputs, ("losses_of_5_steps", "right_of_5_steps"), strict=True):
        message.values[output].name = name
    program = Program(program_file(message, "renamed")[0])
    assert not is_training(program)
    assert not any("sums" in line for line in what_a_run_reveals(program))


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "epoch", True, 1 << 17])
def test_steps_that_make_no_sum_are_refused(wrong: Any) -> None:
    with pytest.raises(covey.OptionError, match=r"losses over .* steps: give a number of .* 1 to 65536, or open none"):
        compiled(perceptron(), table(), open_losses=wrong)


def test_the_command(command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", table()[0])
    np.save(tmp_path / "y.npy", table()[1])
    (tmp_path / "m.onnx").write_bytes(perceptron().SerializeToString())
    call = ["train", tmp_path / "m.onnx", "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy"]
    call += ["--batch", BATCH, "--epochs", EPOCHS, "--protocol", "clear", "--open-losses"]
    said = command.succeeds(*call, "epoch").out
    assert said.count("loss ") == said.count("right") == EPOCHS
    pytest.importorskip("matplotlib")
    picture = tmp_path / "losses.png"
    command.succeeds(*call, "3", "--plot", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    command.refuses(*call, "never", "--plot", picture, saying="opens no losses")
    said = command.succeeds(*call, "never").out
    assert "loss" not in said and said.count(f"{STEPS} steps") == EPOCHS
    compiled_call = [*call, "epoch", "--steps-per-epoch", 7]
    command.succeeds(*compiled_call, "--compile", tmp_path / "job.covey")
    assert Program(tmp_path / "job.covey").outputs[0]["name"] == "losses_of_7_steps"
    command.refuses(*compiled_call, saying="--steps-per-epoch is for --compile")
    command.refuses(*call, "often", saying="use step, epoch, never or a number of steps")
    command.refuses(*call, "0", saying="losses over 0 steps: give a number of steps from 1 to 65536, or open none")
    command.refuses(*call, "9" * 5000, saying="is unknown: use step, epoch")


def test_what_needs_an_output_says_so(command: Command, tmp_path: Path) -> None:
    job = compiled(perceptron(), table(), open_losses=None)
    path = job.compiled.save(tmp_path / "job.covey")[0]
    (minibatch,) = minibatches(job, table())[:1]
    np.savez(tmp_path / "x.npz", **minibatch)
    run = ["run", path, "--protocol", "clear", "--input", tmp_path / "x.npz"]
    command.succeeds(*run)
    command.refuses(*run, "--output", tmp_path / "y.npy", saying="opens no output")
    command.refuses("verify", path, "--data", tmp_path / "x.npz", "--protocol", "clear", saying="opens no output")
    call = ["train", path, "--data", "x.npy", "--labels", "y.npy", "--protocol", "clear", "--open-losses", "step"]
    command.refuses(*call, saying="--open-losses is part of the job")
