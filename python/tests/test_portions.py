"""Requests of many samples, computed in several runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import covey
from command import Command
from covey import portions
from covey.client import Client
from covey.errors import OptionError
from covey.model import load
from covey.parties import Parties
from covey.result import NodeProfile, Profile


def test_runs_differ_by_one_sample_in_each_lane_at_most(digits: Path) -> None:
    program = covey.Program(digits)

    def sizes(samples: int, at_once: int, lanes: int = 1) -> list[int]:
        return portions.portions(program, "trio", samples, at_once, lanes=lanes)

    assert sizes(450, 450) == [450]
    assert sizes(450, 100) == [90] * 5
    assert sizes(10, 4) == [4, 3, 3]
    assert sizes(3, 1) == [1, 1, 1]
    assert sizes(12, 5, lanes=2) == [4, 4, 4]
    assert sizes(18, 8, lanes=2) == [6, 6, 6]
    # Which lanes do not divide is a run of its own.
    assert sizes(7, 2, lanes=2) == [2, 2, 2, 1]
    assert sizes(11, 100, lanes=4) == [8, 3]
    assert sizes(2, 100, lanes=3) == [2]
    with pytest.raises(OptionError, match="1 samples at once: give at least 2, one for each lane"):
        sizes(12, 1, lanes=2)


def test_what_fits_the_memory_of_a_party_is_one_run(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = covey.Program(digits)
    assert portions.portions(program, "trio", 450) == [450]
    monkeypatch.setattr(portions, "SMALL", 0)
    assert portions.portions(program, "trio", 450) == [450]

    def peak(batch: int) -> int:
        return max(json.loads(covey._core.plan(program, "trio", batch))["memory"])

    monkeypatch.setattr(portions, "AT_ONCE_BYTES", (peak(1) + peak(450)) // 2)
    sizes = portions.portions(program, "trio", 450)
    assert sum(sizes) == 450 and len(sizes) > 1
    assert peak(sizes[0]) <= 1.2 * portions.AT_ONCE_BYTES
    # Not even one fits: one at a time.
    monkeypatch.setattr(portions, "AT_ONCE_BYTES", 1)
    assert portions.portions(program, "trio", 5) == [1] * 5


def test_steps_of_one_name_stay_apart() -> None:
    def step(name: str, milliseconds: float) -> NodeProfile:
        return NodeProfile(name, "Pool", milliseconds, 1, 10, 20, [])

    runs = [Profile([step("pool", 1.0), step("pool", 2.0), step("last", 4.0)], 7.0)] * 2
    summed = Profile.summed(runs)
    assert [(node.name, node.milliseconds) for node in summed.nodes] == [("pool", 2.0), ("pool", 4.0), ("last", 8.0)]
    assert (summed.seconds, summed.total.bytes, summed.total.rounds) == (14.0, 180, 6)


def test_several_runs_give_the_result_of_one(parties: Parties, digits: Path, images: np.ndarray) -> None:
    whole = parties.run(digits, images[:10])
    parts = parties.run(digits, images[:10], at_once=4)
    (name,) = whole.integers
    np.testing.assert_array_equal(parts.integers[name], whole.integers[name])
    np.testing.assert_array_equal(parts.outputs[name], whole.outputs[name])
    assert whole.profile is not None and parts.profile is not None
    sizes = (4, 3, 3)
    runs = [parties.run(digits, images[:size]) for size in sizes]
    totals = [run.profile.total for run in runs if run.profile is not None]
    assert parts.profile.total.bytes == sum(total.bytes for total in totals)
    assert parts.profile.total.rounds == sum(total.rounds for total in totals)
    assert parts.profile.total.messages == sum(total.messages for total in totals)
    assert [node.name for node in parts.profile.nodes] == [node.name for node in whole.profile.nodes]
    assert [party.name for party in parts.parties] == [party.name for party in whole.parties]
    assert all(party.cpu_seconds is not None and party.peak_memory_bytes for party in parts.parties)


def test_lanes_share_what_is_under_way(parties: Parties, digits: Path, images: np.ndarray) -> None:
    model = load(digits)
    parties.share(model)
    told: list[tuple[int, int]] = []
    with Client(parties.client_config).session(model, lanes=2) as session:
        joined = session.infer_split(
            images[:12], 2, at_once=5, progress=lambda done, total, _: told.append((done, total))
        )
        with pytest.raises(OptionError, match="preprocessed takes all its samples at once"):
            session.infer_split(images[:12], 2, at_once=5, phase="online")
    (name,) = joined.integers
    np.testing.assert_array_equal(joined.integers[name], parties.run(digits, images[:12]).integers[name])
    assert told == sorted(told) and all(done <= total for done, total in told)


def test_the_command_takes_samples_at_once(command: Command, digits: Path, images: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", images[:7])
    run = ("run", digits, "--input", tmp_path / "x.npy")
    found = [json.loads(command.succeeds(*run, "--local", *more, "--json").out) for more in ((), ("--at-once", 3))]
    assert found[0]["outputs"] == found[1]["outputs"]
    command.refuses(*run, "--at-once", 3, "--protocol", "clear", saying="--at-once is for private runs")
