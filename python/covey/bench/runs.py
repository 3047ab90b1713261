"""Running a program again and again with the parties, and adding up what the runs took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from covey.bench.networks import NetworkProfile
from covey.bench.statistics import Summary
from covey.client import Progress
from covey.errors import OptionError
from covey.inputs import Data
from covey.model import Model
from covey.parties import Parties, local
from covey.result import NodeProfile, PartyUsage, Profile, Result, Work

BenchPhase = Literal["joint", "online", "stored"]
"""How a run comes by its offline material: in it, before it in its session, or from the parties' disks."""

PATIENCE = 120.0
"""Seconds a silent party is waited for: on a loaded machine a large layer may take a while."""

CHECK = "check"
"""The row of a profile that has what is compared before outputs are opened."""

OUTSIDE = ("inputs", CHECK, "outputs", "other")

MATERIAL = "correlated randomness"
"""Rows of a profile that are no node of the program."""


@dataclass(frozen=True)
class Runs:
    """What repetitions of one run gave. What parties used is in role order."""

    wall: Summary
    client_cpu_seconds: float
    cpu_seconds: list[float | None]
    peak_memory_bytes: list[int | None]
    gpu_memory_bytes: list[int | None]
    socket_bytes_sent: list[int]
    profile: Profile
    """Of the last repetition; `nodes_wall` has the others' times."""
    nodes_wall: Summary
    """Seconds in nodes of the program: sharing inputs and opening outputs stay out."""
    check_wall: Summary | None
    """Seconds in the check before outputs are opened, from when the last party comes to it; `None` without one."""
    preparations: list[Work]
    """What each repetition's preprocessing took, where it was done apart."""

    @property
    def preparation(self) -> Work | None:
        """What the last repetition's preprocessing took, where it was done apart."""
        return self.preparations[-1] if self.preparations else None

    @property
    def preparation_wall(self) -> Summary | None:
        """Seconds of preprocessing, where it was done apart."""
        return Summary.of([work.profile.seconds for work in self.preparations]) if self.preparations else None

    @property
    def preparation_cpu_seconds(self) -> list[float | None]:
        """Of one inference's preprocessing by party, in role order; empty where it was not done ahead."""
        return [_mean_cpu(party) for party in zip(*(work.parties for work in self.preparations), strict=True)]

    @property
    def total_preparation_cpu_seconds(self) -> float | None:
        """Of one inference's preprocessing, of all parties together; 0 where it was not done ahead."""
        return _total(self.preparation_cpu_seconds)

    @property
    def total_cpu_seconds(self) -> float | None:
        """Of all parties together, for one inference."""
        return _total(self.cpu_seconds)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        data: dict[str, Any] = {
            "wall_seconds": self.wall.to_json(),
            "nodes_wall_seconds": self.nodes_wall.to_json(),
            "check_wall_seconds": None if self.check_wall is None else self.check_wall.to_json(),
            "cpu_seconds": self.cpu_seconds,
            "client_cpu_seconds": self.client_cpu_seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "gpu_memory_bytes": self.gpu_memory_bytes,
            "socket_bytes_sent": self.socket_bytes_sent,
            "rounds": self.profile.total.rounds,
            "links": links(self.profile),
        }
        if self.preparation is not None and self.preparation_wall is not None:
            data["preprocessing"] = {
                "wall_seconds": self.preparation_wall.to_json(),
                "cpu_seconds": self.preparation_cpu_seconds,
                "links": links(self.preparation.profile),
            }
        return data


@contextmanager
def parties(
    protocol: str,
    network: NetworkProfile,
    options: Mapping[str, Any],
    progress: Progress | None = None,
    computing: int | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> Iterator[Parties]:
    """Parties on this machine, on a network, with a session's options. Raises `OptionError` for an unknown one.

    Roles stay unless the options say that they turn.
    """
    given = {**network.session, "roles": "fixed", **session_options(options)}
    with local(
        protocol,
        parties=computing,
        timeout=PATIENCE,
        network=network.options,
        options=given,
        device=device,
        threads=threads,
        progress=progress,
    ) as running:
        yield running


def session_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that were given. Raises `OptionError` for one this release has not."""
    from covey._core import SESSION_OPTIONS

    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in SESSION_OPTIONS:
            raise OptionError(f"sessions of this release have no option --{name.replace('_', '-')}: leave it out")
    return given


def repeat(
    running: Parties,
    model: Model,
    inputs: Data,
    *,
    batch: int,
    phase: BenchPhase = "joint",
    warm_up: int = 1,
    repetitions: int = 3,
    progress: Progress | None = None,
) -> tuple[Runs, Result]:
    """Run `warm_up` + `repetitions` times and sum up the latter; also the first result of all."""
    running.share(model, progress)
    results: list[Result] = []
    preparations: list[Work | None] = []
    client_cpu = 0.0
    for index in range(warm_up + repetitions):
        if progress is not None:
            what = "warm-up" if index < warm_up else f"repetition {index - warm_up + 1} of {repetitions}"
            progress(index, warm_up + repetitions, what)
        if phase != "joint":
            preparations.append(running.preprocess(model, batch, stored=phase == "stored"))
        started = time.process_time()
        # What was preprocessed is for all samples.
        at_once = None if phase == "joint" else batch
        results.append(running.run(model, inputs, phase="online" if phase == "online" else "joint", at_once=at_once))
        client_cpu += time.process_time() - started if index >= warm_up else 0.0
    counted = [work for work in preparations[warm_up:] if work is not None]
    return sum_up(results[warm_up:], client_cpu / repetitions, counted), results[0]


def sum_up(results: list[Result], client_cpu: float, preparations: list[Work]) -> Runs:
    """Repetitions of one run, their preprocessing and the client's mean processor seconds."""
    profiles = [result.profile for result in results if result.profile is not None]
    by_party = list(zip(*(result.parties for result in results), strict=True))
    checks = [node.milliseconds / 1e3 for profile in profiles for node in profile.nodes if node.name == CHECK]
    return Runs(
        wall=Summary.of([profile.seconds for profile in profiles]),
        client_cpu_seconds=client_cpu,
        cpu_seconds=[_mean_cpu(party) for party in by_party],
        peak_memory_bytes=[_most([run.peak_memory_bytes for run in party]) for party in by_party],
        gpu_memory_bytes=[_most([run.gpu_memory_bytes for run in party]) for party in by_party],
        socket_bytes_sent=[party[-1].socket_bytes_sent for party in by_party],
        profile=profiles[-1],
        nodes_wall=Summary.of([sum(node.milliseconds for node in nodes(profile)) / 1e3 for profile in profiles]),
        check_wall=Summary.of(checks) if checks else None,
        preparations=preparations,
    )


def _total(by_party: list[float | None]) -> float | None:
    known = [seconds for seconds in by_party if seconds is not None]
    return sum(known) if len(known) == len(by_party) else None


def _mean_cpu(runs: tuple[PartyUsage, ...]) -> float | None:
    # The system counts in hundredths of a second: only a mean resolves short runs.
    known = [run.cpu_seconds for run in runs if run.cpu_seconds is not None]
    return sum(known) / len(known) if len(known) == len(runs) else None


def _most(peaks: list[int | None]) -> int | None:
    return max((peak for peak in peaks if peak is not None), default=None)


def nodes(profile: Profile) -> list[NodeProfile]:
    """The program's own nodes."""
    return [node for node in profile.nodes if node.name not in OUTSIDE]


def links(profile: Profile) -> list[dict[str, Any]]:
    """Bytes and messages on every directed link, offline and online; the number after the parties' is the client's."""
    sums: dict[tuple[int, int], dict[str, Any]] = {}
    for link in profile.total.links:
        empty = {"from": link["from"], "to": link["to"], "offline_bytes": 0, "online_bytes": 0, "messages": 0}
        row = sums.setdefault((link["from"], link["to"]), empty)
        row["offline_bytes" if link["offline"] else "online_bytes"] += link["bytes"]
        row["messages"] += link["messages"]
    return [sums[key] for key in sorted(sums)]
