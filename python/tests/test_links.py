"""Sessions that know what connects the parties: their circuits, lanes and roles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import covey
from command import Command
from covey import _core, lanes
from covey.clear import run_clear
from covey.client import Client
from covey.config import client_toml, read
from covey.lanes import chosen, gain
from covey.model import load
from covey.parties import Parties
from covey.result import Result

SLOW = {"latency_us": 150, "bandwidth": 10**8}
FAST = {"latency_us": 100, "bandwidth": 10**10}


@pytest.fixture(scope="module")
def of_three(digits: Path) -> Iterator[Parties]:
    """Parties that hold the digits network, and nothing in store for others' tests to meet."""
    with covey.local("trio", timeout=5) as running:
        running.share(load(digits))
        yield running


def with_links(parties: Parties, lines: str) -> Path:
    """The data owner's file with these lines in `[links]`."""
    path = parties.client_config.with_name("links.toml")
    path.write_text(f"{parties.client_config.read_text()}\n[links]\n{lines}\n")
    return path


def sent(result: Result) -> list[int]:
    """Payload bytes by party."""
    assert result.profile is not None
    bytes_ = [0, 0, 0]
    for link in result.profile.total.links:
        if link["from"] < 3:
            bytes_[link["from"]] += link["bytes"]
    return bytes_


def test_roles_turn_where_links_decide(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = covey.Program(digits)
    for protocol, parties in (("trio", 3), ("quad", 4)):
        turned = {"lanes": parties, "roles": "turned"}
        assert chosen(program, protocol, 60, SLOW) == turned
        assert 1.1 < gain(program, protocol, 60, parties, SLOW) < 2
        # As many samples as lanes at least, and as many lanes as were asked for.
        assert chosen(program, protocol, parties, SLOW) == turned
        assert chosen(program, protocol, parties - 1, SLOW) == {}
        assert chosen(program, protocol, 60, {**SLOW, "lanes": 2}) == {"lanes": 2, "roles": "turned"}
        for never in ({**SLOW, "lanes": 0}, {**SLOW, "lanes": 1}, {**SLOW, "roles": "fixed"}, {"lanes": 3}, {}):
            assert chosen(program, protocol, 60, never) == {}
        assert chosen(program, protocol, None, {**SLOW, "lanes": 3}) == {}
        # Computation decides, or rounds: those of a run for the samples that are left over come on top.
        assert chosen(program, protocol, 60, FAST) == {} and gain(program, protocol, 60, parties, FAST) == 1
        assert chosen(program, protocol, 8, {**SLOW, "latency_us": 50_000}) == {}
        far = {"latency_us": 5000, "bandwidth": 2 * 10**6}
        even, uneven = (gain(program, protocol, parties + more, parties, far) for more in (0, 1))
        assert even > 1.4 and uneven < even - 0.2
        with monkeypatch.context() as patch:
            patch.setattr(lanes, "AT_ONCE_BYTES", 1000)
            assert chosen(program, protocol, 60, SLOW) == {}
    for protocol in ("two-party", "beaver", "clear", "none"):
        assert chosen(program, protocol, 60, SLOW) == {}


def test_a_session_chooses_lanes_and_roles_for_its_links(of_three: Parties, digits: Path, images: np.ndarray) -> None:
    due = run_clear(load(digits), images[:31])
    client = Client(with_links(of_three, "round_trip_ms = 0.3\nbandwidth_mbit = 100"))

    def infer(**options: object) -> Result:
        result = client.infer(digits, images[:31], **options)
        for name, integers in due.integers.items():
            np.testing.assert_array_equal(result.integers[name], integers)
        return result

    fixed, turned = sent(infer(roles="fixed")), sent(infer())
    assert max(fixed) > 1.3 * min(fixed)
    # The last of 31 samples is a run of its own.
    assert max(turned) < 1.1 * min(turned)
    assert sum(fixed) <= sum(turned) < 1.01 * sum(fixed)
    for unchosen in (
        Client(of_three.client_config).infer(digits, images[:31]),
        client.infer(digits, images[:4], at_once=2),
    ):
        assert max(sent(unchosen)) > 1.3 * min(sent(unchosen))
    with pytest.raises(covey.CoveyError, match="0 inferences at a time"):
        client.infer(digits, images[:6], lanes=0)
    for protocol, saying in (("clear", "clear computes in the open"), ("none", "'none'")):
        with pytest.raises(covey.CoveyError, match=saying):
            client.infer(digits, images[:6], protocol=protocol)
    with client.session(digits, lanes=2, latency_us=None) as session:
        session.fill_store(1)  # with roles as they are listed
        assert session.lanes == 2


def test_parties_without_room_keep_their_roles(
    of_three: Parties, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(with_links(of_three, "bandwidth_mbit = 100"))
    opened: list[object] = []

    class Refusing:
        def __init__(self, *arguments: object, **options: object) -> None:
            opened.append(options.get("roles"))
            if options.get("roles") == "turned":
                raise covey.CoveyError("no room for the weights; with roles fixed they are held in one form alone")

    monkeypatch.setattr(_core, "Session", Refusing)
    assert client.session(digits, samples=6).lanes == 1
    assert opened == ["turned", None]


def test_stored_runs_keep_the_roles_that_they_were_dealt_for(
    of_three: Parties, command: Command, digits: Path, images: np.ndarray
) -> None:
    slow = "bandwidth_mbit = 100"
    client = Client(with_links(of_three, slow))

    def lanes() -> int:
        with client.session(digits, samples=6) as session:
            return session.lanes

    assert lanes() == 3
    # What is stored for other links serves these no better than nothing.
    for links, of_session in (("round_trip_ms = 70", 3), (slow, 1)):
        with Client(with_links(of_three, links)).session(digits) as session:
            session.fill_store(6)
        with_links(of_three, slow)
        assert lanes() == of_session
    # So does what a call says, with the latency that sessions assume.
    with Client(of_three.client_config).session(digits, samples=6, bandwidth=10**8) as session:
        assert session.lanes == 1
    show = ("store", "show", digits, "--config", client.config, "--batch", 6)
    held = json.loads(command.succeeds(*show, "--json").out)
    assert held["inferences"] == 1 and held["others"]
    assert "for other links" in command.succeeds(*show).out
    used = client.infer(digits, images[:6])
    assert used.profile is not None and used.profile.total.offline_bytes == 0
    assert lanes() == 3


def test_circuits_suit_the_links(of_three: Parties, command: Command, digits: Path, images: np.ndarray) -> None:
    far = Client(with_links(of_three, "round_trip_ms = 70\nbandwidth_mbit = 1000"))
    results = [client.infer(digits, images[:2]) for client in (Client(of_three.client_config), far)]
    (name,) = results[0].integers
    np.testing.assert_array_equal(results[1].integers[name], results[0].integers[name])
    near, distant = (result.profile for result in results)
    assert near is not None and distant is not None
    assert distant.total.rounds < near.total.rounds and distant.total.bytes > near.total.bytes
    # What a call says goes before.
    said = far.infer(digits, images[:2], latency_us=100, bandwidth=10**10).profile
    assert said is not None and said.total.bytes == near.total.bytes
    for lines, problem in (
        ("round_trip_ms = -1", "links.round_trip_ms: a round trip is between 0 and 10000 milliseconds"),
        ("bandwidth = 100", "unknown field `bandwidth`"),
    ):
        config = with_links(of_three, lines)
        np.save(x := config.with_name("x.npy"), images[:2])
        assert "links.toml" in command.refuses("infer", digits, "--config", config, "--input", x, saying=problem)


def test_an_emulated_network_is_one_to_choose_for(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(client_toml("data", "key.pem", [], {"latency_ms": 35, "bandwidth_mbit": 1000}))
    assert read(path)["links"] == {"round_trip_ms": 70, "bandwidth_mbit": 1000}
    path.write_text(client_toml("data", "key.pem", [], {"latency_ms": 1}))
    assert read(path)["links"] == {"round_trip_ms": 2}
    path.write_text(client_toml("data", "key.pem", []))
    assert "links" not in read(path)


def test_doctor_says_how_far_parties_are(of_three: Parties, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(config: Path) -> dict[str, str]:
        findings = json.loads(command.succeeds("doctor", "--config", config, "--json").out)
        return {finding["what"]: finding["found"] for finding in findings}

    alpha = of_three.parties[0].config
    for name in ("beta", "gamma"):
        trip, unit = found(alpha)[f"{name}: round trip"].split()
        assert unit == "ms" and 0 < float(trip) < 1000
    with monkeypatch.context() as patch:
        patch.setattr(_core, "round_trips", lambda _: [71.2, None, 3.0])
        assert found(of_three.client_config)["links"].startswith("a round trip from here takes up to 71.2 ms")
        assert "links" not in found(with_links(of_three, "round_trip_ms = 70"))
        patch.setattr(_core, "round_trips", lambda _: [0.3, 0.3, 3.0])
        assert "links" not in found(of_three.client_config)
