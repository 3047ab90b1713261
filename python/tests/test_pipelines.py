"""Lanes, pipelines switched on and off, and what benchmarks say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import covey
from command import Command
from covey import _core
from covey.bench import calibrate, mpc_pipe, pipelines, roles
from covey.bench.networks import NETWORKS, network
from covey.bench.papers import find
from covey.bench.pipelines import ALL, NONE, VARIANTS, bed
from covey.clear import run_clear
from covey.client import Client, mini_batches
from covey.errors import OptionError
from covey.model import load
from covey.models import ImageSpec
from covey.parties import Parties


def silent(done: int, total: int, what: str) -> None:
    del done, total, what


def test_lanes_give_the_results_of_one_lane_in_order(parties: Parties, digits: Path, images: np.ndarray) -> None:
    model = load(digits)
    parties.share(model)
    with Client(parties.client_config).session(model, lanes=3) as session:
        done = session.infer_all([images[i : i + 2] for i in range(0, 10, 2)])
        joined = session.infer_split(images[:9], 3)
        assert len(done.latencies) == 5 and max(done.latencies) <= done.work.profile.seconds
    due = parties.run(digits, images[:10])
    (name,) = due.integers
    one_by_one = np.concatenate([result.integers[name] for result in done.results])
    np.testing.assert_array_equal(one_by_one, due.integers[name])
    np.testing.assert_array_equal(joined.integers[name], due.integers[name][:9])
    np.testing.assert_array_equal(joined.outputs[name], due.outputs[name][:9])


def test_turned_roles_load_all_parties_alike(
    command: Command, digits: Path, parties: Parties, images: np.ndarray, tmp_path: Path
) -> None:
    model = load(digits)
    parties.share(model)
    with Client(parties.client_config).session(model, lanes=3, roles="turned") as session:
        joined = session.infer_split(images[:9], 3)
    due = parties.run(digits, images[:9])
    (name,) = due.integers
    np.testing.assert_array_equal(joined.integers[name], due.integers[name])
    np.save(tmp_path / "x.npy", images[:3])
    run = ("run", digits, "--input", tmp_path / "x.npy", "--local", "--roles", "turned")
    command.succeeds(*run, "--protocol", "quad", "--lanes", 3)
    command.refuses(*run, saying="--roles turned changes roles from lane to lane: say --lanes")
    command.refuses(*run, "--protocol", "two-party", "--lanes", 2, saying="--roles turned is for trio or quad")
    command.refuses(*run[:-1], "fixed", "--protocol", "clear", saying="--roles is for private runs")
    command.refuses(*run[:-1], "round", saying="--roles cannot be 'round': use fixed or turned")


@pytest.mark.parametrize("protocol", ["trio", "quad"])
def test_fixed_and_turned_roles_are_compared(protocol: str, tmp_path: Path) -> None:
    with bed(ImageSpec("lenet5", "mnist", "max"), tmp_path, silent, protocol=protocol, ring="32") as made:
        (pair,) = roles.measure(made, [NETWORKS["loopback"]], 1, silent)
    assert pair.fixed.all_bytes == pair.turned.all_bytes
    # Of three parties each sends a third of everything, of four a quarter.
    assert pair.turned.interface_bytes * len(pair.turned.cpu_seconds) == pair.turned.all_bytes
    assert pair.fixed.interface_bytes > 1.3 * pair.turned.interface_bytes
    assert pair.ratios.median > 0
    json.dumps(pair.to_json())


def test_samples_that_do_not_go_into_lanes_evenly(
    command: Command, digits: Path, parties: Parties, images: np.ndarray, tmp_path: Path
) -> None:
    program = covey.Program(digits)
    parts = mini_batches(images[:6], program, 3)
    assert [next(iter(part.values())).shape[0] for part in parts] == [2, 2, 2]
    with pytest.raises(OptionError, match="7 samples do not go into 2 lanes evenly"):
        mini_batches(images[:7], program, 2)
    parties.share(load(digits))
    with Client(parties.client_config).session(digits, lanes=3) as session:
        for count in (7, 2):
            due = run_clear(load(digits), images[:count]).integers
            for name, found in session.infer_split(images[:count]).integers.items():
                np.testing.assert_array_equal(found, due[name])
        session.preprocess(7)
        with pytest.raises(OptionError, match="7 samples do not go into 3 lanes evenly"):
            session.infer_split(images[:7], phase="online")
    np.save(tmp_path / "x.npy", images[:2])
    run = ("run", digits, "--input", tmp_path / "x.npy", "--lanes", 2)
    command.refuses(*run, "--protocol", "clear", saying="--lanes is for private runs")
    out = json.loads(command.succeeds(*run, "--local", "--profile", "--json").out)
    nodes = out["profile"]["nodes"]
    assert any(node["waiting_milliseconds"] > 0 for node in nodes)


def test_each_pipeline_on_a_small_network(tmp_path: Path) -> None:
    spec = ImageSpec("lenet5", "mnist", "max")
    with bed(spec, tmp_path, silent, ring="32") as made:
        loopback = NETWORKS["loopback"]
        rows = pipelines.table(made, [loopback], VARIANTS, 1, silent)
        assert [row.variant.name for row in rows] == [variant.name for variant in VARIANTS]
        plan = json.loads(_core.plan(made.model.program, "beaver", 1, parties=2))
        weights = sum(link["bytes"] for link in plan["weights"]["links"])
        assert weights > 2 * 4 * 50_000
        for row in rows:
            openings = 0 if row.variant.inter_linear else weights
            assert row.bytes == rows[-1].bytes + openings, row.variant.name
            assert row.computing_seconds > 0 and row.per_minute > 0 and row.link_use is None
            assert len(row.core_use) == 2
            json.dumps(row.to_json())
        slow = made.measure(NONE, network("0.01g"), 1, silent)
        assert slow.waiting_seconds > slow.computing_seconds and slow.link_use is not None and slow.link_use > 0.5
        # As long as it computes: the rate follows from the bytes of one direction.
        assert pipelines.balanced(replace(slow, computing_seconds=1e-3)) is None
        slow = replace(slow, computing_seconds=1.0)
        at = pipelines.balanced(slow)
        assert at is not None and at.megabits is not None
        left = 1.0 - slow.rounds * at.round_trip_ms / 2e3
        links = [link for node in slow.nodes for link in node.links if (link["from"], link["to"]) == (0, 1)]
        assert at.megabits == pytest.approx(sum(link["bytes"] for link in links) * 8 / left / 1e6)


def test_calibration_keeps_the_usual_unless_another_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Fake:
        def measure(self, variant, network, repetitions, progress, options=None):  # type: ignore[no-untyped-def]
            asked.append(dict(options or {}))
            given = options or {}
            seconds = {1 << 16: 0.5, 1 << 14: 1.0}.get(given.get("tile", 0), 0.99) - 0.001 * given.get("lanes", 0)

            class Row:
                computing_seconds, rounds, nodes, seconds_each = 1.0, 10, [], seconds
                latency = type("Latency", (), {"least": seconds, "median": seconds})()

            return Row()

    monkeypatch.setattr(calibrate, "balanced", lambda row: network("1g"))
    result = calibrate.calibrate(Fake(), None, 1, silent)  # type: ignore[arg-type]
    assert result.options == {"tile": 1 << 16, "window": 16, "lanes": 1}
    assert asked[-1] == {"tile": 1 << 16, "window": 16, "lanes": 3}


def test_the_commands(command: Command, tmp_path: Path) -> None:
    arguments = ("bench", "pipelines", "lenet5", "--ring", "32", "--repetitions", 1, "--cache", tmp_path)
    data = json.loads(command.succeeds(*arguments, "--network", "1g", "--brief", "--json").out)
    assert [row["variant"]["name"] for row in data["rows"]] == ["none", "inter-linear and inner-layer", "all"]
    assert all(0 < row["link_use"] < 1.2 for row in data["rows"])
    command.refuses(*arguments, "--network", "fast", saying="or a rate in Gbit/s such as 2.5g")
    command.refuses("bench", "paper", "mpc-pipe-figure5", saying="mpc-pipe-figure1")


def test_rates_as_networks() -> None:
    assert network("2.5g").megabits == 2500 and network("2.5g").round_trip_ms == 0.3
    for wrong in ("0g", "g", "2.5", "-1g", "1e3g"):
        with pytest.raises(OptionError, match="such as"):
            network(wrong)


def test_every_preset_has_a_title_and_is_found() -> None:
    assert len(mpc_pipe.PRESETS) == 17
    for name in mpc_pipe.PRESETS:
        assert find(name).title.startswith("MPC-Pipe")
    assert ALL in VARIANTS
