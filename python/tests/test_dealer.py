"""Any number of parties and a dealer: on this machine, by the remote commands, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import covey
from command import DIGITS, Command
from covey.clear import run_clear
from covey.client import Client
from covey.model import load
from covey.parties import write_configuration

DEALER_ENTRY = 'role = "dealer"\n'


def links(node: dict[str, Any]) -> list[tuple[Any, ...]]:
    return sorted((row["offline"], row["from"], row["to"], row["bytes"]) for row in node["links"])


@pytest.mark.parametrize("count", [2, 3])
def test_parties_and_a_dealer_compute_the_same(
    command: Command, digits: Path, images: np.ndarray, tmp_path: Path, count: int
) -> None:
    explained = command.succeeds("explain", digits, "--protocol", "beaver", "--parties", count, "--batch", 2, "--json")
    plan = json.loads(explained.out)
    due = {name: values.tolist() for name, values in run_clear(load(digits), images[:2]).integers.items()}
    with covey.local("beaver", parties=count, timeout=5) as parties:
        assert [party.name for party in parties.parties] == [*("alpha", "beta", "gamma")[:count], "dealer"]
        joint = parties.run(digits, images[:2])
        parties.preprocess(load(digits), 2)
        online = parties.run(digits, images[:2], phase="online")
        for result in (joint, online):
            assert {name: values.tolist() for name, values in result.integers.items()} == due
        assert joint.profile is not None and online.profile is not None
        assert online.profile.total.offline_bytes == 0
        planned = {node["name"]: links(node) for node in plan["nodes"] if node["links"]}
        assert {node.name: links({"links": node.links}) for node in joint.profile.nodes if node.links} == planned
        # What the dealer sends, it sends ahead; nobody sends it anything.
        met = [link for node in joint.profile.nodes for link in node.links]
        assert any(link["from"] == count for link in met)
        assert all(link["offline"] for link in met if link["from"] == count)
        assert not [link for link in met if link["to"] == count]

        np.save(tmp_path / "x.npy", images[:2])
        shared = command.succeeds("share-weights", "--config", parties.owner_config, digits, "--protocol", "beaver")
        assert "dealer " in shared.out and f"P{count - 1} " in shared.out and f"P{count} " not in shared.out
        infer = ["infer", "--config", parties.client_config, digits, "--protocol", "beaver", "--input", "x.npy"]
        infer[-1] = str(tmp_path / "x.npy")
        outputs = json.loads(command.succeeds(*infer, "--json").out)["outputs"]
        expected = run_clear(load(digits), images[:2]).outputs
        assert {name: entry["values"] for name, entry in outputs.items()} == {
            name: values.tolist() for name, values in expected.items()
        }
        findings = json.loads(command.succeeds("doctor", "--config", parties.client_config, "--json").out)
        assert not [finding for finding in findings if finding["verdict"] == "error"]


def test_a_killed_dealer_is_named_and_may_come_back(digits: Path, images: np.ndarray) -> None:
    with covey.local("beaver", timeout=3) as parties:
        parties.run(digits, images[:1])
        dealer = parties.parties[-1]
        dealer.kill()
        with pytest.raises(covey.CoveyError, match="dealer"):
            parties.run(digits, images[:1])
        dealer.spawn()
        dealer.wait_until_ready()
        due = run_clear(load(digits), images[:1]).integers
        again = parties.run(digits, images[:1]).integers
        assert {name: values.tolist() for name, values in again.items()} == {
            name: values.tolist() for name, values in due.items()
        }


def test_configurations_without_or_with_the_wrong_dealer(command: Command, digits: Path, tmp_path: Path) -> None:
    x = DIGITS / "test-images.npy"
    parties = write_configuration(tmp_path, ("alpha", "beta", "dealer"), 5.0)
    client = tmp_path / "data-owner" / "client.toml"
    sound = client.read_text()
    infer = ["infer", "--config", client, digits, "--input", x, "--protocol"]
    assert sound.count(DEALER_ENTRY) == 1
    client.write_text(sound.replace(DEALER_ENTRY, ""))
    command.refuses(
        *infer, "beaver", saying='lists no dealer, which beaver needs: add its [[party]] with role = "dealer"'
    )
    client.write_text(sound)
    command.refuses(*infer, "trio", saying="trio has no dealer, and 'dealer' is listed as one: remove its [[party]]")
    alone = sound.replace(sound[sound.index("[[party]]") : sound.index("[[party]]", sound.index("[[party]]") + 1)], "")
    client.write_text(alone)
    command.refuses(*infer, "beaver", saying="1 party and a dealer where beaver takes 2 to 8 and a dealer")
    command.refuses(
        "dealer", "--config", parties[0].config, saying="party.toml: party.role: this is a computing party's"
    )
    client.write_text(sound)
    with pytest.raises(covey.CoveyError, match="cannot be reached"):
        Client(client).infer(digits, np.load(x)[:1], protocol="beaver")


def test_the_number_of_parties_is_checked(command: Command, digits: Path) -> None:
    x = DIGITS / "test-images.npy"
    for call in (
        ["run", digits, "--input", x, "--local"],
        ["verify", digits],
        ["explain", digits],
        ["demo"],
        ["bench", "primitives"],
        ["bench", "model", "lenet5"],
    ):
        for count in (0, 1, 9):
            wrong = f"beaver takes 2 to 8 parties, not {count}"
            command.refuses(*call, "--protocol", "beaver", "--parties", count, saying=wrong)
        command.refuses(*call, "--parties", 3, saying="trio always has 3 parties: leave --parties out, or use beaver")
        wrong = "quad always has 4 parties: leave --parties out, or use beaver"
        command.refuses(*call, "--protocol", "quad", "--parties", 3, saying=wrong)
    command.refuses("demo", "--protocol", "clear", "--parties", 2, saying="clear has no parties")
    with pytest.raises(covey.OptionError, match="2 to 8"), covey.local("beaver", parties=9):
        pass


def test_what_is_said_of_the_parties(command: Command, digits: Path) -> None:
    for count in (None, 4):
        given = [] if count is None else ["--parties", count]
        out = command.succeeds("explain", digits, "--protocol", "beaver", *given).out
        last = (count or 2) - 1
        assert "the dealer, who holds no shares, pools nothing with any of them" in " ".join(out.split())
        assert f" P{last} " in out and f" P{last + 1} " not in out and " dealer " in out and " client " in out


def test_the_demo_of_three_parties_and_a_dealer(command: Command) -> None:
    outcome = command.succeeds("demo", "--protocol", "beaver", "--parties", 3)
    words = " ".join(outcome.out.split())
    assert "started 3 parties and a dealer with keys of their own" in words
    assert "0 of 450 outputs differ" in words
    assert "alpha, beta and gamma saw the program" in words and "The dealer saw the program" in words
