"""What parties keep: `doctor` finds what `infer` would be refused for, `weights` and `store delete` take it away."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from command import Command
from covey.client import Client
from covey.model import load
from covey.parties import Parties


@pytest.fixture
def shared(digits: Path) -> Iterator[Parties]:
    """Three parties of their own that hold the digits network."""
    with covey.local("trio", timeout=5) as running:
        Client(running.owner_config).share_weights(digits)
        yield running


def infer(parties: Parties, digits: Path, folder: Path, images: np.ndarray) -> list[object]:
    np.save(folder / "x.npy", images[:1])
    return ["infer", digits, "--config", parties.client_config, "--input", folder / "x.npy"]


def state(parties: Parties, role: int) -> Path:
    return parties.parties[role].config.parent / "state"


def doctor(command: Command, config: Path) -> tuple[int, list[dict[str, Any]]]:
    outcome = command("doctor", "--config", config, "--json")
    return outcome.code, json.loads(outcome.out)


def test_doctor_and_infer_agree(
    shared: Parties, command: Command, digits: Path, tmp_path: Path, images: np.ndarray
) -> None:
    ask = infer(shared, digits, tmp_path, images)
    command.succeeds(*ask)
    code, findings = doctor(command, shared.client_config)
    (program,) = [finding["found"] for finding in findings if finding["what"] == "program"]
    assert code == 0 and "digits (" in program and "served with trio" in program
    # The file of one party's share is damaged under its serving daemon, then gone.
    (share,) = state(shared, 1).glob("*.share")
    sound = share.read_bytes()
    share.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    line = command.refuses("doctor", "--config", shared.client_config, saying="is corrupted")
    assert "digits (" in line and "beta" in line and "share the weights of this program again" in line
    assert share.name in command.refuses(*ask, saying="beta")
    share.unlink()
    command.refuses("doctor", "--config", shared.client_config, saying="beta: state file")
    command.refuses(*ask, saying="beta")
    share.write_bytes(sound)
    command.succeeds("doctor", "--config", shared.client_config)
    # The parties are listed in another order than when the weights were shared.
    other = tmp_path / "other"
    shutil.copytree(shared.client_config.parent, other)
    first, *entries = re.split(r"(?=\[\[party\]\])", (other / "client.toml").read_text())
    (other / "client.toml").write_text("".join([first, *reversed(entries)]))
    code, findings = doctor(command, other / "client.toml")
    errors = [finding for finding in findings if finding["verdict"] == "error"]
    assert code == 1 and len(errors) == 3
    assert all("digits" in error["found"] and "share the weights again" in error["found"] for error in errors)
    # One party serves this client no more.
    config = shared.parties[2].config
    config.write_text(config.read_text().replace('"infer", ', ""))
    shared.parties[2].kill()
    shared.parties[2].spawn()
    shared.parties[2].wait_until_ready()
    line = command.refuses("doctor", "--config", shared.client_config, saying="may not infer")
    assert "gamma" in line
    command.refuses(*ask, saying="may not infer")


def test_doctor_says_what_programs_take(
    shared: Parties, command: Command, digits: Path, tmp_path: Path, images: np.ndarray
) -> None:
    command.succeeds(*infer(shared, digits, tmp_path, images))
    command.succeeds("store", "fill", digits, "--config", shared.client_config, "--inferences", 2)
    _, findings = doctor(command, shared.owner_config)
    usage = [finding["usage"] for finding in findings if "usage" in finding]
    assert [entry["party"] for entry in usage] == ["alpha", "beta", "gamma"]
    for role, entry in enumerate(usage):
        (share,) = state(shared, role).glob("*.share")
        assert entry["share_bytes"] == share.stat().st_size
        assert entry["memory_bytes"] > 1000 and entry["run_memory"][1] > 1000
        files = [path for path in (state(shared, role) / "stored-runs").rglob("*") if path.is_file()]
        assert entry["runs_bytes"] == sum(path.stat().st_size for path in files) > 0
    # A data owner is told nothing of another client's program, but whether it is served.
    code, findings = doctor(command, shared.client_config)
    assert code == 0 and not [finding for finding in findings if "usage" in finding]
    # On a party's host its operator sees all, from the daemon or from the folder.
    party = shared.parties[0]
    code, findings = doctor(command, party.config)
    assert code == 0
    assert [f["usage"]["memory_bytes"] for f in findings if "usage" in f] == [usage[0]["memory_bytes"]]
    for config in (shared.owner_config, party.config):
        table = command.succeeds("doctor", "--config", config).out
        assert "what programs take" in table and all(len(line) <= 80 for line in table.splitlines()), table
    party.kill()
    _, findings = doctor(command, party.config)
    (offline,) = [finding["usage"] for finding in findings if "usage" in finding]
    assert offline["memory_bytes"] is None
    assert [offline[key] for key in ("share_bytes", "masks_bytes")] == [
        usage[0][key] for key in ("share_bytes", "masks_bytes")
    ]
    assert any(finding["what"] == "own daemon" and finding["verdict"] == "warning" for finding in findings)


def test_weights_are_listed_and_deleted(
    shared: Parties, command: Command, digits: Path, tmp_path: Path, images: np.ndarray
) -> None:
    program = load(digits).program
    command.succeeds("store", "fill", digits, "--config", shared.client_config, "--inferences", 2)
    owner = ["--config", shared.owner_config]
    listed = json.loads(command.succeeds("weights", "list", *owner, "--json").out)
    assert [(entry["party"], entry["role"]) for entry in listed] == [("alpha", 0), ("beta", 1), ("gamma", 2)]
    assert {entry["program"] for entry in listed} == {program.hash}
    assert {(entry["name"], entry["owner"], entry["protocol"]) for entry in listed} == {
        (program.name, "model-owner", "trio")
    }
    assert len({entry["weights_version"] for entry in listed}) == 1
    assert all(entry["share_bytes"] > 0 for entry in listed)
    table = command.succeeds("weights", "list", *owner).out
    assert program.name in table and program.hash[:12] in table and "model-owner" in table and "P2 gamma" in table
    # The data owner shared nothing, and sees and deletes nothing.
    assert command.succeeds("weights", "list", "--config", shared.client_config).out.startswith("no weights of yours")
    command.refuses("weights", "delete", digits, "--config", shared.client_config, "--yes", saying="may not share")
    command.refuses(
        "weights", "delete", program.name, "--config", shared.client_config, "--yes", saying="are kept for you"
    )
    # On a party's host.
    for place in (["--config", shared.parties[1].config], ["--state", state(shared, 1)]):
        (entry,) = json.loads(command.succeeds("weights", "list", *place, "--json").out)
        assert (entry["program"], entry["role"], entry["owner"]) == (program.hash, 1, "model-owner")

    command.refuses("weights", "delete", program.name, *owner, saying="--yes")
    shared.parties[2].kill()
    line = command.refuses("weights", "delete", program.name, *owner, "--yes", saying="gamma")
    assert "asked for again" in line
    shared.parties[2].spawn()
    shared.parties[2].wait_until_ready()
    again = command.succeeds("weights", "delete", program.hash[:8], *owner, "--yes").out
    assert again.splitlines() == [
        "alpha: nothing was there",
        "beta: nothing was there",
        "gamma: weights, 2 stored run(s) deleted",
    ]
    assert not [path for role in range(3) for path in state(shared, role).glob("*.share")]
    assert "nothing was there" in command.succeeds("weights", "delete", digits, *owner, "--yes").out
    command.refuses("weights", "delete", program.name, *owner, "--yes", saying="weights list")
    command.refuses(*infer(shared, digits, tmp_path, images), saying="holds no weights")


def test_what_is_ahead_is_deleted(
    shared: Parties, command: Command, digits: Path, tmp_path: Path, images: np.ndarray
) -> None:
    client = ["--config", shared.client_config]
    command.succeeds("store", "fill", digits, *client, "--inferences", 2)
    command.refuses("store", "delete", *client, "--yes", saying="--all")
    command.refuses("store", "delete", "--all", *client, saying="--yes")
    command.refuses("store", "delete", "--all", "--config", shared.owner_config, "--yes", saying="may not fill-store")
    deleted = json.loads(command.succeeds("store", "delete", digits, *client, "--yes", "--json").out)
    assert [(entry["name"], entry["runs"]) for entry in deleted] == [("alpha", 2), ("beta", 2), ("gamma", 2)]
    assert json.loads(command.succeeds("store", "show", digits, *client, "--json").out)["batches"] == []
    command.succeeds(*infer(shared, digits, tmp_path, images))
    # The operator, once the daemon is stopped.
    command.succeeds("store", "fill", digits, *client, "--inferences", 3)
    party = shared.parties[0]
    command.refuses("store", "delete", "--all", "--config", party.config, "--yes", saying="in use by another party")
    party.kill()
    gone = command.succeeds("store", "delete", "--all", "--config", party.config, "--yes").out
    assert "3 stored run(s) deleted" in gone
    command.refuses("store", "delete", "--all", "--state", tmp_path / "none", "--yes", saying="no such folder")
    party.spawn()
    party.wait_until_ready()
    assert command("doctor", *client).code == 0
    command.succeeds(*infer(shared, digits, tmp_path, images))


def test_correlated_ots_are_deleted_on_both_sides(command: Command, digits: Path, images: np.ndarray) -> None:
    with covey.local("two-party", timeout=5, data_owner_computes=True) as parties:
        Client(parties.owner_config).share_weights(digits, protocol="two-party")
        client = Client(parties.client_config)
        code, _ = doctor(command, parties.client_config)
        assert code == 0
        command.succeeds("store", "fill", digits, "--config", parties.client_config, "--inferences", 1)
        assert client.stored().batches
        deleted = client.delete_store()
        assert len(deleted) == 2 and deleted[0]["ots"] == deleted[1]["ots"] > 1000
        assert not client.stored().batches
        client.infer(digits, images[:1], protocol="two-party")


def test_damaged_files_are_warned_of_and_deleted_by_who_may(shared: Parties, command: Command, digits: Path) -> None:
    """What says of no program goes with none, and once the party's operator asks for what is damaged."""
    command.succeeds("store", "fill", digits, "--config", shared.client_config, "--inferences", 2)
    party, folder = shared.parties[1], state(shared, 1)
    party.kill()
    (share,), (material,) = folder.glob("*.share"), folder.glob("stored-runs/*/items.material")
    checkpoint = folder / "checkpoints" / "old.checkpoint"
    checkpoint.parent.mkdir(exist_ok=True)
    for path in (share, material, checkpoint):
        path.write_bytes(b"rubbish")
    named = {f"{path.parent.name}/{path.name}" for path in (share, material, checkpoint)}

    def warnings(*place: object) -> list[str]:
        lines = command.succeeds("weights", "list", *place, "--json").err.splitlines()
        return [line for line in lines if line.startswith("warning: ")]

    def names(lines: list[str]) -> set[str]:
        return {name for name in named if sum(name in line for line in lines) == 1}

    host = ("--config", party.config)
    assert names(warnings("--state", folder)) == named
    # A serving party tells its operator, and clients how many there are.
    party.spawn()
    party.wait_until_ready()
    command.succeeds("store", "show", digits, "--config", shared.client_config)
    _, findings = doctor(command, party.config)
    assert names([finding["found"] for finding in findings if finding["verdict"] == "warning"]) == named
    assert names(warnings(*host)) == named
    (told,) = [line for line in warnings("--config", shared.owner_config) if "beta" in line]
    assert told.startswith("warning: beta: 3 of the files and folders that it keeps cannot be read")
    command.refuses("store", "delete", "--damaged", "--config", shared.client_config, saying="on its host")
    command.refuses("store", "delete", "--damaged", "--all", *host, saying="--all or --damaged")
    command.refuses("store", "delete", "--damaged", *host, "--yes", saying="in use by another party")
    party.kill()
    assert "weights deleted" in command.succeeds("weights", "delete", digits, *host, "--yes").out
    assert not share.exists() and material.exists() and checkpoint.exists()
    assert names(warnings(*host)) == named - {f"{folder.name}/{share.name}"}
    deleted = command.succeeds("store", "delete", "--damaged", *host, "--yes").out
    assert "2 damaged batch(es) or file(s) deleted" in deleted
    assert not material.parent.exists() and not checkpoint.exists() and not warnings(*host)
