"""Data sets that parties keep: training on their rows equals training on the samples; what cannot be used is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import covey
from command import Command
from covey.clear import ClearSession
from covey.model import load
from covey.parties import Parties
from covey.training.shared import rows_of
from test_training import compiled, perceptron, table


@pytest.fixture(scope="module")
def job() -> covey.Job:
    return compiled(perceptron(), table())


@pytest.fixture(scope="module")
def file(job: covey.Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return job.compiled.save(tmp_path_factory.mktemp("job") / "job.covey")[0]


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


def share(parties: Parties, file: Path, name: str, rows: slice) -> None:
    samples, labels = table()
    with covey.Client(parties.client_config).session(file) as session:
        kept = session.share_data(name, rows_of(session.program, samples[rows], labels[rows]))
        assert kept.rows == len(labels[rows])


def test_training_on_rows_equals_training_on_the_samples(every: Parties, file: Path, job: covey.Job) -> None:
    samples, labels = table()
    clear = covey.Trainer(ClearSession(load(job.compiled)))
    due = [epoch.losses for epoch in clear.fit(samples, labels, 2, seed=3)]
    # Smaller than a minibatch, and the rest.
    share(every, file, "few", slice(0, 5))
    share(every, file, "most", slice(5, None))
    client = covey.Client(every.client_config)
    with client.session(file) as session:
        trainer = covey.Trainer(session)
        epochs = list(trainer.fit(covey.SharedData(["few", "most"]), epochs=2, seed=3))
        weights = trainer.weights()
    assert [epoch.losses for epoch in epochs] == due
    wanted = clear.weights()
    assert all(np.array_equal(weights[name], wanted[name]) for name in wanted)
    kept = client.data_sets()
    assert {entry["data_set"]["name"] for entry in kept} == {"few", "most"}
    assert len({entry["party"] for entry in kept}) == len(kept) // 2 >= 2
    # Also by its owner's key; and then nowhere, where the owner is a party itself, too.
    key = kept[0]["data_set"]["owner"]
    with client.session(file) as session:
        with pytest.raises(covey.CoveyError, match="no data set 'fwe'"):
            session.attach(["fwe"])
        assert [one.rows for one in session.attach([f"{key}/few"])] == [5]
    assert all(entry["data_sets"] == 1 for entry in client.delete_data(file, "few"))
    assert {entry["data_set"]["name"] for entry in client.data_sets()} == {"most"}


def test_a_run_on_data_sets_continues_on_the_same_versions(three: Parties, file: Path, tmp_path: Path) -> None:
    share(three, file, "records", slice(None))
    run, shared = tmp_path / "run.json", covey.SharedData(["records"])

    def trainer_of(session: covey.client.Session) -> covey.Trainer:
        return covey.Trainer(session, checkpoints=run, every=3)

    with covey.Client(three.client_config).session(file) as session:
        first = list(trainer_of(session).fit(shared, epochs=1))
    with covey.Client(three.client_config).session(file) as session:
        trainer = trainer_of(session)
        assert trainer.taken == first[0].steps
        second = list(trainer.fit(shared, epochs=2))
        continued = trainer.weights()
    with covey.Client(three.client_config).session(file) as session:
        trainer = covey.Trainer(session)
        whole = list(trainer.fit(shared, epochs=2))
        undisturbed = trainer.weights()
    assert first[0].losses + second[0].losses == [loss for epoch in whole for loss in epoch.losses]
    assert all(np.array_equal(continued[name], undisturbed[name]) for name in undisturbed)
    share(three, file, "records", slice(None))
    with covey.Client(three.client_config).session(file) as session, pytest.raises(covey.DataError, match="other data"):
        trainer_of(session).fit(shared, epochs=3)


def test_the_commands_share_list_train_and_delete(command: Command, three: Parties, file: Path, tmp_path: Path) -> None:
    samples, labels = table()
    np.save(tmp_path / "x.npy", samples)
    np.save(tmp_path / "y.npy", labels)
    data = ("--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy")
    config = ("--config", three.client_config)
    out = json.loads(command.succeeds("data", "share", file, "mine", *data, *config, "--json").out)
    assert (out["name"], out["rows"]) == ("mine", len(labels))
    listed = json.loads(command.succeeds("data", "list", *config, "--json").out)
    mine = [entry for entry in listed if entry["data_set"]["name"] == "mine"]
    assert len(mine) == 3 and {entry["data_set"]["version"] for entry in mine} == {out["version"]}
    assert "mine" in command.succeeds("data", "list", *config).out
    trained = command.succeeds("train", file, "--data-set", "mine", *config, "--out", tmp_path / "w.npz", "--json")
    assert json.loads(trained.out.splitlines()[0])["steps"] > 0
    assert (tmp_path / "w.npz").exists() and f"{len(labels):,} rows of 'mine' of covey:" in trained.err
    host = ("--config", three.parties[0].config)
    assert any(
        entry["data_set"]["name"] == "mine"
        for entry in json.loads(command.succeeds("data", "list", *host, "--json").out)
    )
    command.refuses("data", "delete", file, "mine", *config, saying="add --yes")
    assert "1 data set(s) deleted" in command.succeeds("data", "delete", file, "mine", *config, "--yes").out
    assert "nothing was there" in command.succeeds("data", "delete", file, "mine", *config, "--yes").out


def test_bad_data_sets_are_named(command: Command, three: Parties, file: Path, job: covey.Job, tmp_path: Path) -> None:
    samples, labels = table()
    np.save(tmp_path / "x.npy", samples)
    np.save(tmp_path / "y.npy", labels)
    np.save(tmp_path / "bad.npy", np.full_like(labels, 99))
    data, config = ("--data", tmp_path / "x.npy"), ("--config", three.client_config)
    share_it = ("data", "share", file, "mine", *data, *config)
    command.refuses(*share_it, saying="is a training job: give --labels")
    command.refuses(*share_it, "--labels", tmp_path / "bad.npy", saying="hold 99 in sample 0")
    command.refuses(*share_it, "--labels", tmp_path / "y.npy", "--allow", "covey:12", saying="fingerprint")
    train = ("train", file, *config)
    command.refuses(*train, "--data-set", "unknown", saying="no data set 'unknown'")
    command.refuses(*train, "--data-set", "mine", *data, saying="without --data and --labels")
    command.refuses("train", file, "--data-set", "mine", "--local", saying="--data-set is for a compiled job")
    command.refuses(*train, saying="give --data x.npy and --labels y.npy")
    with pytest.raises(covey.OptionError, match="protocol clear has no parties"):
        covey.Trainer(ClearSession(load(job.compiled))).fit(covey.SharedData(["mine"]))
    with pytest.raises(covey.OptionError, match="name the data sets in a list"):
        covey.SharedData("mine")
    share(three, file, "few", slice(0, 2))
    with covey.Client(three.client_config).session(file) as session:
        trainer = covey.Trainer(session)
        with pytest.raises(covey.DataError, match="have 2 rows, and a minibatch takes"):
            trainer.fit(covey.SharedData(["few"]))
        with pytest.raises(covey.OptionError, match="labels of their own"):
            trainer.fit(covey.SharedData(["few"]), labels)
        with pytest.raises(covey.DataError, match="lacks the input"):
            session.share_data("rows", {"labels": labels})
        with pytest.raises(covey.CoveyError, match="has shape"):
            session.share_data("rows", {**rows_of(session.program, samples, labels), "labels": labels[:, None, None]})


def test_damaged_data_sets_are_warned_of(command: Command, three: Parties, file: Path) -> None:
    client, party = ("--config", three.client_config), three.parties[1]
    folder = party.config.parent / "state"
    before = set(folder.glob("data-sets/*.rows"))
    share(three, file, "damaged", slice(0, 5))
    (rows,) = set(folder.glob("data-sets/*.rows")) - before
    rows.write_bytes(b"rubbish" + rows.read_bytes()[7:])
    named = f"state file data-sets/{rows.name} is corrupted (it does not begin as one): remove it, and have its owner"
    listed = command.succeeds("data", "list", *client, "--json")
    (warning,) = [line for line in listed.err.splitlines() if line.startswith("warning: ")]
    assert warning.startswith(f"warning: beta: {named}") and str(folder) not in listed.err
    kept = [entry for entry in json.loads(listed.out) if entry["data_set"]["name"] == "damaged"]
    assert {entry["party"] for entry in kept} == {"alpha", "gamma"}
    with pytest.warns(UserWarning, match=re.escape(f"beta: {named}")):
        covey.Client(three.client_config).data_sets()
    # On the party's host, from the daemon and from the folder.
    for host, party_name in ((("--config", party.config), "beta: "), (("--state", folder), "")):
        assert f"warning: {party_name}{named}" in command.succeeds("data", "list", *host, "--json").err
    refusal = command.refuses("train", file, "--data-set", "damaged", *client, saying="beta")
    assert named in refusal and str(folder) not in refusal
    assert all(entry["data_sets"] == 1 for entry in covey.Client(three.client_config).delete_data(file, "damaged"))
    assert "warning" not in command.succeeds("data", "list", *client).err
