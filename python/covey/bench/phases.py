"""A model's phases interleaved in one run, against the same phases one after the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from covey.bench.model import Outcome, Setting, measure
from covey.bench.runs import CHECK
from covey.client import Progress
from covey.result import NodeProfile


@dataclass(frozen=True)
class Row:
    """One phase: medians of seconds, all parties' processor seconds, and payload on all links."""

    name: str
    wall: float
    spread: float | None
    cpu_seconds: float | None
    """`None` where it is not told apart: a check's is in the row above it."""
    bytes: int
    rounds: int
    section: bool = False
    """Whether it begins another part of the table."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        data = asdict(self)
        del data["section"]
        return data


@dataclass(frozen=True)
class Phases:
    """The same model with all phases in one run, and with preprocessing apart."""

    joint: Outcome
    separate: Outcome

    @property
    def rows(self) -> list[Row]:
        """Interleaved; then preprocessing, online, the check where there is one, and these together."""
        rows = [_whole("interleaved", self.joint)]
        if (check := _check(self.joint, "of it the check")) is not None:
            rows.append(check)
        runs = self.separate.runs
        online = _whole("online", self.separate)
        apart = []
        if runs.preparation is not None and runs.preparation_wall is not None:
            wall, work = runs.preparation_wall, runs.preparation.profile.total
            cpu = runs.total_preparation_cpu_seconds
            apart.append(Row("preprocessing", wall.median, wall.spread, cpu, work.bytes, work.rounds))
        check = _check(self.separate, "check")
        if check is None:
            apart.append(online)
        else:
            sent, rounds = online.bytes - check.bytes, online.rounds - check.rounds
            apart += [Row("online", online.wall - check.wall, None, online.cpu_seconds, sent, rounds), check]
        known = [row.cpu_seconds for row in apart if row.name != CHECK]
        together = Row(
            name="one after the other",
            wall=sum(row.wall for row in apart),
            spread=None,
            cpu_seconds=None if None in known else sum(seconds for seconds in known if seconds is not None),
            bytes=sum(row.bytes for row in apart),
            rounds=sum(row.rounds for row in apart),
            section=True,
        )
        return [*rows, replace(apart[0], section=True), *apart[1:], together]

    @property
    def ratio(self) -> float:
        """Seconds of the interleaved run over those of the phases one after the other."""
        rows = self.rows
        return rows[0].wall / rows[-1].wall

    @property
    def differing(self) -> int:
        """Output elements that differ from `clear`, of both."""
        return (self.joint.differing or 0) + (self.separate.differing or 0)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "rows": [row.to_json() for row in self.rows],
            "interleaved_over_separate": self.ratio,
            "interleaved": self.joint.to_json(),
            "separate": self.separate.to_json(),
        }


def measure_phases(setting: Setting, folder: Path, progress: Progress) -> Phases:
    """Run the model in both ways."""
    progress(0, 2, "phases interleaved")
    joint = measure(replace(setting, phase="joint", plaintext=False), folder, progress)
    progress(1, 2, "phases one after the other")
    return Phases(joint, measure(replace(setting, phase="online", plaintext=False), folder, progress))


def _whole(name: str, outcome: Outcome) -> Row:
    """A run as its client saw it."""
    wall, total = outcome.runs.wall, outcome.runs.profile.total
    return Row(name, wall.median, wall.spread, outcome.runs.total_cpu_seconds, total.bytes, total.rounds)


def _check(outcome: Outcome, name: str) -> Row | None:
    """The check before outputs are opened, of a protocol that has one."""
    wall = outcome.runs.check_wall
    node: NodeProfile | None = next((node for node in outcome.runs.profile.nodes if node.name == CHECK), None)
    if wall is None or node is None:
        return None
    return Row(name, wall.median, wall.spread, None, node.bytes, node.rounds)
