"""Offline material of parties: correlated OTs of two, of which the data owner may be one; stored runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import covey
from command import DIGITS, Command
from covey.clear import run_clear
from covey.client import Client
from covey.inputs import read_inputs
from covey.model import load


def test_the_data_owner_is_a_party_and_has_a_store(command: Command, digits: Path) -> None:
    images = np.load(DIGITS / "test-images.npy")[:1]
    model = load(digits)
    due = run_clear(model, read_inputs(images, model.program)).integers
    plan = json.loads(command.succeeds("explain", digits, "--protocol", "two-party", "--json").out)
    with covey.local("two-party", timeout=5, data_owner_computes=True) as parties:
        assert [party.name for party in parties.parties] == ["alpha"]
        Client(parties.owner_config).share_weights(digits, protocol="two-party")
        client = Client(parties.client_config)
        made = client.infer(digits, images, protocol="two-party")

        show = ["store", "show", digits, "--config", parties.client_config, "--json"]
        assert json.loads(command.succeeds(*show).out)["inferences"] == 0
        filled = command.succeeds("store", "fill", digits, "--config", parties.client_config, "--inferences", 2)
        assert "2 more inference(s)" in filled.out
        before = json.loads(command.succeeds(*show).out)
        assert before["inferences"] >= 2

        stored = client.infer(digits, images, protocol="two-party")
        after = json.loads(command.succeeds(*show).out)
        assert after["inferences"] == before["inferences"] - 1
        used = [was - now for was, now in zip(before["batches"][0], after["batches"][0], strict=True)]
        assert used == plan["correlated_ots"]
    rows = {node.name: node for node in stored.profile.nodes} if stored.profile else {}
    taken = rows["correlated randomness"]
    # Each session's key for the layers by lattice encryption.
    assert taken.op == "from the store" and [(row["from"], row["to"], row["messages"]) for row in taken.links] == [
        (1, 0, 1)
    ]
    assert made.profile is not None and stored.profile is not None
    material = next(node for node in made.profile.nodes if node.name == "correlated randomness")
    planned = next(node for node in plan["nodes"] if node["name"] == "correlated randomness")
    key = ("from", "to", "bytes", "messages")
    assert [[row[k] for k in key] for row in material.links] == [[row[k] for k in key] for row in planned["links"]]
    assert material.messages > 0
    assert stored.profile.total.bytes == made.profile.total.bytes - material.bytes + taken.bytes
    for result in (made, stored):
        assert {name: values.tolist() for name, values in result.integers.items()} == {
            name: values.tolist() for name, values in due.items()
        }


def test_products_of_masks_are_kept(command: Command, digits: Path) -> None:
    images = np.load(DIGITS / "test-images.npy")[:1]
    due = {name: values.tolist() for name, values in run_clear(load(digits), images).integers.items()}
    with covey.local("two-party", timeout=5) as parties:
        Client(parties.owner_config).share_weights(digits, protocol="two-party")
        client = Client(parties.client_config)
        given = [digits, "--config", parties.client_config]
        filled = command.succeeds("store", "fill", *given, "--inferences", 2, "--preprocess-linear")
        assert "correlated OTs and products of masks for 2 more inference(s)" in filled.out
        shown = json.loads(command.succeeds("store", "show", *given, "--json").out)
        assert shown["inferences"] >= 2 and shown["linear"] == [2]
        assert "in store for 2 of them with --preprocess-linear" in command.succeeds("store", "show", *given).out
        for party in parties.parties:
            party.kill()
            party.spawn()
            party.wait_until_ready()
        stored = client.infer(digits, images, protocol="two-party", preprocess_linear=True)
        # Not for sessions that compute these layers online.
        online = client.infer(digits, images, protocol="two-party")
        assert json.loads(command.succeeds("store", "show", *given, "--json").out)["linear"] == [1]
    plan = covey.explain(digits, "two-party", preprocess_linear=True).to_json()
    sent = sum(link["bytes"] for node in plan["nodes"] for link in node["links"] if not link["offline"])
    for result in (stored, online):
        assert {name: values.tolist() for name, values in result.integers.items()} == due
    assert stored.profile is not None and online.profile is not None
    assert (stored.profile.total.offline_bytes, stored.profile.total.bytes) == (0, sent)
    assert online.profile.total.bytes > 2 * sent


def test_a_data_owner_who_is_a_party_keeps_products_of_masks(command: Command, digits: Path) -> None:
    images = np.load(DIGITS / "test-images.npy")[:1]
    due = {name: values.tolist() for name, values in run_clear(load(digits), images).integers.items()}
    with covey.local("two-party", timeout=5, data_owner_computes=True) as parties:
        Client(parties.owner_config).share_weights(digits, protocol="two-party")
        given = [digits, "--config", parties.client_config]
        command.succeeds("store", "fill", *given, "--inferences", 3, "--preprocess-linear")
        show = ["store", "show", *given, "--json"]
        assert json.loads(command.succeeds(*show).out)["linear"] == [3]
        # Another process of the data owner's has the folder open: this one makes what it needs, and no run is lost.
        client = Client(parties.client_config)
        with client.session(digits, protocol="two-party", preprocess_linear=True) as session:
            stored = session.infer(images)
            script = (
                "import sys, numpy, covey; from covey.client import Client; "
                "x = numpy.load(sys.argv[3])[:1]; "
                "r = Client(sys.argv[1]).infer(sys.argv[2], x, protocol='two-party', preprocess_linear=True); "
                "print(r.profile.total.offline_bytes > 0, {n: v.tolist() for n, v in r.integers.items()})"
            )
            arguments = [script, str(parties.client_config), str(digits), str(DIGITS / "test-images.npy")]
            other = subprocess.run([sys.executable, "-c", *arguments], capture_output=True, text=True, timeout=60)
            assert (other.returncode, other.stdout.strip()) == (0, f"True {due}"), other.stderr
            again = session.infer(images)
        # What the client's process keeps open is its own, so a process that ends gives it back.
        assert {name: values.tolist() for name, values in again.integers.items()} == due
        assert json.loads(command.succeeds(*show).out)["linear"] == [1]
        deleted = json.loads(command.succeeds("store", "delete", digits, *given[1:], "--yes", "--json").out)
        assert [report["runs"] for report in deleted] == [1, 1]
        assert json.loads(command.succeeds(*show).out)["linear"] == []
    assert stored.profile is not None and stored.profile.total.offline_bytes == 0
    assert {name: values.tolist() for name, values in stored.integers.items()} == due


def test_what_cannot_be(command: Command, digits: Path) -> None:
    with pytest.raises(covey.CoveyError, match="cannot be a party of trio"), covey.local(data_owner_computes=True):
        pass
    outcome = command.succeeds("explain", digits, "--protocol", "two-party", "--round-bits", 4)
    assert "rounded to multiples of 2^4" in outcome.out and "correlated OTs: " in outcome.out
    assert " P2" not in outcome.out, "the client is no party"
    rounded = json.loads(command.succeeds("explain", digits, "--round-bits", 4, "--json").out)
    exact = json.loads(command.succeeds("explain", digits, "--json").out)
    assert rounded["total"]["rounds"] > exact["total"]["rounds"]


@pytest.mark.parametrize("protocol", ["beaver", "trio", "quad"])
def test_runs_are_dealt_ahead_and_counted(command: Command, digits: Path, protocol: str) -> None:
    images = np.load(DIGITS / "test-images.npy")[:1]
    model = load(digits)
    due = {name: values.tolist() for name, values in run_clear(model, images).integers.items()}
    plan = json.loads(command.succeeds("explain", digits, "--protocol", protocol, "--json").out)
    with covey.local(protocol, timeout=5) as parties:
        Client(parties.owner_config).share_weights(digits, protocol=protocol)
        client = Client(parties.client_config)
        given = [digits, "--config", parties.client_config, "--protocol", protocol]
        assert json.loads(command.succeeds("store", "show", *given, "--json").out)["batches"] == []
        filled = json.loads(command.succeeds("store", "fill", *given, "--inferences", 3, "--json").out)
        dealt = sum(link["bytes"] for node in plan["nodes"] for link in node["links"] if link["offline"])
        assert filled["bytes"] == 3 * dealt
        assert "3 inference(s) of 1 sample(s)" in command.succeeds("store", "show", *given).out
        # Without --protocol, it is that of the parties that the file lists.
        unnamed = command.succeeds("store", "show", *given[:3], "--json").out
        assert json.loads(unnamed) == {"protocol": protocol, "inferences": 3, "batch": 1, "batches": [3], "others": []}
        elsewhere = command.succeeds("store", "show", *given[:3], "--batch", 2).out
        assert "0 inference(s) of 2 sample(s)" in elsewhere
        assert "also in store: 3 inference(s) of 1 sample(s)" in elsewhere and "--batch 1 --round-bits 0" in elsewhere
        refusal = f"is not what two-party takes: leave --protocol out, or use {protocol}"
        command.refuses("store", "show", *given[:3], "--protocol", "two-party", saying=refusal)
        for party in parties.parties:
            party.kill()
            party.spawn()
            party.wait_until_ready()
        stored = client.infer(digits, images, protocol=protocol)
        assert json.loads(command.succeeds("store", "show", *given, "--json").out)["batches"] == [2]
        for other in (["--batch", 2], ["--round-bits", 3]):
            shown = json.loads(command.succeeds("store", "show", *given, *other, "--json").out)
            assert (shown["inferences"], shown["batches"]) == (0, [])
    assert stored.profile is not None
    rows = {node.name: node for node in stored.profile.nodes}
    assert rows["correlated randomness"].op == "from the store" and stored.profile.total.offline_bytes == 0
    assert {name: values.tolist() for name, values in stored.integers.items()} == due
    command.refuses("store", "show", digits, "--config", "x.toml", "--protocol", "clear", saying="clear has no parties")


def test_stored_runs_need_no_dealer(command: Command, digits: Path, tmp_path: Path) -> None:
    images = np.load(DIGITS / "test-images.npy")[:1]
    np.save(tmp_path / "x.npy", images)
    due = {name: values.tolist() for name, values in run_clear(load(digits), images).integers.items()}
    with covey.local("beaver", timeout=4) as parties:
        Client(parties.owner_config).share_weights(digits, protocol="beaver")
        client = Client(parties.client_config)
        given = [digits, "--config", parties.client_config, "--protocol", "beaver"]
        command.succeeds("store", "fill", *given, "--inferences", 2)
        dealer = parties.parties[-1]
        dealer.kill()
        outcome = command.succeeds("infer", *given, "--input", tmp_path / "x.npy")
        (line,) = [line for line in outcome.err.splitlines() if line.startswith("warning: dealer: cannot be reached")]
        assert "2 of 1 sample(s)" in line and "start the dealer by then" in line
        assert "1 inference(s) of 1 sample(s)" in command.succeeds("store", "show", *given).out
        command.refuses("store", "fill", *given, saying="the dealer is absent")
        with pytest.warns(UserWarning, match=r"left: 1 of 1 sample"):
            alone = client.infer(digits, images, protocol="beaver")
        assert {name: values.tolist() for name, values in alone.integers.items()} == due
        line = command.refuses(
            "infer", *given, "--input", tmp_path / "x.npy", saying="it has no stored runs of program"
        )
        assert "dealer: cannot be reached" in line
        dealer.spawn()
        dealer.wait_until_ready()
        with client.session(digits, "beaver") as session:
            assert session.absent_dealer is None
            again = session.infer(images)
        assert {name: values.tolist() for name, values in again.integers.items()} == due
