"""Checkpoints of training runs: continued runs equal undisturbed ones to the bit; what cannot be continued is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import covey
from command import Command
from covey.clear import ClearSession
from covey.model import load
from covey.parties import Parties
from covey.training.patience import again_until
from test_training import compiled, perceptron, table

EPOCHS = 2
"""Of 10 steps each."""


@pytest.fixture(scope="module")
def job() -> covey.Job:
    """All of which the number of a step decides: its learning rate, what is dropped, how weights are rounded."""
    optimizer = covey.SGD(0.1, momentum=0.9, schedule=covey.schedules.cosine(15, warmup=3))
    options = {"optimizer": optimizer, "dropout": True, "stochastic_rounding": True}
    return compiled(perceptron(dropout=0.25), table(), **options)


@pytest.fixture(scope="module")
def file(job: covey.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job.compiled.save(tmp_path_factory.mktemp("job") / "job.covey")[0]


@pytest.fixture(scope="module")
def due(job: covey.Job) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and weights of an undisturbed run in the clear."""
    trainer = covey.Trainer(ClearSession(load(job.compiled)))
    losses = [loss for epoch in trainer.fit(*table(), EPOCHS) for loss in epoch.losses]
    return losses, trainer.weights()


@pytest.fixture(scope="module", params=["trio", "quad", "beaver", "two-party"])
def every(request: pytest.FixtureRequest, file: Path) -> Iterator[Parties]:
    with covey.local(request.param, timeout=60) as running:
        covey.Client(running.owner_config).share_weights(file)
        yield running


@pytest.fixture(scope="module")
def three(file: Path) -> Iterator[Parties]:
    with covey.local("trio", timeout=10) as running:
        covey.Client(running.owner_config).share_weights(file)
        yield running


class StoppedError(Exception):
    """The data owner's process ends."""


def train(parties: Parties, file: Path, run: Path, stop: int | None = None, every: int = 3) -> tuple[list, dict, int]:
    """Train, or stop after so many steps of the run: epochs, weights, and the step that this began after."""

    def progress(done: int, total: int, text: str) -> None:
        if done == stop:
            raise StoppedError

    with covey.Client(parties.client_config).session(file) as session:
        trainer = covey.Trainer(session, checkpoints=run, every=every)
        start = trainer.taken
        epochs = list(trainer.fit(*table(), EPOCHS, progress=progress))
        weights = trainer.weights()
        trainer.forget()
    return epochs, weights, start


def interrupted(parties: Parties, file: Path, run: Path, stop: int) -> None:
    with pytest.raises(StoppedError):
        train(parties, file, run, stop)


def checkpoints(parties: Parties, role: int) -> list[Path]:
    return sorted((parties.parties[role].config.parent / "state" / "checkpoints").glob("*.checkpoint"))


def test_a_continued_run_equals_an_undisturbed_one_in_every_protocol(
    every: Parties, file: Path, due: tuple[list, dict], tmp_path: Path
) -> None:
    run = tmp_path / "run.json"
    interrupted(every, file, run, 3)
    interrupted(every, file, run, 10)
    assert json.loads(run.read_text())["kept"] == 9  # the process ended before the parties were asked again
    assert run.stat().st_mode & 0o777 == 0o600
    epochs, weights, start = train(every, file, run)
    assert start == 9
    assert [epoch.number for epoch in epochs] == [1, 2]
    # Steps of an epoch, and those whose bytes and time it tells of.
    assert [(epoch.steps, epoch.taken) for epoch in epochs] == [(10, 1), (10, 10)]
    assert 10 * epochs[0].rounds == epochs[1].rounds
    assert [loss for epoch in epochs for loss in epoch.losses] == due[0]
    assert weights.keys() == due[1].keys()
    for name, array in due[1].items():
        np.testing.assert_array_equal(weights[name], array)
    assert not run.exists() and not any(checkpoints(every, role) for role in range(len(every.parties)))


def test_parties_that_start_again_continue_too(
    three: Parties, file: Path, due: tuple[list, dict], tmp_path: Path
) -> None:
    run = tmp_path / "run.json"
    interrupted(three, file, run, 10)
    for party in three.parties:
        party.kill()
        party.spawn()
        party.wait_until_ready()
    # One party died before it had written the last checkpoint.
    last = max(checkpoints(three, 1), key=lambda path: path.stat().st_mtime_ns)
    last.unlink()
    epochs, weights, start = train(three, file, run)
    assert start == 6 and [loss for epoch in epochs for loss in epoch.losses] == due[0]
    for name, array in due[1].items():
        np.testing.assert_array_equal(weights[name], array)


def test_a_run_of_more_epochs_goes_on_from_the_end(three: Parties, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    losses = []
    for epochs in (1, 3):
        with covey.Client(three.client_config).session(file) as session:
            trainer = covey.Trainer(session, checkpoints=run, every=50)
            losses += [loss for epoch in trainer.fit(*table(), epochs) for loss in epoch.losses]
            assert trainer.taken == 10 * epochs
            if epochs == 3:
                trainer.forget()
    clear = covey.Trainer(ClearSession(load(file)))
    assert losses == [loss for epoch in clear.fit(*table(), 3) for loss in epoch.losses]


def test_weights_that_open_within_the_loop_leave_the_checkpoints_as_they_are(
    three: Parties, file: Path, due: tuple[list, dict], tmp_path: Path
) -> None:
    run = tmp_path / "run.json"
    with covey.Client(three.client_config).session(file) as session:
        trainer = covey.Trainer(session, checkpoints=run, every=3)
        epochs = trainer.fit(*table(), EPOCHS)
        next(epochs)
        trainer.weights()
        with pytest.raises(covey.OptionError, match="the weights opened, which ended this training"):
            next(epochs)
    epochs, weights, start = train(three, file, run)
    assert start == 9 and [loss for epoch in epochs for loss in epoch.losses] == due[0]
    for name, array in due[1].items():
        np.testing.assert_array_equal(weights[name], array)


def test_a_data_owner_that_is_a_party_keeps_its_part(file: Path, due: tuple[list, dict], tmp_path: Path) -> None:
    with covey.local("two-party", timeout=60, data_owner_computes=True) as running:
        covey.Client(running.owner_config).share_weights(file)
        interrupted(running, file, tmp_path / "run.json", 10)
        epochs, weights, start = train(running, file, tmp_path / "run.json")
    assert start == 9 and [loss for epoch in epochs for loss in epoch.losses] == due[0]
    for name, array in due[1].items():
        np.testing.assert_array_equal(weights[name], array)


def test_what_cannot_be_continued_is_named(three: Parties, file: Path, job: covey.Job, tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    interrupted(three, file, run, 3)
    good = run.read_text()
    x, labels = table()

    def refused(saying: str, data: tuple = (x, labels), seed: int = 0) -> None:
        with covey.Client(three.client_config).session(file) as session, pytest.raises(covey.CoveyError, match=saying):
            list(covey.Trainer(session, checkpoints=run).fit(*data, EPOCHS, seed=seed))

    refused("began with other data or labels: give the same", (x + 0.01, labels))
    refused("began with seed 0: give the same", seed=1)
    for broken in (
        "",
        "[]",
        "{}",
        good.replace('"kept": 3', '"kept": 300'),
        good.replace('"version": 2', '"version": 3'),
    ):
        run.write_text(broken)
        refused("describes no training run")
    run.write_text(good.replace(json.loads(good)["program"], "0" * 64))
    refused("is a run of another training job")
    run.write_text(good)
    with covey.Client(three.client_config).session(file) as session, pytest.raises(covey.CoveyError, match="by fit"):
        covey.Trainer(session, checkpoints=run).step(x[:4], labels[:4])
    with pytest.raises(covey.CoveyError, match="protocol clear has no parties"):
        covey.Trainer(ClearSession(load(job.compiled)), checkpoints=run)
    with (
        covey.Client(three.client_config).session(file) as session,
        pytest.raises(covey.CoveyError, match="is no folder: make it"),
    ):
        covey.Trainer(session, checkpoints=tmp_path / "none" / "run.json")
    # A checkpoint that is damaged, then none at one party, then none at all.
    (kept,) = checkpoints(three, 2)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1])
    refused("is corrupted")
    assert all(len(checkpoints(three, role)) == 1 for role in range(3)), "nothing is erased for it"
    kept.unlink()
    refused("no checkpoint in common of the run .*gamma has not the one that others have")
    assert len(checkpoints(three, 0)) == 1
    for role in (0, 1):
        checkpoints(three, role)[0].unlink()
    refused("no party has any")
    run.unlink()


def test_a_first_checkpoint_that_not_all_wrote_is_begun_anew(three: Parties, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    interrupted(three, file, run, 3)
    entries = json.loads(run.read_text())
    run.write_text(json.dumps({**entries, "kept": 0}))
    checkpoints(three, 2)[0].unlink()
    with covey.Client(three.client_config).session(file) as session:
        assert covey.Trainer(session, checkpoints=run).taken == 0
    assert json.loads(run.read_text())["job"] != entries["job"]
    with covey.Client(three.client_config).session(file) as session:
        session.forget(entries["job"])


def test_newer_weights_see_no_checkpoint_of_older_ones(three: Parties, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    interrupted(three, file, run, 3)
    name = json.loads(run.read_text())["job"]
    with covey.Client(three.client_config).session(file) as session:
        assert session.resume(name).runs == 3
        assert session.resume("0" * 32) == covey.client.Resumption(None)
        with pytest.raises(covey.CoveyError, match="names no job"):
            session.resume("job")
    covey.Client(three.owner_config).share_weights(file)
    assert not checkpoints(three, 0)
    with covey.Client(three.client_config).session(file) as session:
        assert session.resume(name) == covey.client.Resumption(None)
        with pytest.raises(covey.CoveyError, match="begin a new sequence first"):
            session.keep(name)


def test_the_command_continues_and_tells_of_mistakes(
    three: Parties, file: Path, due: tuple[list, dict], tmp_path: Path, command: Command
) -> None:
    x, labels = table()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    run, out = tmp_path / "run.json", tmp_path / "trained.npz"
    asked = ["train", file, "--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--checkpoints", run]
    command.refuses(*asked, "--local", saying="--checkpoints are for parties that last")
    asked += ["--config", three.client_config]
    command.succeeds(*asked, "--epochs", 1)
    started = json.loads(run.read_text())
    findings = json.loads(command.succeeds("doctor", "--config", three.owner_config, "--json").out)
    assert all(found["usage"]["checkpoints_bytes"] > 500 for found in findings if "usage" in found)
    assert "kept" in command.succeeds("doctor", "--config", three.owner_config).out
    line = command.refuses(*asked, "--epochs", EPOCHS, "--seed", 6, saying="began with seed 0")
    assert "latest checkpoint" not in line
    # A copy from before the steps: JSON that any reader takes, whose losses are not known.
    run.write_text(json.dumps({**started, "kept": 0, "losses": [], "right": []}))
    older = command.succeeds(*asked, "--epochs", EPOCHS)
    assert "step 10 is the latest checkpoint" in older.err and "epoch 2" in older.out and "epoch 1" not in older.out
    assert f"'{run}' is an older copy: the losses of 10 steps are not in it" in older.err
    losses = json.loads(run.read_text(), parse_constant=pytest.fail)["losses"]
    assert losses[:10] == [None] * 10 and losses[10:] == due[0][10:]
    assert "is left" not in older.err
    # A run that is complete tells its last epoch again.
    (last,) = map(json.loads, command.succeeds(*asked, "--epochs", EPOCHS, "--json").out.splitlines())
    assert (last["number"], last["steps"], last["taken"], last["losses"]) == (EPOCHS, 10, 0, due[0][10:])
    again = command.succeeds(*asked, "--epochs", EPOCHS, "--out", out)
    assert f"no step of {EPOCHS} epoch(s) is left" in again.err and "step 20 is the latest checkpoint" in again.err
    assert re.fullmatch(r"epoch 2  loss \d\.\d{4}  \d+\.\d% right  10 steps \(0 of them now\)\n", again.out)
    with np.load(out) as found:
        for name, array in due[1].items():
            np.testing.assert_array_equal(found[name], array.astype(np.float32))
    assert not run.exists()


def test_patience_is_for_parties_that_were_lost_after_a_session_opened() -> None:
    lost, refused = covey.PartyLostError("lost"), covey.CoveyError("refused")
    ended: list[str] = []

    def attempts(*ends: tuple[bool, Exception | None], begun: bool = False) -> tuple[int, list[str]]:
        """How many of these attempts (does its session open, how does it end) are made, and what is said."""
        left, said = list(ends), []

        def attempt(opened: Callable[[], None]) -> None:
            is_open, error = left.pop(0)
            if is_open:
                opened()
            if error is not None:
                raise error

        try:
            again_until(attempt, 30, lambda: 0, said.append, begun=begun)
            ended.append("well")
        except covey.CoveyError as error:
            ended.append(str(error))
        return len(ends) - len(left), said

    assert attempts((True, None)) == (1, [])
    assert attempts((False, lost), (True, None)) == (1, []), "parties that were never there"
    assert attempts((True, refused), (True, None)) == (1, []), "a check that failed"
    assert attempts((True, lost), (True, None)) == (2, ["lost: trying again for 0.5 min"])
    waiting = ["lost: trying again for 0.5 min", "refused: trying again for 0.5 min"]
    assert attempts((True, lost), (False, refused), (True, None)) == (3, waiting)
    assert attempts((True, lost), (False, covey.OptionError("wrong")), (True, None)) == (2, waiting[:1])
    assert attempts((False, lost), (True, None), begun=True) == (2, waiting[:1])
    assert ended == ["well", "lost", "refused", "well", "well", "wrong", "well"]
