"""Which losses of a training job open: each step's, sums over steps, none. Weights are the same in any case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from command import Command
from covey.clear import ClearSession
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


def test_outputs_are_0_in_all_other_steps() -> None:
    job = compiled(perceptron(), table(), open_losses=4)
    session = ClearSession(load(job.compiled))
    runs = session.infer_all([*minibatches(job, table(), EPOCHS)][:9]).results
    assert set(runs[0].outputs) == {"losses_of_4_steps", "right_of_4_steps"}
    for step, run in enumerate(runs):
        opens = step in (3, 7)
        assert (run.outputs["losses_of_4_steps"].item() > 0) == opens
        assert opens or run.outputs["right_of_4_steps"].item() == 0


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


@pytest.mark.parametrize("outputs", [["losses"], ["loss", "scores"], ["losses_of_0_steps"]])
def test_other_outputs_are_of_no_training_job(outputs: list[str]) -> None:
    with pytest.raises(ValueError, match=outputs[-1]):
        steps_between(outputs)


def test_the_command(command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", table()[0])
    np.save(tmp_path / "y.npy", table()[1])
    (tmp_path / "m.onnx").write_bytes(perceptron().SerializeToString())
    call = ["train", tmp_path / "m.onnx", "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy"]
    call += ["--batch", BATCH, "--epochs", EPOCHS, "--protocol", "clear", "--open-losses"]
    said = command.succeeds(*call, "epoch").out
    assert said.count("loss ") == said.count("right") == EPOCHS
    said = command.succeeds(*call, "never").out
    assert "loss" not in said and said.count(f"{STEPS} steps") == EPOCHS
    command.refuses(*call, "often", saying="use step, epoch, never or a number of steps")
    command.refuses(*call, "0", saying="losses of 0 steps: give 1 to 65536, or None for none")
